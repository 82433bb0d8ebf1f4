"""Losses and metrics as pairs (sum, weight) of float32 scalars.

Pairs from replicas and micro-batches are added, and `mean` of the total is the number to
minimize or report, so it does not depend on how a batch was divided.
"""

from collections.abc import Callable, Sequence

from keras import ops

from modeling import custom_gradients, fusion

# Logits over a vocabulary that exist at a time; gradients need three times as much. For
# 4,096 rows of 256 and 30,522 words, a step takes 0.34 GB and 1.25 times the time of all
# logits at once, which take 1.06 GB; with 64 MiB, 0.83 GB and 1.4 times.
LOGIT_BYTES = 1 << 25


def cross_entropy(logits, labels, weights) -> tuple:
    """Weighted sum of -log p(label), and the weights' sum.

    Args:
        logits: float32 tensor [..., classes].
        labels: int tensor [...].
        weights: float32 tensor [...].
    Returns:
        two float32 scalars.
    """

    @custom_gradients.with_gradient
    def total(logits):
        probs = ops.softmax(logits)
        entropy = _entropy(logits, probs, labels)

        def gradient(upstream):
            return _cross_entropy_gradient(probs, labels, weights * upstream)

        return ops.sum(entropy * weights), gradient

    return total(logits), ops.sum(weights)


def _entropy(logits, probs, labels):
    """-log p(label), [...]"""
    of_label = _of_label(probs, labels)

    def from_logits():
        # The largest probability is 1 / sum of all exp(logit - highest).
        normalizer = ops.max(logits, axis=-1) - ops.log(ops.max(probs, axis=-1))
        return normalizer - _of_label(logits, labels)

    # Two passes over all classes, which only probabilities near 0 need. A compiler merges
    # them with others.
    if fusion.is_whole_program():
        return from_logits()
    is_accurate = ops.all(of_label > 1e-30)
    return ops.cond(is_accurate, lambda: -ops.log(of_label), from_logits)


def _of_label(values, labels):
    """[..., classes], [...] -> [...]"""
    return ops.take_along_axis(values, ops.cast(labels, "int32")[..., None], -1)[..., 0]


@fusion.fuse
def _cross_entropy_gradient(probs, labels, factors):
    classes = ops.arange(ops.shape(probs)[-1], dtype="int32")
    is_label = ops.equal(classes, ops.cast(labels, "int32")[..., None])
    return (probs - ops.cast(is_label, probs.dtype)) * factors[..., None]


def accuracy(logits, labels, weights) -> tuple:
    """Weighted count of labels with the highest logit, and the weights' sum.

    Of equal logits, the first counts as the highest. Arguments and results as for
    `cross_entropy`.
    """
    correct = _is_highest(logits, _of_label(logits, labels), labels)
    return ops.sum(ops.cast(correct, "float32") * weights), ops.sum(weights)


@fusion.fuse
def _is_highest(logits, of_label, labels):
    # Keras's argmax makes six passes over the logits.
    of_label, labels = of_label[..., None], ops.cast(labels, "int32")[..., None]
    number = ops.shape(logits)[-1]
    classes = ops.arange(number, dtype="int32")
    later = ops.logical_and(ops.equal(logits, of_label), classes >= labels)
    lower = ops.logical_or(ops.less(logits, of_label), later)
    # A sum of integers: compilers compute several of its terms at a time.
    return ops.equal(ops.sum(ops.cast(lower, "int32"), axis=-1), number)


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
    hidden, table, bias, labels, weights, each_row: bool = False
) -> tuple:
    """Cross entropy over a vocabulary of many rows, without keeping their logits.

    They are computed in parts of LOGIT_BYTES. Within `custom_gradients.use_gradients`, so
    is the gradient, which triples the work, and the backward pass does not need them again.

    Args:
        hidden: float tensor [rows, h].
        table: float tensor [vocab_size, h]; products are in the type of `hidden`, and its
            gradient is float32.
        bias: float32 tensor [vocab_size].
        labels: int tensor [rows].
        weights: float32 tensor [rows], known without the network.
        each_row: also return what each row adds to the first sum, float32 [rows].
    Returns:
        two float32 scalars: the weighted sum of -log p(label), and the weighted count of
        labels with the highest logit. Only the first has a gradient.
    """

    def of_part(logits, labels, weights):
        probs = ops.softmax(logits)
        of_rows = _entropy(logits, probs, labels) * weights
        correct, _ = accuracy(logits, labels, weights)
        sums = ops.sum(of_rows), correct, *([of_rows] if each_row else [])
        return sums, lambda: _cross_entropy_gradient(probs, labels, weights)

    return in_parts(hidden, table, bias, (labels, weights), of_part, each_row=each_row)


