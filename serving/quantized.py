"""Stores the weights of a network in fewer bits, and unpacks them when it is loaded.

The matrices of dense layers are unpacked to the type in which the network multiplies, other
tables to float32. That happens once per load, by the initializer that every SavedModel may
have; in every call, it would take longer than short rows do. Until then, the place of an
unpacked weight is an empty variable, so that the files contain only what is stored.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from modeling import private

# The Keras policy of a network of each precision.
POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "float32",
    "int8": "mixed_bfloat16",
}
_LARGE = 1024  # numbers; fewer are kept in float32
_MOST = 127  # of an int8, to either side


class _Weight(NamedTuple):
    """A weight of the network, and the variables from which it is made.

    Attributes:
        variable: Keras's.
        stored: its numbers; integers are multiplied by `scale`, float32 or None.
        unpacked: what the network reads; the same as `stored` if that will do.
    """

    variable: keras.Variable
    stored: tf.Variable
    scale: tf.Variable | None
    unpacked: tf.Variable

    @property
    def value(self) -> tf.Tensor:
        """What the network reads."""
        return tf.ensure_shape(self.unpacked.read_value(), self.variable.shape)

    def unpack(self) -> None:
        if self.unpacked is not self.stored:
            wide = tf.cast(self.stored, tf.float32)
            wide = wide if self.scale is None else wide * self.scale
            self.unpacked.assign(tf.cast(wide, self.unpacked.dtype))


class _Unpack(tf.saved_model.experimental.TrackableResource):
    """Has weights unpacked where TensorFlow initializes a model that it loads.

    TensorFlow does that for resources. This one is a number that nobody reads.
    """

    def __init__(self, weights: list[_Weight]):
        super().__init__()
        self._weights = weights
        self._variables = [part for w in weights for part in w[1:] if part is not None]

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[], shared_name="unpacked")

    def _initialize(self):
        for weight in self._weights:
            weight.unpack()


class Quantized:
    """A network with stored weights of fewer bits; called like it.

    Args:
        model: the network, with float32 weights.
        precision: "bfloat16", "float16" or "int8"; one scale for each output of a dense
            layer, or row of a table.
    Attributes:
        weights: the network's.
        saved: what its files contain.
        unpack: to be saved with it.
    """

    def __init__(self, model: keras.Layer, precision: str):
        self._model = model
        self.weights = model.weights
        matrices = {
            variable.path: layer.compute_dtype
            for layer in private.layers_in(model)
            if isinstance(layer, keras.layers.Dense)
            for variable in layer.weights
        }
        with tf.device("CPU"):
            self._quantized = [
                _quantize(variable, precision, matrices.get(variable.path))
                for variable in model.weights
                if len(variable.shape) > 1 and np.prod(variable.shape) >= _LARGE
            ]
        self._unpack_all()
        quantized = {weight.variable.path for weight in self._quantized}
        others = [v.value for v in model.weights if v.path not in quantized]
        parts = [part for w in self._quantized for part in w[1:] if part is not None]
        self.saved = [*others, *parts]
        self.unpack = _Unpack(self._quantized)

    def __call__(self, batch: Mapping) -> dict:
        scope = keras.StatelessScope()
        for weight in self._quantized:
            # Not in its constructor, which would convert it to the variable's type.
            scope.add_update((weight.variable, weight.value))
        with scope:
            return self._model(batch)

    @property
    def encoder(self):
        return self._model.encoder

    @property
    def ranked_outputs(self):
        return self._model.ranked_outputs

    @contextlib.contextmanager
    def empty(self) -> Iterator[None]:
        """Nothing is unpacked inside: so it is saved."""
        for weight in self._quantized:
            if weight.unpacked is not weight.stored:
                rank = len(weight.variable.shape)
                weight.unpacked.assign(tf.zeros([0] * rank, weight.unpacked.dtype))
        try:
            yield
        finally:
            self._unpack_all()

    def _unpack_all(self):
        with tf.device("CPU"):
            for weight in self._quantized:
                weight.unpack()


def _quantize(variable, precision: str, matrix_dtype: str | None) -> _Weight:
    """Args:
    matrix_dtype: the type in which a dense layer multiplies by it; None: another weight.
    """
    numbers, scale = variable.numpy(), None
    wanted = tf.as_dtype(matrix_dtype or "float32")
    if precision == "int8":
        axes = 0 if matrix_dtype else -1  # inputs of an output, or numbers of a row
        scale = np.abs(numbers).max(axis=axes, keepdims=True) / _MOST
        scale = np.where(scale, scale, 1).astype(np.float32)
        numbers = np.round(numbers / scale)
    name = variable.path
    stored = tf.Variable(tf.cast(numbers, precision), trainable=False, name=name)
    if stored.dtype == wanted:
        return _Weight(variable, stored, None, stored)
    if scale is not None:
        scale = tf.Variable(scale, trainable=False, name=f"{name}/scale")
    rank = len(variable.shape)
    unpacked = tf.Variable(
        tf.zeros([0] * rank, wanted),
        shape=[None] * rank,
        trainable=False,
        name=f"{name}/unpacked",
    )
    return _Weight(variable, stored, scale, unpacked)
