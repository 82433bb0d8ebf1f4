"""A small RoBERTa, for tests that try every model."""

from family.roberta.config import RobertaConfig
from tests import samples

CONFIGS = {"roberta": RobertaConfig(**samples.SIZES)}
ADAPTED = {"roberta": samples.Adapted({"pad_token_id": 0})}
FIRST_HEADS = {"roberta": 0.02}
WORD_TEACHERS = CONFIGS
STUDENTS = {"roberta/hf/masked_lm": [1]}