def vocabulary_cross_entropy_with_z_loss(
    hidden, table, labels, weights, factor: float
) -> tuple:
    """`vocabulary_cross_entropy` without a bias, and a loss that keeps logits near 0.

    It is `factor` times the square of the logarithm of the softmax's denominator.

    Returns:
        three float32 scalars: the weighted sum of both losses, of the second alone, and
        the weighted count of labels with the highest logit. Only the first has a gradient.
    Source: tensorflow/mesh@da90793 mesh_tensorflow/layers.py,
        softmax_cross_entropy_with_logits.
    """

    def of_part(logits, labels, weights):
        probs = ops.softmax(logits)
        entropy = _entropy(logits, probs, labels)
        log_sum = entropy + _of_label(logits, labels)
        z_loss = ops.sum(factor * ops.square(log_sum) * weights)
        correct, _ = accuracy(logits, labels, weights)

        def by_logits():
            change = _cross_entropy_gradient(probs, labels, weights)
            return change + probs * (2.0 * factor * log_sum * weights)[..., None]

        return (ops.sum(entropy * weights) + z_loss, z_loss, correct), by_logits

    return in_parts(hidden, table, None, (labels, weights), of_part, number=3)


def in_parts(
    hidden,
    table,
    bias,
    of_rows: Sequence,
    of_part: Callable,
    number: int = 2,
    each_row: bool = False,
) -> tuple:
    """Sums over rows of logits; only LOGIT_BYTES of them exist at a time.

    Within `custom_gradients.use_gradients`, the gradient is computed in the same pass.

    Args:
        hidden, table, bias: of the logits; see `vocabulary_cross_entropy`. The bias may
            be None.
        of_rows: tensors [rows, ...] that the sums depend on, without a gradient; their
            padding of zeros must add nothing.
        of_part: maps logits [some, vocab_size] and the same rows of these tensors to
            float32 scalars, and to the function of the first one's gradient by the logits.
        number: how many scalars there are.
        each_row: whether `of_part` gives a value of each row behind the scalars.
    Returns:
        that many float32 scalars, and the values, float32 [rows]. Only the first has a
        gradient.
    """

    with_gradient = custom_gradients.are_written_out()

    @custom_gradients.with_gradient
    def compute(hidden, table, *bias):
        sums, values, gradients = _each_part(
            hidden,
            table,
            bias,
            of_rows,
            of_part,
            number,
            each_row=each_row,
            with_gradient=with_gradient,
        )
        results = *(sums[i] for i in range(number)), *values

        def gradient(*upstream):
            # One for each result; JAX passes them as one tuple.
            of_loss, *_ = upstream if len(upstream) == len(results) else upstream[0]
            return tuple(x * ops.cast(of_loss, x.dtype) for x in gradients)

        return results, gradient

    return compute(hidden, table, *([] if bias is None else [bias]))


def _each_part(hidden, table, bias, by_row, of_part, num_sums, each_row, with_gradient):
    """The sums, the values of rows, if any, and the gradient of the first sum by hidden,
    table and, if any, the bias.
    """
    number = ops.shape(hidden)[0]  # a tensor if it varies by batch
    rows = max(1, LOGIT_BYTES // (4 * table.shape[0]))
    if hidden.shape[0] is not None:
        rows = min(number, rows)
    parts = -(-number // rows)

    def split(x):
        # With zeros, so that what is added has no weight.
        missing = [(0, parts * rows - number)] + [(0, 0)] * (len(x.shape) - 1)
        return ops.reshape(ops.pad(x, missing), (parts, rows, *x.shape[1:]))

    hidden_parts, *of_parts = map(split, (hidden, *by_row))
    factor = ops.cast(table, hidden.dtype)
    transposed = ops.transpose(factor)

    def step(part, sums, *others):
        of_rows, gradients = others[:each_row], others[each_row:]
        some = hidden_parts[part]
        logits = ops.cast(ops.matmul(some, transposed), "float32")
        for values in bias:
            logits += values
        part_sums, by_logits = of_part(logits, *(x[part] for x in of_parts))
        sums += ops.stack(part_sums[:num_sums])
        of_rows = [
            ops.slice_update(x, (part, 0), more[None])
            for x, more in zip(of_rows, part_sums[num_sums:], strict=True)
        ]
        if with_gradient:
            of_hidden, of_table, *of_bias = gradients
            change = by_logits()
            of_bias = [x + ops.sum(change, axis=0) for x in of_bias]
            change = ops.cast(change, some.dtype)
            of_table += ops.cast(ops.matmul(ops.transpose(change), some), "float32")
            of_some = ops.matmul(change, factor)[None]
            of_hidden = ops.slice_update(of_hidden, (part, 0, 0), of_some)
            gradients = of_hidden, of_table, *of_bias
        # TensorFlow would begin parts while others run, and hold the logits of all. The
        # next number is therefore known only when this part is done.
        last = gradients[1][0, 0] if with_gradient else sums[0]
        next_part = part + 1 + ops.cast(last < -float("inf"), "int32")
        return next_part, sums, *of_rows, *gradients

    state = [ops.zeros((), "int32"), ops.zeros(num_sums)]
    state += [ops.zeros((parts, rows))] * each_row
    if with_gradient:
        state += [
            ops.zeros_like(hidden_parts),
            *(ops.zeros(x.shape) for x in (table, *bias)),
        ]
    _, sums, *others = ops.while_loop(lambda part, *_: part < parts, step, state)
    values = [ops.reshape(x, (parts * rows,))[:number] for x in others[:each_row]]
    gradients = others[each_row:]
    if with_gradient:
        flat = ops.reshape(gradients[0], (parts * rows, hidden.shape[1]))
        gradients[0] = flat[:number]
    return sums, values, gradients
