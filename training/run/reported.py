"""The sums that a step returns, and the numbers that they become.

Sums of replicas, micro-batches and steps are added before they are divided.
"""

from training.backend import tf
from modeling import losses


def names(objective) -> tuple:
    """Its losses, metrics and counts, in the order of their sums."""
    known = (*objective.loss_weights, *objective.metric_names)
    return (*known, *range(objective.num_counts))


def sums(objective, pairs, batch, outputs):
    """float32 [names, 2]: sum and weight of each.

    Args:
        pairs: what `objective.losses` returned.
    """
    pairs = pairs | objective.metrics(batch, outputs)
    known = (name for name in names(objective) if name in pairs)
    found = tf.stack([tf.stack(pairs[name]) for name in known])
    if not objective.num_counts:
        return found
    return tf.concat([found, objective.counts(batch, outputs)], axis=0)


def means(objective, sums) -> dict[str, float]:
    """Turns sums and weights into means; the loss to minimize is their weighted sum.

    Args:
        sums: [names, 2], with one more row for the gradient norm if there is one. All 0
            if every update was skipped, which gives no means.
    """
    if not sums.any():
        return {}
    pairs = dict(
        zip((*names(objective), "gradient_norm"), sums.astype("float64"), strict=False)
    )
    counts = [pairs.pop(number) for number in range(objective.num_counts)]
    values = {name: float(losses.mean(*pair)) for name, pair in pairs.items()}
    weights = objective.loss_weights.items()
    loss = sum(factor * values[name] for name, factor in weights)
    return {"loss": loss, **values, **objective.derived(values, counts)}
