"""Adafactor, T5's optimizer, which keeps two vectors for most matrices."""

from collections.abc import Mapping, Sequence

import keras
import numpy as np
from keras import ops

from modeling import fusion, layers

_FACTORED_FROM = 128  # both axes of a variable must have that many numbers
_EPSILON, _LEAST_SCALE = 1e-30, 1e-3


class Adafactor:
    """Adam's second moment, divided by which an update has a norm of at most 1.

    Of a variable whose two largest axes have at least 128 numbers, the moment is kept as
    its means over each of them. The moments' decay begins at 0 and approaches 1. An update
    is relative to the root of the variable's mean square. There is no first moment and no
    weight decay.

    Its slots are `<variable path>_slot_vr` and `_slot_vc`, or `_slot_v`, as in the released
    checkpoints. See `adam.AdamWeightDecay` for how it is used.

    Args:
        variables: what to train; float32.
        shares: path of a variable -> its share of the learning rate, if that is not 1.
    Source: arXiv:1804.04235; tensorflow/mesh@da90793 mesh_tensorflow/optimize.py, class
        AdafactorOptimizer, with the settings of T5.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        *,
        shares: Mapping[str, float] = {},
    ):
        self.trainable_variables = list(variables)
        self.shares = shares
        self._axes = [factored_axes(v.shape) for v in self.trainable_variables]
        self._slots = [
            _make_slots(variable, axes)
            for variable, axes in zip(self.trainable_variables, self._axes, strict=True)
        ]

    @property
    def variables(self) -> list[keras.Variable]:
        """The slots, named as in a checkpoint."""
        return [slot for slots in self._slots for slot in slots]

    def apply(self, gradients: Sequence, learning_rate, step=None, scale=1.0) -> None:
        """Updates variables and slots once; see `AdamWeightDecay.apply`."""
        decay = 1.0 - (ops.cast(step, "float32") + 1.0) ** -0.8
        rate, scale = (
            ops.convert_to_tensor(number, "float32")
            for number in (learning_rate, scale)
        )
        for variable, slots, axes, gradient in zip(
            self.trainable_variables, self._slots, self._axes, gradients, strict=True
        ):
            share = self.shares.get(variable.path, 1.0)
            value, *moments = _update(
                ops.convert_to_tensor(variable),
                gradient,
                decay,
                rate * share,
                scale,
                axes,
                *map(ops.convert_to_tensor, slots),
            )
            for slot, moment in zip(slots, moments, strict=True):
                slot.assign(moment)
            variable.assign(value)


def factored_axes(shape: Sequence[int]) -> tuple[int, ...]:
    """The largest axis and the next; none if the moment is kept as it is."""
    order = np.argsort([-size for size in shape], kind="stable")[:2]
    if len(order) < 2 or shape[order[1]] < _FACTORED_FROM:
        return ()
    return tuple(int(axis) for axis in order)


def _make_slots(variable, axes):
    """The moment's means over each of these axes; the moment if there are none."""
    shapes = {"vr": axes[0], "vc": axes[1]} if axes else {"v": None}
    scope, _, name = variable.path.rpartition("/")
    slots = []
    for suffix, axis in shapes.items():
        shape = [size for i, size in enumerate(variable.shape) if i != axis]
        with layers.name_scopes(scope):
            slot = keras.Variable(
                "zeros",
                shape=shape,
                dtype="float32",
                trainable=False,
                name=f"{name}_slot_{suffix}",
            )
        slots.append(slot)
    return slots


@fusion.fuse
def _update(variable, gradient, decay, rate, scale, axes, *moments):
    """The new values of a variable and of its slots."""
    gradient = gradient * scale
    square = ops.square(gradient) + _EPSILON
    rest = 1.0 - decay
    if axes:
        means = [ops.mean(square, axis=axis) for axis in axes]
        rows, columns = moments = [
            decay * moment + rest * mean
            for moment, mean in zip(moments, means, strict=True)
        ]
        # Of the rows, relative to their own mean; so the product has the right size.
        second = axes[1] - (axes[1] > axes[0])
        rows = rows / ops.mean(rows, axis=second, keepdims=True)
        by_root = ops.expand_dims(ops.rsqrt(rows), axes[0])
        update = gradient * by_root * ops.expand_dims(ops.rsqrt(columns), axes[1])
    else:
        moments = [decay * moments[0] + rest * square]
        update = gradient * ops.rsqrt(moments[0])
    update = update / ops.maximum(_root_mean_square(update), 1.0)
    size = ops.maximum(_root_mean_square(variable), _LEAST_SCALE)
    return (variable - rate * size * update, *moments)


def _root_mean_square(x):
    return ops.sqrt(ops.mean(ops.square(x)))
