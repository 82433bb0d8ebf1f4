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

    def columns(self, rows: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The tokens of each request that some row has, if every call encoded one text of
        each request.

        Args:
            rows: of numbers, int32 [...].
        Returns:
            the numbers of these tokens, int32 [b, (n)], those of the first text first; and
            int32 [tokens], the place of each of them in its request, 0 for others.
        """
        before, parts = 0, []
        for ids, *_ in self.encoded:
            size = tf.size(ids.flat_values)
            parts.append(ids.with_flat_values(tf.range(before, before + size)))
            before += size
        numbers = _keep(tf.concat(parts, axis=1), rows, before)
        first = tf.gather(numbers.row_starts(), row_numbers(numbers.row_limits()))
        places = tf.range(tf.size(numbers.flat_values)) - tf.cast(first, tf.int32)
        return numbers, tf.scatter_nd(numbers.flat_values[:, None], places, [before])


def numbers_of(rows: tf.Tensor) -> tf.Tensor:
    """The number of each token of numbered rows, and 0 for special tokens."""
    return tf.maximum(-1 - rows, 0)


def _keep(numbers, rows, total):
    """Those, [b, (tokens)], of the tokens that some row has."""
    packed = numbers_of(tf.boolean_mask(rows, rows < 0))
    is_packed = tf.scatter_nd(packed[:, None], tf.ones_like(packed), [total]) > 0
    is_kept = tf.gather(is_packed, numbers.flat_values)
    kept = tf.concat([[0], tf.cumsum(tf.cast(is_kept, tf.int64))], axis=0)
    return tf.RaggedTensor.from_row_splits(
        tf.boolean_mask(numbers.flat_values, is_kept),
        tf.gather(kept, numbers.row_splits),
        validate=False,
    )
