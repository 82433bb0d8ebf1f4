"""Finds answers among the starts and ends that a network has chosen itself.

Such a network also says whether there is an answer; see modeling/objectives/span_beams.py.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from text.tasks import spans


class Beams(NamedTuple):
    """What a network has chosen for each row, best first.

    Attributes:
        starts, start_scores: positions in the row, int, and float; [rows, n].
        ends, end_scores: for each start, or for all; [rows, n or 1, m].
        no_answer: the logit that the row's text has no answer; float [rows].
    """

    starts: np.ndarray
    start_scores: np.ndarray
    ends: np.ndarray
    end_scores: np.ndarray
    no_answer: np.ndarray

    @classmethod
    def of(cls, outputs: Mapping) -> "Beams":
        """Those among the outputs of a network."""
        return cls(
            outputs["start_top"],
            outputs["start_top_scores"],
            outputs["end_top"],
            outputs["end_top_scores"],
            outputs["no_answer_logit"],
        )


def best_answers(
    documents: Sequence[spans.Document],
    questions: Sequence[int],
    windows: Sequence[spans.Window],
    beams: Beams,
    *,
    n_best_size: int = 20,
    max_answer_length: int = 30,
    with_null: bool = False,
) -> list[spans.Answer]:
    """The best spans for each question, by the sum of the scores of start and end.

    Args:
        with_null: consider "no answer": null_odds are the lowest `no_answer` of a
            question's rows, alone, and 0 without rows. The n-best list does not contain
            it.
        others: see `spans.best_answers`.
    Source: google-research/albert@b772393 squad_utils.py, accumulate_predictions_v2 and
        write_predictions_v2; google-research/electra@8a46635 finetune/qa/qa_metrics.py.
    """
    table = spans.table_of(questions, windows)
    lowest = np.full(len(documents), np.inf)
    np.minimum.at(lowest, table[:, 0], beams.no_answer)
    lowest[np.isinf(lowest)] = 0.0
    answers = []
    for (document, candidates), logit in zip(
        spans.ranked(
            documents,
            table,
            lambda rows: tuple(x[rows] for x in beams[:4]),
            max_answer_length,
        ),
        lowest.tolist(),
        strict=True,
    ):
        found = itertools.islice(spans.distinct(document, candidates), n_best_size)
        nbest = spans.with_probabilities(list(found))
        best = nbest[0] if nbest[0].end else None
        null_odds = logit if with_null else None
        answers.append(spans.Answer(nbest, best, null_odds, _nothing(logit)))
    return answers


def _nothing(logit):
    odds = math.exp(-min(abs(logit), 700.0))
    probability = (1.0 if logit > 0 else odds) / (1.0 + odds)
    return spans.Span("", 0, 0, logit, 0.0, probability)
