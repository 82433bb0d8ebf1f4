"""Chooses n-grams, runs of words, to be masked.

Source: google-research/albert@b772393 create_pretraining_data.py:455-538.
"""

import numpy as np

from text.instances.packing import ranks


def ngram_shares(ngram: int) -> np.ndarray:
    """The chance of each length n from 1 on, proportional to 1/n: float64 [ngram]."""
    shares = 1 / np.arange(1, ngram + 1)
    return shares / shares.sum()


def choose_ngrams(
    candidates: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    shares: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Takes runs of words in random order until a row has enough tokens.

    Each word in turn begins a run of a random length. A run that would be too much loses
    words from its end; one that touches a run taken before is skipped. As in the release,
    a run may go on behind [SEP], and is cut off at the end of the row.

    Args:
        candidates: bool [batch, seq_length], the tokens of all words.
        starts: bool [batch, seq_length], the first token of each word.
        counts: int64 [batch], the most tokens to choose.
        shares: float [n], the chance of a run of 1, 2 ... n words.
    Returns:
        bool [batch, seq_length].
    """
    numbers = np.cumsum(starts, axis=1, dtype=np.int32)  # of words, from 1
    num_words = numbers[:, -1]
    longest, most = len(shares), int(num_words.max(initial=0))
    # How many tokens come before each word; behind the last, how many there are.
    before = _tokens_before(candidates, starts, most + longest)
    order = _random_order(num_words, most, rng)
    bounds = np.cumsum(shares)[:-1]
    is_taken = np.zeros((len(starts), most + longest), bool)
    totals = np.zeros(len(starts), np.int64)
    rows = np.flatnonzero((num_words > 0) & (counts > 0))
    for turn in range(most):
        first = order[rows, turn]
        length = 1 + np.searchsorted(bounds, rng.random(len(rows)), side="right")
        room = before[rows, first] + counts[rows] - totals[rows]
        fitting = np.zeros(len(rows), np.int64)
        is_free = np.ones(len(rows), bool)
        for n in range(1, longest + 1):
            fits = (n <= length) & (before[rows, first + n] <= room)
            fitting += fits
            is_free &= ~(fits & is_taken[rows, first + n - 1])
        fitting *= is_free
        for n in range(1, longest + 1):
            some = fitting >= n
            is_taken[rows[some], first[some] + n - 1] = True
        totals[rows] += before[rows, first + fitting] - before[rows, first]
        rows = rows[(totals[rows] < counts[rows]) & (turn + 1 < num_words[rows])]
        if not len(rows):
            break
    return candidates & np.take_along_axis(is_taken, np.maximum(numbers - 1, 0), axis=1)


def _tokens_before(candidates, starts, width):
    tokens = np.cumsum(candidates, axis=1, dtype=np.int64)
    before = np.repeat(tokens[:, -1:], width + 1, axis=1)
    places = np.flatnonzero(starts)
    rows = places // starts.shape[1]
    before[rows, ranks(rows, len(starts))] = tokens.ravel()[places] - 1
    return before


def _random_order(num_words, most, rng):
    """int64 [batch, most]: the numbers from 0 to `num_words` of each row, shuffled."""
    columns = np.arange(most)
    keys = rng.integers(0, 1 << 32, (len(num_words), most), np.uint32).astype(np.int64)
    keys = np.where(
        columns < num_words[:, None], keys << 16 | columns, np.iinfo("q").max
    )
    keys.sort(axis=1)
    return keys & 0xFFFF
