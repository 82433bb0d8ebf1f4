"""Tokenizes text into byte-level BPE pieces in a TensorFlow graph, for SavedModels.

It equals text/tokenizers/byte_bpe.py and uses only core TensorFlow operations. RE2 has no
look-ahead, so the regular expression that splits text into words is replaced by rules for
each character and its neighbors.
"""

import functools

import numpy as np
import tensorflow as tf
import tokenizers

from text.tokenizers.byte_bpe import SPACE, ByteBpe, byte_characters
from text.tokenizers.graph_tokenizer import GraphTokenizer, assets, row_numbers
from text.tokenizers.merges_graph import Merges, following

_LETTER, _NUMBER, _OTHER, _WHITESPACE = range(4)
# No later code point is a letter, a number or white space, but for ideographs up to here.
_NUM_POINTS = 0x40000
_CONTRACTIONS = ("s", "t", "re", "ve", "m", "ll", "d")  # after an apostrophe


class ByteBpeGraph(GraphTokenizer):
    """Turns text into byte-level BPE pieces in a graph."""

    def __init__(self, tokenizer: ByteBpe, folder: str):
        """Args:
        tokenizer: the tokenizer to reproduce.
        folder: where to write its files; a SavedModel includes them.
        """
        vocabulary = tokenizer.vocabulary
        super().__init__(vocabulary)
        self.files = assets(folder, tokenizer.files)
        ids, characters = vocabulary.ids, byte_characters()
        self._tokens = tf.constant(vocabulary.tokens)
        self._classes = tf.constant(_classes())
        self._byte_ids = tf.constant([ids[c] for c in characters], tf.int32)
        # Of each token: its bytes, and how many spaces it begins and ends with.
        self._sizes = tf.constant(list(map(len, vocabulary.tokens)), tf.int32)
        self._spaces = [
            tf.constant([len(t) - len(strip(t, SPACE)) for t in vocabulary.tokens])
            for strip in (str.lstrip, str.rstrip)
        ]
        self._merges = Merges(vocabulary, tokenizer.merges)

    def encode_with_offsets(self, texts):
        decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        points = decoded.flat_values
        rows = row_numbers(decoded.row_limits())
        begins = self._begins(points, rows)
        starts = tf.cast(tf.where(begins)[:, 0], tf.int32)  # of the words
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
        sources = row_numbers(tf.cumsum(_num_bytes(points)))  # the character of a byte
        first = tf.gather(sources, stops - sizes)
        last = tf.gather(sources, stops - 1) + 1
        before, after = (tf.gather(spaces, ids) for spaces in self._spaces)
        first = tf.minimum(first + before, last)
        last = tf.maximum(last - after, first)
        row = tf.gather(rows, tf.gather(sources, stops - 1))
        begin = tf.gather(tf.cast(decoded.row_starts(), tf.int32), row)
        return tuple(
            tf.RaggedTensor.from_value_rowids(
                values, tf.cast(row, tf.int64), decoded.nrows(), validate=False
            )
            for values in (ids, first - begin, last - begin)
        )

    def tokens(self, ids):
        return tf.gather(self._tokens, ids)

    # --- Words -----------------------------------------------------------------------

    def _begins(self, points, rows):
        """bool [n]: where a word begins.

        The words are the matches of `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|
         ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+`.
        Characters of one class share a word. White space before a word is one, but for its
        last character, which is one of its own; or begins the word, if it is a space.
        """
        classes = tf.gather(self._classes, tf.minimum(points, _NUM_POINTS - 1))
        changes = tf.concat([[True], rows[1:] != rows[:-1]], 0)[: tf.size(rows)]
        is_first, is_last = changes, following(changes, 1)
        changes |= classes != following(classes, -1)
        is_space = classes == _WHITESPACE
        ends_space = is_space & ~is_last & ~following(is_space, 1)
        follows_space = ~is_first & (following(points, -1) == ord(" "))
        begins = (changes & (is_space | is_first | ~follows_space)) | ends_space
        # What follows an apostrophe at the beginning of a word may make it a contraction.
        apostrophes = begins & (points == ord("'"))
        inside = after = tf.zeros_like(begins)
        for letters in _CONTRACTIONS:
            found = apostrophes
            for place, letter in enumerate(letters, start=1):
                found &= (following(points, place) == ord(letter)) & (
                    following(rows, place) == rows
                )
            for place in range(len(letters)):
                inside |= following(found, -1 - place)
            after |= following(found, -1 - len(letters))
        # After the end of a text, `after` marks the beginning of the next one.
        return (begins & ~inside) | after | is_first

    # --- Pieces ----------------------------------------------------------------------

    def _pieces(self, words):
        """string [n], not empty -> ids, int32 [n, (pieces)]."""
        number = tf.size(words)
        content = tf.cast(
            tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32
        )
        rows = row_numbers(tf.cumsum(tf.strings.length(words)))
        ids = tf.gather(self._byte_ids, content)
        return self._merges.applied(ids, rows, number)


def _num_bytes(points):
    """int32: of each code point in UTF-8."""
    sizes = [tf.cast(points >= first, tf.int32) for first in (0x80, 0x800, 0x10000)]
    return 1 + sum(sizes)


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
