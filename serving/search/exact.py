"""Finds the nearest of any number of vectors exactly, in blocks and bounded memory.

It is one matrix product for each block, by NumPy's BLAS, and a selection of the best.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

BLOCK_BYTES = 1 << 24  # of float32 vectors, or of scores, which then stay in caches
_QUERIES = 1024  # in one matrix product


class Nearest(NamedTuple):
    """What was found for each query, the best first.

    Attributes:
        scores: float32 [queries, k].
        rows: int64 [queries, k], the numbers of the vectors, from 0.
    """

    scores: np.ndarray
    rows: np.ndarray


def blocks_of(vectors: np.ndarray) -> Iterator[np.ndarray]:
    """The vectors in blocks of a size that suits `search`; they may be a file's."""
    size = max(1, BLOCK_BYTES // (4 * max(vectors.shape[1], _QUERIES)))
    for first in range(0, len(vectors), size):
        yield vectors[first : first + size]


def dot_products(queries: np.ndarray, block: np.ndarray) -> np.ndarray:
    """float32 [queries, d], float32 or float16 [n, d] -> float32 [queries, n]"""
    return queries @ np.asarray(block, np.float32).T


def shared_bits(queries: np.ndarray, block: np.ndarray) -> np.ndarray:
    """How many bits are equal, less all: uint8 [queries, w], [n, w] -> [queries, n]"""
    pad = -block.shape[1] % 8
    queries, block = (
        np.pad(bits, [(0, 0), (0, pad)]).view(np.uint64) for bits in (queries, block)
    )
    scores = np.empty((len(queries), len(block)), np.float32)
    for query, row in zip(queries, scores, strict=True):
        different = np.bitwise_count(block ^ query)
        np.negative(different.sum(axis=1, dtype=np.int32), out=row)
    return scores


def search(
    queries: np.ndarray,
    blocks: Iterable[np.ndarray],
    k: int,
    score: Callable[[np.ndarray, np.ndarray], np.ndarray] = dot_products,
) -> Nearest:
    """The k vectors with the largest scores; all of them if there are fewer.

    Of equal scores, the lower row comes first.

    Args:
        queries: [queries, d].
        blocks: [any, d] each, in the order of their rows; read once, and not kept.
        score: of some queries and a block, float32 [queries, n].
    """
    best = Nearest(
        np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
    )
    begin = 0
    for block in blocks:
        parts = [
            _merge(
                Nearest(*(array[first : first + _QUERIES] for array in best)),
                score(queries[first : first + _QUERIES], block),
                begin,
                k,
            )
            for first in range(0, len(queries), _QUERIES)
        ]
        if parts:
            best = Nearest(*map(np.concatenate, zip(*parts, strict=True)))
        begin += len(block)
    return best


def _merge(best: Nearest, scores: np.ndarray, begin: int, k: int) -> Nearest:
    """The best of those found before and of a block's, whose rows begin at `begin`."""
    if best.rows.shape[1] == k:
        return _merge_better(best, scores, begin)
    rows = np.broadcast_to(np.arange(begin, begin + scores.shape[1]), scores.shape)
    return top(
        np.concatenate([best.scores, scores], axis=1),
        np.concatenate([best.rows, rows], axis=1),
        k,
    )


def _merge_better(best, scores, begin):
    """The same if there were k before, so that few of the block are better."""
    k = best.rows.shape[1]
    # Rows of a block come after those before, so an equal score is not better.
    places = np.flatnonzero(scores > best.scores[:, -1:])
    if not len(places):
        return best
    queries, columns = np.divmod(places, scores.shape[1])
    queries = np.concatenate([np.repeat(np.arange(len(scores)), k), queries])
    rows = np.concatenate([best.rows.reshape(-1), columns + begin])
    scores = np.concatenate([best.scores.reshape(-1), scores.reshape(-1)[places]])
    order = np.lexsort((rows, -scores, queries))
    counts = np.bincount(queries)
    begins = np.cumsum(counts) - counts
    kept = order[(begins[:, None] + np.arange(k)).reshape(-1)]
    return Nearest(scores[kept].reshape(-1, k), rows[kept].reshape(-1, k))


def top(scores: np.ndarray, rows: np.ndarray, k: int) -> Nearest:
    """The k best in order; of equal scores, the first ones.

    Args:
        scores: float32 [queries, n].
        rows: int64 [queries, n]; of equal scores, in ascending order.
    """
    number = scores.shape[1]
    if k < number:
        # All above the k-th score, and the first of those that equal it.
        worst = -np.partition(-scores, k - 1, axis=1)[:, k - 1 : k]
        above, equal = scores > worst, scores == worst
        room = k - above.sum(axis=1, keepdims=True)
        kept = above | (equal & (np.cumsum(equal, axis=1) <= room))
        scores = scores[kept].reshape(-1, k)
        rows = rows[kept].reshape(-1, k)
    order = np.argsort(-scores, axis=1, kind="stable")
    return Nearest(
        np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)
    )
