"""A small T5, for tests that try every model."""

import dataclasses

from family.t5.config import T5Config
from modeling.optimizers.table import OptimizerSettings
from tests import samples
from tests.family.t5 import t5

CONFIGS = {
    "t5": T5Config(9, 16, 2, 2, 16, attention_head_size=8, eos_token_id=3),
}
COMPILED = {"span corruption": samples.Compiled(t5.spans_of_records(), t5.OF_RECORDS)}
DIVIDED = {
    "span corruption": samples.Divided(
        t5.spans_of_records,
        dataclasses.replace(t5.OF_RECORDS, initializer_factor=2.0),
        "target_loss",
        OptimizerSettings("adafactor"),
    )
}
FINE_TUNED = {"t5": ("QuestionAnswering",)}
