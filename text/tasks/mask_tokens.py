"""Encodes texts that contain a literal [MASK].

What [MASK] is called depends on the vocabulary. White space before it belongs to it.
"""

import re

from text.tokenizers.tokenizer import Tokenizer

# Unicode's white space; the \s of Python and that of RE2 differ from it.
SPACES_AT_END = "[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+$"


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Text to ids, including those of [MASK]; without [CLS] and [SEP]."""
    vocabulary = tokenizer.vocabulary
    *before, last = text.split(vocabulary.mask)
    ids = []
    for part in before:
        part = re.sub(SPACES_AT_END, "", part)
        ids += [*tokenizer.encode(part), vocabulary.mask_id]
    return [*ids, *tokenizer.encode(last)]
