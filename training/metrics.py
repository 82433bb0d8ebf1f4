"""Computes metrics from predictions.

A metric that is undefined, such as a correlation with a constant, is 0. SciPy and
scikit-learn take a second to load, so they are imported when a metric needs them.
"""

import functools
import math
import re
import warnings
from collections.abc import Sequence

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """float64 [..., classes], which sum to 1."""
    odds = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """float64, elementwise."""
    return 0.5 * (1.0 + np.tanh(0.5 * logits.astype(np.float64)))


def accuracy(gold: np.ndarray, predicted: np.ndarray) -> float:
    return float(np.mean(np.asarray(gold) == np.asarray(predicted)))


def matthews(gold: np.ndarray, predicted: np.ndarray) -> float:
    """The Matthews correlation of two series of classes."""
    from sklearn import metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a single class, which scores 0 here
        return _zero_if_nan(metrics.matthews_corrcoef(gold, predicted))


def f1(gold: np.ndarray, predicted: np.ndarray, average: str = "binary") -> float:
    """F1 of class 1, or an average over classes: "macro", "micro".

    Args:
        gold, predicted: int [n]; or int [n, classes], 0 or 1, for several at once.
    """
    from sklearn import metrics

    return float(metrics.f1_score(gold, predicted, average=average, zero_division=0))


def f1_of_labels(gold: list[str], predicted: list[str], labels: list[str]) -> float:
    """The mean F1 of some labels; 1 for one that occurs nowhere."""
    from sklearn import metrics

    return float(
        metrics.f1_score(
            gold, predicted, labels=labels, average="macro", zero_division=1
        )
    )


def precision_recall_f1(gold: set, predicted: set) -> dict[str, float]:
    """Precision, recall and F1 of the things found, each either right or wrong."""
    found = len(gold & predicted)
    return {
        "precision": found / (len(predicted) or 1),
        "recall": found / (len(gold) or 1),
        "f1": 2 * found / (len(gold) + len(predicted) or 1),
    }


def pearson(gold: np.ndarray, predicted: np.ndarray) -> float:
    from scipy import stats

    return _correlation(stats.pearsonr, gold, predicted)


def spearman(gold: np.ndarray, predicted: np.ndarray) -> float:
    from scipy import stats

    return _correlation(stats.spearmanr, gold, predicted)


def f1_of_alike(gold: np.ndarray, predicted: np.ndarray) -> float:
    """F1 of the pairs rated as alike, 3 or more of 5.

    Source: KLUE-benchmark/KLUE-baseline@443c38b metrics/functional.py, klue_sts_f1.
    """
    return f1(np.asarray(gold) >= 3, np.asarray(predicted) >= 3)


def exact_match(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Share of rows [n, classes] that are right in all classes."""
    return float(np.mean((gold == predicted).all(axis=1)))


def mean_squared_error(gold: np.ndarray, predicted: np.ndarray) -> float:
    return float(np.mean((gold - predicted) ** 2))


def _correlation(function, gold, predicted):
    if len(gold) < 2:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about constants, which score 0 here
        return _zero_if_nan(function(gold, predicted).statistic)


def _zero_if_nan(value) -> float:
    return 0.0 if math.isnan(value) else float(value)


def exact_questions(
    gold: np.ndarray, predicted: np.ndarray, questions: list[str]
) -> float:
    """The share of questions whose answers were all judged right.

    Args:
        gold, predicted: [answers]
        questions: the question of each answer.
    Source: arXiv:1905.00537, EM of MultiRC.
    """
    wrong = {q for q, g, p in zip(questions, gold, predicted, strict=True) if g != p}
    return 1 - len(wrong) / len(set(questions))


# By their names in tasks and eval_results.txt.
FUNCTIONS = {
    "accuracy": accuracy,
    "matthews": matthews,
    "f1": f1,
    "f1_macro": functools.partial(f1, average="macro"),
    "f1_micro": functools.partial(f1, average="micro"),
    "f1_of_alike": f1_of_alike,
    "exact_match": exact_match,
    "pearson": pearson,
    "spearman": spearman,
    "mean_squared_error": mean_squared_error,
}
_OF_GROUPS = {"exact_questions": exact_questions}


def scores(
    names: Sequence[str], gold: np.ndarray, predicted: np.ndarray, indices: list[str]
) -> dict[str, float]:
    """The scores of these names.

    Args:
        indices: of the examples; before the last hyphen, that of a group.
    """
    groups = [index.rpartition("-")[0] for index in indices]
    return {
        name: _OF_GROUPS[name](gold, predicted, groups)
        if name in _OF_GROUPS
        else FUNCTIONS[name](gold, predicted)
        for name in names
    }


_SHARE = re.compile(
    r"(^|_)(accuracy|agreement|precision|recall|f1|exact|rouge_w)(_(?!thresh)|$)"
)


def in_words(name: str, value: float, percentages: bool = False) -> str:
    """The value of a loss or score as people read it: shares in percent.

    Args:
        percentages: whether shares are given in percent, as by SQuAD's script.
    """
    if not _SHARE.search(name):
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return f"{value if percentages else 100 * value:.2f}%"
