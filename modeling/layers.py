"""The parts that encoders and heads share: dropout, activations, initial weights."""

import math
import random
from collections.abc import Callable, Iterator

import keras
from keras import ops

# 2**32 / golden ratio, as a signed 32-bit number: its multiples lie far apart.
_SITE_STRIDE = -1640531527


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
        # uniform takes its seed as a tensor on JAX only; elsewhere it needs an object.
        kept = keras.random.uniform(ops.shape(x), seed=_Seed(self._seed, site)) >= rate
        return x * (ops.cast(kept, x.dtype) * (1.0 / (1.0 - rate)))

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


class _Seed(keras.random.SeedGenerator):
    """A seed without state: the tensor that a caller chose."""

    def __init__(self, seed, site):
        words = ops.convert_to_tensor(seed, "int32") + ops.convert_to_tensor(
            [_wrap_int32(site * _SITE_STRIDE), 0], "int32"
        )
        self._words = ops.cast(words, _seed_dtype())

    def next(self, ordered=True):
        return self._words


def _wrap_int32(value):
    return (value + 2**31) % 2**32 - 2**31


def _seed_dtype():
    return "uint32" if keras.backend.backend() == "jax" else "int32"


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
# automatic ones take a quarter of a training step on a CPU. They compute in float32, which
# is more accurate than bfloat16 and faster there.


@ops.custom_gradient
def gelu_tanh(x):
    """x times an approximation, by tanh, of the normal distribution function."""
    wide = ops.cast(x, "float32")
    square = wide * wide
    # (1 + tanh(u)) / 2 is sigmoid(2 u), which keeps its precision if x is negative.
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    cdf = ops.sigmoid(wide * (scale + (0.044715 * scale) * square))

    def gradient(upstream):
        density = cdf * (1.0 - cdf) * (scale + (3.0 * 0.044715 * scale) * square)
        return upstream * ops.cast(cdf + wide * density, x.dtype)

    return ops.cast(wide * cdf, x.dtype), gradient


@ops.custom_gradient
def gelu_erf(x):
    """x times the normal distribution function, by erf."""
    wide = ops.cast(x, "float32")
    twice_cdf = 1.0 + ops.erf(wide * math.sqrt(0.5))

    def gradient(upstream):
        density = ops.exp(-0.5 * wide * wide) * (1.0 / math.sqrt(2.0 * math.pi))
        return upstream * ops.cast(0.5 * twice_cdf + wide * density, x.dtype)

    # In this order, so that LiteRT, which has no erf, recognizes its own GELU.
    return ops.cast((wide * 0.5) * twice_cdf, x.dtype), gradient


def layer_norm(
    epsilon: float, dtype: str, name: str = "LayerNorm"
) -> keras.layers.LayerNormalization:
    """Layer normalization over the last axis with the release's name."""
    return keras.layers.LayerNormalization(epsilon=epsilon, dtype=dtype, name=name)


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
