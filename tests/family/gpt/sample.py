"""A small GPT, for tests that try every model."""

from family.gpt.encoder import GptConfig
from family.gpt.next_token import NextToken
from tests import samples

CONFIGS = {"gpt": GptConfig(**samples.SIZES)}
COMPILED = {"next token": samples.Compiled(NextToken(), GptConfig(3000, 8, 1, 2))}
_SIZES = {k: v for k, v in samples.DIVIDED_SIZES.items() if k != "type_vocab_size"}
DIVIDED = {
    "next token": samples.Divided(NextToken, GptConfig(**_SIZES), "sequence_output")
}
FINE_TUNED = {"gpt": ("TokenClassification",)}
WORD_TEACHERS = CONFIGS
STUDENTS = {"gpt/hf": [0, 2]}
