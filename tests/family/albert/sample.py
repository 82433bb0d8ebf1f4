"""A small ALBERT, for tests that try every model."""

import dataclasses

from family.albert.encoder import AlbertConfig
from family.albert.sentence_order import MaskedLMSentenceOrder
from modeling.optimizers.table import OptimizerSettings
from tests import samples

CONFIGS = {"albert": AlbertConfig(**samples.SIZES, embedding_size=8)}
# With smaller weights, bfloat16 has no gradient for the bias of balanced labels.
_SHARED = {"num_hidden_layers": 2, "initializer_range": 0.05}
COMPILED = {
    "sentence order": samples.Compiled(
        MaskedLMSentenceOrder(),
        AlbertConfig(
            **dataclasses.asdict(samples.COMPILED_SIZES) | _SHARED, embedding_size=4
        ),
    )
}
# 0.6, through layers that are run twice, would enlarge what is rounded.
_TWICE = {"num_hidden_layers": 2, "initializer_range": 0.4}
DIVIDED = {
    "sentence order": samples.Divided(
        MaskedLMSentenceOrder,
        AlbertConfig(**samples.DIVIDED_SIZES | _TWICE, embedding_size=8),
        "masked_lm_logits",
        OptimizerSettings("lamb"),
    )
}
FINE_TUNED = {"albert": ("QuestionAnswering",)}
FIRST_HEADS = {"albert": 0.02}
