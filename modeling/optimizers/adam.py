"""Optimizers, each with the learning-rate schedule of its publication.

To add one, add a class, and a row to OPTIMIZERS in table.py.
"""

import math
import re
import types
from collections.abc import Callable, Mapping, Sequence

import keras
from keras import ops

from modeling import fusion, layers

# Matched anywhere in a variable's path. "bias" also exempts cls/predictions/output_bias.
_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")
_NO_SHARES: Mapping[str, float] = types.MappingProxyType({})


def learning_rate(
    step,
    peak: float,
    num_train_steps: int,
    num_warmup_steps: int,
    power: float = 1.0,
):
    """The rate of the update that follows `step` updates.

    Falls linearly from `peak` at step 0 to 0 at num_train_steps; during the first
    num_warmup_steps it rises from 0 instead, then jumps down to that line.

    Args:
        step: int scalar, 0 for the first update.
        power: of the share of `peak` that the line gives.
    Returns:
        float32 scalar.
    """
    step = ops.cast(step, "float32")
    rate = peak * _left(step, num_train_steps, power)
    if num_warmup_steps:
        rate = ops.where(step < num_warmup_steps, step / num_warmup_steps * peak, rate)
    return rate


def learning_rate_from_peak(
    step,
    peak: float,
    num_train_steps: int,
    num_warmup_steps: int,
    power: float = 1.0,
):
    """Like `learning_rate`, but falls from `peak` at the end of the warm-up."""
    step = ops.cast(step, "float32")
    left = num_train_steps - ops.minimum(step, num_train_steps)
    falling = max(num_train_steps - num_warmup_steps, 1)
    rate = peak * left / falling if power == 1.0 else peak * (left / falling) ** power
    if num_warmup_steps:
        rate = ops.where(step < num_warmup_steps, step / num_warmup_steps * peak, rate)
    return rate


def learning_rate_times_warmup(
    step,
    peak: float,
    num_train_steps: int,
    num_warmup_steps: int,
    power: float = 1.0,
):
    """Like `learning_rate`, but the warm-up multiplies the line, so nothing jumps.

    The rate never reaches `peak`.
    """
    step = ops.cast(step, "float32")
    rate = peak * _left(step, num_train_steps, power)
    return (
        rate * ops.minimum(1.0, step / num_warmup_steps) if num_warmup_steps else rate
    )


def learning_rate_to_cosine(
    step,
    peak: float,
    num_train_steps: int,
    num_warmup_steps: int,
    power: float = 1.0,
):
    """Rises to `peak`, then jumps down to half a wave that began with the run."""
    step = ops.cast(step, "float32")
    share = ops.minimum(step, num_train_steps) / num_train_steps
    wave = (0.5 * (1.0 + ops.cos(math.pi * share))) ** power
    return peak * _rising(step, num_warmup_steps, wave)


def learning_rate_to_constant(
    step,
    peak: float,
    num_train_steps: int,
    num_warmup_steps: int,
    power: float = 1.0,
):
    """Rises to `peak` and stays there."""
    del num_train_steps, power
    step = ops.cast(step, "float32")
    return peak * _rising(step, num_warmup_steps, ops.ones(()))


def _rising(step, num_warmup_steps, after):
    """The share of the warm-up's updates that are done; at its end and later, `after`.

    In OpenAI's code, the update at the end still has the full rate.
    """
    if not num_warmup_steps:
        return after
    return ops.where(step <= num_warmup_steps, step / num_warmup_steps, after)


def _left(step, num_train_steps, power):
    """The share of the updates that are still to do, to this power."""
    left = 1.0 - ops.minimum(step, num_train_steps) / num_train_steps
    return left if power == 1.0 else left**power


