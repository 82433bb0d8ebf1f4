"""XLNet's optimizers: Adam without weight decay, BERT's with it."""

import math
import re
from collections.abc import Sequence

import keras
from keras import ops

from modeling.optimizers.adam import AdamWeightDecay

_OF_QUERIES = re.compile("r_[wrs]_bias")  # which decay, as no other biases


class XlnetAdam(AdamWeightDecay):
    """XLNet's two: Adam, which corrects its moments, or with weight decay BERT's.

    Without weight decay, epsilon is 1e-8 and added to the root of the uncorrected moment.
    With it, epsilon is 1e-6, moments are corrected only if asked for, and the biases of
    queries decay, too. The learning rate falls from its peak, without a jump, to a share
    of it.

    Args:
        min_lr_ratio: that share, 0.001 in the release's pre-training.
    Source: zihangdai/xlnet@bbaa3a6 model_utils.py, get_train_op.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        *,
        weight_decay_rate: float = 0.01,
        bias_correction: bool = False,
        min_lr_ratio: float = 0.0,
        **settings,
    ):
        self.min_lr_ratio = min_lr_ratio
        super().__init__(
            variables,
            weight_decay_rate=weight_decay_rate,
            bias_correction=bias_correction or not weight_decay_rate,
            **{"epsilon": 1e-6 if weight_decay_rate else 1e-8} | settings,
        )

    def learning_rate(
        self,
        step,
        peak: float,
        num_train_steps: int,
        num_warmup_steps: int,
        power: float = 1.0,
    ):
        """See `learning_rate_from_peak`."""
        step = ops.cast(step, "float32")
        falling = max(num_train_steps - num_warmup_steps, 1)
        done = (ops.minimum(step, num_train_steps) - num_warmup_steps) / falling
        share = self._share(ops.maximum(done, 0.0), power)
        rate = peak * (self.min_lr_ratio + (1.0 - self.min_lr_ratio) * share)
        if num_warmup_steps:
            warm = step / num_warmup_steps * peak
            rate = ops.where(step < num_warmup_steps, warm, rate)
        return rate

    @staticmethod
    def _share(done, power):
        return 1.0 - done if power == 1.0 else (1.0 - done) ** power

    def decays(self, path: str) -> bool:
        return self.weight_decay_rate > 0 and (
            _OF_QUERIES.search(path) is not None or super().decays(path)
        )

    @staticmethod
    def _direction(first, second, epsilon, *lacks):
        ratio = ops.sqrt(lacks[1]) / lacks[0] if lacks else 1.0
        return first / (ops.sqrt(second) + epsilon) * ratio


class XlnetAdamCosine(XlnetAdam):
    """The same with half a wave from the peak to that share."""

    @staticmethod
    def _share(done, power):
        return (0.5 * (1.0 + ops.cos(math.pi * done))) ** power
