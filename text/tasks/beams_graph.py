"""Finds answers among the starts and ends of a network in a TensorFlow graph.

It equals text/tasks/beams.py, which names the source.
"""

import tensorflow as tf

from text.tasks import spans_graph
from text.tasks.beams import Beams


def best_answers(
    documents: spans_graph.Documents,
    windows: spans_graph.Windows,
    beams: Beams,
    *,
    n_best_size: int = 20,
    max_answer_length: int = 30,
    with_null: bool = False,
    null_threshold: float = 0.0,
) -> dict[str, tf.Tensor]:
    """The answer to each question; arguments and results as for the functions of both.

    The probability of no answer is that which its logit says.
    """
    found = spans_graph.ranked(
        documents, windows, beams[:4], n_best_size, max_answer_length
    )
    probabilities = found.probabilities
    if not with_null:
        of_other = probabilities[:, -1]
        return found.answers(
            found.exists, None, probabilities[:, 0], of_other, tf.zeros_like(of_other)
        )
    number = tf.size(documents.texts)
    logits = tf.cast(beams.no_answer, tf.float64)
    lowest = tf.math.unsorted_segment_min(logits, windows.question, number)
    rows = tf.math.bincount(windows.question, minlength=number, maxlength=number)
    odds = tf.where(rows > 0, lowest, 0.0)
    chosen = found.exists & (odds <= null_threshold)
    return found.answers(chosen, odds, probabilities[:, 0], tf.sigmoid(odds), odds)
