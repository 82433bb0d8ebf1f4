"""Chooses n-grams to be masked on the device, by the rules of text/instances/ngrams.py."""

from collections.abc import Sequence
from itertools import accumulate

from keras import ops


def choose(keys, draws, candidates, starts, counts, shares: Sequence[float]):
    """Takes runs of words in random order until a row has enough tokens.

    Args:
        keys: float32 [b, s] in [0, 1), random: in what order the words of a row, from the
            first to the last, begin a run.
        draws: float32 [b, s] in [0, 1), random: how many words their runs have.
        candidates: bool [b, s], the tokens of all words.
        starts: bool [b, s], the first token of each word.
        counts: int32 [b], the most tokens to choose.
        shares: the chance of a run of 1, 2, ... words.
    Returns:
        bool [b, s].
    """
    width, longest = keys.shape[1], len(shares)
    columns = ops.arange(width, dtype="int32")
    numbers = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1  # of words
    num_words = numbers[:, -1:] + 1
    # How many tokens come before each word; behind the last, how many there are.
    tokens = ops.cumsum(ops.cast(candidates, "int32"), axis=1)
    total = tokens[:, -1:]
    before = ops.sort(ops.where(starts, tokens - 1, total), axis=1)
    before = ops.concatenate([before, ops.repeat(total, longest, axis=1)], axis=1)
    order = ops.argsort(ops.where(columns < num_words, keys, 2.0), axis=1)
    order = ops.cast(order, "int32")
    lengths = ops.ones_like(order)
    for bound in list(accumulate(shares))[:-1]:
        lengths = lengths + ops.cast(draws >= bound, "int32")

    def is_unfinished(turn, totals, taken):
        goes_on = ops.logical_and(totals < counts, turn < num_words[:, 0])
        return ops.any(goes_on)

    def take(turn, totals, taken):
        first = ops.take(order, turn, axis=1)[:, None]
        places = first + ops.arange(longest + 1, dtype="int32")
        sizes = ops.take_along_axis(before, places, axis=1)
        sizes = sizes[:, 1:] - sizes[:, :1]  # of runs of 1, 2, ... words
        fits = sizes <= (counts - totals)[:, None]
        fits = ops.logical_and(fits, turn < num_words)
        length = ops.minimum(
            ops.sum(ops.cast(fits, "int32"), axis=1, keepdims=True),
            ops.take_along_axis(lengths, first, axis=1),
        )
        run = ops.logical_and(columns >= first, columns < first + length)
        is_free = ops.logical_not(ops.any(ops.logical_and(run, taken), axis=1))
        is_free = ops.logical_and(is_free[:, None], run)
        size = ops.take_along_axis(sizes, ops.maximum(length - 1, 0), axis=1)
        added = ops.where(ops.any(is_free, axis=1), size[:, 0], 0)
        return turn + 1, totals + added, ops.logical_or(taken, is_free)

    state = ops.zeros((), "int32"), ops.zeros_like(counts), ops.zeros_like(starts)
    *_, taken = ops.while_loop(is_unfinished, take, state)
    chosen = ops.take_along_axis(taken, ops.maximum(numbers, 0), axis=1)
    return ops.logical_and(candidates, chosen)
