"""Puts any number of things in a random order without memory for it."""

import numpy as np

_ROUNDS = 6


def permute(indices: np.ndarray, size: int, key: np.ndarray) -> np.ndarray:
    """Where a keyed permutation of range(size) sends each index.

    A Feistel network permutes the smallest range of a power of four that contains `size`;
    an index that lands outside goes through it again until it lands inside, so the result
    is still a permutation.

    Args:
        indices: int64, each in [0, size).
        key: uint64 [6], a random number for each round.
    Returns:
        int64, one per index.
    """
    half = np.uint64(max(1, (int(size - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    values = indices.astype(np.uint64)
    outside = np.arange(len(values))
    while len(outside):
        left, right = values[outside] >> half, values[outside] & mask
        for round_key in key:
            left, right = right, left ^ (_mixed(right ^ round_key) & mask)
        values[outside] = left << half | right
        outside = outside[values[outside] >= size]
    return values.astype(np.int64)


def round_keys(rng: np.random.Generator) -> np.ndarray:
    """A random key for `permute`."""
    return rng.integers(0, 1 << 64, _ROUNDS, dtype=np.uint64)


def _mixed(values):
    """The finalizer of SplitMix64: every output bit depends on every input bit."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)
