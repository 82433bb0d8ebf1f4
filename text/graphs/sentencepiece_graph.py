"""Tokenizes text into SentencePiece pieces in a TensorFlow graph, for SavedModels.

It equals text/tokenizers/sentencepiece.py, which names the source of each step. The pieces
come from TensorFlow Text's operation, so a program must `import tensorflow_text` before it
loads such a SavedModel. Everything around it uses core TensorFlow operations only.
"""

import functools
import unicodedata
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_text

from text.graphs.graph_tokenizer import (
    NUM_POINTS,
    GraphTokenizer,
    assets,
    begins,
    by_rows,
    ends,
    num_bytes,
    of_code_points,
    row_numbers,
)
from text.graphs.words_graph import FINAL_SIGMA, case_properties, final_sigmas
from text.tokenizers.cleaner import decompose
from text.tokenizers.sentencepiece import VOCABULARY_FILE, SentencePiece

_SPACE = ord(" ")


class SentencePieceGraph(GraphTokenizer):
    """Turns text into SentencePiece pieces in a graph."""

    libraries = ("tensorflow_text",)

    def __init__(self, tokenizer: SentencePiece, folder: str):
        vocabulary, cleaner = tokenizer.vocabulary, tokenizer.cleaner
        super().__init__(vocabulary)
        (self.file,) = assets(folder, {VOCABULARY_FILE: tokenizer.model})
        self._model = tensorflow_text.SentencepieceTokenizer(tokenizer.extended_model)
        self._collapses_spaces = cleaner.collapses_spaces
        self._is_space = _numbers(str.isspace)
        self._is_blank = _numbers(tokenizer.is_blank)
        self._joins_quotes = cleaner.joins_quotes
        self._decomposed = self._lowered = None
        if cleaner.strip_accents:
            self._decomposed = _Replacement(decompose)
        if cleaner.do_lower_case:
            self._lowered = _Replacement(str.lower)
            self._case = _numbers(case_properties)
        self._sizes = tf.constant(tokenizer.sizes, tf.int32)
        self._splits = _Splits(tokenizer) if tokenizer.splits else None

    def pieces_with_offsets(self, texts):
        decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        original = decoded.flat_values
        rows = row_numbers(decoded.row_limits())
        points, sources, stops_of = self._clean(original, rows)
        clean_rows = tf.gather(rows, sources)
        number = decoded.nrows()
        clean = by_rows(points, clean_rows, number)
        ids, starts, stops = self._model.tokenize_with_offsets(
            tf.strings.unicode_encode(clean, "UTF-8")
        )
        piece_rows = row_numbers(ids.row_limits())
        starts, stops = _of_characters(
            points, clean, piece_rows, starts.flat_values, stops.flat_values
        )
        ids, piece_rows, starts, stops = self._place(
            ids.flat_values, piece_rows, starts, stops, points, clean.row_limits()
        )
        # From the clean text to the original one. The end of a text has no character.
        limits = tf.cast(clean.row_limits(), tf.int32)
        begin = tf.cast(tf.gather(decoded.row_starts(), piece_rows), tf.int32)
        length = tf.cast(tf.gather(decoded.row_lengths(), piece_rows), tf.int32)
        sources, stops_of = (tf.concat([x, [0]], 0) for x in (sources, stops_of))
        is_end = starts >= tf.gather(limits, piece_rows)
        first = tf.where(is_end, length, tf.gather(sources, starts) - begin)
        last = tf.gather(stops_of, tf.maximum(stops - 1, 0)) - begin
        last = tf.where(stops > starts, last, first)
        return tuple(by_rows(x, piece_rows, number) for x in (ids, first, last))

    def _clean(self, points, rows):
        """Does what `Cleaner.align` does.

        Returns int32 [n]: the code points of the clean texts; for each of them, its place
        among those of the texts, and where its original ends there.
        """
        if not self._collapses_spaces:
            places = tf.range(tf.size(points))
            return points, places, places + 1
        is_space = self._is_space(points) > 0
        points = tf.where(is_space, _SPACE, points)
        sources = tf.range(tf.size(points))
        is_dropped = is_second = tf.zeros_like(is_space)
        if self._joins_quotes:
            points, is_second = _joined_quotes(points, rows)
            is_dropped = is_second
        if self._decomposed:
            is_dropped |= self._decomposed.drops(points)
        stops = _ends(rows, is_dropped)
        # Of several spaces, the last one stays if something precedes and follows.
        follows = tf.concat([~is_space[1:], [False]], 0)[: tf.size(rows)] & ~ends(rows)
        sources = tf.boolean_mask(sources, (~is_space | follows) & ~is_second)
        is_first = begins(tf.gather(rows, sources)) & tf.gather(is_space, sources)
        sources = tf.boolean_mask(sources, ~is_first)
        points = tf.gather(points, sources)
        if self._decomposed:
            points, places = self._decomposed(points)
            sources = tf.gather(sources, places)
        if self._lowered:
            of_rows = tf.gather(rows, sources)
            is_final = final_sigmas(points, self._case(points), of_rows)
            points, places = self._lowered(tf.where(is_final, FINAL_SIGMA, points))
            sources = tf.gather(sources, places)
        return points, sources, tf.gather(stops, sources)

    def _place(self, ids, rows, starts, stops, points, limits):
        """Does what `SentencePiece._place` does, for all pieces at once."""
        is_visible = self._is_blank(points) == 0
        visible = tf.cast(tf.where(is_visible)[:, 0], tf.int32)
        bounds = tf.concat([visible, tf.shape(points)], 0)
        starts = tf.minimum(
            tf.gather(bounds, tf.searchsorted(visible, starts)),
            tf.maximum(starts, stops),
        )
        after = tf.concat([[0], visible + 1], 0)
        stops = tf.maximum(tf.gather(after, tf.searchsorted(visible, stops)), starts)
        sizes = tf.gather(self._sizes, ids)
        part = tf.minimum(starts + 1, tf.cast(tf.gather(limits, rows), tf.int32))
        stops = tf.where(starts == stops, part, stops)
        stops = tf.where(sizes == 0, starts, stops)
        if not self._splits:
            return ids, rows, starts, stops
        pieces, ids, starts, stops = self._splits(ids, starts, stops, self._sizes)
        return ids, tf.gather(rows, pieces), starts, stops


