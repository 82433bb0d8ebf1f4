"""Tokenizes text into the BPE pieces of GPT-1 in a TensorFlow graph, for SavedModels.

It equals text/tokenizers/gpt_bpe.py with Hugging Face's words; OpenAI's need spaCy.
"""

import numpy as np
import tensorflow as tf

from text.tokenizers.gpt_bpe import END, GptBpe
from text.tokenizers.graph_tokenizer import (
    NUM_POINTS,
    assets,
    of_code_points,
    row_numbers,
)
from text.tokenizers.merges_graph import Merges
from text.tokenizers.words_graph import WordsGraph


class GptBpeGraph(WordsGraph):
    """Turns text into pieces in a graph."""

    def __init__(self, tokenizer: GptBpe, folder: str):
        """Args:
        tokenizer: the tokenizer to reproduce.
        folder: where to write its files; a SavedModel includes them.
        """
        vocabulary = tokenizer.vocabulary
        super().__init__(vocabulary, tokenizer.splitter)
        self.files = assets(folder, tokenizer.files)
        self._tokens = tf.constant(vocabulary.tokens)
        self._sizes = tf.constant(tokenizer.sizes, tf.int32)
        self._merges = Merges(vocabulary, tokenizer.merges)
        self._inner, self._last = (
            of_code_points(_ids(vocabulary, ending)) for ending in ("", END)
        )

    def word_pieces(self, words):
        characters = tf.strings.unicode_decode(words, "UTF-8")
        points = characters.flat_values
        rows = row_numbers(characters.row_limits())
        is_last = tf.concat([rows[1:] != rows[:-1], [True]], 0)[: tf.size(rows)]
        ids = tf.where(is_last, self._last(points), self._inner(points))
        pieces = self._merges.applied(ids, rows, tf.size(words))
        sizes = tf.gather(self._sizes, pieces.flat_values)
        return pieces, pieces.with_flat_values(sizes)

    def tokens(self, ids):
        return tf.gather(self._tokens, ids)


def _ids(vocabulary, ending) -> np.ndarray:
    """int32: the id of each code point as a token with this ending, or the unknown's."""
    table = np.full(NUM_POINTS, vocabulary.unk_id, np.int32)
    for token, id in vocabulary.ids.items():
        character = token.removesuffix(ending)
        if len(character) == 1 and character + ending == token:
            table[ord(character)] = id
    return table
