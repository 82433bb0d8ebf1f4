"""Makes one vector of the vectors of a text's tokens."""

from keras import ops

from modeling import layers

_LOWEST = -1e9  # finite, so that a row without tokens stays finite


def pool_tokens(name: str, hidden, input_mask):
    """The vector of each row.

    Args:
        name: one of `features.TOKEN_POOLINGS`.
        hidden: tensor [b, s, h].
        input_mask: int [b, s], 0 for padding, which follows the tokens.
    Returns:
        float32 [b, h].
    """
    return _FUNCTIONS[name](hidden, input_mask)


def _first_token(hidden, input_mask):
    del input_mask
    return ops.cast(hidden[:, 0], "float32")


def _highest(hidden, input_mask):
    """The highest of each column over the tokens."""
    is_token = ops.cast(input_mask, "bool")[..., None]
    return ops.max(ops.where(is_token, ops.cast(hidden, "float32"), _LOWEST), axis=1)


def _weighted_mean(hidden, input_mask):
    """The first token counts once, the second twice, and so on."""
    mask = ops.cast(input_mask, "float32")
    weights = mask * ops.arange(1, ops.shape(mask)[1] + 1, dtype="float32")
    weights /= ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1.0)
    return ops.matmul(weights[:, None], ops.cast(hidden, "float32"))[:, 0]


_FUNCTIONS = {
    "mean": layers.mean_of_tokens,
    "cls": _first_token,
    "last": layers.last_token,
    "max": _highest,
    "weighted_mean": _weighted_mean,
}


def unit_vectors(vectors):
    """[..., d] -> the same with length 1; vectors of zeros stay so."""
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    return vectors * ops.rsqrt(ops.maximum(squares, 1e-24))
