"""The area under the ROC curve, from counts that can be added up over batches."""

import numpy as np
from keras import ops

# Of probabilities between the thresholds 0, 1 / BINS, 2 / BINS ...
BINS = 199
_TINY = 1e-6


def counts(probabilities, labels, weights):
    """Counts positives and negatives by their predicted probability.

    Args:
        probabilities: float32 [b, s], of being positive.
        labels: float32 [b, s], 1.0 for positives.
        weights: float32 [b, s], 0.0 for what does not count.
    Returns:
        float32 [BINS, 2].
    """
    # A probability exceeds the thresholds below it, and not the one that it equals.
    bins = ops.cast(ops.ceil(probabilities * BINS), "int32") - 1
    bins = ops.reshape(ops.clip(bins, 0, BINS - 1), (-1,))
    each = ops.stack([weights * labels, weights * (1.0 - labels)], axis=-1)
    return ops.segment_sum(ops.reshape(each, (-1, 2)), bins, num_segments=BINS)


def area(counts: np.ndarray) -> float:
    """The area by the trapezoidal rule, from 200 thresholds.

    Source: TensorFlow 1.15 metrics_impl.py, auc, which ELECTRA's release reports. There,
    padding counts as recognized tokens, and raises it.
    """
    above = np.concatenate([np.cumsum(counts[::-1], axis=0)[::-1], np.zeros((1, 2))])
    positives, negatives = above.T
    hits = (positives + _TINY) / (positives[0] + _TINY)
    false_alarms = negatives / (negatives[0] + _TINY)
    return float(np.sum(-np.diff(false_alarms) * (hits[1:] + hits[:-1]) / 2))
