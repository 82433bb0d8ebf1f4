"""Tokenizes text into WordPieces in a TensorFlow graph, for SavedModels.

It equals text/tokenizers/wordpiece.py.
"""

import tensorflow as tf

from text.graphs.graph_tokenizer import by_rows
from text.graphs.listed_words_graph import ListedWordsGraph
from text.tokenizers import wordpiece


class WordPieceGraph(ListedWordsGraph):
    """Turns text into WordPieces in a graph."""

    def __init__(self, tokenizer: wordpiece.WordPiece, folder: str):
        super().__init__(tokenizer, folder, wordpiece.VOCABULARY_FILE)
        tokens = tokenizer.vocabulary.tokens
        self._spelled = tf.constant([*tokens, ""]) if self.renames else None
        self._longest_piece = max(map(len, tokens))

    def tokens(self, ids):
        if self._spelled is not None:
            return tf.gather(self._spelled, tf.minimum(ids, self.vocab_size))
        return super().tokens(ids)

    def word_pieces(self, words):
        lengths = tf.strings.length(words, unit="UTF8_CHAR")
        # The id of a word that is one piece; -1 if it must be split.
        ids = tf.where(
            lengths <= wordpiece.LONGEST_WORD, self.lookup(words), self.unk_id
        )
        numbers, pieces, sizes = self._take_apart(words, lengths, tf.where(ids < 0))
        failed = tf.boolean_mask(numbers, pieces < 0)[:, None]
        unknown = tf.fill(tf.shape(failed)[:1], self.unk_id)
        ids = tf.tensor_scatter_nd_update(ids, failed, unknown)
        fits = tf.gather(ids, numbers) < 0
        ones = tf.squeeze(tf.where(ids >= 0), 1)
        numbers, pieces, sizes = (
            tf.concat([whole, tf.boolean_mask(taken_apart, fits)], 0)
            for whole, taken_apart in (
                (ones, numbers),
                (tf.gather(ids, ones), pieces),
                (tf.gather(lengths, ones), sizes),
            )
        )
        order = tf.argsort(numbers, stable=True)
        numbers = tf.gather(numbers, order)
        return tuple(
            by_rows(tf.gather(values, order), numbers, tf.size(words))
            for values in (pieces, sizes)
        )

    def _take_apart(self, words, lengths, places):
        """Finds the longest pieces from the left, for all words at once.

        Args:
            words, lengths: string and int32 [n].
            places: int64 [m, 1], the words to split.
        Returns:
            word numbers int64, ids and sizes int32; those of a word in order. An id is -1
            if nothing in the vocabulary begins the rest of a word.
        """
        numbers = tf.squeeze(places, 1)

        def step(mark, numbers, rest, left, pieces):
            size = tf.range(1, 1 + tf.minimum(tf.reduce_max(left), self._longest_piece))
            beginnings = tf.strings.substr(
                rest[:, None], tf.zeros_like(size)[None], size[None], "UTF8_CHAR"
            )
            ids = self.lookup(tf.strings.join([mark, beginnings]))  # [m, sizes]
            fits = (ids >= 0) & (size <= left[:, None])
            length = tf.reduce_max(tf.where(fits, size, 0), axis=1)
            id = tf.gather(ids, tf.maximum(length - 1, 0), batch_dims=1)
            id = tf.where(length > 0, id, -1)
            new = (numbers, id, length)
            pieces = [tf.concat(pair, 0) for pair in zip(pieces, new, strict=True)]
            has_rest = (length > 0) & (length < left)
            numbers, rest, left, length = (
                tf.boolean_mask(x, has_rest) for x in (numbers, rest, left, length)
            )
            left -= length
            rest = tf.strings.substr(rest, length, left, "UTF8_CHAR")
            return tf.constant("##"), numbers, rest, left, pieces

        none = tf.zeros([0], tf.int32)
        *_, pieces = tf.while_loop(
            lambda mark, numbers, *_: tf.size(numbers) > 0,
            step,
            [
                tf.constant(""),
                numbers,
                tf.gather(words, numbers),
                tf.gather(lengths, numbers),
                [tf.cast(none, tf.int64), none, none],
            ],
            shape_invariants=[tf.TensorShape([]), *[tf.TensorShape([None])] * 3]
            + [[tf.TensorShape([None])] * 3],
        )
        return pieces
