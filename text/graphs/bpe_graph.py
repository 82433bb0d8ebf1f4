"""Tokenizes text into BPE pieces in a TensorFlow graph, for SavedModels.

It equals text/tokenizers/bpe.py, and uses only core TensorFlow operations. RE2 has no
look-ahead, so the regular expression that splits text into words is replaced by rules for
each character and its neighbors.
"""

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tokenizers

from text.graphs.graph_tokenizer import (
    GraphTokenizer,
    assets,
    begins,
    by_rows,
    ends,
    num_bytes,
    row_numbers,
)
from text.tokenizers.bpe import SPACE, ByteBpe, byte_characters
from text.tokenizers.vocabulary import Vocabulary

_NO_RANK = np.iinfo(np.int32).max

_LETTER, _NUMBER, _OTHER, _WHITESPACE = range(4)
# After the ideographs up to here, no code point is a letter, a number or white space.
_NUM_POINTS = 0x40000
_CONTRACTIONS = ("s", "t", "re", "ve", "m", "ll", "d")  # after an apostrophe


class Merges(tf.Module):
    """Merges two neighbors again and again, those first that come first in a list."""

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[tuple[str, str]]):
        """Args:
        merges: pairs of tokens; what they make is a token, too.
        """
        super().__init__()
        ids = vocabulary.ids
        self._vocab_size = len(vocabulary)
        pairs = np.array([[ids[a], ids[b]] for a, b in merges], np.int64)
        keys = self._keys(*pairs.reshape(-1, 2).T)
        order = np.argsort(keys)
        # An entry that no pair has makes the tables usable without merges.
        self._pairs = tf.constant(np.append(keys[order], np.iinfo(np.int64).max))
        self._ranks = tf.constant(np.append(order, _NO_RANK), tf.int32)
        merged = [ids[a + b] for a, b in merges]
        self._merged = tf.constant([*merged, vocabulary.unk_id], tf.int32)  # by rank
        self._in_order = _is_in_order(merges)

    def apply(self, ids: tf.Tensor, rows: tf.Tensor, number: int) -> tf.RaggedTensor:
        """Merges what can be merged.

        Args:
            ids, rows: int32 [pieces], the first pieces, and the number of their word,
                ascending.
            number: of words.
        Returns:
            int32 [number, (pieces)].
        """

        def step(ids, rows, done):
            """Merges once in each word; sets aside those in which nothing merges."""
            ranks = self._neighbors(ids, rows)
            lowest = tf.gather(tf.math.unsorted_segment_min(ranks, rows, number), rows)
            is_done = lowest == _NO_RANK
            new = [tf.boolean_mask(x, is_done) for x in (ids, rows)]
            done = [tf.concat(pair, 0) for pair in zip(done, new, strict=True)]
            ids, rows, ranks, lowest = (
                tf.boolean_mask(x, ~is_done) for x in (ids, rows, ranks, lowest)
            )
            merges = self._choose(ranks == lowest, rows, number)
            merged = tf.gather(self._merged, tf.where(merges, ranks, 0))
            ids = tf.where(merges, merged, ids)
            is_kept = ~following(merges, -1)
            return tf.boolean_mask(ids, is_kept), tf.boolean_mask(rows, is_kept), done

        none = tf.zeros([0], tf.int32)
        any_size = tf.TensorShape([None])
        *_, (ids, rows) = tf.while_loop(
            lambda ids, *_: tf.size(ids) > 0,
            step,
            [ids, rows, [none, none]],
            shape_invariants=[any_size, any_size, [any_size, any_size]],
        )
        order = tf.argsort(rows, stable=True)
        return by_rows(tf.gather(ids, order), tf.gather(rows, order), number)

    def _keys(self, left, right):
        """int64: a number for each pair of ids."""
        return left * self._vocab_size + right

    def _neighbors(self, ids, rows):
        """int32 [pieces]: the rank of each piece with the next one of its word."""
        keys = self._keys(*(tf.cast(x, tf.int64) for x in (ids, following(ids, 1))))
        place = tf.searchsorted(self._pairs, keys)
        is_pair = (tf.gather(self._pairs, place) == keys) & ~ends(rows)
        return tf.where(is_pair, tf.gather(self._ranks, place), _NO_RANK)

    def _choose(self, is_lowest, rows, number):
        """bool [pieces]: which of the pairs with the lowest rank to merge."""
        places = tf.range(tf.size(rows))
        if not self._in_order:
            first = tf.where(is_lowest, places, _NO_RANK)
            first = tf.math.unsorted_segment_min(first, rows, number)
            return places == tf.gather(first, rows)
        # From the left: of overlapping pairs, as in "aaa", every other one.
        is_first = is_lowest & ~following(is_lowest, -1)
        run = tf.maximum(tf.cumsum(tf.cast(is_first, tf.int32)) - 1, 0)
        begin = tf.gather(tf.cast(tf.where(is_first)[:, 0], tf.int32), run)
        return is_lowest & ((places - begin) % 2 == 0)


def following(values: tf.Tensor, distance: int) -> tf.Tensor:
    """[n]: for each place, the value `distance` after it; wraps around."""
    return tf.roll(values, -distance, 0)


def _is_in_order(merges) -> bool:
    """Whether no merge can make an earlier one possible, as in every learned vocabulary.

    Then all pairs of the lowest rank are merged at once; otherwise, one after another.
    """
    last = {}
    for rank, (left, right) in enumerate(merges):
        last[left + right] = rank
    return all(
        last.get(piece, -1) < rank for rank, pair in enumerate(merges) for piece in pair
    )


