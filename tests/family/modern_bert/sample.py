"""A small ModernBERT, for tests that try every model."""

from family.modern_bert.config import ModernBertConfig
from modeling.objectives.masked_lm import MaskedLM
from tests import samples

CONFIGS = {"modern_bert": ModernBertConfig(**samples.SIZES, local_attention=8)}
_WIDE = {"vocab_size": 3000, "hidden_size": 8, "num_hidden_layers": 2}
_WIDE |= {"num_attention_heads": 2, "intermediate_size": 8, "local_attention": 8}
COMPILED = {
    "local layers": samples.Compiled(MaskedLM(), ModernBertConfig(**_WIDE)),
}
DIVIDED = {
    "local layers": samples.Divided(
        MaskedLM,
        ModernBertConfig(
            **_WIDE | {"hidden_size": 16, "intermediate_size": 32},
            weights_range=0.6,
        ),
        "masked_lm_logits",
    )
}
ADAPTED = {
    "modern_bert": samples.Adapted(
        module="model.layers.#.attn.",
        targets={"Wqkv": 48},
        lacks="/head/",
        head=("classifier", "head.dense", "head.norm"),
        saved=("classifier", "head.dense", "head.norm"),
    )
}
# test_modern_bert_scripts.py has the others.
FINE_TUNED = {"modern_bert": ("TokenClassification", "MultipleChoice")}
FIRST_HEADS = {"modern_bert": 0.125}
WORD_TEACHERS = CONFIGS
