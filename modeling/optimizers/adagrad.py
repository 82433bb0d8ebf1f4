"""Adagrad, ELMo's optimizer, which keeps the sum of all squared gradients."""

from collections.abc import Mapping, Sequence

import keras
from keras import ops

from modeling import fusion
from modeling.optimizers.adam import make_slot


class Adagrad:
    """Divides by the root of the sum of all squared gradients so far, which begins at 1.

    It has one slot for each variable, `<variable path>/adagrad`, and no weight decay. See
    `adam.AdamWeightDecay` for its arguments and how it is used.

    Source: allenai/bilm-tf@7cffee2 bilm/training.py, train; tensorflow/tensorflow v1.15.5
    training_ops.cc, ApplyAdagrad.
    """

    def __init__(
        self, variables: Sequence[keras.Variable], *, shares: Mapping[str, float] = {}
    ):
        self.trainable_variables = list(variables)
        self.shares = shares
        self.variables = [
            make_slot(v, "adagrad", "ones") for v in self.trainable_variables
        ]

    def apply(self, gradients: Sequence, learning_rate, step=None, scale=1.0) -> None:
        """Updates variables and slots once; see `AdamWeightDecay.apply`."""
        del step
        for variable, sums, gradient in zip(
            self.trainable_variables, self.variables, gradients, strict=True
        ):
            rate = learning_rate * self.shares.get(variable.path, 1.0)
            value, total = _update(
                *(ops.convert_to_tensor(x) for x in (variable, sums)),
                gradient,
                *(ops.convert_to_tensor(x, "float32") for x in (rate, scale)),
            )
            sums.assign(total)
            variable.assign(value)


@fusion.fuse
def _update(variable, sums, gradient, rate, scale):
    """The new values of a variable and of the sum of its squared gradients."""
    gradient *= scale
    sums += ops.square(gradient)
    return variable - rate * gradient * ops.rsqrt(sums), sums
