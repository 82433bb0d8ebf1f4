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
    sizes,
    goals,
    *,
    shares: Sequence[float],
    alpha: int,
    beta: int,
):
    """Chooses spans from the left to the right, each somewhere in a context of its own.

    A span of n has a context of n * alpha // beta tokens besides, part of them before it.
    It begins at the next start, and no span goes beyond the goal of its row. As in the
    release, a span has n tokens (where its flags mean words), special ones included, and
    one that reaches the end of its row is not chosen.

    Args:
        lengths: float32 [b, n] in [0, 1), random: how long each span is.
        offsets: float32 [b, n] in [0, 1), random: how much of its context is before it.
        starts: bool [b, s]: where a span may begin.
        sizes: int32 [b], the tokens of each row.
        goals: int32 [b], the most tokens to choose.
        shares: the chance of a span of 1, 2, ...
    Returns:
        bool [b, s].
    Source: zihangdai/xlnet@bbaa3a6 data_utils.py, _sample_mask.
    """
    width, most = starts.shape[1], lengths.shape[1]
    columns = ops.arange(width, dtype="int32")[None]
    starts = ops.logical_and(starts, columns < sizes[:, None])

    def is_unfinished(turn, position, number, chosen):
        return ops.logical_and(turn < most, ops.any(position < sizes))

    def step(turn, position, number, chosen):
        left = goals - number
        length = ops.minimum(_length(ops.take(lengths, turn, axis=1), shares), left)
        context = length * alpha // beta
        before = _below(context, ops.take(offsets, turn, axis=1))
        is_later = ops.logical_and(starts, columns >= (position + before)[:, None])
        begin = ops.min(ops.where(is_later, columns, width), axis=1)
        run = ops.logical_and(
            columns >= begin[:, None], columns < (begin + length)[:, None]
        )
        end = begin + ops.maximum(_number(run), 1)
        goes_on = ops.logical_and(end < sizes, length > 0)
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
    numbers = ops.cast(ops.cast(limits, "float32") * draws, "int32")
    # The product is rounded.
    return ops.minimum(numbers, ops.maximum(limits - 1, 0))


def _number(chosen):
    """int32 [b]"""
    return ops.sum(ops.cast(chosen, "int32"), axis=1)


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
