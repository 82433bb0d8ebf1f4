"""Words as rows of bytes, which the released ELMo reads in place of a vocabulary."""

from collections.abc import Sequence

import numpy as np

# A number is one more than bilm's: 0 is left for what is not a word.
_FIRST_BYTE = 1
_BEGIN_SENTENCE, _END_SENTENCE, _BEGIN, _END, _PADDING = range(257, 262)
NUM_CHARACTERS = 262
BEGIN_SENTENCE, END_SENTENCE = object(), object()  # in place of words


def character_ids(words: Sequence, length: int) -> np.ndarray:
    """The UTF-8 bytes of words, between two marks and padded: int32 [words, length], 1
    to 261.

    A word of more than `length` - 2 bytes is cut, even within a character.

    Args:
        words: str, or BEGIN_SENTENCE or END_SENTENCE.
    Source: allenai/bilm-tf@7cffee2 bilm/data.py, UnicodeCharsVocabulary and Batcher.
    """
    marks = {BEGIN_SENTENCE: [_BEGIN_SENTENCE], END_SENTENCE: [_END_SENTENCE]}
    rows = np.full((len(words), length), _PADDING, np.int32)
    for row, word in zip(rows, words, strict=True):
        inner = marks.get(word)
        if inner is None:
            encoded = word.encode("utf-8")[: length - 2]
            inner = np.frombuffer(encoded, np.uint8).astype(np.int32) + _FIRST_BYTE
        row[0] = _BEGIN
        row[1 : 1 + len(inner)] = inner
        row[1 + len(inner)] = _END
    return rows
