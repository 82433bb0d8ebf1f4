"""Counts what a model is asked and what it answers, so that two sets can be compared.

A model in production fails silently: texts become longer, come in another language or of
another subject, and answers less sure. Only counts are kept, no texts.
"""

import bisect
import collections
import math
from collections.abc import Mapping
from typing import NamedTuple

from errors import UserError
from serving import forms
from serving.predictor import DESCRIPTION, Served
from text.tokenizers.table import OpenVocabulary, TokenizerOptions
from text.tokenizers.tokenizer import Tokenizer

DEV_SET = "dev_set"  # in export.json

_LENGTHS = (4, 8, 16, 32, 64, 128, 256, 512)  # the last tokens of bins
_CONFIDENCES = tuple(round(0.1 * i, 1) for i in range(1, 10))
_SMOOTHING = 0.5  # rows that every bin has more, so that none is empty


class Shift(NamedTuple):
    """How far one distribution is from another.

    Attributes:
        bins: of each bin, its name and its share of both.
        index: the population stability index.
    """

    bins: list[tuple[str, float, float]]
    index: float


class DriftCounts:
    """What was counted in some requests and their answers.

    Attributes:
        rows: how many there were.
        num_tokens, num_unknown: of all their texts.
    """

    def __init__(self, description: Mapping = {}):  # noqa: B006  only read
        """Args:
        description: what `description` returned.
        """
        self.rows = description.get("rows", 0)
        self.num_tokens = description.get("tokens", 0)
        self.num_unknown = description.get("unknown", 0)
        self._distributions = {
            name: collections.Counter(description.get(name, {}))
            for name in ("lengths", "confidences", "labels")
        }

    @property
    def description(self) -> dict:
        """These, as JSON."""
        counts = {k: dict(v) for k, v in self._distributions.items()}
        numbers = {"rows": self.rows, "tokens": self.num_tokens}
        return {**numbers, "unknown": self.num_unknown, **counts}

    @property
    def mean_length(self) -> float:
        """Tokens of a request."""
        return self.num_tokens / max(1, self.rows)

    @property
    def unknown_share(self) -> float:
        """The share of tokens that are not in the vocabulary."""
        return self.num_unknown / max(1, self.num_tokens)

    def add(self, form: str, tokenizer: Tokenizer, request: Mapping, answer: Mapping):
        """Counts a request and its answer, which is of that form."""
        unknown, length = tokenizer.vocabulary.unk_id, 0
        for part in request.values():
            for text in part if isinstance(part, list) else [part]:
                ids = tokenizer.encode(text)
                length += len(ids)
                self.num_unknown += ids.count(unknown)
        self.rows += 1
        self.num_tokens += length
        lengths, confidences, labels = self._distributions.values()
        lengths[_bin(length, _LENGTHS)] += 1
        for label, confidence in forms.verdicts(form, answer):
            labels[label] += 1
            if confidence is not None:
                confidences[_bin(confidence, _CONFIDENCES)] += 1

    def shifts(self, expected: "DriftCounts") -> dict[str, Shift]:
        """How far the distributions are from the expected ones, by name; of those only
        that either has.
        """
        return {
            name: _shift(expected._distributions[name], counts, name)
            for name, counts in self._distributions.items()
            if counts or expected._distributions[name]
        }


def _bin(value, bounds):
    """The name of the bin that a value is in."""
    number = bisect.bisect_left(bounds, value)
    if number == len(bounds):
        return f"over {bounds[-1]}"
    return f"up to {bounds[number]}"


def _shift(expected, actual, name):
    order = {"lengths": _LENGTHS, "confidences": _CONFIDENCES}.get(name)
    names = [_bin(bound, order) for bound in (*order, math.inf)] if order else None
    if not names:
        names = sorted({*expected, *actual}, key=lambda n: (-expected[n], n))
    names = [n for n in names if expected[n] or actual[n]]
    shares = [_shares(counts, names, _SMOOTHING) for counts in (expected, actual)]
    index = sum((a - e) * math.log(a / e) for e, a in zip(*shares, strict=True))
    exact = [_shares(counts, names) for counts in (expected, actual)]
    return Shift(list(zip(names, *exact, strict=True)), index)


def _shares(counts, names, more=0.0):
    total = max(1, sum(counts[name] + more for name in names))
    return [(counts[name] + more) / total for name in names]


def dev_set_of(predictor: Served, folder: str) -> DriftCounts:
    """What was counted in the dev set when a model was exported."""
    noted = predictor.description.get(DEV_SET)
    if not isinstance(noted, Mapping):
        raise UserError(
            f"{folder}: {DESCRIPTION} has no counts of a dev set to compare with; run the "
            "script that fine-tuned the model again with --do_eval --do_export and without "
            "--do_train (exports of pre-training have no dev set)"
        )
    return DriftCounts(noted)


def tokenizer_of(predictor: Served, vocabulary: str) -> Tokenizer:
    """The tokenizer of an exported model, in Python.

    Args:
        vocabulary: the folder of its vocabulary.
    """
    flags = TokenizerOptions().or_else(predictor.description)
    return OpenVocabulary.open(vocabulary).load(flags)
