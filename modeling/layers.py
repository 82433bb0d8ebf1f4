"""What encoder and heads are both made of: dropout, activations, initial weights."""

import math
import random
from collections.abc import Callable, Iterator

import keras
from keras import ops

from modeling.config import BertConfig

# 2**32 / golden ratio, as a signed 32-bit number: its multiples lie far apart.
_SITE_STRIDE = -1640531527


def dropout(x, rate: float, seed, site: int):
    """Zeroes each number of x with chance `rate` and scales up the others.

    The mask depends on `seed` and `site` alone, so that a resumed run draws the same
    masks, and replicas draw different ones if the caller gives them different seeds.

    Args:
        x: float tensor of any shape.
        rate: the chance.
        seed: int tensor [2], or None: no dropout.
        site: which of the model's dropouts this is; the same seed gives different
            masks at different sites.
    Returns:
        tensor like x.
    """
    if seed is None or rate == 0.0:
        return x
    # uniform takes its seed as a tensor on JAX only; elsewhere it wants an object.
    kept = keras.random.uniform(ops.shape(x), seed=_Seed(seed, site)) >= rate
    return x * (ops.cast(kept, x.dtype) * (1.0 / (1.0 - rate)))


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
    """Returns the function that `BertConfig.hidden_act` names.

    Source: google-research/bert@eedf571 modeling.py, gelu and get_activation.
    """
    return {
        "gelu": gelu_tanh,
        "gelu_erf": gelu_erf,
        "relu": ops.relu,
        "tanh": ops.tanh,
        "linear": lambda x: x,
    }[name]


# Both GELUs are x times a distribution function. Their gradients are written out: what
# differentiation makes of them takes a quarter of a training step on a CPU. They compute
# in float32, which is more exact, and faster there than bfloat16.


@ops.custom_gradient
def gelu_tanh(x):
    """x times an approximation, by tanh, of the normal distribution function."""
    wide = ops.cast(x, "float32")
    square = wide * wide
    # (1 + tanh(u)) / 2 is sigmoid(2 u), which keeps its digits where x is negative.
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

    # In this order: LiteRT, which has no erf, takes it for its own GELU.
    return ops.cast((wide * 0.5) * twice_cdf, x.dtype), gradient


def layer_norm(dtype: str) -> keras.layers.LayerNormalization:
    """Layer normalization over the last axis with the release's name and epsilon."""
    return keras.layers.LayerNormalization(epsilon=1e-12, dtype=dtype, name="LayerNorm")


def weight_initializers(
    config: BertConfig, seed: str
) -> Iterator[keras.initializers.Initializer]:
    """Yields one initializer after another, each with a seed of its own.

    They draw from a normal distribution of deviation initializer_range that is cut at
    two deviations. Keras repeats the numbers of an initializer used twice, therefore
    every variable takes its `next`.
    """
    seeds = random.Random(seed)
    while True:
        yield keras.initializers.TruncatedNormal(
            stddev=config.initializer_range, seed=seeds.getrandbits(31)
        )
