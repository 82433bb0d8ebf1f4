"""A small RoBERTa, for tests that try every model."""

from family.roberta.config import RobertaConfig
from tests import samples

CONFIGS = {"roberta": RobertaConfig(**samples.SIZES)}
STUDENTS = {"roberta/hf/masked_lm": [1]}
