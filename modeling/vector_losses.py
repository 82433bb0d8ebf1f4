"""Losses over the vectors of texts that belong together, as pairs (sum, weight).

A row has one text and others to compare it with: first one that fits it, then perhaps some
that do not. Every function takes

    vectors: float32 [b, n, d], the texts of each row; of length 1, or not.
    batch: dict of `text_keys`, int [b, n], the same for equal texts and 0 where a row has
        none; `scores`, float32 [b], how well the first two texts of a row fit, for a
        loss that learns that.
    weights: float32 [b], of the rows.

and returns the loss and a metric, whose name is in `METRICS`. Those of `OF_WHOLE_BATCH`
compare rows with each other.
"""

from keras import ops

from modeling import losses
from modeling.pooling import unit_vectors

_NEVER = -1e9  # a logit


def in_batch_negatives(
    vectors, batch, weights, *, temperature: float, symmetric: bool
) -> tuple:
    """Cross entropy of finding the text that fits among all texts of the batch.

    Texts that fit a row as well are left out: the same as its own, and those that fit an
    equal first text. The metric is how often the right one is nearest.

    Args:
        temperature: divides the products of vectors.
        symmetric: whether to add the loss of finding the first text of each row, and halve.
    Source: Henderson et al., arXiv:1705.00652, section 4; hard negatives and temperature as
        in SimCSE, arXiv:2104.08821, equation 5; symmetric as in CLIP, arXiv:2103.00020.
    """
    rows = ops.shape(vectors)[0]
    keys = batch["text_keys"]
    first, fitting = keys[:, 0], keys[:, 1]
    candidates = ops.reshape(
        ops.swapaxes(vectors[:, 1:], 0, 1), (-1, vectors.shape[-1])
    )
    of_candidates = ops.reshape(ops.swapaxes(keys[:, 1:], 0, 1), (-1,))
    logits = ops.matmul(vectors[:, 0], ops.transpose(candidates)) / temperature
    labels = ops.arange(rows, dtype="int32")
    # Those of all rows with the same first text fit, whoever has them as negatives.
    same_first = ops.cast(_are_equal(first, first), "float32")
    fits = ops.cast(_are_equal(fitting, of_candidates), "float32")
    left_out = ops.logical_or(
        ops.matmul(same_first, fits) > 0, _are_equal(first, of_candidates)
    )
    left_out = ops.logical_or(left_out, ops.equal(of_candidates, 0)[None])
    numbers = ops.arange(ops.shape(of_candidates)[0], dtype="int32")
    is_label = _are_equal(labels, numbers)
    logits = ops.where(
        ops.logical_and(left_out, ops.logical_not(is_label)), _NEVER, logits
    )
    total, weight = losses.cross_entropy(logits, labels, weights)
    if symmetric:
        back, _ = losses.cross_entropy(ops.transpose(logits[:, :rows]), labels, weights)
        total = (total + back) / 2.0
    return (total, weight), losses.accuracy(logits, labels, weights)


def _are_equal(keys, others):
    """[n], [m] -> bool [n, m]"""
    return ops.equal(keys[:, None], others[None])


def triplet_margin(
    vectors, batch, weights, *, margin: float, normalized: bool
) -> tuple:
    """How much nearer than others the text that fits is, up to a margin.

    The distance is 1 - cosine or, of vectors of any length, Euclidean. The metric is how
    often the one that fits is nearer. Each row has a text that does not fit.

    Source: Schroff et al., arXiv:1503.03832; Reimers and Gurevych, arXiv:1908.10084.
    """
    exists = ops.cast(batch["text_keys"][:, 2:] > 0, "float32")
    number = ops.maximum(ops.sum(exists, axis=1), 1.0)
    distances = _distances(vectors[:, :1], vectors[:, 1:], normalized)
    surplus = distances[:, :1] - distances[:, 1:]
    loss = ops.sum(ops.maximum(surplus + margin, 0.0) * exists, axis=1) / number
    nearer = ops.cast(surplus < 0, "float32")
    share = ops.sum(nearer * exists, axis=1) / number
    return losses.weighted_sum(loss, weights), losses.weighted_sum(share, weights)


def _distances(a, b, normalized):
    if normalized:
        return 1.0 - ops.sum(a * b, axis=-1)
    # As in PyTorch, whose gradient exists where the vectors are equal.
    return ops.sqrt(ops.sum(ops.square(a - b + 1e-6), axis=-1))


def cosines(vectors):
    """float32 [b]: of the first two texts of each row."""
    unit = unit_vectors(vectors)
    return ops.sum(unit[:, 0] * unit[:, 1], axis=-1)


def cosine_error(vectors, batch, weights) -> tuple:
    """The squared difference of cosine and score; the metric is the absolute one.

    Source: Reimers and Gurevych, arXiv:1908.10084, section 3.
    """
    errors = cosines(vectors) - batch["scores"]
    return (
        losses.weighted_sum(ops.square(errors), weights),
        losses.weighted_sum(ops.abs(errors), weights),
    )


def cosent(vectors, batch, weights, *, temperature: float) -> tuple:
    """log(1 + sum of exp(difference of cosines / temperature)) over pairs in wrong order.

    Each pair of rows with different scores is a term: e to the power of how much the lower
    score's cosine is above the other. The loss is one number for the whole batch. The
    metric is the share of pairs in the right order.

    Source: Su, https://kexue.fm/archives/8847.
    """
    values, scores = cosines(vectors), batch["scores"]
    is_lower = scores[:, None] < scores[None]
    surplus = (values[:, None] - values[None]) / temperature
    terms = ops.reshape(ops.where(is_lower, surplus, _NEVER), (-1,))
    loss = ops.logsumexp(ops.concatenate([ops.zeros((1,)), terms]))
    weight = ops.sum(weights)
    number = ops.cast(is_lower, "float32")
    right = ops.sum(ops.cast(surplus < 0, "float32") * number)
    return (loss * weight, weight), (right, ops.sum(number))


OF_WHOLE_BATCH = (in_batch_negatives, cosent)
METRICS = {
    in_batch_negatives: "accuracy",
    triplet_margin: "accuracy",
    cosine_error: "absolute_error",
    cosent: "ordered",
}
