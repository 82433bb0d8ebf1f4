"""Counts what a server does, and writes it as Prometheus reads it.

Source: prometheus.io/docs/instrumenting/exposition_formats, text format 0.0.4.
"""

import bisect
import collections
import itertools
from collections.abc import Iterator, Mapping, Sequence

TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_REJECTED = {408: "slow_body", 413: "too_large", 429: "queue_full", 503: "timeout"}


class _Histogram:
    def __init__(self, bounds: Sequence[float]):
        self._bounds, self._counts = bounds, [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value):
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name, model):
        totals = list(itertools.accumulate(self._counts))
        for bound, total in zip((*self._bounds, "+Inf"), totals, strict=True):
            yield f'{name}_bucket{{model="{model}",le="{bound}"}} {total}'
        yield f'{name}_sum{{model="{model}"}} {self._sum:.6f}'
        yield f'{name}_count{{model="{model}"}} {totals[-1]}'


class ModelCounts:
    """What happened to one model since the server began, also before it was reloaded."""

    def __init__(self):
        self._statuses = collections.Counter()
        self._seconds, self._rows = _Histogram(_SECONDS), _Histogram(_ROWS)
        self.reloads = collections.Counter()

    def note_request(self, status: int, seconds: float) -> None:
        """Counts an answer to a client."""
        self._statuses[status] += 1
        self._seconds.observe(seconds)

    def note_batch(self, rows: int) -> None:
        """Counts a batch that goes through the model."""
        self._rows.observe(rows)

    @property
    def samples(self):
        """By the name of a counter, values of a label and numbers."""
        reasons = {r: self._statuses[status] for status, r in _REJECTED.items()}
        return {
            "bert_requests_total": ("status", sorted(self._statuses.items())),
            "bert_rejected_total": ("reason", reasons.items()),
            "bert_reloads_total": ("result", sorted(self.reloads.items())),
        }

    @property
    def histograms(self):
        """By name."""
        return {"bert_request_seconds": self._seconds, "bert_batch_rows": self._rows}


_HELP = {
    "bert_requests_total": "Requests to a model by the status of their answer.",
    "bert_rejected_total": "Requests that met a limit.",
    "bert_reloads_total": "How often a model was loaded anew, and whether it worked.",
    "bert_request_seconds": "Seconds from a request's head to its answer.",
    "bert_batch_rows": "Rows that went through the model at once.",
    "bert_waiting_requests": "Requests that wait for the model.",
}


def text(counts: Mapping[str, ModelCounts], waiting: Mapping[str, int]) -> str:
    """The page that Prometheus reads.

    Args:
        counts: by the name of the model.
        waiting: how many requests wait, by the name of the model.
    """
    return "\n".join(_lines(counts, waiting)) + "\n"


def _lines(counts, waiting) -> Iterator[str]:
    for name, help in _HELP.items():
        kind = "counter" if name.endswith("_total") else "histogram"
        kind = "gauge" if name == "bert_waiting_requests" else kind
        yield f"# HELP {name} {help}"
        yield f"# TYPE {name} {kind}"
        for model, of_model in counts.items():
            if kind == "gauge":
                yield f'{name}{{model="{model}"}} {waiting[model]}'
            elif kind == "histogram":
                yield from of_model.histograms[name].lines(name, model)
            else:
                label, samples = of_model.samples[name]
                for value, number in samples:
                    yield f'{name}{{model="{model}",{label}="{value}"}} {number}'
