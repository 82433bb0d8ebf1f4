"""Looks whole words up in a TensorFlow graph, for SavedModels.

It equals family/elmo/tokenizer.py.
"""

import tensorflow as tf

from family.elmo.tokenizer import SPECIAL, VOCABULARY_FILE, WholeWords
from text.graphs.listed_words_graph import ListedWordsGraph


class WholeWordsGraph(ListedWordsGraph):
    """Turns text into the ids of its words in a graph."""

    def __init__(self, tokenizer: WholeWords, folder: str):
        super().__init__(tokenizer, folder, VOCABULARY_FILE)
        ids = tokenizer.vocabulary.ids
        self._special = tf.constant([ids[token] for token in SPECIAL])

    def word_pieces(self, words):
        ids = self.lookup(words)
        is_special = tf.reduce_any(ids[:, None] == self._special, axis=1)
        ids = tf.where((ids < 0) | is_special, self.unk_id, ids)
        sizes = tf.strings.length(words, unit="UTF8_CHAR")
        return tuple(
            tf.RaggedTensor.from_row_lengths(x, tf.ones_like(x), validate=False)
            for x in (ids, sizes)
        )
