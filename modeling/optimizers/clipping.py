"""Limits the gradients of an update by their common norm."""

from collections.abc import Sequence

from keras import ops


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
