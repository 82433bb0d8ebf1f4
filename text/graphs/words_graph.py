"""Tokenizes text word by word in a TensorFlow graph, for SavedModels.

The words are those of `WordSplitter` in text/tokenizers/word_splitter.py, which names the
source of each step. The graph uses only core TensorFlow operations: an exported model loads
wherever TensorFlow is installed, without other libraries.
"""

import abc
import functools
import unicodedata

import numpy as np
import tensorflow as tf

from text.graphs.graph_tokenizer import (
    NUM_POINTS,
    GraphTokenizer,
    by_rows,
    of_code_points,
    row_numbers,
)
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.word_splitter import WordSplitter

_SPACE = ord(" ")
_CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2

# What replaces a code point: nothing, itself, itself as a word, or its own text.
_NOTHING, _ITSELF, _WORD, _FIRST_TEXT = range(4)
# The low bits are the properties of a code point; above them is that number.
CASED, IGNORABLE, _ABSORBED = 1, 2, 4
_PROPERTY_BITS = 3
# In a replacement text: the code point, its combining class, and whether it is dropped.
_POINT_BITS, _CLASS_BITS = 21, 8
_DROPPED = 1 << (_POINT_BITS + _CLASS_BITS)


# Hangul: the first letters, those in the middle, the code point before the last ones, and
# the syllables of all of them; source: the Unicode Standard, 3.12.
_FIRST, _SECOND, _NO_THIRD, _SYLLABLES = 0x1100, 0x1161, 0x11A7, 0xAC00
_FIRSTS, _SECONDS, _THIRDS = 19, 21, 28


