"""Merges the pieces of words as BPE does in a TensorFlow graph, for SavedModels."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from text.tokenizers.vocabulary import Vocabulary

_NO_RANK = np.iinfo(np.int32).max


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

    def applied(self, ids: tf.Tensor, rows: tf.Tensor, number: int) -> tf.RaggedTensor:
        """Merges what can be merged.

        Args:
            ids, rows: int32 [pieces], the first pieces, and the number of their word,
                ascending.
            number: of words.
        Returns:
            int32 [number, (pieces)].
        """

        def step(ids, rows, found):
            """Merges once in each word; sets aside those in which nothing merges."""
            ranks = self._neighbors(ids, rows)
            lowest = tf.gather(tf.math.unsorted_segment_min(ranks, rows, number), rows)
            is_done = lowest == _NO_RANK
            new = [tf.boolean_mask(x, is_done) for x in (ids, rows)]
            found = [tf.concat(pair, 0) for pair in zip(found, new, strict=True)]
            ids, rows, ranks, lowest = (
                tf.boolean_mask(x, ~is_done) for x in (ids, rows, ranks, lowest)
            )
            merges = self._chosen(ranks == lowest, rows, number)
            merged = tf.gather(self._merged, tf.where(merges, ranks, 0))
            ids = tf.where(merges, merged, ids)
            is_kept = ~following(merges, -1)
            return tf.boolean_mask(ids, is_kept), tf.boolean_mask(rows, is_kept), found

        none = tf.zeros([0], tf.int32)
        any_size = tf.TensorShape([None])
        *_, (ids, rows) = tf.while_loop(
            lambda ids, *_: tf.size(ids) > 0,
            step,
            [ids, rows, [none, none]],
            shape_invariants=[any_size, any_size, [any_size, any_size]],
        )
        order = tf.argsort(rows, stable=True)
        return tf.RaggedTensor.from_value_rowids(
            tf.gather(ids, order), tf.gather(rows, order), number, validate=False
        )

    def _keys(self, left, right):
        """int64: a number for each pair of ids."""
        return left * self._vocab_size + right

    def _neighbors(self, ids, rows):
        """int32 [pieces]: the rank of each piece with the next one of its word."""
        keys = self._keys(*(tf.cast(x, tf.int64) for x in (ids, following(ids, 1))))
        place = tf.searchsorted(self._pairs, keys)
        is_last = tf.concat([rows[1:] != rows[:-1], [True]], 0)[-tf.size(rows) :]
        is_pair = (tf.gather(self._pairs, place) == keys) & ~is_last
        return tf.where(is_pair, tf.gather(self._ranks, place), _NO_RANK)

    def _chosen(self, is_lowest, rows, number):
        """bool [pieces]: which of the pairs with the lowest rank to merge."""
        places = tf.range(tf.size(rows))
        if not self._in_order:
            first = tf.where(is_lowest, places, _NO_RANK)
            first = tf.math.unsorted_segment_min(first, rows, number)
            return places == tf.gather(first, rows)
        # From the left: of overlapping pairs, as in "aaa", every other one.
        begins = is_lowest & ~following(is_lowest, -1)
        run = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32)) - 1, 0)
        begin = tf.gather(tf.cast(tf.where(begins)[:, 0], tf.int32), run)
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
