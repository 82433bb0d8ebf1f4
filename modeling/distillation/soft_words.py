"""Compares the words that a student and its teacher expect, without keeping their logits.

Those of every token of a batch, over a whole vocabulary, would take gigabytes.
"""

from typing import Any, NamedTuple

from keras import ops

from modeling import fusion, losses
from modeling.distillation.soft_answers import kl_terms

_kl_terms = fusion.fuse(kl_terms)


class Words(NamedTuple):
    """What a network expects: hidden @ transpose(table) + bias are its logits.

    Attributes:
        hidden: float tensor [rows, width], of a static shape.
        table: float tensor [vocab_size, width].
        bias: float32 tensor [vocab_size].
    """

    hidden: Any
    table: Any
    bias: Any

    def logits(self):
        """float32 [rows, vocab_size]"""
        table = ops.cast(self.table, self.hidden.dtype)
        product = ops.matmul(self.hidden, ops.transpose(table))
        return ops.cast(product, "float32") + self.bias


def compare(
    student: Words, teacher: Words, weights, loss: str, temperature: float
) -> tuple:
    """The loss of `soft_losses.COMPARED["classes"]` with this name; see `losses.in_parts`.

    Args:
        teacher: has no gradient; its width may be another.
        weights: float32 tensor [rows], known without the network.
    Returns:
        two float32 scalars: the weighted sum of the loss, and the weighted count of rows
        where both expect the same word most.
    """

    def of_part(logits, hidden, weights):
        teacher_logits = Words(hidden, teacher.table, teacher.bias).logits()
        values, by_logits = _LOSSES[loss](logits, teacher_logits, temperature)
        same = _same_highest(logits, teacher_logits)
        sums = ops.sum(values * weights), ops.sum(same * weights)
        return sums, lambda: by_logits(weights)

    return losses.in_parts(*student, (teacher.hidden, weights), of_part)


def _cross_entropy(student, teacher, temperature):
    ours, logs = _log_probabilities(student, teacher, temperature)
    values = -ops.sum(ops.exp(logs) * ours, axis=-1)
    return values, lambda weights: _change(ours, logs, weights / temperature)


def _kl(student, teacher, temperature):
    ours, logs = _log_probabilities(student, teacher, temperature)
    values = temperature**2 * ops.sum(_kl_terms(ours, logs), axis=-1)
    return values, lambda weights: _change(ours, logs, weights * temperature)


def _square(student, teacher, temperature):
    del temperature
    difference = student - teacher
    values = ops.sum(ops.square(difference), axis=-1)
    return values, lambda weights: 2.0 * difference * weights[:, None]


_LOSSES = {"soft_cross_entropy": _cross_entropy, "kl": _kl, "mse": _square}


def _log_probabilities(student, teacher, temperature):
    return (ops.log_softmax(logits / temperature) for logits in (student, teacher))


@fusion.fuse
def _change(ours, logs, factors):
    return (ops.exp(ours) - ops.exp(logs)) * factors[:, None]


def _same_highest(student, teacher):
    """float32 [rows]: 1 where some word has the highest logit of both."""
    highest = (ops.max(x, axis=-1, keepdims=True) for x in (student, teacher))
    return ops.cast(_number_at(student, teacher, *highest) > 0, "float32")


@fusion.fuse
def _number_at(student, teacher, of_student, of_teacher):
    is_student = ops.equal(student, of_student)
    both = ops.logical_and(is_student, ops.equal(teacher, of_teacher))
    return ops.sum(ops.cast(both, "int32"), axis=-1)
