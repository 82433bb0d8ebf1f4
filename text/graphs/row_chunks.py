"""Runs a network on any number of rows inside a graph."""

from collections.abc import Callable

import tensorflow as tf

_MOST_TOKENS = 1 << 13


def run_in_chunks(
    predict: Callable[[dict], dict],
    batch: dict[str, tf.Tensor],
    most_rows: int | None = None,
) -> dict[str, tf.Tensor]:
    """A network's outputs for a batch of any number of rows, in bounded memory.

    The network never gets an empty tensor: if there are no rows, it gets one of zeros, and
    its output is dropped.

    Args:
        predict: dict of tensors [n, ...] -> dict of tensors [n, ...].
        batch: dict of tensors [rows, ..., s].
        most_rows: the most rows at once, in addition to the limit of 8,192 tokens.
    """
    rows = tf.shape(next(iter(batch.values())))[0]
    batch = {name: not_empty(value) for name, value in batch.items()}
    of_a_row = tf.reduce_prod(tf.shape(next(iter(batch.values())))[1:])
    bound = tf.maximum(_MOST_TOKENS // of_a_row, 1)
    most_rows = bound if most_rows is None else tf.minimum(bound, most_rows)
    parts = (tf.maximum(rows, 1) + most_rows - 1) // most_rows
    # A single function for the loop, whose outputs are known before it runs.
    network = tf.function(predict, autograph=False).get_concrete_function(
        {name: tf.TensorSpec(_any_rows(v), v.dtype) for name, v in batch.items()}
    )
    arrays = {
        name: tf.TensorArray(
            spec.dtype, parts, infer_shape=False, element_shape=_any_rows(spec)
        )
        for name, spec in network.structured_outputs.items()
    }

    def run(part, arrays):
        first = part * most_rows
        outputs = network({n: v[first : first + most_rows] for n, v in batch.items()})
        return part + 1, {n: a.write(part, outputs[n]) for n, a in arrays.items()}

    _, arrays = tf.while_loop(
        lambda part, _: part < parts, run, (0, arrays), parallel_iterations=1
    )
    return {name: array.concat()[:rows] for name, array in arrays.items()}


def not_empty(tensor: tf.Tensor) -> tf.Tensor:
    """Pads every axis of size 0 with one 0."""
    missing = tf.cast(tf.equal(tf.shape(tensor), 0), tf.int32)
    return tf.pad(tensor, tf.stack([tf.zeros_like(missing), missing], axis=1))


def _any_rows(tensor):
    return [None, *tensor.shape[1:]]
