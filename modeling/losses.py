"""Losses and metrics as pairs (sum, weight) of float32 scalars.

Pairs from replicas and micro-batches are added, and `mean` of the total is the number to
minimize or report, so it does not depend on how a batch was divided.
"""

from keras import ops


def cross_entropy(logits, labels, weights) -> tuple:
    """Weighted sum of -log p(label), and the weights' sum.

    Args:
        logits: float32 tensor [..., classes].
        labels: int tensor [...].
        weights: float32 tensor [...].
    Returns:
        two float32 scalars.
    """
    entropy = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return ops.sum(entropy * weights), ops.sum(weights)


def accuracy(logits, labels, weights) -> tuple:
    """Weighted count of labels with the highest logit, and the weights' sum.

    Arguments and results as for `cross_entropy`.
    """
    predictions = ops.argmax(logits, axis=-1)
    correct = ops.equal(predictions, ops.cast(labels, predictions.dtype))
    return ops.sum(ops.cast(correct, "float32") * weights), ops.sum(weights)


def weighted_sum(values, weights) -> tuple:
    """[b], [b] -> the weighted sum and the weights' sum."""
    return ops.sum(values * weights), ops.sum(weights)


def mean(total, weight):
    """Divides a sum by its weight; a batch without predictions gives 0.

    Differs from the release, which adds 1e-5 for masked LM only; compared with a batch's
    size, that is lost in rounding.
    """
    return total / (weight + 1e-5)
