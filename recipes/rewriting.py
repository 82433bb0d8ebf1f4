"""Rewrites texts: words are replaced by others that fit, and n-grams are cut out.

A word is what a tokenizer and the text agree on: letters, digits and marks without another
character between them, cut where the tokenizer cuts text without spaces (Chinese,
Japanese, Thai ...). Only words of letters are replaced. All other characters of a text stay
as they are.
"""

import functools
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from text.instances import packing
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import Vocabulary

LONGEST_NGRAM = 5
_APOSTROPHES = "'\u2019"
# Beginnings of the names of characters in scripts that have no spaces between words.
_UNSPACED = ("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR ")


class Word(NamedTuple):
    """A word of a text, or a run of pieces between two words.

    `start` and `end` are its characters, `first` and `last` its pieces, excluding `last`.
    """

    start: int
    end: int
    first: int
    last: int
    replaceable: bool


class Change(NamedTuple):
    """What becomes of a text in one copy.

    Attributes:
        words: number of a word to replace -> a number in [0, 1) that chooses among its
            candidates.
        kept: the words to keep, as (first, one after the last).
    """

    words: Mapping[int, float]
    kept: tuple[int, int]


def split(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[Word]]:
    """The ids of a text, and its words in order; every piece is in one of them."""
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    continues = tokenizer.vocabulary.is_continuation
    spans = []  # start, end, first, last
    for place, (id, start, end) in enumerate(zip(ids, starts, ends, strict=True)):
        if spans and _is_continuation(text, spans[-1], start, continues[id]):
            spans[-1][1] = max(spans[-1][1], end)
            spans[-1][3] = place + 1
        else:
            spans.append([start, end, place, place + 1])
    unknown = tokenizer.vocabulary.unk_id
    words = []
    for start, end, first, last in spans:
        is_piece = last - first == 1 and ids[first] != unknown
        fits = _is_replaceable(text[start:end], is_piece)
        words.append(Word(start, end, first, last, fits))
    return ids, words


def _is_continuation(text, span, start, continues) -> bool:
    """Whether the piece that begins at `start` belongs to the word before it."""
    # A part of a character; or after an empty piece, which stands for a space.
    if start < span[1] or span[0] == span[1] == start:
        return True
    if start > span[1] or not _is_inside(text, start - 1, start):
        return False
    unspaced = _is_unspaced(text[start]) or _is_unspaced(text[start - 1])
    return bool(continues) or not unspaced


def _is_inside(text, one, two) -> bool:
    """Whether there is no end of a word between two neighboring characters."""
    if text[one] in _APOSTROPHES:
        return one > 0 and _is_of_word(text[one - 1]) and _is_of_word(text[two])
    if text[two] in _APOSTROPHES:
        after = text[two + 1 : two + 2]
        return after != "" and _is_of_word(text[one]) and _is_of_word(after)
    return _is_of_word(text[one]) and _is_of_word(text[two])


@functools.lru_cache(1 << 16)
def _is_of_word(character) -> bool:
    return character.isalnum() or _is_letter(character) or character == "_"


@functools.lru_cache(1 << 16)
def _is_letter(character) -> bool:
    return character.isalpha() or unicodedata.category(character).startswith("M")


@functools.lru_cache(1 << 16)
def _is_unspaced(character) -> bool:
    return unicodedata.name(character, "").startswith(_UNSPACED)


def _is_replaceable(word, is_piece) -> bool:
    if not word or not all(map(_is_letter, word)):
        return False
    # Otherwise, it may be a whole phrase, which the vocabulary does not cut into words.
    return is_piece or not any(map(_is_unspaced, word))


def candidates_of(vocabulary: Vocabulary) -> np.ndarray:
    """bool [size]: the tokens that are words of letters, which may replace others."""
    special = set(vocabulary.special_ids.values())
    is_word = [
        id not in special and text != "" and all(map(_is_letter, text))
        for id, text in enumerate(vocabulary.texts)
    ]
    return np.array(is_word) & ~vocabulary.is_continuation


def draw(
    key: Sequence[int],
    words: Sequence[Word],
    mask_probability: float,
    ngram_probability: float,
) -> Change:
    """Draws what becomes of a text in one copy.

    Args:
        key: the seed, and the numbers of the row, the text in it, and the copy. The same
            key gives the same change.
        mask_probability: of each word that may be replaced.
        ngram_probability: that only 1 to LONGEST_NGRAM words are kept, each number as
            probable.
    Source: arXiv:1909.10351, algorithm 1; arXiv:1903.12136, 3.3.
    """
    drawn = np.random.default_rng(key).random(2 * len(words) + 3)
    of_words, (whether, length, begin) = drawn[:-3].reshape(-1, 2), drawn[-3:]
    replaced = {
        number: float(choice)
        for number, (chance, choice) in enumerate(of_words)
        if chance < mask_probability and words[number].replaceable
    }
    kept = 0, len(words)
    if whether < ngram_probability:
        size = min(1 + int(length * LONGEST_NGRAM), len(words))
        first = int(begin * (len(words) - size + 1))
        kept = first, first + size
        replaced = {n: x for n, x in replaced.items() if kept[0] <= n < kept[1]}
    return Change(replaced, kept)


def mask_word(
    ids: Sequence[int], word: Word, vocabulary: Vocabulary, max_seq_length: int
) -> tuple[list[int], list[int], int]:
    """A row that asks for one word: the text with one mask for it, then the text itself.

    Of a text that does not fit twice, the part around the word is used.

    Returns:
        input_ids and segment_ids, unpadded, and the position of the mask.
    Source: huawei-noah/Pretrained-Language-Model@170f475 TinyBERT/data_augmentation.py,
        _masked_language_model. It asks for words of one piece only.
    """
    room = (max_seq_length - vocabulary.num_special_tokens) // 2
    hidden = [*ids[: word.first], vocabulary.mask_id, *ids[word.last :]]
    start = min(max(word.first - room // 2, 0), max(len(hidden) - room, 0))
    stop = start + room
    row = packing.join(vocabulary, hidden[start:stop], ids[start:stop])
    return *row, len(vocabulary.head) + word.first - start


def rewrite(
    text: str,
    words: Sequence[Word],
    change: Change,
    candidates: Mapping[int, Sequence[str]],
) -> str:
    """A copy of a text, with candidates by the number of each word in the change."""
    first, last = change.kept
    if first == last:
        return text
    whole = last - first == len(words)
    position = 0 if whole else words[first].start
    end = len(text) if whole else words[last - 1].end
    parts = []
    for number, choice in change.words.items():
        word, others = words[number], candidates[number]
        other = others[int(choice * len(others))]
        parts += [
            text[position : word.start],
            _match_case(other, text[word.start : word.end]),
        ]
        position = word.end
    return "".join([*parts, text[position:end]])


def _match_case(word, like):
    """A word with the capitals of the one that it replaces."""
    if len(like) > 1 and like.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if like[:1].isupper() else word


def distinct(original: object, copies: Iterable) -> list:
    """The copies that differ from the original and from those before them, in order."""
    return [copy for copy in dict.fromkeys(copies) if copy != original]
