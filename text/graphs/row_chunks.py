"""Runs a network on any number of rows inside a graph."""

import abc
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

_MOST_TOKENS = 1 << 13


class BoundedRows(NamedTuple):
    """Rows for a network, and how many of them it may get at once.

    Attributes:
        batch: tensors without an axis of size 0: if there are no rows, one of zeros.
        count: how many rows there are.
        most: at once.
    """

    batch: dict[str, tf.Tensor]
    count: tf.Tensor
    most: tf.Tensor


def bound_rows(batch: dict[str, tf.Tensor], most: int | None = None) -> BoundedRows:
    """The rows of a batch of tensors [rows, ..., s]; see `run_in_chunks`."""
    count = tf.shape(next(iter(batch.values())))[0]
    batch = {name: not_empty(value) for name, value in batch.items()}
    of_a_row = tf.reduce_prod(tf.shape(next(iter(batch.values())))[1:])
    bound = tf.maximum(_MOST_TOKENS // of_a_row, 1)
    return BoundedRows(batch, count, bound if most is None else tf.minimum(bound, most))


class Substitute(abc.ABC):
    """What `run_in_chunks` may ask instead of a network."""

    @abc.abstractmethod
    def outputs_of(
        self, rows: BoundedRows, then: Callable[[dict, dict], dict] | None
    ) -> dict[str, tf.Tensor]:
        """See `run_in_chunks`, which returns this."""


def run_in_chunks(
    predict: Callable[[dict], dict] | Substitute,
    batch: dict[str, tf.Tensor],
    then: Callable[[dict, dict], dict] | None = None,
    most_rows: int | None = None,
) -> dict[str, tf.Tensor]:
    """A network's outputs for a batch of any number of rows, in bounded memory.

    Args:
        predict: dict of tensors [n, ...] -> dict of tensors [n, ...].
        batch: dict of tensors [rows, ..., s].
        then: (outputs, batch) of some rows -> what to keep of the outputs; it depends on
            nothing else.
        most_rows: the most rows at once, in addition to the limit of 8,192 tokens.
    """
    bounded = bound_rows(batch, most_rows)
    if isinstance(predict, Substitute):
        return predict.outputs_of(bounded, then)
    batch, rows, most_rows = bounded
    parts = (tf.maximum(rows, 1) + most_rows - 1) // most_rows

    def predict_part(part):
        outputs = predict(part)
        return then(outputs, part) if then else outputs

    # A single function for the loop, whose outputs are known before it runs.
    network = tf.function(predict_part, autograph=False).get_concrete_function(
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