class _Splits:
    """Replaces pieces by others; see `Family.splits_numbers`."""

    def __init__(self, tokenizer):
        numbers = np.ones(len(tokenizer.sizes), np.int32)
        sizes = np.full(len(numbers), -1, np.int32)
        first, new = np.zeros(len(numbers), np.int32), []
        for id, split in tokenizer.splits.items():
            numbers[id], sizes[id], first[id] = len(split.ids), split.size, len(new)
            new += split.ids
        self._numbers, self._sizes, self._first, self._new = map(
            tf.constant, (numbers, sizes, first, np.array(new, np.int32))
        )

    def __call__(self, ids, starts, stops, sizes):
        """Returns the number of the old piece of each new one, its id, start and stop."""
        numbers = tf.gather(self._numbers, ids)
        pieces = row_numbers(tf.cumsum(numbers))
        before = tf.gather(tf.cumsum(numbers, exclusive=True), pieces)
        place = tf.range(tf.size(pieces)) - before
        old, starts, stops = (tf.gather(x, pieces) for x in (ids, starts, stops))
        is_split = tf.gather(numbers, pieces) > 1
        new = tf.where(is_split, tf.gather(self._first, old) + place, 0)
        ids = tf.where(is_split, tf.gather(self._new, new), old)
        sizes = tf.gather(sizes, ids)
        one_to_one = is_split & (stops - starts == tf.gather(self._sizes, old))
        own_sizes = tf.where(one_to_one, sizes, 0)
        passed = tf.cumsum(own_sizes, exclusive=True)
        passed -= tf.gather(passed, before)  # of the same old piece
        starts += passed
        stops = tf.where(one_to_one, starts + own_sizes, stops)
        stops = tf.where(is_split & (sizes == 0), starts, stops)
        return pieces, ids, starts, stops


