"""Decides from which of several sources each row of a run is.

Each source gets its share exactly: of the first n rows of a run, for every n, its number
differs from share * n by less than one, so in any window of updates by less than two. This
is the chairman assignment problem (R. Tijdeman, 1980): the n-th row of a source may come
once its share is ahead of it by 1 / (2 k - 2) of a row, k being the number of sources, and
must come before it is ahead by 1 more than that. Of those that may come, the one that must
come first is next.

The order repeats after at most 65,536 rows, so it can be entered anywhere.
"""

import functools
import hashlib
import heapq
import math
import os
from collections.abc import Collection, Sequence
from fractions import Fraction

import numpy as np

from errors import UserError
from files import sources
from text.records.record_set import RecordFile, RecordSet, split_weight

LONGEST_PERIOD = 1 << 16


class SourceOrder:
    """The sources of the rows of a run.

    Args:
        counts: how many rows of a period each source gives.
        seed: the same seed gives the same order; another may decide ties differently.
    Attributes:
        pattern: int64 [period], the source of each row of a period.
    """

    def __init__(self, counts: Sequence[int], seed: int):
        self.pattern = np.array(_assign(tuple(counts), seed), np.int64)
        self._counts = np.array(counts)

    def before(self, row: int) -> np.ndarray:
        """int64 [sources]: how many rows each gives before this one of the run."""
        periods, place = divmod(row, len(self.pattern))
        begun = np.bincount(self.pattern[:place], minlength=len(self._counts))
        return periods * self._counts + begun


