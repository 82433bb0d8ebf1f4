"""Adam with weight decay, in the forms of BERT's family, and LAMB."""

import math
import re
from collections.abc import Callable, Mapping, Sequence

import keras
from keras import ops

from modeling import fusion, layers

# "bias" also exempts cls/predictions/output_bias.
_NOT_DECAYED = "LayerNorm|layer_norm|bias"
BETA_1 = 0.9  # everywhere in the family


class AdamWeightDecay:
    """Adam whose weight decay is separate from the gradient; by default, BERT's.

    It has two slots for each variable, `<variable path>/adam_m` and `.../adam_v`. Make it
    in the scope that made the variables (such as a tf.distribute strategy's). Every
    replica calls `apply` with the same gradients and updates its own copy: no
    communication happens here.

    Args:
        variables: what to train; float32.
        weight_decay: the share of a variable that each update subtracts, times the
            learning rate.
        not_decayed: a pattern found anywhere in the paths of variables that do not decay.
        adam_beta_2: the decay of the second moment.
        epsilon: added to the root of the second moment.
        bias_correction: correct the moments in the first updates, as the Adam paper does
            (arXiv:1412.6980) and the release does not. Training on small data sets is
            then steadier (arXiv:2006.05987).
        corrected: to what the correction applies: the "moments", as in the paper; their
            "quotient", so that epsilon joins the root of the moment as it is; or the
            "rate", and so the weight decay, too.
        shares: path of a variable -> its share of the learning rate, if that is not 1.
    Source: google-research/bert@eedf571 optimization.py.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        *,
        weight_decay: float = 0.01,
        not_decayed: str = _NOT_DECAYED,
        adam_beta_2: float = 0.999,
        epsilon: float = 1e-6,
        bias_correction: bool = False,
        corrected: str = "moments",
        shares: Mapping[str, float] = {},
    ):
        self.trainable_variables = list(variables)
        self.shares = shares
        self.weight_decay = weight_decay
        self.not_decayed = re.compile(not_decayed)
        self.beta_2 = adam_beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction
        self.corrected = corrected
        self.first_moments = [make_slot(v, "adam_m") for v in self.trainable_variables]
        self.second_moments = [make_slot(v, "adam_v") for v in self.trainable_variables]

    @property
    def variables(self) -> list[keras.Variable]:
        """The slots, named as in a checkpoint."""
        return self.first_moments + self.second_moments

    def decays(self, path: str) -> bool:
        """Whether weight decay acts on the variable of this path."""
        return self.weight_decay > 0 and not self.not_decayed.search(path)

    def apply(self, gradients: Sequence, learning_rate, step=None, scale=1.0) -> None:
        """Updates variables and slots once.

        Args:
            gradients: one dense tensor for each variable, in the same order.
            learning_rate: float32 scalar.
            step: int scalar, the number of earlier updates; bias correction needs it.
            scale: float32 scalar, multiplies the gradients; see `clipping.clip_scale`.
        """
        lacks = self._lacks(step) if self.bias_correction else ()
        if lacks and self.corrected == "rate":
            learning_rate = learning_rate * ops.sqrt(lacks[1]) / lacks[0]
            lacks = ()
        direction = _direction if self.corrected == "moments" else _corrected_quotient
        # Once for all variables: hundreds of constants would slow down the tracing.
        numbers = tuple(
            ops.convert_to_tensor(number, "float32")
            for number in (
                learning_rate,
                scale,
                BETA_1,
                1.0 - BETA_1,
                self.beta_2,
                1.0 - self.beta_2,
                self.epsilon,
                self.weight_decay,
                *lacks,
            )
        )
        rate, *numbers = numbers
        rates = {share: rate * share for share in {*self.shares.values()} - {1.0}}
        self.update_each(
            gradients,
            lambda path, *tensors: _update(
                *tensors,
                direction,
                self.rate_of(path),
                self.decays(path),
                rates.get(self.shares.get(path), rate),
                *numbers,
            ),
        )

    def update_each(self, gradients: Sequence, update: Callable) -> None:
        """Assigns what `update` makes of each variable's path, value, moments, gradient."""
        for variable, m, v, gradient in zip(
            self.trainable_variables,
            self.first_moments,
            self.second_moments,
            gradients,
            strict=True,
        ):
            tensors = (ops.convert_to_tensor(x) for x in (variable, m, v))
            value, first, second = update(variable.path, *tensors, gradient)
            m.assign(first)
            v.assign(second)
            variable.assign(value)

    def _lacks(self, step):
        """What the moments lack of their expectation, because they began at 0."""
        updates = ops.cast(step, "float32") + 1.0
        # 1 - beta ** updates, without losing precision if it is small.
        betas = (BETA_1, self.beta_2)
        return tuple(-ops.expm1(updates * math.log(beta)) for beta in betas)

    def rate_of(self, path: str) -> Callable:
        """Maps (learning rate, variable, update) to the variable's own rate."""
        del path
        return _common_rate


def _direction(first, second, epsilon, *lacks):
    if lacks:
        first, second = first / lacks[0], second / lacks[1]
    # As in the release, epsilon is outside the root.
    return first / (ops.sqrt(second) + epsilon)


def _corrected_quotient(first, second, epsilon, *lacks):
    quotient = first / (ops.sqrt(second) + epsilon)
    return quotient * (ops.sqrt(lacks[1]) / lacks[0]) if lacks else quotient


def _common_rate(learning_rate, variable, update):
    del variable, update
    return learning_rate


@fusion.fuse
def _update(
    variable,
    first,
    second,
    gradient,
    direction,
    rate_of,
    decays,
    rate,
    scale,
    beta_1,
    rest_1,
    beta_2,
    rest_2,
    epsilon,
    decay,
    *lacks,
):
    """The new values of a variable and of its moments."""
    gradient *= scale
    first = beta_1 * first + rest_1 * gradient
    second = beta_2 * second + rest_2 * ops.square(gradient)
    update = direction(first, second, epsilon, *lacks)
    if decays:
        update += decay * variable
    return variable - rate_of(rate, variable, update) * update, first, second


class Lamb(AdamWeightDecay):
    """LAMB, for large batches: gives the update of each variable the variable's own norm.

    Layer normalization and biases are exempt, as they are from weight decay, and so are
    variables and updates of norm 0. By default, moments are not corrected, as in ALBERT's
    release; the paper corrects them.

    Source: arXiv:1904.00962; google-research/albert@b772393 lamb_optimizer.py.
    """

    def rate_of(self, path: str) -> Callable:
        return _common_rate if self.not_decayed.search(path) else _rate_by_norm


def _rate_by_norm(learning_rate, variable, update):
    norm, of_update = (ops.sqrt(ops.sum(ops.square(x))) for x in (variable, update))
    is_adapted = (norm > 0.0) & (of_update > 0.0)
    ratio = norm / ops.where(is_adapted, of_update, 1.0)
    return learning_rate * ops.where(is_adapted, ratio, 1.0)


def make_slot(variable, name, initial="zeros") -> keras.Variable:
    """A number for each of a variable's, `<variable path>/<name>`."""
    with layers.name_scopes(variable.path):
        return keras.Variable(
            initial, shape=variable.shape, dtype="float32", trainable=False, name=name
        )