def _of_characters(points, texts, rows, starts, stops):
    """Turns bytes of each text, int [pieces], into numbers of characters of all texts."""
    sizes = num_bytes(points)
    first = tf.cumsum(sizes, exclusive=True)  # of characters, in bytes of all texts
    last = tf.concat([[0], tf.cumsum(sizes)], 0)
    begin = tf.gather(last, tf.gather(tf.cast(texts.row_starts(), tf.int32), rows))
    return (
        tf.searchsorted(first, begin + tf.cast(bound, tf.int32))
        for bound in (starts, stops)
    )


def _joined_quotes(points, rows):
    """Makes " of `` and ''; returns the code points, and which are the second of two."""
    is_new = begins(points, rows)
    run = tf.cumsum(tf.cast(is_new, tf.int32)) - 1  # of the same character
    first = tf.cast(tf.where(is_new)[:, 0], tf.int32)
    place = tf.range(tf.size(points)) - tf.gather(first, run)
    is_second = ((points == ord("`")) | (points == ord("'"))) & (place % 2 == 1)
    is_first = tf.concat([is_second[1:], [False]], 0)[: tf.size(points)]
    return tf.where(is_first, ord('"'), points), is_second


def _ends(rows, is_dropped):
    """int32 [n]: the end of each character, including the dropped ones after it."""
    places = tf.range(tf.size(rows))
    stays = tf.cast(tf.where(begins(rows) | ~is_dropped)[:, 0], tf.int32)
    stays = tf.concat([stays, tf.shape(rows)], 0)
    following = tf.searchsorted(stays, places, side="right")
    return tf.gather(stays, tf.minimum(following, tf.size(stays) - 1))


# === Code points =====================================================================


@functools.cache
def _points() -> list[int]:
    """The code points that have properties: a quarter of all."""
    return [
        point
        for point in range(NUM_POINTS)
        if unicodedata.category(chr(point)) not in ("Cn", "Co", "Cs")
    ]


def _numbers(function):
    """The table of a function from characters to numbers."""
    table = np.zeros(NUM_POINTS, np.int32)
    table[_points()] = [function(chr(point)) for point in _points()]
    return of_code_points(table)


@functools.cache
def _texts(function):
    """The table of a function from characters to texts.

    Returns int32 [NUM_POINTS], the number of each code point's text, 0 for itself; the
    texts one after another; where each begins; and the number of the empty one.
    """
    table = np.zeros(NUM_POINTS, np.int32)
    numbers, texts, starts = {}, [], [0, 0]
    for point in _points():
        text = function(chr(point))
        if text != chr(point):
            if text not in numbers:
                numbers[text] = len(numbers) + 1
                texts += map(ord, text)
                starts.append(len(texts))
            table[point] = numbers[text]
    return table, [*texts, 0], starts, numbers.get("", -1)


class _Replacement:
    """Replaces each code point by any number of others."""

    def __init__(self, function: Callable[[str], str]):
        table, texts, starts, self._empty = _texts(function)
        self._number = of_code_points(table)
        self._texts = tf.constant(texts, tf.int32)
        self._starts = tf.constant(starts, tf.int32)

    def drops(self, points: tf.Tensor) -> tf.Tensor:
        """bool [n]: whether nothing takes the place of a code point."""
        return self._number(points) == self._empty

    def __call__(self, points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """int32 [n] -> int32 [m]: the new code points, and the place of each one's old."""
        numbers = self._number(points)
        start, stop = (tf.gather(self._starts, numbers + i) for i in (0, 1))
        sizes = tf.where(numbers > 0, stop - start, 1)
        places = row_numbers(tf.cumsum(sizes))
        place = tf.range(tf.size(places))
        place -= tf.gather(tf.cumsum(sizes, exclusive=True), places)
        numbers, start = tf.gather(numbers, places), tf.gather(start, places)
        new = tf.gather(self._texts, tf.where(numbers > 0, start + place, 0))
        return tf.where(numbers > 0, new, tf.gather(points, places)), places
