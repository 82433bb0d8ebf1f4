"""How far a student's answers are from its teacher's.

`COMPARED` has a set of functions for each kind of answers. All take float32 logits [...,
n] of student and teacher and return float32 [...]; gradients reach the student alone, if
the teacher's are constants.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from keras import ops


def _class_cross_entropy(student, teacher, temperature):
    probs = ops.softmax(teacher / temperature)
    return -ops.sum(probs * ops.log_softmax(student / temperature), axis=-1)


def _class_kl(student, teacher, temperature):
    logs = ops.log_softmax(teacher / temperature)
    ours = ops.log_softmax(student / temperature)
    return temperature**2 * ops.sum(kl_terms(ours, logs), axis=-1)


def kl_terms(ours, logs):
    """What adds up to the KL divergence, from log-probabilities of student and teacher."""
    # Adds the differences of the probabilities, whose sum is 0, so that no term is below 0
    # and small sums keep their precision.
    probs, change = ops.exp(logs), ours - logs
    small = ops.minimum(change, 1.0)
    return ops.where(
        change < 1.0,
        probs * (ops.expm1(small) - small),
        ops.exp(ours) - probs * (1.0 + change),
    )


def _square(student, teacher, temperature):
    del temperature
    return ops.sum(ops.square(student - teacher), axis=-1)


def _side_cross_entropy(student, teacher, temperature):
    probs = ops.sigmoid(teacher / temperature)
    of_sides = probs * ops.softplus(-student / temperature) + (1.0 - probs) * (
        ops.softplus(student / temperature)
    )
    return ops.mean(of_sides, axis=-1)


def _side_kl(student, teacher, temperature):
    both = (ops.stack([x, ops.zeros_like(x)], axis=-1) for x in (student, teacher))
    return ops.mean(_class_kl(*both, temperature), axis=-1)


def _mean_square(student, teacher, temperature):
    del temperature
    return ops.mean(ops.square(student - teacher), axis=-1)


def _same_class(student, teacher):
    same = ops.equal(ops.argmax(student, axis=-1), ops.argmax(teacher, axis=-1))
    return ops.cast(same, "float32")


def _same_sides(student, teacher):
    same = ops.equal(student > 0, teacher > 0)
    return ops.mean(ops.cast(same, "float32"), axis=-1)


def _cosine(student, teacher):
    lengths = ops.norm(student, axis=-1) * ops.norm(teacher, axis=-1)
    return ops.sum(student * teacher, axis=-1) / ops.maximum(lengths, 1e-12)


class AnswerComparison(NamedTuple):
    """What can be said about two answers of a kind.

    Attributes:
        losses: by name, see `modeling.distillation.LOSSES`: (student, teacher,
            temperature) -> [...].
        metrics: by name: (student, teacher) -> [...].
    """

    losses: Mapping[str, Callable]
    metrics: Mapping[str, Callable]


COMPARED = {
    # One of several classes.
    "classes": AnswerComparison(
        {"soft_cross_entropy": _class_cross_entropy, "kl": _class_kl, "mse": _square},
        {"teacher_kl": lambda s, t: _class_kl(s, t, 1.0), "agreement": _same_class},
    ),
    # Several labels, each of which is true or not.
    "sides": AnswerComparison(
        {
            "soft_cross_entropy": _side_cross_entropy,
            "kl": _side_kl,
            "mse": _mean_square,
        },
        {"teacher_kl": lambda s, t: _side_kl(s, t, 1.0), "agreement": _same_sides},
    ),
    "numbers": AnswerComparison(
        {"mse": _square},
        {"teacher_difference": lambda s, t: ops.abs(s - t)[..., 0]},
    ),
    "vectors": AnswerComparison({"mse": _mean_square}, {"teacher_cosine": _cosine}),
}
