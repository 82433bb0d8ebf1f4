"""Attention of long rows in blocks: nothing has a number for each pair of positions.

Each block of queries reads one block of keys after another, and keeps the largest score so
far, the sum of exponentials, and the sum of values. Gradients compute the scores again.
Blocks of keys that no query of a block sees are skipped: padding, other documents, and what
follows where attention is to the left.

Source: arXiv:2112.05682, arXiv:2205.14135, algorithms 1 and 4.

Axes: b batch, n num_heads, s seq_length, d head_size; c blocks of a row, w the width of
one.
"""

import math
from typing import NamedTuple

import numpy as np
from keras import ops

from modeling import layers, row_random

_LONGEST_SQUARE = 1024  # positions; up to here, one product of all pairs is faster
_WIDEST = 256  # of a block
# Added to the scores of what is not seen. Finite, so that a query that sees nothing attends
# evenly instead of becoming NaN.
_UNSEEN_SCORE = -1e9


class Seen(NamedTuple):
    """Which positions see each other: a query sees the keys of its number.

    Attributes:
        queries, keys: int32 [b, s]. The numbers of keys that some query has ascend.
    """

    queries: object
    keys: object

    @classmethod
    def of(cls, tokens, input_mask=None, documents=None) -> "Seen":
        """What positions see.

        Args:
            tokens: [b, s, ...].
            input_mask: int [b, s], 0 for padding, which nothing sees; None without any.
            documents: int [b, s], ascending: which ones see each other; None if all do.
        """
        if documents is None:
            documents = ops.ones(ops.shape(tokens)[:2], "int32")
        keys = documents
        if input_mask is not None:
            keys = ops.where(ops.cast(input_mask, "bool"), documents, -1)
        return cls(documents, keys)


def is_long(seq_length: int | None) -> bool:
    """Whether rows of this length are read in blocks; never if it varies by batch."""
    return (seq_length or 0) > _LONGEST_SQUARE


def attend(
    query,
    key,
    value,
    seen: Seen,
    direction: str = "both",
    rate: float = 0.0,
    words: tuple = (),
):
    """[b, n, s, d]: the mean of the values by the softmax of what each query gives.

    Args:
        query, key, value: [b, n, s, d]; s is known in advance.
        direction: see `BertConfig`.
        rate, words: of the dropout of the probabilities; see `layers.dropout`.
    """
    length = query.shape[2]
    blocks = _Blocks(seen, length, direction, rate, words)

    @ops.custom_gradient
    def of_blocks(query, key, value):
        tensors = tuple(blocks.divide(x) for x in (query, key, value))
        context, log_sums = _read(*tensors, blocks)

        def gradient(upstream):
            upstream = blocks.divide(upstream)
            gradients = _gradients(*tensors, context, log_sums, upstream, blocks)
            return tuple(blocks.join(x) for x in gradients)

        return blocks.join(context), gradient

    return of_blocks(query, key, value)


class _Blocks:
    """How rows are divided, and what the queries of each block see."""

    def __init__(self, seen, length, direction, rate, words):
        self.length, self.rate, self.words = length, rate, words
        self.count = math.ceil(length / _WIDEST)
        self.width = math.ceil(length / self.count)
        self.direction = direction
        self._missing = self.count * self.width - length
        # Filler keys have a number that no query has.
        self._queries = self._numbers(seen.queries, np.iinfo(np.int32).max)
        self._keys = self._numbers(seen.keys, -2)
        self.begins, self.ends = self._bounds()

    def _numbers(self, x, filler):
        """[b, s] -> [c, b, w]"""
        x = ops.pad(
            ops.cast(x, "int32"), ((0, 0), (0, self._missing)), constant_values=filler
        )
        x = ops.reshape(x, (ops.shape(x)[0], self.count, self.width))
        return ops.transpose(x, (1, 0, 2))

    def _bounds(self):
        """int32 [c], twice: the first block of keys to read for each of queries, and the
        first not to read.
        """
        queries, keys = self._queries, self._keys
        first, last = ops.min(queries, axis=2), ops.max(queries, axis=2)
        lowest = ops.min(ops.where(keys < 0, np.iinfo(np.int32).max, keys), axis=2)
        is_seen = ops.logical_and(
            first[:, None] <= ops.max(keys, axis=2)[None],
            lowest[None] <= last[:, None],
        )
        is_seen = ops.any(is_seen, axis=2)  # [c (queries), c (keys)]
        places = np.arange(self.count, dtype=np.int32)
        if self.direction != "both":
            before = places[:, None] >= places[None]
            is_seen = ops.logical_and(
                is_seen, before if self.direction == "left_to_right" else before.T
            )
        begins = ops.min(ops.where(is_seen, places[None], self.count), axis=1)
        ends = ops.max(ops.where(is_seen, places[None] + 1, 0), axis=1)
        sees_some = begins < ends  # else it reads all, evenly
        return (
            ops.cast(ops.where(sees_some, begins, 0), "int32"),
            ops.cast(ops.where(sees_some, ends, self.count), "int32"),
        )

    def divide(self, x):
        """[b, n, s, d] -> [c, b, n, w, d]; zeros fill the last one."""
        x = ops.pad(x, ((0, 0), (0, 0), (0, self._missing), (0, 0)))
        rows, heads, _, size = ops.shape(x)
        x = ops.reshape(x, (rows, heads, self.count, self.width, size))
        return ops.transpose(x, (2, 0, 1, 3, 4))

    def join(self, x):
        """[c, b, n, w, d] -> [b, n, s, d]"""
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        rows, heads, _, _, size = ops.shape(x)
        x = ops.reshape(x, (rows, heads, self.count * self.width, size))
        return x[:, :, : self.length]

    def scores(self, query, key, i, j):
        """float32 [b, n, w, w]: of a block of queries and one of keys."""
        scores = ops.cast(ops.einsum("bnqd,bnkd->bnqk", query, key), "float32")
        numbers = _at(self._queries, i), _at(self._keys, j)
        is_seen = numbers[0][:, :, None] == numbers[1][:, None, :]
        if self.direction != "both":
            places = ops.arange(self.width, dtype="int32")
            queries, keys = i * self.width + places, j * self.width + places
            before = queries[:, None] >= keys[None]
            if self.direction == "right_to_left":
                before = queries[:, None] <= keys[None]
            is_seen = ops.logical_and(is_seen, before[None])
        return scores + ops.where(is_seen, 0.0, _UNSEEN_SCORE)[:, None]

    def drop(self, x, i, j):
        """The dropout of what belongs to the probabilities of two blocks."""
        words = self.words
        if words:
            words = row_random.part(words, i * self.count + j)
        return layers.dropout(x, self.rate, *words)


