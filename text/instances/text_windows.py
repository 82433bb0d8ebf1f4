"""Reads a long text in windows that overlap, and pools what is found in each."""

from collections.abc import Sequence

import numpy as np

POOLINGS = ("mean", "max", "first")


def windows(ids: Sequence[int], length: int, stride: int) -> list[Sequence[int]]:
    """The windows over a text; a single one, which may be empty, if it fits.

    Args:
        length: of every window but the last, which may be shorter.
        stride: from the start of a window to that of the next.
    """
    starts = range(0, max(len(ids) - length, 0) + stride, stride)
    return [ids[start : start + length] for start in starts]


def pool(values: np.ndarray, texts: np.ndarray, pooling: str) -> np.ndarray:
    """One vector for each text.

    Args:
        values: float [windows, n].
        texts: int [windows], ascending: the text of each window, from 0, none left out.
        pooling: one of POOLINGS.
    Returns:
        float [texts, n].
    """
    firsts = np.searchsorted(texts, np.arange(texts[-1] + 1))
    if pooling == "first":
        return values[firsts]
    if pooling == "max":
        return np.maximum.reduceat(values, firsts)
    counts = np.diff([*firsts, len(texts)])[:, None]
    return np.add.reduceat(values, firsts) / counts.astype(values.dtype)
