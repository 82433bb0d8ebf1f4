"""The parts that encoders and heads share: dropout, activations, initial weights."""

import math
import random
from collections.abc import Callable, Iterator

import keras
from keras import ops

from modeling import fusion, row_random


class Dropouts:
    """The dropouts of one forward pass, which the layers call in turn.

    A mask is determined by the seed and by the number of calls before this one. So a
    resumed run draws the same masks, replicas with different seeds draw different ones,
    and a layer that is used several times draws a new one each time.

    Args:
        seed: int tensor [2], a new one for each pass.
        recompute: see `apply_layer`.
    """

    def __init__(self, seed, recompute: bool = False):
        self._seed = seed
        self._recompute = recompute
        self._num_calls = 0

    def __call__(self, x, rate: float):
        """Zeroes each number of x with probability `rate` and scales up the others.

        Args:
            x: float tensor of any shape.
        Returns:
            tensor like x.
        """
        site = self._num_calls
        self._num_calls += 1  # even at a rate of 0, so that later masks do not change
        if rate == 0.0:
            return x

        def masked(x):
            return _drop(x, *row_random.state(self._seed, site), rate)

        # The gradient draws the mask again: faster than to keep it, and smaller.
        return ops.custom_gradient(lambda x: (masked(x), masked))(x)

    def apply_layer(self, layer: Callable, x, **inputs):
        """Calls layer(x, dropouts=..., **inputs).

        With `recompute`, nothing inside the layer is kept for the gradients: they compute
        it again, with the same masks.
        """
        if not self._recompute:
            return layer(x, dropouts=self, **inputs)
        begin, ends = self._num_calls, []

        def run(x):
            inner = Dropouts(self._seed)
            inner._num_calls = begin
            result = layer(x, dropouts=inner, **inputs)
            ends.append(inner._num_calls)
            return result

        result = keras.remat(run)(x)
        self._num_calls = ends[0]
        return result


def no_dropout(x, rate: float):
    """Replaces `Dropouts` outside training."""
    del rate
    return x


def apply_layer(layer: Callable, x, dropouts, **inputs):
    """Like `Dropouts.apply_layer`, which only training has."""
    if dropouts is no_dropout:
        return layer(x, **inputs)
    return dropouts.apply_layer(layer, x, **inputs)


@fusion.fused
def _drop(x, first, second, rate):
    shape = ops.shape(x)
    positions = ops.reshape(ops.arange(math.prod(shape), dtype="int32"), shape)
    dropped = row_random.below(row_random.word_at(first, second, positions), rate)
    scale = ops.cast(1.0 / (1.0 - rate), x.dtype)
    return ops.where(dropped, ops.zeros((), x.dtype), x * scale)


def activation(name: str) -> Callable:
    """Returns the function that the key hidden_act of a config names.

    Source: google-research/bert@eedf571 modeling.py, gelu and get_activation.
    """
    return {
        "gelu": gelu_tanh,
        "gelu_erf": gelu_erf,
        "relu": ops.relu,
        "tanh": ops.tanh,
        "linear": lambda x: x,
    }[name]


# Both GELUs are x times a distribution function. Their gradients are written out, because
# automatic ones take a quarter of a training step on a CPU; they need nothing but x. They
# compute in float32, which is more accurate than bfloat16 and faster there.

# (1 + tanh(u)) / 2 is sigmoid(2 u), which keeps its precision if x is negative.
_TANH_SCALE = 2.0 * math.sqrt(2.0 / math.pi)
_TANH_CUBE = 0.044715 * _TANH_SCALE


@ops.custom_gradient
def gelu_tanh(x):
    """x times an approximation, by tanh, of the normal distribution function."""
    return _gelu_tanh(x), lambda upstream: _gelu_tanh_gradient(x, upstream)


@fusion.fused
def _gelu_tanh(x):
    wide = ops.cast(x, "float32")
    cdf = ops.sigmoid(wide * (_TANH_SCALE + _TANH_CUBE * (wide * wide)))
    return ops.cast(wide * cdf, x.dtype)


@fusion.fused
def _gelu_tanh_gradient(x, upstream):
    wide = ops.cast(x, "float32")
    square = wide * wide
    cdf = ops.sigmoid(wide * (_TANH_SCALE + _TANH_CUBE * square))
    density = cdf * (1.0 - cdf) * (_TANH_SCALE + 3.0 * _TANH_CUBE * square)
    return upstream * ops.cast(cdf + wide * density, x.dtype)


