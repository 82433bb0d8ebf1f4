"""Encodes texts as the numbers of their tokens, in a TensorFlow graph, for SavedModels.

Rows that are packed of such numbers tell where in the texts each of their tokens is from.
"""

import tensorflow as tf

from text.graphs.graph_tokenizer import GraphTokenizer, row_numbers
from text.graphs.row_chunks import not_empty


class NumberedTokens:
    """A `GraphTokenizer` that encodes the i-th token of all its texts as -1 - i.

    Special tokens have the ids that they always have, which are not below 0.

    Attributes:
        encoded: ids, starts and ends of the texts of each call of an `encode`.
    """

    def __init__(self, tokenizer: GraphTokenizer):
        self._tokenizer = tokenizer
        self.encoded: list[tuple[tf.RaggedTensor, ...]] = []

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def encode(self, texts):
        return self.encode_with_offsets(texts)[0]

    def encode_with_offsets(self, texts):
        ids, *places = self._tokenizer.encode_with_offsets(texts)
        before = sum(tf.size(ids.flat_values) for ids, *_ in self.encoded)
        numbers = tf.range(before, before + tf.size(ids.flat_values))
        self.encoded.append((ids, *places))
        return ids.with_flat_values(-1 - numbers), *places

    def ids_of(self, rows: tf.Tensor) -> tf.Tensor:
        """The ids that rows of numbers stand for; int32 [...]."""
        ids = tf.concat([ids.flat_values for ids, *_ in self.encoded], axis=0)
        return tf.where(rows < 0, tf.gather(not_empty(ids), numbers_of(rows)), rows)

    def columns(self) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The tokens of each request, if every call encoded one text of each.

        Returns:
            their numbers, int32 [b, (tokens)], those of the first text first; and the
            place of each token in its request, int32 [tokens].
        """
        before, parts = 0, []
        for ids, *_ in self.encoded:
            size = tf.size(ids.flat_values)
            parts.append(ids.with_flat_values(tf.range(before, before + size)))
            before += size
        numbers = tf.concat(parts, axis=1)
        first = tf.gather(numbers.row_starts(), row_numbers(numbers.row_limits()))
        places = tf.range(before) - tf.cast(first, tf.int32)
        return numbers, tf.scatter_nd(numbers.flat_values[:, None], places, [before])


def numbers_of(rows: tf.Tensor) -> tf.Tensor:
    """The number of each token of numbered rows, and 0 for special tokens."""
    return tf.maximum(-1 - rows, 0)
