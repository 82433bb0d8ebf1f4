"""StableAdamW: AdamW that limits the update of each variable, as Adafactor does."""

import math
from collections.abc import Mapping, Sequence

import keras
from keras import ops

from modeling import fusion
from modeling.optimizers.adam import BETA_1, AdamWeightDecay

_EPSILON = 1e-6


class StableAdamW(AdamWeightDecay):
    """AdamW that lowers the rate of a variable whose gradient outgrows its second moment.

    The rate is divided by the root mean square of the gradient over the root of its second
    moment, where that is more than 1. The decays of the moments are corrected instead of
    the moments. Weight decay has the lowered rate, and spares what BERT's Adam spares; the
    slots have the names of that, too.

    Source: arXiv:2304.13013, algorithm 2; warner-benjamin/optimi optimi/stableadamw.py,
        with `decouple_lr=False`.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        *,
        weight_decay: float = 0.01,
        adam_beta_2: float = 0.999,
        shares: Mapping[str, float] = {},
    ):
        super().__init__(
            variables,
            weight_decay=weight_decay,
            adam_beta_2=adam_beta_2,
            epsilon=_EPSILON,
            shares=shares,
        )

    def apply(self, gradients: Sequence, learning_rate, step=None, scale=1.0) -> None:
        """Updates variables and slots once; see `AdamWeightDecay.apply`."""
        updates = ops.cast(step, "float32") + 1.0
        rate, *numbers = (
            ops.convert_to_tensor(number, "float32")
            for number in (
                learning_rate,
                scale,
                _share_of_newest(BETA_1, updates),
                _share_of_newest(self.beta_2, updates),
                self.epsilon,
                self.weight_decay,
            )
        )
        self.update_each(
            gradients,
            lambda path, *tensors: _update(
                *tensors,
                self.decays(path),
                rate * self.shares.get(path, 1.0),
                *numbers,
            ),
        )


def _share_of_newest(beta, updates):
    """The share that a gradient has of its mean, so that all shares sum to 1."""
    return (1.0 - beta) / -ops.expm1(updates * math.log(beta))


@fusion.fuse
def _update(
    variable, first, second, gradient, decays, rate, scale, new_1, new_2, epsilon, decay
):
    """The new values of a variable and of its moments."""
    gradient *= scale
    square = ops.square(gradient)
    first += new_1 * (gradient - first)
    second = (1.0 - new_2) * second + new_2 * square
    ratio = square / ops.maximum(second, ops.square(epsilon))
    rate = rate / ops.maximum(ops.sqrt(ops.mean(ratio)), 1.0)
    update = first / (ops.sqrt(second) + epsilon)
    if decays:
        update += decay * variable
    return variable - rate * update, first, second