class AdamWeightDecay:
    """BERT's: Adam without bias correction, and weight decay separate from the gradient.

    It has two slots for each variable, `<variable path>/adam_m` and `.../adam_v`. Make it
    in the scope that made the variables (such as a tf.distribute strategy's). Every
    replica calls `apply` with the same gradients and updates its own copy: no
    communication happens here.

    Args:
        variables: what to train; float32.
        weight_decay_rate: the share of a variable that each update subtracts, times the
            learning rate. Layer normalization and biases are exempt.
        bias_correction: correct the moments in the first updates, as the Adam paper does
            (arXiv:1412.6980) and the release does not. Training on small data sets is
            then steadier (arXiv:2006.05987).
        shares: path of a variable -> its share of the learning rate, if that is not 1.
    Source: google-research/bert@eedf571 optimization.py.
    """

    learning_rate = staticmethod(learning_rate)

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        *,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        bias_correction: bool = False,
        shares: Mapping[str, float] = _NO_SHARES,
    ):
        self.trainable_variables = list(variables)
        self.shares = shares
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction
        self.first_moments = [_slot(v, "adam_m") for v in self.trainable_variables]
        self.second_moments = [_slot(v, "adam_v") for v in self.trainable_variables]

    @property
    def variables(self) -> list[keras.Variable]:
        """The slots, named as in a checkpoint."""
        return self.first_moments + self.second_moments

    def decays(self, path: str) -> bool:
        """Whether weight decay acts on the variable of this path."""
        return self.weight_decay_rate > 0 and not _NOT_DECAYED.search(path)

    def apply(self, gradients: Sequence, learning_rate, step=None, scale=1.0) -> None:
        """Updates variables and slots once.

        Args:
            gradients: one dense tensor for each variable, in the same order.
            learning_rate: float32 scalar.
            step: int scalar, the number of earlier updates; bias correction needs it.
            scale: float32 scalar, multiplies the gradients; see `clip_scale`.
        """
        lacks = self._lacks(step) if self.bias_correction else ()
        # Once for all variables: hundreds of constants would slow down the tracing.
        numbers = tuple(
            ops.convert_to_tensor(number, "float32")
            for number in (
                learning_rate,
                scale,
                self.beta_1,
                1.0 - self.beta_1,
                self.beta_2,
                1.0 - self.beta_2,
                self.epsilon,
                self.weight_decay_rate,
                *lacks,
            )
        )
        rate, *numbers = numbers
        rates = {share: rate * share for share in {*self.shares.values()} - {1.0}}
        for variable, m, v, gradient in zip(
            self.trainable_variables,
            self.first_moments,
            self.second_moments,
            gradients,
            strict=True,
        ):
            value, first, second = _updated(
                *(ops.convert_to_tensor(x) for x in (variable, m, v)),
                gradient,
                self._direction,
                self._rate_of(variable.path),
                self.decays(variable.path),
                rates.get(self.shares.get(variable.path), rate),
                *numbers,
            )
            m.assign(first)
            v.assign(second)
            variable.assign(value)

    def _lacks(self, step):
        """What the moments lack of their expectation, because they began at 0."""
        updates = ops.cast(step, "float32") + 1.0
        # 1 - beta ** updates, without losing precision if it is small.
        betas = (self.beta_1, self.beta_2)
        return tuple(-ops.expm1(updates * math.log(beta)) for beta in betas)

    @staticmethod
    def _direction(first, second, epsilon, *lacks):
        if lacks:
            first, second = first / lacks[0], second / lacks[1]
        # As in the release, epsilon is outside the root.
        return first / (ops.sqrt(second) + epsilon)

    def _rate_of(self, path: str) -> Callable:
        """Maps (learning rate, variable, update) to the variable's own rate."""
        del path
        return _common_rate


def _common_rate(learning_rate, variable, update):
    del variable, update
    return learning_rate


