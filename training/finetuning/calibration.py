"""Makes a classifier's probabilities mean what they say, on a dev set.

A temperature divides all logits (arXiv:1706.04599): it changes how sure a model is, not
what it chooses. For texts with several labels, each label has a threshold of its own.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from training import metrics
from training.storage.folder import RESULTS_JSON
from errors import UserError
from files import json_files

_BINS = 15
_SHARPEST = 20.0  # the range of 1 / temperature: a dev set without mistakes has no end
_HALVINGS = 60


class Calibration(NamedTuple):
    """What is done to logits; None where nothing was fitted.

    Attributes:
        temperature: divides them.
        cuts: of each label that a text may have, the logit above which it has it, before
            they are divided.
    """

    temperature: float | None = None
    cuts: tuple[float, ...] | None = None

    def scale(self, logits):
        """The logits of the probabilities; an array or a tensor."""
        return logits if self.temperature is None else logits / self.temperature

    @property
    def thresholds(self) -> list[float] | None:
        """The cuts as probabilities."""
        if self.cuts is None:
            return None
        return metrics.sigmoid(self.scale(np.array(self.cuts))).tolist()

    def description(self) -> dict:
        """What an export says about it."""
        parameters = {"temperature": self.temperature, "thresholds": self.thresholds}
        return {name: value for name, value in parameters.items() if value is not None}

    def scores(
        self, gold: np.ndarray, logits: np.ndarray, names: Sequence[str]
    ) -> dict[str, float]:
        """What evaluations report; arguments as for `expected_calibration_error`."""
        scores = {}
        if self.temperature is not None:
            scores["ece"] = expected_calibration_error(gold, logits)
            calibrated = self.scale(logits)
            scores["ece_calibrated"] = expected_calibration_error(gold, calibrated)
            scores["temperature"] = self.temperature
        if self.cuts is not None:
            thresholds = zip(names, self.thresholds, strict=True)
            scores |= {f"threshold_{name}": value for name, value in thresholds}
        return scores


def fit(
    gold: np.ndarray, logits: np.ndarray, *, temperature: bool, cuts: bool
) -> Calibration:
    """Fits one of them or both; arrays as for `expected_calibration_error`."""
    return Calibration(
        fitted_temperature(gold, logits) if temperature else None,
        best_cuts(gold, logits) if cuts else None,
    )


def recall(
    folder: str, names: Sequence[str], *, temperature: bool, cuts: bool
) -> Calibration:
    """What an earlier evaluation of a run fitted.

    Args:
        folder: the run's, with its eval_results.json.
        names: of the labels.
    Raises:
        UserError: nothing was fitted.
    """
    path = os.path.join(folder, RESULTS_JSON)
    results = json_files.read_own(path)
    results = {k: v for k, v in results.items() if isinstance(v, float)}
    needed = ["eval_temperature"] * temperature
    needed += [f"eval_threshold_{name}" for name in names] * cuts
    if missing := [name for name in needed if name not in results]:
        raise UserError(
            f"{path}: has no {missing[0]}; pass --do_eval, which fits it to the dev set"
        )
    stored_temperature = results["eval_temperature"] if temperature else None
    if not cuts:
        return Calibration(stored_temperature)
    odds = np.clip([results[name] for name in needed[-len(names) :]], 1e-300, 1 - 1e-16)
    logits = np.log(odds / (1 - odds)) * (stored_temperature or 1.0)
    return Calibration(stored_temperature, tuple(logits.tolist()))


def expected_calibration_error(gold: np.ndarray, logits: np.ndarray) -> float:
    """How far the probability of an answer is from the share of right ones.

    Answers are put into 15 bins of equal width by their probability. In each bin, the mean
    probability is compared with the accuracy; the result is the mean of the absolute
    differences, each weighted by the answers in its bin.

    Args:
        gold: int [n] classes; or int [n, classes], 0 or 1, each an answer, yes or no.
        logits: float [n, classes].
    Source: arXiv:1706.04599, equation 3, with its 15 bins.
    """
    if gold.ndim == 1:
        probs = metrics.softmax(logits)
        right = probs.argmax(axis=1) == gold
        sure = probs.max(axis=1)
    else:
        probs = metrics.sigmoid(logits)
        right = ((probs > 0.5) == gold).ravel()
        sure = np.maximum(probs, 1 - probs).ravel()
    # Of (0, 1/15], (1/15, 2/15], ...
    bins = np.clip(np.ceil(sure * _BINS).astype(int) - 1, 0, _BINS - 1)
    gaps = np.bincount(bins, weights=right - sure, minlength=_BINS)
    return float(np.abs(gaps).sum() / len(sure))


def fitted_temperature(gold: np.ndarray, logits: np.ndarray) -> float:
    """The temperature of the lowest cross entropy, from 0.05 to 20.

    Arguments as for `expected_calibration_error`.
    """
    logits = logits.astype(np.float64)
    lowest, highest = 1 / _SHARPEST, _SHARPEST
    # The loss is convex in 1 / temperature, so its slope has one root at most.
    for _ in range(_HALVINGS):
        middle = np.sqrt(lowest * highest)
        if _slope(gold, logits, middle) > 0:
            highest = middle
        else:
            lowest = middle
    return float(1 / np.sqrt(lowest * highest))


def _slope(gold, logits, inverse):
    """Of the cross entropy, by the inverse of the temperature."""
    if gold.ndim == 1:
        expected = (metrics.softmax(logits * inverse) * logits).sum(axis=1)
        return np.mean(expected - logits[np.arange(len(gold)), gold])
    return np.mean((metrics.sigmoid(logits * inverse) - gold) * logits)


def best_cuts(gold: np.ndarray, logits: np.ndarray) -> tuple[float, ...]:
    """For each label, the logit above which its F1 is best; of equal ones, nearest to 0.

    Args:
        gold: int [n, labels], 0 or 1.
        logits: float [n, labels].
    """
    return tuple(map(_best_cut, gold.T, logits.T.astype(np.float64)))


def _best_cut(gold, logits):
    order = np.argsort(-logits, kind="stable")
    values, hits = logits[order], np.cumsum(gold[order])
    if not hits[-1]:
        return 0.0
    # After each value that is above the next one, and after the last; and 0.
    ends = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)
    below = np.append(values, values[-1] - 2.0)
    cuts = np.append((values[ends] + below[ends + 1]) / 2, 0.0)
    num_predicted = np.append(ends + 1, np.sum(values > 0))
    right = np.append(hits[ends], np.sum(gold[logits > 0]))
    f1 = 2 * right / (num_predicted + hits[-1])
    best = cuts[f1 == f1.max()]
    return float(best[np.abs(best).argmin()])
