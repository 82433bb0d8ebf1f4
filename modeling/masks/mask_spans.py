"""Draws spans of tokens on the device, as XLNet chooses what to predict.

Axes: b batch, s tokens, n steps.
"""

from collections.abc import Sequence
from itertools import accumulate

from keras import ops


def most_steps(width: int, alpha: int, beta: int) -> int:
    """The most spans that fit in a row of this width; see `draw`."""
    return -(-width // (1 + alpha // beta))


def draw(
    lengths,
    offsets,
    starts,
    specials,
    sizes,
    goals,
    *,
    shares: Sequence[float],
    alpha: int,
    beta: int,
    whole_words: bool,
):
    """Chooses spans from the left to the right, each somewhere in a context of its own.

    A span of n has a context of n * alpha // beta tokens besides, part of them before it.
    It begins at the next start, and no span goes beyond the goal of its row.

    Args:
        lengths: float32 [b, n] in [0, 1), random: how long each span is.
        offsets: float32 [b, n] in [0, 1), random: how much of its context is before it.
        starts: bool [b, s]: where a span may begin.
        specials: bool [b, s]: tokens that end a span of whole words.
        sizes: int32 [b], the tokens of each row.
        goals: int32 [b], the most tokens to choose.
        shares: the chance of a span of 1, 2, ...
        whole_words: count words, from one start to the next. If not, a span has n tokens,
            special ones included, and one that reaches the end of its row is not chosen;
            so does the release.
    Returns:
        bool [b, s].
    Source: zihangdai/xlnet@bbaa3a6 data_utils.py, _sample_mask.
    """
    width, most = starts.shape[1], lengths.shape[1]
    columns = ops.arange(width, dtype="int32")[None]
    starts = ops.logical_and(starts, columns < sizes[:, None])
    text = (_Words if whole_words else _Tokens)(starts, specials, sizes)

    def is_unfinished(turn, position, number, chosen):
        return ops.logical_and(turn < most, ops.any(position < sizes))

    def step(turn, position, number, chosen):
        left = goals - number
        length = ops.minimum(_length(ops.take(lengths, turn, axis=1), shares), left)
        context = length * alpha // beta
        before = _below(context, ops.take(offsets, turn, axis=1))
        is_later = ops.logical_and(starts, columns >= (position + before)[:, None])
        begin = ops.min(ops.where(is_later, columns, width), axis=1)
        run = text.run(begin, length, left)
        end = begin + ops.maximum(_number(run), 1)
        # A span of tokens that reaches the end of its row is not chosen.
        goes_on = ops.logical_and((begin if whole_words else end) < sizes, length > 0)
        run = ops.logical_and(run, goes_on[:, None])
        number = number + _number(run)
        position = ops.where(goes_on, end + context - before, sizes)
        return turn + 1, position, number, ops.logical_or(chosen, run)

    none = ops.zeros_like(goals)
    state = (ops.zeros((), "int32"), none, none, ops.zeros_like(starts))
    return ops.while_loop(is_unfinished, step, state)[-1]


def _length(draws, shares):
    """int32 [b], from 1 on, with these chances."""
    bounds = list(accumulate(shares))[:-1]
    longer = [ops.cast(draws >= bound, "int32") for bound in bounds]
    return sum(longer, ops.ones(ops.shape(draws), "int32"))


def _below(limits, draws):
    """int32 [b]: from 0 to less than each limit; 0 if that is 0."""
    found = ops.cast(ops.cast(limits, "float32") * draws, "int32")
    # The product is rounded.
    return ops.minimum(found, ops.maximum(limits - 1, 0))


def _number(chosen):
    """int32 [b]"""
    return ops.sum(ops.cast(chosen, "int32"), axis=1)


class _Tokens:
    """Runs of tokens; arguments as for `draw`."""

    def __init__(self, starts, specials, sizes):
        self._columns = ops.arange(starts.shape[1], dtype="int32")[None]

    def run(self, begin, count, most):
        """bool [b, s]: this many tokens from a place, int32 [b]."""
        begin = begin[:, None]
        return ops.logical_and(
            self._columns >= begin, self._columns < begin + count[:, None]
        )


class _Words:
    """Runs of whole words; arguments as for `draw`."""

    def __init__(self, starts, specials, sizes):
        width = starts.shape[1]
        self._columns = ops.arange(width, dtype="int32")[None]
        bounds = ops.logical_or(starts, specials)
        self._numbers = ops.cumsum(ops.cast(bounds, "int32"), axis=1)
        self._specials = ops.cumsum(ops.cast(specials, "int32"), axis=1)
        places = ops.sort(ops.where(bounds, self._columns, width), axis=1)
        places = ops.pad(places, ((0, 0), (0, 1)), constant_values=width)
        ends = ops.take_along_axis(places, self._numbers, axis=1)
        self._ends = ops.minimum(ends, sizes[:, None])

    def run(self, begin, count, most):
        """bool [b, s]: this many words from a start, if they have at most `most` tokens.

        Fewer, if a special token or the end of a row follows, or they have more tokens.
        """
        begin = begin[:, None]
        at = ops.minimum(begin, self._columns.shape[1] - 1)

        def since(numbers):
            return numbers - ops.take_along_axis(numbers, at, axis=1)

        run = ops.logical_and(self._columns >= begin, self._columns < self._ends)
        run = ops.logical_and(run, since(self._numbers) < count[:, None])
        run = ops.logical_and(run, ops.equal(since(self._specials), 0))
        return ops.logical_and(run, self._ends - begin <= most[:, None])


def fill(keys, chosen, candidates, goals):
    """Chooses more tokens, one by one in random order, up to the goal of a row.

    Args:
        keys: float32 [b, s] in [0, 1), random.
        chosen, candidates: bool [b, s].
        goals: int32 [b].
    Returns:
        bool [b, s].
    """
    missing = goals - _number(chosen)
    free = ops.logical_and(candidates, ops.logical_not(chosen))
    ranks = ops.argsort(ops.argsort(ops.where(free, keys, 2.0), axis=1), axis=1)
    more = ops.logical_and(free, ranks < missing[:, None])
    return ops.logical_or(chosen, more)