@functools.lru_cache(4)
def _assign(counts: tuple[int, ...], seed: int) -> list[int]:
    """The source of each row of a period."""
    period, steps = sum(counts), max(2 * len(counts) - 2, 2)
    jobs = []
    for source, count in enumerate(counts):
        rows = steps * np.arange(count)
        earliest = -(-period * (rows + 1) // (steps * count))
        latest = period * (rows + steps - 1) // (steps * count)
        tie = hashlib.sha256(f"{seed} {source}".encode()).digest()
        both = zip(earliest.tolist(), latest.tolist(), strict=True)
        jobs += [(first, last, tie, source) for first, last in both]
    jobs.sort(reverse=True)
    waiting, order = [], []
    for place in range(1, period + 1):
        while jobs and jobs[-1][0] <= place:
            heapq.heappush(waiting, jobs.pop()[1:])
        order.append(heapq.heappop(waiting)[2])
    return order


def counts_of_period(shares: Sequence[Fraction]) -> tuple[int, ...]:
    """How many rows of a period each source gives.

    Shares without a common denominator up to LONGEST_PERIOD are rounded to its multiples,
    but none to 0.
    """
    period = math.lcm(*(share.denominator for share in shares))
    if period > LONGEST_PERIOD:
        period = LONGEST_PERIOD
    counts = [max(1, math.floor(share * period)) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda i: counts[i] - shares[i] * period)
    while (left := period - sum(counts)) > 0:
        for i in by_rest[:left]:
            counts[i] += 1
    for _ in range(-left):  # what small shares got too much, the largest gives
        counts[counts.index(max(counts))] -= 1
    divisor = math.gcd(*counts)
    return tuple(count // divisor for count in counts)


def by_temperature(sizes: Sequence[int], temperature: float) -> list[Fraction]:
    """Weights of sources of these sizes: size ** (1 / temperature).

    With 1, all records are read equally often; the larger, the nearer are the shares to
    equal ones.
    Source: arXiv:1907.05019, 4.2.
    """
    largest = max(sizes)
    return [Fraction((size / largest) ** (1 / temperature)) for size in sizes]


class Mixture:
    """Sources and their shares.

    Args:
        names: of the sources.
        files: of each.
        weights: of each, in any scale.
        is_given: whether a user wrote the weights.
    Attributes:
        counts: how many rows of a period each gives.
        given_total: the sum of the weights that a user wrote; else 1.
    """

    def __init__(
        self,
        names: Sequence[str],
        files: Sequence[list[RecordFile]],
        weights: Sequence[Fraction],
        is_given: bool = False,
    ):
        self.names, self.files = list(names), list(files)
        self.given_total = sum(weights) if is_given else 1
        shares = [Fraction(weight) / sum(weights) for weight in weights]
        self.counts = counts_of_period(shares)

    def __str__(self):
        items = zip(self.names, self.counts, strict=True)
        return ",".join(f"{name}:{count}" for name, count in items)

    @property
    def shares(self) -> list[float]:
        return [count / sum(self.counts) for count in self.counts]


def counts_in(mixture: str) -> tuple[int, ...]:
    """The counts of a mixture, as it is written."""
    return tuple(int(item.rpartition(":")[2]) for item in mixture.split(","))


def of_patterns(
    records: RecordSet, patterns: Sequence[str], temperature: float | None
) -> Mixture | None:
    """The mixture that patterns of a set ask for, or None.

    Raises:
        UserError: only some have weights, or they have weights and a temperature; a file is
            in two sources; a source contains no records.
    """
    weights = [records.weights[pattern] for pattern in patterns]
    without = [p for p, w in zip(patterns, weights, strict=True) if w is None]
    if len(without) == len(patterns) and temperature is None:
        return None
    if without and len(without) < len(patterns):
        raise UserError(
            f"{without[0]}: has no weight, but {_first_other(patterns, without)} has; pass "
            "weights for all sources or for none"
        )
    if weights and temperature is not None and not without:
        raise UserError(
            f"--source_temperature={temperature:g}: gives the sources weights by their "
            f"sizes, but {patterns[0]} has a weight; remove one of them"
        )
    files = [records.matching([pattern]) for pattern in patterns]
    _check_apart(patterns, files)
    for pattern, those in zip(patterns, files, strict=True):
        if not any(file.total for file in those):
            raise UserError(f"{pattern}: no records; write them, or leave it out")
    if temperature is not None:
        sizes = [sum(file.total for file in those) for those in files]
        weights = by_temperature(sizes, temperature)
    names = names_of(records, patterns)
    return Mixture(names, files, weights, is_given=temperature is None)


def _first_other(patterns, without):
    return next(pattern for pattern in patterns if pattern not in without)


def _check_apart(patterns, files):
    """Refuses a file that is in two sources."""
    source_of = {}
    for number, those in enumerate(files):
        for file in those:
            path = file.path
            path = path if sources.is_remote(path) else os.path.realpath(path)
            if (other := source_of.setdefault(path, number)) != number:
                raise UserError(
                    f"{file.path}: is in two sources, {patterns[other]} and "
                    f"{patterns[number]}; name it once"
                )


def names_of(
    records: RecordSet, patterns: Sequence[str], known: Collection[str] = ()
) -> list[str]:
    """Short names of sources: what of a pattern differs from the others, without globs.

    records/wiki-*.tfrecord and records/books.tfrecord are wiki and books, and so are
    wiki/train-* and books/train-*. If wiki is known, wiki/dev-* is wiki also if alone.
    """
    weighted = {p: split_weight(p)[0] for p, w in records.weights.items() if w}
    whole = [weighted.get(pattern, pattern) for pattern in patterns]
    parts = [pattern.split("/") for pattern in whole]
    while all(len(x) > 1 for x in parts) and len({x[0] for x in parts}) == 1:
        parts = [x[1:] for x in parts]
    while all(len(x) > 1 for x in parts) and len({x[-1] for x in parts}) == 1:
        parts = [x[:-1] for x in parts]
    names = ["/".join(filter(None, map(_plain, x))) for x in parts]
    found = [[x for x in map(_plain, p.split("/")) if x in known] for p in whole]
    likely = [x[-1] if x else name for x, name in zip(found, names, strict=True)]
    for chosen in (likely, names):
        if all(chosen) and len(set(chosen)) == len(chosen):
            return chosen
    return whole


def _plain(part):
    """A part of a path up to its first wildcard or ending."""
    for mark in ("*", "?", "[", ".tfrecord"):
        part = part.partition(mark)[0]
    return part.strip("-_.@ ")
