"""Unicode's normal form C as the package tokenizers makes it, with character offsets.

A text is cut into clusters: a character, and those after it that may change place or be
composed with what precedes them. Each cluster is normalized by itself. If that changes it,
all of its new characters come from the whole of it.
"""

import functools

import numpy as np
from tokenizers import normalizers

NUM_POINTS = 0x110000
# After the tags up to here, and between them and the ideographs, no code point combines.
_LAST = 0xE01F0
_SEPARATOR = "\n"  # which no normal form touches
_MARKS = "\u0301", "\u0323"  # of two classes; both are composed with an a

_composed, _decomposed = normalizers.NFC(), normalizers.NFD()


def normalize(text: str) -> str:
    """The text in form C, by the tables of the package."""
    return _composed.normalize_str(text)


@functools.cache
def _characters() -> list[str]:
    points = [p for p in range(1, _LAST) if not 0xD800 <= p < 0xE000]
    return [chr(point) for point in points if chr(point) != _SEPARATOR]


def each(normalizer, texts: list[str]) -> list[str]:
    """What becomes of every text, in one call."""
    return normalizer(_SEPARATOR.join(texts)).split(_SEPARATOR)


def combining(normalizer) -> np.ndarray:
    """bool [NUM_POINTS]: which characters marks are moved past, by any tables.

    Args:
        normalizer: str -> str in form C.
    """
    found, characters = np.zeros(NUM_POINTS, bool), _characters()
    points = np.array(list(map(ord, characters)))
    for mark in _MARKS:  # a mark meets the a unless one of its class is in between
        texts = each(normalizer, [f"a{character}{mark}" for character in characters])
        found[points] |= np.array([text[0] != "a" for text in texts])
    return found


@functools.cache
def continuing() -> np.ndarray:
    """bool [NUM_POINTS]: which characters never begin a cluster after another one."""
    found, characters = combining(normalize), _characters()
    apart = each(_decomposed.normalize_str, characters)
    together = each(normalize, characters)
    for character, parts, again in zip(characters, apart, together, strict=True):
        if len(parts) > 1 and again == character:
            found[list(map(ord, parts[1:]))] = True
    return found


@functools.cache
def changing() -> np.ndarray:
    """bool [NUM_POINTS]: which characters become others even alone."""
    found, characters = np.zeros(NUM_POINTS, bool), _characters()
    for character, changed in zip(characters, each(normalize, characters), strict=True):
        found[ord(character)] = changed != character
    return found


def with_offsets(text: str) -> tuple[str, list[int], list[int]]:
    """The text in form C; and of each of its characters, where it comes from.

    Returns:
        the new text, starts and ends: `text[start:end]` is what a character was made of.
    """
    follows = continuing()
    begins = [p for p, character in enumerate(text) if not follows[ord(character)]]
    begins = begins if begins[:1] == [0] else [0, *begins]
    normal, starts, ends = [], [], []
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        old = text[begin:end]
        new = normalize(old)
        normal.append(new)
        if new == old:
            starts += range(begin, end)
            ends += range(begin + 1, end + 1)
        else:
            starts += [begin] * len(new)
            ends += [end] * len(new)
    return "".join(normal), starts, ends