def _read(query, key, value, blocks):
    """[c, b, n, w, d]: what each query reads; and the logarithm of the sum of its
    exponentials, float32 [c, b, n, w, 1].
    """
    zeros = ops.zeros_like(query[0], "float32")

    def read_block(i, contexts, log_sums):
        queries = _at(query, i)

        def read_more(j, highest, mass, total):
            scores = blocks.scores(queries, _at(key, j), i, j)
            higher = ops.maximum(highest, ops.max(scores, axis=-1, keepdims=True))
            probs, scale = ops.exp(scores - higher), ops.exp(highest - higher)
            mass = mass * scale + ops.sum(probs, axis=-1, keepdims=True)
            probs = blocks.drop(ops.cast(probs, value.dtype), i, j)
            read = ops.cast(ops.matmul(probs, _at(value, j)), "float32")
            return j + 1, higher, mass, total * scale + read

        begin, end = _at(blocks.begins, i), _at(blocks.ends, i)
        state = begin, zeros[..., :1] - np.float32(np.inf), zeros[..., :1], zeros
        _, highest, mass, total = ops.while_loop(
            lambda j, *_: j < end, read_more, state
        )
        context = ops.cast(total / mass, query.dtype)
        log_sum = highest + ops.log(mass)
        return i + 1, _put(contexts, i, context), _put(log_sums, i, log_sum)

    sums = ops.zeros_like(query[..., :1], "float32")
    _, context, log_sums = ops.while_loop(
        lambda i, *_: i < blocks.count,
        read_block,
        (ops.zeros((), "int32"), ops.zeros_like(query), sums),
    )
    return context, log_sums


def _gradients(query, key, value, context, log_sums, upstream, blocks):
    """By queries, keys and values, each [c, b, n, w, d]."""
    products = ops.cast(upstream, "float32") * ops.cast(context, "float32")
    slopes = ops.sum(products, axis=-1, keepdims=True)

    def of_block(i, of_query, of_key, of_value):
        queries, ups = _at(query, i), _at(upstream, i)
        log_sum, slope = _at(log_sums, i), _at(slopes, i)

        def of_more(j, of_queries, of_key, of_value):
            keys = _at(key, j)
            probs = ops.exp(blocks.scores(queries, keys, i, j) - log_sum)
            of_probs = ops.einsum("bnqd,bnkd->bnqk", ups, _at(value, j))
            of_probs = ops.cast(blocks.drop(of_probs, i, j), "float32")
            of_scores = ops.cast(probs * (of_probs - slope), query.dtype)
            probs = blocks.drop(ops.cast(probs, value.dtype), i, j)
            of_queries += ops.cast(ops.matmul(of_scores, keys), "float32")
            of_keys = ops.einsum("bnqk,bnqd->bnkd", of_scores, queries)
            of_values = ops.einsum("bnqk,bnqd->bnkd", probs, ups)
            return (
                j + 1,
                of_queries,
                _add(of_key, j, of_keys),
                _add(of_value, j, of_values),
            )

        begin, end = _at(blocks.begins, i), _at(blocks.ends, i)
        state = begin, ops.zeros_like(queries, "float32"), of_key, of_value
        _, of_queries, of_key, of_value = ops.while_loop(
            lambda j, *_: j < end, of_more, state
        )
        of_query = _put(of_query, i, ops.cast(of_queries, query.dtype))
        return i + 1, of_query, of_key, of_value

    zeros = ops.zeros_like(key, "float32")
    _, *gradients = ops.while_loop(
        lambda i, *_: i < blocks.count,
        of_block,
        (ops.zeros((), "int32"), ops.zeros_like(query), zeros, zeros),
    )
    return tuple(ops.cast(x, query.dtype) for x in gradients)


def _at(x, i):
    return ops.take(x, i, axis=0)


def _put(x, i, part):
    return ops.slice_update(x, (i, *[0] * (len(x.shape) - 1)), part[None])


def _add(x, i, part):
    return _put(x, i, _at(x, i) + ops.cast(part, x.dtype))
