"""Metrics: predictions to numbers.

Where a number is not defined (a correlation with a constant, say), it is 0.
"""

import math
import warnings

import numpy as np
from scipy import stats
from sklearn import metrics


def softmax(logits: np.ndarray) -> np.ndarray:
    """float64 [..., classes], sums of 1."""
    odds = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """float64, elementwise."""
    return 0.5 * (1.0 + np.tanh(0.5 * logits.astype(np.float64)))


def accuracy(gold: np.ndarray, predicted: np.ndarray) -> float:
    return float(np.mean(np.asarray(gold) == np.asarray(predicted)))


def matthews(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Matthews's correlation of two series of classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single class, which gets 0 here
        return _defined(metrics.matthews_corrcoef(gold, predicted))


def f1(gold: np.ndarray, predicted: np.ndarray, average: str = "binary") -> float:
    """F1 of class 1, or an average over classes: "macro", "micro".

    Args:
        gold, predicted: int [n]; or int [n, classes], 0 or 1, for several at once.
    """
    return float(metrics.f1_score(gold, predicted, average=average, zero_division=0))


def found(gold: set, predicted: set) -> dict[str, float]:
    """Precision, recall and F1 of things found, each of which is right or wrong."""
    both = list(gold | predicted)
    if not both:
        return {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        [thing in gold for thing in both],
        [thing in predicted for thing in both],
        average="binary",
        zero_division=0,
    )
    return {"precision": float(precision), "recall": float(recall), "f1": float(f1)}


def pearson(gold: np.ndarray, predicted: np.ndarray) -> float:
    return _correlation(stats.pearsonr, gold, predicted)


def spearman(gold: np.ndarray, predicted: np.ndarray) -> float:
    return _correlation(stats.spearmanr, gold, predicted)


def _correlation(function, gold, predicted):
    if len(gold) < 2:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of constants, which get 0 here
        return _defined(function(gold, predicted).statistic)


def _defined(value) -> float:
    return 0.0 if math.isnan(value) else float(value)
