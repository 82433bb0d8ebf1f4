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

    def compute(hidden, table, bias):
        sums, gradients = _in_parts(
            hidden, table, bias, labels, weights, with_gradient=with_gradient
        )

        def gradient(*upstream):
            return tuple(x * ops.cast(upstream[0], x.dtype) for x in gradients)

        return (sums[0], sums[1]), gradient

    if not with_gradient:
        return compute(hidden, table, bias)[0]
    return ops.custom_gradient(compute)(hidden, table, bias)


def _in_parts(hidden, table, bias, labels, weights, with_gradient):
    """The two sums [2]; and the gradient of the first by hidden, table and bias."""
    number, vocab_size = hidden.shape[0], table.shape[0]
    rows = max(1, min(number, LOGIT_BYTES // (4 * vocab_size)))
    parts = -(-number // rows)

    def split(x):
        # With zeros, so that what is added has no weight.
        missing = [(0, parts * rows - number)] + [(0, 0)] * (len(x.shape) - 1)
        return ops.reshape(ops.pad(x, missing), (parts, rows, *x.shape[1:]))

    of_rows = split(hidden), split(labels), split(weights)
    factor = ops.cast(table, hidden.dtype)
    transposed = ops.transpose(factor)

    def step(part, carry):
        some, some_labels, some_weights = (x[part] for x in of_rows)
        logits = ops.cast(ops.matmul(some, transposed), "float32") + bias
        loss, _ = cross_entropy(logits, some_labels, some_weights)
        correct, _ = accuracy(logits, some_labels, some_weights)
        sums = carry[0] + ops.stack([loss, correct])
        if not with_gradient:
            return (sums,)
        of_hidden, of_table, of_bias = carry[1:]
        change = ops.softmax(logits) - ops.one_hot(some_labels, vocab_size)
        change *= some_weights[:, None]
        of_bias += ops.sum(change, axis=0)
        change = ops.cast(change, some.dtype)
        of_table += ops.cast(ops.matmul(ops.transpose(change), some), "float32")
        of_some = ops.matmul(change, factor)[None]
        return (
            sums,
            ops.slice_update(of_hidden, (part, 0, 0), of_some),
            of_table,
            of_bias,
        )

    start = [ops.zeros(2)]
    if with_gradient:
        start += [
            ops.zeros_like(of_rows[0]),
            *(ops.zeros(x.shape) for x in (table, bias)),
        ]
    # A loop, not a list: TensorFlow would compute the parts of a list side by side.
    sums, *gradients = ops.fori_loop(0, parts, step, tuple(start))
    if with_gradient:
        flat = ops.reshape(gradients[0], (parts * rows, hidden.shape[1]))
        gradients[0] = flat[:number]
    return sums, gradients