class WordsGraph(GraphTokenizer):
    """Splits text into words as a `WordSplitter` does, and each word on its own."""

    def __init__(self, vocabulary: Vocabulary, splitter: WordSplitter):
        super().__init__(vocabulary)
        switches = splitter.do_lower_case, splitter.strip_accents, splitter.split_cjk
        table, texts, text_starts = _code_points(type(splitter), *switches)
        self.properties = of_code_points(table)
        self._texts = tf.constant(texts, tf.int32)
        self._text_starts = tf.constant(text_starts, tf.int32)
        self._final_sigmas = splitter.do_lower_case and splitter.final_sigmas
        self._decomposes = splitter.strip_accents
        self._composes_hangul = splitter.composes_hangul

    @abc.abstractmethod
    def word_pieces(self, words: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """string [n] -> ids and lengths in characters of pieces, int32 [n, (pieces)]."""

    def pieces_with_offsets(self, texts):
        decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        points, rows = decoded.flat_values, row_numbers(decoded.row_limits())
        points, sources, properties = self._replace(points, rows)
        last_sources = sources
        if self._composes_hangul:
            points, sources, last_sources = _compose_hangul(points, sources, rows)
        words, word_rows, word_starts = _words(points, tf.gather(rows, sources))
        # Words repeat, so each distinct word is split once.
        distinct, numbers = tf.unique(words)
        ids, sizes = self.word_pieces(distinct)
        ids = tf.gather(ids, numbers)  # [words, (pieces)]
        sizes = tf.gather(sizes, numbers)
        # Characters of the word before each piece.
        before = tf.cumsum(sizes.flat_values, exclusive=True)
        word_of_piece = row_numbers(ids.row_limits())
        before -= tf.gather(tf.gather(before, ids.row_starts()), word_of_piece)
        first = tf.gather(word_starts, word_of_piece) + before
        visible = points != _SPACE
        starts = tf.gather(tf.boolean_mask(sources, visible), first)
        lasts = first + sizes.flat_values - 1
        lasts = tf.gather(tf.boolean_mask(last_sources, visible), lasts)
        ends = _ends(properties, rows, tf.cast(decoded.row_limits(), tf.int32))
        begins = tf.gather(tf.cast(decoded.row_starts(), tf.int32), rows)
        of_rows = tf.gather(word_rows, word_of_piece)
        starts -= tf.gather(begins, starts)
        ends = tf.gather(ends, lasts) - tf.gather(begins, lasts)
        return tuple(
            by_rows(values, of_rows, decoded.nrows())
            for values in (ids.flat_values, starts, ends)
        )

    # --- Code points -----------------------------------------------------------------

    def _replace(self, points, rows):
        """The replaced code points of all texts, the source of each, and properties."""
        properties = self.properties(points)
        if self._final_sigmas:
            is_final = final_sigmas(points, properties, rows)
            points = tf.where(is_final, FINAL_SIGMA, points)
            properties = tf.where(is_final, self.properties(points), properties)
        kinds = properties // (1 << _PROPERTY_BITS)
        text = tf.maximum(kinds - _FIRST_TEXT, 0)
        text_start = tf.gather(self._text_starts, text)
        text_size = tf.gather(self._text_starts, text + 1) - text_start
        size = tf.gather(tf.constant([0, 1, 3]), tf.minimum(kinds, _WORD))
        size = tf.where(kinds >= _FIRST_TEXT, text_size, size)
        sources = row_numbers(tf.cumsum(size))
        place = tf.range(tf.size(sources)) - tf.gather(
            tf.cumsum(size, exclusive=True), sources
        )
        kinds = tf.gather(kinds, sources)
        own = tf.gather(
            self._texts,
            tf.where(kinds >= _FIRST_TEXT, tf.gather(text_start, sources) + place, 0),
        )
        itself = tf.where(
            (kinds == _WORD) & (place != 1), _SPACE, tf.gather(points, sources)
        )
        values = tf.where(kinds >= _FIRST_TEXT, own, itself)
        if self._decomposes:
            values, sources = _compose_in_order(values, sources, rows)
        return values, sources, properties


# === Tables ==========================================================================


@functools.cache
def _code_points(
    kind: type[WordSplitter], *switches: bool
) -> tuple[np.ndarray, list[int], list[int]]:
    """What replaces each code point, and its properties, for a splitter that is made anew.

    Returns int32 [all code points], kind and properties; the concatenated texts; where each
    of them begins, and where the last ends.
    """
    splitter = kind(*switches)
    table = np.full(NUM_POINTS, _ITSELF << _PROPERTY_BITS, np.int32)
    kinds = {(): _NOTHING}
    texts, starts = [], [0]
    for point, character in enumerate(map(chr, range(len(table)))):
        is_assigned = unicodedata.category(character) not in ("Cn", "Co")
        if not is_assigned and not splitter.changes_unassigned(character):
            continue  # three quarters of all code points
        text = _replacement(splitter, character)
        kind = {(point,): _ITSELF, (_SPACE, point, _SPACE): _WORD}.get(text)
        if kind is None:
            kind = kinds.setdefault(text, _FIRST_TEXT + len(starts) - 1)
            if kind == _FIRST_TEXT + len(starts) - 1:
                texts += text
                starts.append(len(texts))
        table[point] = kind << _PROPERTY_BITS | _properties(splitter, character)
    return table, texts, starts


def _replacement(splitter, character):
    """Code points for `_compose_in_order`; plain ones without decomposition."""
    text = character.lower() if splitter.do_lower_case else character
    if not splitter.strip_accents:
        return tuple(ord(part) for c in text for part in splitter.table[ord(c)])
    replacement = []
    for c in splitter.decompose(text):
        combining = unicodedata.combining(c)
        if unicodedata.category(c) == "Mn" and not combining:
            replacement.append(ord(c) | _DROPPED)  # marks do not move past it
        for part in splitter.table[ord(c)]:
            replacement.append(ord(part) | combining << _POINT_BITS)
    return tuple(replacement)


def case_properties(character: str) -> int:
    """What `final_sigmas` needs to know of a character."""
    # Whether str.lower considers it cased, which cannot be queried directly.
    if (character + "\u03a3").lower()[-1] == "\u03c2":
        return CASED
    if ("A" + character + "\u03a3").lower()[-1] == "\u03c2":
        return IGNORABLE
    return 0


def _properties(splitter, character):
    properties = case_properties(character)
    replacement = splitter.table[ord(character)]
    if not replacement:
        is_mark = unicodedata.category(character) == "Mn"
        properties |= _ABSORBED if is_mark else IGNORABLE
    return properties


# === Code points =====================================================================


def final_sigmas(
    points: tf.Tensor, properties: tf.Tensor, rows: tf.Tensor
) -> tf.Tensor:
    """bool [n]: capital sigmas at the end of a word, as in `str.lower`.

    A cased letter precedes and none follows, skipping ignorable characters.

    Args:
        points, rows: int32 [n], code points and the number of their text.
        properties: int32 [n], with the bits of `case_properties`.
    """
    is_sigma = points == _CAPITAL_SIGMA

    def look_around():
        places = tf.where(is_sigma)[:, 0]
        solid = tf.where(properties & IGNORABLE == 0)[:, 0]

        def is_cased(number):
            """Whether the solid character with this number is cased and in the row."""
            exists = (number >= 0) & (number < tf.size(solid))
            place = tf.gather(solid, tf.clip_by_value(number, 0, tf.size(solid) - 1))
            of_row = tf.gather(rows, place) == tf.gather(rows, places)
            return exists & of_row & (tf.gather(properties, place) & CASED > 0)

        number = tf.searchsorted(solid, places)  # a sigma is solid itself
        is_final = is_cased(number - 1) & ~is_cased(number + 1)
        return tf.scatter_nd(places[:, None], is_final, tf.shape(points, tf.int64))

    return tf.cond(
        tf.reduce_any(is_sigma), look_around, lambda: tf.zeros_like(is_sigma)
    )


def _compose_in_order(values, sources, rows):
    """Puts marks in canonical order, and drops those that only separate others.

    Accents have already been removed, so few texts have any marks to reorder.
    """
    points = values & ((1 << _POINT_BITS) - 1)
    classes = values // (1 << _POINT_BITS) & ((1 << _CLASS_BITS) - 1)

    def in_order():
        segments = tf.cumsum(tf.cast(classes == 0, tf.int64))
        segments += tf.cast(tf.gather(rows, sources), tf.int64)
        order = tf.argsort(
            segments * (1 << _CLASS_BITS) + tf.cast(classes, tf.int64), stable=True
        )
        return tf.gather(points, order)

    points = tf.cond(tf.reduce_any(classes > 0), in_order, lambda: points)
    keeps = values < _DROPPED
    return tf.boolean_mask(points, keeps), tf.boolean_mask(sources, keeps)


def _compose_hangul(points, sources, rows):
    """Letters of Hangul as the syllables that they spell; see `WordSplitter`.

    Returns int32 [n]: code points, and the first and the last source of each.
    """
    lasts = sources
    is_second = (points >= _SECOND) & (points < _SECOND + _SECONDS)
    is_third = (points > _NO_THIRD) & (points < _NO_THIRD + _THIRDS)

    def join(points, sources, lasts, is_begin, is_end, values):
        """Replaces each two neighbours of a text, a begin and an end."""
        of_row = tf.gather(rows, sources)
        is_pair = is_begin[:-1] & is_end[1:] & (of_row[:-1] == of_row[1:])
        none = tf.zeros([1], tf.bool)
        begins = tf.concat([is_pair, none], 0)
        kept = ~tf.concat([none, is_pair], 0)
        values = tf.where(begins, values(points, tf.roll(points, -1, 0)), points)
        lasts = tf.where(begins, tf.roll(lasts, -1, 0), lasts)
        return tuple(tf.boolean_mask(x, kept) for x in (values, sources, lasts))

    def compose():
        is_first = (points >= _FIRST) & (points < _FIRST + _FIRSTS)
        made = join(
            points,
            sources,
            lasts,
            is_first,
            is_second,
            lambda first, second: (
                _SYLLABLES + ((first - _FIRST) * _SECONDS + second - _SECOND) * _THIRDS
            ),
        )
        place = made[0] - _SYLLABLES
        is_open = (place >= 0) & (place < _FIRSTS * _SECONDS * _THIRDS)
        is_open &= place % _THIRDS == 0
        is_end = (made[0] > _NO_THIRD) & (made[0] < _NO_THIRD + _THIRDS)
        return join(
            *made, is_open, is_end, lambda open, third: open + third - _NO_THIRD
        )

    return tf.cond(
        tf.reduce_any(is_second | is_third), compose, lambda: (points, sources, lasts)
    )


def _words(points, rows):
    """The words between spaces of code points and the numbers of their texts.

    Returns string [words], the number of each word's text, and its first character, counted
    without spaces.
    """
    is_first = tf.concat([tf.ones_like(rows[:1]), rows[1:] - rows[:-1]], 0) > 0
    follows_space = tf.concat([points[:1], points[:-1]], 0) == _SPACE
    visible = points != _SPACE
    begins = tf.boolean_mask(is_first | follows_space, visible)
    points, rows = (tf.boolean_mask(x, visible) for x in (points, rows))
    starts = tf.where(begins)[:, 0]
    limits = tf.concat([starts, tf.shape(points, tf.int64)], 0)
    words = tf.RaggedTensor.from_row_splits(points, limits, validate=False)
    texts = tf.strings.unicode_encode(words, "UTF-8")
    return texts, tf.gather(rows, starts), tf.cast(starts, tf.int32)


def _ends(properties, rows, limits):
    """int32 [n]: the end of each character, including the dropped accents after it."""
    stops = tf.where(properties & _ABSORBED == 0)[:, 0]
    stops = tf.concat([tf.cast(stops, tf.int32), tf.shape(properties)], 0)
    following = tf.searchsorted(stops, tf.range(tf.size(properties)), side="right")
    following = tf.minimum(following, tf.size(stops) - 1)
    return tf.minimum(tf.gather(stops, following), tf.gather(limits, rows))