@fusion.fused
def _updated(
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


class FairseqAdam(AdamWeightDecay):
    """RoBERTa's: always corrects the moments, and decays every variable.

    Epsilon is added to the root of the uncorrected moment, and the learning rate falls
    from its peak without a jump.

    Source: facebookresearch/fairseq@3d262bb optim/adam.py, class Adam, and
    optim/lr_scheduler/polynomial_decay_schedule.py.
    """

    learning_rate = staticmethod(learning_rate_from_peak)

    def __init__(self, variables: Sequence[keras.Variable], **settings):
        super().__init__(variables, **settings | {"bias_correction": True})

    def decays(self, path: str) -> bool:
        del path
        return self.weight_decay_rate > 0

    @staticmethod
    def _direction(first, second, epsilon, *lacks):
        return first / (ops.sqrt(second) + epsilon) * (ops.sqrt(lacks[1]) / lacks[0])


class ElectraAdam(AdamWeightDecay):
    """ELECTRA's: BERT's, with a learning rate that does not jump after the warm-up.

    Source: google-research/electra@8a46635 model/optimization.py.
    """

    learning_rate = staticmethod(learning_rate_times_warmup)


class OpenAiAdam(AdamWeightDecay):
    """GPT's: always corrects the moments, and weight decay with them.

    What weight decay subtracts is a share of the variable times the corrected rate, which
    is small in the first updates. Epsilon, 1e-8, is added to the root of the uncorrected
    moment. The warm-up multiplies the line to 0, so the rate never reaches its peak.

    Source: openai/finetune-transformer-lm@a69b5c4 opt.py, adam and warmup_linear.
    """

    learning_rate = staticmethod(learning_rate_times_warmup)

    def __init__(self, variables: Sequence[keras.Variable], **settings):
        settings = {"epsilon": 1e-8} | settings | {"bias_correction": False}
        super().__init__(variables, **settings)

    def apply(self, gradients, learning_rate, step=None, scale=1.0):
        first, second = self._lacks(step)
        rate = learning_rate * ops.sqrt(second) / first
        super().apply(gradients, rate, step, scale)


class OpenAiAdamCosine(OpenAiAdam):
    """The same with half a wave; GPT's pre-training has one after 2,000 updates.

    Source: openai/finetune-transformer-lm@a69b5c4 opt.py, warmup_cosine.
    """

    learning_rate = staticmethod(learning_rate_to_cosine)


class OpenAiAdamConstant(OpenAiAdam):
    """The same with a rate that stays at its peak.

    Source: openai/finetune-transformer-lm@a69b5c4 opt.py, warmup_constant.
    """

    learning_rate = staticmethod(learning_rate_to_constant)


class Adagrad(AdamWeightDecay):
    """ELMo's: divides by the root of the sum of all squared gradients so far.

    The sum begins at 1. The learning rate stays at its peak, 0.2 in the release, and no
    variable decays: settings of Adam and of weight decay change nothing.

    It has one slot for each variable, `<variable path>/adagrad`.

    Source: allenai/bilm-tf@7cffee2 bilm/training.py, train; tensorflow/tensorflow v1.15.5
    training_ops.cc, ApplyAdagrad.
    """

    learning_rate = staticmethod(learning_rate_to_constant)

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        *,
        shares: Mapping[str, float] = _NO_SHARES,
        **settings,
    ):
        del settings
        self.trainable_variables = list(variables)
        self.shares = shares
        self.sums = [_slot(v, "adagrad", "ones") for v in self.trainable_variables]

    @property
    def variables(self):
        return self.sums

    def decays(self, path: str) -> bool:
        del path
        return False

    def apply(self, gradients, learning_rate, step=None, scale=1.0):
        del step
        for variable, sums, gradient in zip(
            self.trainable_variables, self.sums, gradients, strict=True
        ):
            rate = learning_rate * self.shares.get(variable.path, 1.0)
            value, total = _updated_by_sum(
                *(ops.convert_to_tensor(x) for x in (variable, sums)),
                gradient,
                *(ops.convert_to_tensor(x, "float32") for x in (rate, scale)),
            )
            sums.assign(total)
            variable.assign(value)


@fusion.fused
def _updated_by_sum(variable, sums, gradient, rate, scale):
    """The new values of a variable and of the sum of its squared gradients."""
    gradient *= scale
    sums += ops.square(gradient)
    return variable - rate * gradient * ops.rsqrt(sums), sums


class Lamb(AdamWeightDecay):
    """LAMB, for large batches: gives the update of each variable the variable's own norm.

    Layer normalization and biases are exempt, as they are from weight decay, and so are
    variables and updates of norm 0. The schedule, and moments without bias correction, are
    BERT's, as in ALBERT's release; the paper corrects them.

    Source: arXiv:1904.00962; google-research/albert@b772393 lamb_optimizer.py.
    """

    def _rate_of(self, path: str) -> Callable:
        return _common_rate if _NOT_DECAYED.search(path) else _rate_by_norm


def _rate_by_norm(learning_rate, variable, update):
    norm, of_update = (ops.sqrt(ops.sum(ops.square(x))) for x in (variable, update))
    is_adapted = (norm > 0.0) & (of_update > 0.0)
    ratio = norm / ops.where(is_adapted, of_update, 1.0)
    return learning_rate * ops.where(is_adapted, ratio, 1.0)


def _slot(variable, name, initial="zeros"):
    with layers.name_scopes(variable.path):
        return keras.Variable(
            initial, shape=variable.shape, dtype="float32", trainable=False, name=name
        )


def clip_scale(gradients: Sequence, clip_norm: float) -> tuple:
    """What to multiply gradients by, so that their common norm is at most `clip_norm`.

    Args:
        gradients: dense float32 tensors.
        clip_norm: 0 leaves them as they are.
    Returns:
        float32 scalars: the factor (NaN if the norm is not finite), and the norm before.
    """
    norm = ops.sqrt(ops.sum(ops.stack([ops.sum(ops.square(g)) for g in gradients])))
    if not clip_norm:
        return ops.ones(()), norm
    scale = clip_norm / ops.maximum(norm, clip_norm)
    return ops.where(ops.isfinite(norm), scale, float("nan")), norm
