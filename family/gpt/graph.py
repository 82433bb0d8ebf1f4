"""Tokenizes text into GPT-1's pieces in a TensorFlow graph, for SavedModels.

It equals family/gpt/tokenizer.py.
"""

import numpy as np
import tensorflow as tf

from family.gpt.tokenizer import END, GptBpe
from text.graphs.bpe_graph import Merges
from text.graphs.graph_tokenizer import (
    NUM_POINTS,
    assets,
    ends,
    of_code_points,
    row_numbers,
)
from text.graphs.words_graph import WordsGraph


class GptBpeGraph(WordsGraph):
    """Turns text into pieces in a graph."""

    def __init__(self, tokenizer: GptBpe, folder: str):
        vocabulary = tokenizer.vocabulary
        super().__init__(vocabulary, tokenizer.splitter)
        self.files = assets(folder, tokenizer.files)
        self._sizes = tf.constant(tokenizer.sizes, tf.int32)
        self._merges = Merges(vocabulary, tokenizer.merges)
        self._inner, self._last = (
            of_code_points(_ids(vocabulary, ending)) for ending in ("", END)
        )

    def word_pieces(self, words):
        characters = tf.strings.unicode_decode(words, "UTF-8")
        points = characters.flat_values
        rows = row_numbers(characters.row_limits())
        ids = tf.where(ends(rows), self._last(points), self._inner(points))
        pieces = self._merges.apply(ids, rows, tf.size(words))
        sizes = tf.gather(self._sizes, pieces.flat_values)
        return pieces, pieces.with_flat_values(sizes)


def _ids(vocabulary, ending) -> np.ndarray:
    """int32: the id of each code point as a token with this ending, or the unknown's."""
    table = np.full(NUM_POINTS, vocabulary.unk_id, np.int32)
    for token, id in vocabulary.ids.items():
        character = token.removesuffix(ending)
        if len(character) == 1 and character + ending == token:
            table[ord(character)] = id
    return table
