"""Draws tokens from their probabilities, with few random numbers."""

import math

from keras import ops


def sample(logits, draws):
    """Samples a token from the softmax of each row of logits.

    It needs one random number, where adding Gumbel noise to logits, as ELECTRA does, needs
    one for each token of the vocabulary.

    Args:
        logits: float32 [b, p, v].
        draws: float32 [b, p], uniform in [0, 1).
    Returns:
        int32 [b, p]; no token whose probability is 0 in float32.
    """
    vocab_size = logits.shape[-1]
    size = math.isqrt(vocab_size - 1) + 1
    missing = -vocab_size % size
    probs = ops.pad(ops.softmax(logits), ((0, 0), (0, 0), (0, missing)))
    # First a block of tokens, then one of its tokens: a sum over the whole vocabulary,
    # token by token, would be slow and inaccurate.
    blocks = ops.reshape(probs, (*ops.shape(logits)[:2], -1, size))
    block, rest = _crossing(ops.sum(blocks, axis=-1), draws)
    inside = ops.take_along_axis(blocks, block[..., None, None], axis=2)[:, :, 0]
    token, _ = _crossing(inside, rest)
    return block * size + token


def _crossing(weights, share):
    """Where the running sum of weights [..., n] exceeds this share of their sum.

    Returns:
        int32 [...], and which share of the weight there is needed to get so far.
    """
    sums = ops.cumsum(weights, axis=-1)
    # Rounded, it might be the whole sum, and what follows may have a weight of 0.
    target = ops.minimum(share, 1.0 - 1e-6) * sums[..., -1]
    index = ops.sum(ops.cast(sums <= target[..., None], "int32"), axis=-1)
    at = [
        ops.take_along_axis(x, index[..., None], axis=-1)[..., 0]
        for x in (sums, weights)
    ]
    rest = (target - (at[0] - at[1])) / at[1]
    return index, ops.clip(rest, 0.0, 1.0)
