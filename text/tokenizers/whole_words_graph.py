"""Whole words in a TensorFlow graph, for SavedModels.

It equals text/tokenizers/whole_words.py.
"""

import tensorflow as tf

from text.tokenizers import wordpiece_graph
from text.tokenizers.whole_words import SPECIAL, WholeWords
from text.tokenizers.words_graph import WordsGraph


class WholeWordsGraph(WordsGraph):
    """Turns text into the ids of its words in a graph."""

    def __init__(self, tokenizer: WholeWords, vocab_file: str):
        """Args: as for `WordPieceGraph`."""
        super().__init__(tokenizer.vocabulary, tokenizer.splitter)
        self._ids, self._tokens = wordpiece_graph.tables(
            tokenizer.vocabulary, vocab_file
        )
        self._special = tf.constant([tokenizer.vocabulary.ids[x] for x in SPECIAL])

    def tokens(self, ids):
        return self._tokens.lookup(tf.cast(ids, tf.int64))

    def word_pieces(self, words):
        ids = tf.cast(self._ids.lookup(words), tf.int32)
        is_special = tf.reduce_any(ids[:, None] == self._special, axis=1)
        ids = tf.where((ids < 0) | is_special, self.unk_id, ids)
        sizes = tf.strings.length(words, unit="UTF8_CHAR")
        return tuple(
            tf.RaggedTensor.from_row_lengths(x, tf.ones_like(x), validate=False)
            for x in (ids, sizes)
        )
