"""Runs a network on any number of rows inside a graph."""

from collections.abc import Callable

import tensorflow as tf

_MOST_TOKENS = 1 << 13


def in_parts(
    predict: Callable[[dict], dict],
    batch: dict[str, tf.Tensor],
    most_rows: int | None = None,
) -> dict[str, tf.Tensor]:
    """What a network says of a batch, in bounded memory, however many rows it has.

    The network never sees an empty tensor: where there is no row, it is shown one of
    zeros, and the answer left out.

    Args:
        predict: dict of tensors [n, ...] -> dict of tensors [n, ...].
        batch: of tensors [rows, ..., s].
        most_rows: that the network is shown at once, besides the bound that they have
            8,192 tokens together.
    Returns:
        what `predict` gives, [rows, ...].
    """
    rows = tf.shape(next(iter(batch.values())))[0]
    batch = {name: _not_empty(value) for name, value in batch.items()}
    of_a_row = tf.reduce_prod(tf.shape(next(iter(batch.values())))[1:])
    bound = tf.maximum(_MOST_TOKENS // of_a_row, 1)
    most_rows = bound if most_rows is None else tf.minimum(bound, most_rows)
    parts = (tf.maximum(rows, 1) + most_rows - 1) // most_rows
    # One function, which the loop calls: its outputs are known before it runs.
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


def _not_empty(tensor):
    """Every axis without an entry gets one, 0."""
    missing = tf.cast(tf.equal(tf.shape(tensor), 0), tf.int32)
    return tf.pad(tensor, tf.stack([tf.zeros_like(missing), missing], axis=1))


def _any_rows(tensor):
    return [None, *tensor.shape[1:]]
