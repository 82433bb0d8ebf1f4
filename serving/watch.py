"""Writes a page that compares what models are asked with their dev sets."""

import html
import sys
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from errors import UserError, count
from files import local
from serving import drift
from serving.predictor import Predictor
from text import report_page

_SECONDS = 60  # between two versions of the page
_FEW = 100  # rows that say little
_TITLES = {
    "lengths": "Tokens of a request",
    "confidences": "Probability of a decision",
    "labels": "Decisions",
}
_NOTE = (
    "The index of stability (PSI) adds up how far the shares are apart, each times the "
    "logarithm of their ratio. As a rule of thumb, below 0.1 two sets are alike, and above "
    f"0.25 they differ: look at what is asked. With fewer than {_FEW} requests it says "
    "little. Only counts were kept, no texts."
)
_STYLE = """
.share { display: inline-block; height: 10px; background: var(--bar); }
.other { background: var(--quiet); }
"""


class _Watched(NamedTuple):
    expected: drift.DriftCounts
    asked: drift.DriftCounts


class Watch:
    """Counts for a page, which is written every minute and at the end."""

    def __init__(self, path: str):
        """Args:
        path: of the page.
        """
        self._path, self._models = path, {}
        self._lock, self._last = threading.Lock(), time.monotonic()

    def add(self, name: str, predictor: Predictor, folder: str) -> None:
        """Counts from now on what a model is asked.

        A model that takes the place of one with the same dev set continues its counts.

        Args:
            folder: what messages call the model.
        Raises:
            UserError: the export has no counts of a dev set, or no vocabulary.
        """
        expected = drift.dev_set_of(predictor, folder)
        tokenizer = drift.tokenizer_of(predictor, predictor.vocabulary)
        form = predictor.description["form"]
        with self._lock:
            earlier = self._models.get(name)
            if not earlier or earlier.expected.description != expected.description:
                self._models[name] = _Watched(expected, drift.DriftCounts())
            asked = self._models[name].asked

        def note(requests, answers):
            with self._lock:
                for request, answer in zip(requests, answers, strict=True):
                    asked.add(form, tokenizer, request, answer)
                is_due = time.monotonic() > self._last + _SECONDS
            if is_due:
                try:
                    self.write()
                except (OSError, UserError) as error:  # the answers are there
                    print(f"{self._path}: not written ({error})", file=sys.stderr)

        predictor.note = note

    def write(self) -> None:
        """Writes the page, if a model is known."""
        if not self._models:
            return
        with self._lock:
            content = render(self._models)
            self._last = time.monotonic()
        with local.replacing(self._path) as file:
            file.write(content.encode())


def render(models: Mapping[str, tuple[drift.DriftCounts, drift.DriftCounts]]) -> str:
    """The page.

    Args:
        models: by name, what was counted in the dev set, and in requests.
    """
    sections = "".join(_section(name, *counts) for name, counts in models.items())
    note = f'<p class="note">{html.escape(_NOTE)}</p>\n'
    return report_page.render("What the models are asked", note + sections, _STYLE)


def _section(name, expected, asked):
    shifts = asked.shifts(expected)
    sets = (expected, asked)
    unknown = [f"{counts.unknown_share:.2%}" for counts in sets]
    rows, tables = [["Unknown tokens", *unknown, ""]], []
    means = {"lengths": [f"mean {counts.mean_length:.1f}" for counts in sets]}
    for key, shift in shifts.items():
        title, verdict = _TITLES[key], _in_words(shift.index, asked.rows)
        rows.append([title, *means.get(key, ["", ""]), verdict])
        bins = [
            [html.escape(bin), *map(_bar, (dev, now), ("other", ""))]
            for bin, dev, now in shift.bins
        ]
        table = report_page.numbers(["", "dev set", "requests"], bins)
        tables.append(f"<h3>{title}</h3>\n{table}")
    counted = f"{count(asked.rows, 'request')}; dev set: {count(expected.rows, 'row')}"
    return (
        f"<h2>{html.escape(name)}</h2>\n<p>{counted}</p>\n"
        + report_page.numbers(["", "dev set", "requests", "PSI"], rows)
        + "".join(tables)
    )


def _in_words(index, rows):
    if rows < _FEW:
        return f"{index:.2f} (few requests)"
    verdict = "alike" if index < 0.1 else "shifted" if index < 0.25 else "different"
    return f"{index:.2f} ({verdict})"


def _bar(share, kind):
    bar = f'<span class="share {kind}" style="width: {200 * share:.0f}px"></span>'
    return f"{share:.1%} {bar}"
