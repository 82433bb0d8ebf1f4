"""The release's choice of n-grams, straight and slow: an oracle for static and drawn masks.

Source: google-research/albert@b772393 create_pretraining_data.py:455-538, retold. It can
make one named mistake, so that tests can show that they would notice it.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

MISTAKES = (
    "lengths are uniform",
    "lengths are reversed",
    "a long run is skipped",
    "words are counted",
    "runs overlap",
    "a run keeps its free words",
    "runs stop at [SEP]",
    "a run too much is taken",
)


class Row(NamedTuple):
    """A row in which every rule shows.

    Attributes:
        width: its positions.
        words: the positions of each word; those left out are special tokens.
        count: how many tokens to choose.
    """

    width: int
    words: tuple[tuple[int, ...], ...]
    count: int


ROW = Row(10, ((1,), (2, 3), (5,), (6,), (7, 8)), 4)


def choose(
    row: Row, order: Iterable[int], lengths: Sequence[int], mistake: str = ""
) -> frozenset[int]:
    """The positions chosen in a row."""
    chosen = set()

    def size(run):
        if mistake == "words are counted":
            return len(run)
        return sum(map(len, run))

    def run_of(first, n):
        run = row.words[first : first + n]
        if mistake == "runs stop at [SEP]":
            joined = zip(run, run[1:], strict=False)
            breaks = [i for i, (a, b) in enumerate(joined, 1) if a[-1] + 1 != b[0]]
            run = run[: breaks[0]] if breaks else run
        return run

    taken = 0
    for first in order:
        if taken >= row.count:
            break
        n = lengths[first]
        while taken + size(run_of(first, n)) > row.count:
            if n == 1 or mistake == "a run too much is taken":
                break
            n = 0 if mistake == "a long run is skipped" else n - 1
            if not n:
                break
        run = run_of(first, n)
        fits = taken + size(run) <= row.count or mistake == "a run too much is taken"
        if not run or not fits:
            continue
        free = [word for word in run if not chosen & set(word)]
        if mistake == "a run keeps its free words":
            run = free
        elif len(free) < len(run) and mistake != "runs overlap":
            continue
        taken += size(run)
        chosen.update(*run)
    return frozenset(chosen)


def outcomes(row: Row, shares: Sequence[float], mistake: str = "") -> Counter:
    """The probability of each set of chosen positions, over all orders and lengths."""
    if mistake == "lengths are uniform":
        shares = [1 / len(shares)] * len(shares)
    elif mistake == "lengths are reversed":
        shares = shares[::-1]
    number = len(row.words)
    orders = list(itertools.permutations(range(number)))
    found = Counter()
    for lengths in itertools.product(range(1, len(shares) + 1), repeat=number):
        chance = np.prod([shares[n - 1] for n in lengths]) / len(orders)
        for order in orders:
            found[choose(row, order, lengths, mistake)] += chance
    return found


def distance(counts: Counter, expected: Counter) -> float:
    """How far counts are from probabilities: chi-square, in its standard deviations."""
    total = counts.total()
    if set(counts) - set(expected):
        return float("inf")
    chi_square = sum(
        (counts[chosen] - total * chance) ** 2 / (total * chance)
        for chosen, chance in expected.items()
    )
    freedom = len(expected) - 1
    return (chi_square - freedom) / np.sqrt(2 * freedom)
