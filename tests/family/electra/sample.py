"""A small ELECTRA, for tests that try every model."""

import dataclasses

from family.electra.encoder import ElectraConfig
from family.electra.replaced_tokens import ReplacedTokens
from tests import samples

CONFIGS = {"electra": ElectraConfig(**samples.SIZES, embedding_size=8)}
COMPILED = {
    "replaced tokens": samples.Compiled(
        ReplacedTokens(0.5),
        ElectraConfig(**dataclasses.asdict(samples.COMPILED_SIZES), embedding_size=4),
    )
}
# Its sharper judgements would turn with the rounding of a sum.
_BLUNT = {"initializer_range": 0.1}
DIVIDED = {
    "replaced tokens": samples.Divided(
        lambda: ReplacedTokens(0.5),
        ElectraConfig(**samples.DIVIDED_SIZES | _BLUNT, embedding_size=8),
        "discriminator_logits",
    )
}
ADAPTED = {
    "electra": samples.Adapted(
        {"embedding_size": 16, "type_vocab_size": 2, "pooler_act": "gelu_erf"},
        # Only a classifier has a pooler.
        missing="electra/pooler/dense/bias",
    )
}
FINE_TUNED = {"electra": ("MultipleChoice",)}
STUDENTS = {"electra/hf/electra_masked_lm": [0]}