@ops.custom_gradient
def gelu_erf(x):
    """x times the normal distribution function, by erf."""
    return _gelu_erf(x), lambda upstream: _gelu_erf_gradient(x, upstream)


@fusion.fused
def _gelu_erf(x):
    wide = ops.cast(x, "float32")
    # In this order, so that LiteRT, which has no erf, recognizes its own GELU.
    twice_cdf = 1.0 + ops.erf(wide * math.sqrt(0.5))
    return ops.cast((wide * 0.5) * twice_cdf, x.dtype)


@fusion.fused
def _gelu_erf_gradient(x, upstream):
    wide = ops.cast(x, "float32")
    cdf = 0.5 * (1.0 + ops.erf(wide * math.sqrt(0.5)))
    density = ops.exp(-0.5 * wide * wide) * (1.0 / math.sqrt(2.0 * math.pi))
    return upstream * ops.cast(cdf + wide * density, x.dtype)


class LayerNorm(keras.layers.LayerNormalization):
    """Layer normalization over the last axis, with the release's name.

    Computes in float32; the gradient is written out.
    """

    def __init__(self, epsilon: float, dtype: str, name: str = "LayerNorm"):
        super().__init__(epsilon=epsilon, dtype=dtype, name=name)

    def call(self, inputs):
        @ops.custom_gradient
        def normalize(x, gamma, beta):
            result, mean, inverse = _normalize(x, gamma, beta, self.epsilon)

            def gradient(upstream):
                of_x, of_gamma = _normalize_gradient(x, gamma, mean, inverse, upstream)
                return of_x, sum_of_rows(of_gamma), sum_of_rows(upstream)

            return result, gradient

        gamma, beta = ops.copy(self.gamma), ops.copy(self.beta)
        return normalize(inputs, gamma, beta)


@fusion.fused
def _normalize(x, gamma, beta, epsilon):
    """Also returns the mean and the inverse of the deviation of each row."""
    wide = ops.cast(x, "float32")
    mean = ops.mean(wide, axis=-1, keepdims=True)
    centered = wide - mean
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    inverse = ops.rsqrt(variance + epsilon)
    return ops.cast(centered * inverse * gamma + beta, x.dtype), mean, inverse


@fusion.fused
def _normalize_gradient(x, gamma, mean, inverse, upstream):
    """By x; and by gamma, but for the sum over all rows."""
    normal = (ops.cast(x, "float32") - mean) * inverse
    upstream = ops.cast(upstream, "float32")
    of_normal = upstream * gamma
    shift = ops.mean(of_normal, axis=-1, keepdims=True)
    slope = ops.mean(of_normal * normal, axis=-1, keepdims=True)
    of_x = inverse * (of_normal - shift - normal * slope)
    return ops.cast(of_x, x.dtype), upstream * normal


@ops.custom_gradient
def add_wide(x, bias):
    """[..., n] + [n] -> float32 [..., n]"""

    def gradient(upstream):
        return ops.cast(upstream, x.dtype), sum_of_rows(upstream)

    return _add_wide(x, bias), gradient


@fusion.fused
def _add_wide(x, bias):
    return ops.cast(x, "float32") + bias


def sum_of_rows(x):
    """[..., n] -> float32 [n]"""
    return ops.sum(ops.cast(x, "float32"), axis=tuple(range(len(x.shape) - 1)))


def last_token(hidden, input_mask=None):
    """The vectors of the last token of each row.

    Args:
        hidden: tensor [b, s, h].
        input_mask: int [b, s], 0 for padding, which follows the tokens.
    Returns:
        float32 [b, h]; those of the first position for a row without tokens.
    """
    if input_mask is None:
        return ops.cast(hidden[:, -1], "float32")
    lengths = ops.maximum(ops.sum(input_mask, axis=1, keepdims=True), 1)
    is_last = ops.arange(ops.shape(hidden)[1])[None] == lengths - 1
    # A product, because the gradient of a lookup would scatter.
    weights = ops.cast(is_last, "float32")[:, None]
    return ops.matmul(weights, ops.cast(hidden, "float32"))[:, 0]


def weight_initializers(
    initializer_range: float, seed: str
) -> Iterator[keras.initializers.Initializer]:
    """Yields initializers, each with its own seed.

    They draw from a normal distribution with this standard deviation, truncated at two
    deviations. Keras repeats the numbers of an initializer that is used twice, so every
    variable takes the `next` one.
    """
    seeds = random.Random(seed)
    while True:
        yield keras.initializers.TruncatedNormal(
            stddev=initializer_range, seed=seeds.getrandbits(31)
        )
