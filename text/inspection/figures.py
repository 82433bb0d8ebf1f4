"""Defines the building blocks of record statistics: sums over rows, text lines, plots."""

import abc
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

# How many standard deviations count as chance: one set of records in two million is
# reported without cause.
DEVIATIONS = 5


class Histogram(NamedTuple):
    """How many records (`counts`) have the values 0, 1, 2 ... of something."""

    title: str
    counts: np.ndarray
    unit: str
    note: str


class Bars(NamedTuple):
    """Shares by name: rows of (name, share, text)."""

    title: str
    rows: list[tuple[str, float, str]]
    note: str


class RunningSums(abc.ABC):
    """Sums over records, whose size does not depend on the number of records."""

    @abc.abstractmethod
    def add(self, batch: dict[str, np.ndarray], text, options) -> None:
        """Adds a batch that breaks no rule, its `inspector.Unmasked`, and its
        `RowOptions`.
        """

    @abc.abstractmethod
    def lines(self) -> list[tuple[str, str]]:
        """The sums in words: (name, value)."""

    @abc.abstractmethod
    def plots(self) -> list[Histogram | Bars]:
        """The sums as pictures."""

    def find_implausible(self) -> Iterator[tuple[str, str]]:
        """Yields (rule, what was found) for sums that chance does not explain."""
        yield from ()


def count(counts: np.ndarray, values: np.ndarray) -> None:
    """Adds to `counts` how often each of its indices is among `values`."""
    counts += np.bincount(values.astype(np.int64), minlength=len(counts))


def percents(shares) -> str:
    return " / ".join(f"{share:.1%}" for share in shares)


def mean(counts: np.ndarray) -> float:
    """The mean of values 0, 1, 2 ... that occur `counts` times."""
    return float(counts @ np.arange(len(counts)) / max(1, counts.sum()))


def median(counts: np.ndarray) -> int:
    """The median of values 0, 1, 2 ... that occur `counts` times."""
    return int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))


def lengths(title: str, counts: np.ndarray, unit: str = "tokens") -> Histogram:
    """A histogram of lengths, with mean and median."""
    note = f"mean {mean(counts):.1f}, median {median(counts)}"
    return Histogram(title, counts, unit, note)