# === Bytes ===========================================================================


class ByteBpeGraph(GraphTokenizer):
    """Turns text into byte-level BPE pieces in a graph; for a `ByteBpe` that neither
    normalizes text nor cuts tokens out.
    """

    def __init__(self, tokenizer: ByteBpe, folder: str):
        vocabulary = tokenizer.vocabulary
        super().__init__(vocabulary)
        self.files = assets(folder, tokenizer.files)
        ids, characters = vocabulary.ids, byte_characters()
        self._classes = tf.constant(_classes())
        self._byte_ids = tf.constant([ids[c] for c in characters], tf.int32)
        # Of each token: its bytes, and how many spaces it begins and ends with.
        self._sizes = tf.constant(list(map(len, vocabulary.tokens)), tf.int32)
        self._spaces = [
            tf.constant([len(t) - len(strip(t, SPACE)) for t in vocabulary.tokens])
            for strip in (str.lstrip, str.rstrip)
        ]
        self._merges = Merges(vocabulary, tokenizer.merges)

    def pieces_with_offsets(self, texts):
        decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        points = decoded.flat_values
        rows = row_numbers(decoded.row_limits())
        starts = self._begins(points, rows)  # of the words
        starts = tf.cast(tf.where(starts)[:, 0], tf.int32)
        limits = tf.concat([starts[1:], tf.shape(points)], 0)[: tf.size(starts)]
        words = tf.strings.unicode_encode(
            tf.RaggedTensor.from_row_limits(points, limits, validate=False), "UTF-8"
        )
        # Words repeat, so each distinct word is split once.
        distinct, numbers = tf.unique(words)
        pieces = tf.gather(self._pieces(distinct), numbers)  # [words, (pieces)]
        ids = pieces.flat_values
        sizes = tf.gather(self._sizes, ids)
        stops = tf.cumsum(sizes)  # in bytes of all texts: every byte is in a piece
        sources = row_numbers(tf.cumsum(num_bytes(points)))  # the character of a byte
        first = tf.gather(sources, stops - sizes)
        last = tf.gather(sources, stops - 1) + 1
        before, after = (tf.gather(spaces, ids) for spaces in self._spaces)
        first = tf.minimum(first + before, last)
        last = tf.maximum(last - after, first)
        row = tf.gather(rows, tf.gather(sources, stops - 1))
        begin = tf.gather(tf.cast(decoded.row_starts(), tf.int32), row)
        return tuple(
            by_rows(values, row, decoded.nrows())
            for values in (ids, first - begin, last - begin)
        )

    # --- Words -----------------------------------------------------------------------

    def _begins(self, points, rows):
        """bool [n]: where a word begins.

        The words are the matches of `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|
         ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+`.
        Characters of one class share a word. White space before a word is one, without its
        last character, which is one of its own, or begins the word, if it is a space.
        """
        classes = tf.gather(self._classes, tf.minimum(points, _NUM_POINTS - 1))
        is_first = begins(rows)
        is_last = following(is_first, 1)
        changes = is_first | (classes != following(classes, -1))
        is_space = classes == _WHITESPACE
        ends_space = is_space & ~is_last & ~following(is_space, 1)
        follows_space = ~is_first & (following(points, -1) == ord(" "))
        is_begin = (changes & (is_space | is_first | ~follows_space)) | ends_space
        # What follows an apostrophe at the beginning of a word may make it a contraction.
        apostrophes = is_begin & (points == ord("'"))
        inside = after = tf.zeros_like(is_begin)
        left = tf.range(tf.size(rows), 0, -1)  # characters up to the end of all texts
        for letters in _CONTRACTIONS:
            matches = apostrophes & (left > len(letters))  # `following` wraps around
            for place, letter in enumerate(letters, start=1):
                matches &= (following(points, place) == ord(letter)) & (
                    following(rows, place) == rows
                )
            for place in range(len(letters)):
                inside |= following(matches, -1 - place)
            after |= following(matches, -1 - len(letters))
        # After the end of a text, `after` marks the beginning of the next one.
        return (is_begin & ~inside) | after | is_first

    # --- Pieces ----------------------------------------------------------------------

    def _pieces(self, words):
        """string [n], not empty -> ids, int32 [n, (pieces)]."""
        number = tf.size(words)
        content = tf.cast(
            tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32
        )
        rows = row_numbers(tf.cumsum(tf.strings.length(words)))
        ids = tf.gather(self._byte_ids, content)
        return self._merges.apply(ids, rows, number)


@functools.cache
def _classes() -> np.ndarray:
    """uint8: the class of each code point in the tokenizer's regular expression."""
    classes = np.full(_NUM_POINTS, _OTHER, np.uint8)
    points = [p for p in range(1, _NUM_POINTS) if not 0xD800 <= p < 0xE000]
    text = "".join(map(chr, points))
    for kind, pattern in (
        (_LETTER, r"\p{L}"),
        (_NUMBER, r"\p{N}"),
        (_WHITESPACE, r"\s"),
    ):
        replace = tokenizers.normalizers.Replace(tokenizers.Regex(pattern), "\0")
        marked = np.array(list(replace.normalize_str(text)))
        classes[np.array(points)[marked == "\0"]] = kind
    return classes
