"""Losses and metrics as pairs (sum, weight) of float32 scalars.

Pairs from replicas and micro-batches are added, and `mean` of the total is the number to
minimize or report, so it does not depend on how a batch was divided.
"""

from keras import ops

# Logits over a vocabulary that exist at a time; gradients need three times as much.
LOGIT_BYTES = 1 << 26


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


def vocabulary_cross_entropy(
    hidden, table, bias, labels, weights, *, with_gradient: bool = True
) -> tuple:
    """Cross entropy over a vocabulary of many rows, without keeping their logits.

    They are computed in parts of LOGIT_BYTES, and with them the gradient, so that the
    backward pass does not need them again.

    Args:
        hidden: float tensor [rows, h], of a static shape.
        table: float32 tensor [vocab_size, h]; products are in the type of `hidden`.
        bias: float32 tensor [vocab_size].
        labels: int tensor [rows].
        weights: float32 tensor [rows], known without the network.
        with_gradient: False saves two thirds of the work.
    Returns:
        two float32 scalars: the weighted sum of -log p(label), and the weighted count of
        labels with the highest logit. Only the first has a gradient.
    """
    vocab_size = table.shape[0]
    number = hidden.shape[0]
    rows = max(1, min(number, LOGIT_BYTES // (4 * vocab_size)))
    parts = -(-number // rows)

    def split(x):
        # With zeros, so that what is added has no weight.
        missing = [(0, parts * rows - number)] + [(0, 0)] * (len(x.shape) - 1)
        return ops.reshape(ops.pad(x, missing), (parts, rows, *x.shape[1:]))

    def sums_of(logits, labels, weights):
        loss, _ = cross_entropy(logits, labels, weights)
        correct, _ = accuracy(logits, labels, weights)
        return ops.stack([loss, correct])

    def compute(hidden, table, bias):
        factor = ops.cast(table, hidden.dtype)
        transposed = ops.transpose(factor)

        def step(part, carry):
            some, some_labels, some_weights = (x[part] for x in of_rows)
            logits = ops.cast(ops.matmul(some, transposed), "float32") + bias
            sums = carry[0] + sums_of(logits, some_labels, some_weights)
            if not with_gradient:
                return (sums,)
            change = ops.softmax(logits) - ops.one_hot(some_labels, vocab_size)
            change *= some_weights[:, None]
            of_bias = carry[2] + ops.sum(change, axis=0)
            change = ops.cast(change, some.dtype)
            of_table = ops.matmul(ops.transpose(change), some)
            of_table = carry[1] + ops.cast(of_table, "float32")
            of_some = ops.matmul(change, factor)[None]
            of_hidden = ops.slice_update(carry[3], (part, 0, 0), of_some)
            return sums, of_table, of_bias, of_hidden

        of_rows = split(hidden), split(labels), split(weights)
        start = [ops.zeros(2)]
        if with_gradient:
            start += [ops.zeros(x.shape) for x in (table, bias)]
            start += [ops.zeros_like(of_rows[0])]
        # A loop, not a list: TensorFlow would compute the parts of a list side by side.
        sums, *gradients = ops.fori_loop(0, parts, step, tuple(start))

        def gradient(*upstream):
            of_table, of_bias, of_hidden = (
                x * ops.cast(upstream[0], x.dtype) for x in gradients
            )
            flat = ops.reshape(of_hidden, (parts * rows, hidden.shape[1]))
            return flat[:number], of_table, of_bias

        return (sums[0], sums[1]), gradient

    if not with_gradient:
        return compute(hidden, table, bias)[0]
    return ops.custom_gradient(compute)(hidden, table, bias)
