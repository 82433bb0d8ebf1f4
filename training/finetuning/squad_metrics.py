"""Scores answers as the scripts of SQuAD, KorQuAD and KLUE-MRC compute them.

An answer is compared with each of its references, and the best comparison counts: whether
it is the same, and how much the two have in common. SQuAD compares words between spaces,
KorQuAD characters, and KLUE the longest run of characters in both.
"""

import difflib
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_KORQUAD_MARKS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))


def normalize(text: str) -> str:
    """Lowercases, drops ASCII punctuation and English articles, collapses white space."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", text).split())


def _normalize_korquad(text):
    """Lowercases, makes its marks spaces, and drops the rest of ASCII punctuation."""
    text = text.lower().translate(_KORQUAD_MARKS)
    return " ".join(text.translate(_PUNCTUATION).split())


def _normalize_klue(text):
    """Lowercases and drops ASCII punctuation; its pattern of marks never matches."""
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def _f1(answer, reference):
    common = sum((Counter(answer) & Counter(reference)).values())
    return 2 * common / (len(answer) + len(reference)) if common else 0.0


def _f1_of_words(answer, reference):
    return _f1(answer.split(), reference.split())


def _f1_of_characters(answer, reference):
    return _f1(answer.replace(" ", ""), reference.replace(" ", ""))


def _longest_run(answer, reference):
    """F1 of the longest run of characters in both, which KLUE calls ROUGE-W."""
    matcher = difflib.SequenceMatcher(None, answer, reference)
    size = matcher.find_longest_match(0, len(answer), 0, len(reference)).size
    return 2 * size / (len(answer) + len(reference)) if size else 0.0


class AnswerScore(NamedTuple):
    """How a data set's script compares an answer with a reference.

    Attributes:
        overlap: what two normalized texts have in common, from 0 to 1, by its name.
        keeps_empty: whether references without text count next to others in version 2.
    """

    name: str
    normalize: Callable[[str], str]
    overlap: Callable[[str, str], float]
    keeps_empty: bool = False


# Source: the scripts of SQuAD; KorQuAD's evaluate-v1.0.py;
#     KLUE-benchmark/KLUE-baseline@443c38b metrics/utils.py, evaluate_for_klue_mrc.
ANSWER_SCORES = {
    "words": AnswerScore("f1", normalize, _f1_of_words),
    "characters": AnswerScore("f1", _normalize_korquad, _f1_of_characters),
    "rouge_w": AnswerScore("rouge_w", _normalize_klue, _longest_run, keeps_empty=True),
}
_WORDS = ANSWER_SCORES["words"]


def evaluate(
    references: Sequence[Sequence[str]],
    answers: Sequence[str | None],
    *,
    version_2: bool = False,
    by: AnswerScore = _WORDS,
    texts: Sequence[str] | None = None,
    null_odds: Sequence[float] | None = None,
) -> dict[str, float | int]:
    """Scores a data set, in percent.

    Args:
        references: the right answers to each question; in version 2, none at all means
            that "" is right.
        answers: the answers given; None for a question that was left out, which counts
            as wrong.
        version_2: use the rules of SQuAD 2.0, not 1.1.
        by: one of ANSWER_SCORES.
        texts: for the best thresholds, the best text for each question, however likely it
            is that there is no answer.
        null_odds: how much likelier no answer is than that text; finite.
    Returns:
        `exact`, `f1` (or the name of `by`), and `total`, the number of questions;
        `missing`, those left out, if any. In version 2, the same for questions with an
        answer (`HasAns_…`) and without (`NoAns_…`), if there are any, and, with null_odds,
        the best scores that a threshold reaches and that threshold: `best_exact`,
        `best_exact_thresh`, `best_f1`, `best_f1_thresh`. The answer is "" if the odds are
        above the threshold.
    Source: the evaluation scripts of SQuAD 1.1 and 2.0.
    """
    scores = score(references, answers, version_2=version_2, by=by)
    names = "exact", by.name
    results = _averages(names, scores)
    # Differs from the script of 2.0, which leaves such questions out of its averages.
    if missing := sum(answer is None for answer in answers):
        results["missing"] = missing
    if not version_2:
        return results
    has_answer = np.array([len(named) > 0 for named in references], bool)
    for prefix, chosen in (("HasAns_", has_answer), ("NoAns_", ~has_answer)):
        if chosen.any():
            averages = _averages(names, [values[chosen] for values in scores])
            results |= {prefix + name: value for name, value in averages.items()}
    if null_odds is not None:
        # Differs from the script, which has only the answers of one threshold, and so
        # cannot tell what a higher one would give.
        of_texts = score(references, texts, version_2=True, by=by)
        of_none = score(references, [""] * len(references), version_2=True, by=by)
        for name, *both in zip(names, of_texts, of_none, strict=True):
            best, threshold = best_threshold(*both, null_odds)
            results[f"best_{name}"] = best
            results[f"best_{name}_thresh"] = threshold
    return results


def score(
    references: Sequence[Sequence[str]],
    answers: Sequence[str | None],
    *,
    version_2: bool = False,
    by: AnswerScore = _WORDS,
) -> tuple[np.ndarray, np.ndarray]:
    """Compares each answer with its references.

    Args: as for `evaluate`.
    Returns:
        exact match, 0.0 or 1.0, and the overlap, from 0.0 to 1.0: float64 [questions]
        each.
    """
    scores = np.zeros((2, len(references)))
    for place, (named, answer) in enumerate(zip(references, answers, strict=True)):
        if answer is not None:
            normalized = by.normalize(answer)
            for reference in _may_be(named, version_2, by):
                compared = (
                    normalized == reference,
                    _overlap(normalized, reference, version_2, by),
                )
                scores[:, place] = np.maximum(scores[:, place], compared)
    return scores[0], scores[1]


def _may_be(references, version_2, by):
    """The normalized references, each once."""
    normalized = list(dict.fromkeys(map(by.normalize, references)))
    if version_2:
        return [text for text in normalized if text or by.keeps_empty] or [""]
    return normalized


def _overlap(answer, reference, version_2, by):
    if not answer or not reference:
        # In SQuAD 1.1 even two empty answers have no word in common.
        return float((version_2 or by.keeps_empty) and answer == reference)
    return by.overlap(answer, reference)


def _averages(names, scores):
    averages = {
        name: 100 * float(values.mean()) if len(values) else 0.0
        for name, values in zip(names, scores, strict=True)
    }
    return averages | {"total": len(scores[0])}


def best_threshold(
    scores: np.ndarray, null_scores: np.ndarray, null_odds: Sequence[float]
) -> tuple[float, float]:
    """The odds above which "" is the better answer.

    Args:
        scores: float [questions], of the texts.
        null_scores: float [questions], of "".
        null_odds: float [questions], finite.
    Returns:
        the highest average in percent, and the lowest of the odds that reaches it as a
        threshold; 1.0 below all odds if it is best never to answer.
    """
    odds = np.asarray(null_odds, np.float64)
    if not len(odds):
        return 0.0, 0.0
    order = np.argsort(odds, kind="stable")
    odds = odds[order]
    gains = np.subtract(scores, null_scores, dtype=np.float64)
    totals = np.sum(null_scores) + np.cumsum(np.append(0.0, gains[order]))
    # Differs from the script, which also stops between questions of equal odds, which no
    # threshold can separate, and whose threshold is 0 if it answers none.
    is_last = np.append(odds[1:] != odds[:-1], True)
    thresholds = np.append(odds[0] - 1.0, odds)
    totals, thresholds = (x[np.append(True, is_last)] for x in (totals, thresholds))
    best = int(totals.argmax())
    return 100 * float(totals[best]) / len(odds), float(thresholds[best])
