"""Exact search finds what a sort of all scores finds, in blocks of any size."""

import numpy as np
import pytest

from serving.search import exact

RANDOM = np.random.default_rng(0)


def numbers(*shape):
    """Few different ones, so that many scores are equal, and exact."""
    return RANDOM.integers(-2, 3, shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize(("count", "k"), [(100, 1), (100, 9), (5, 9), (0, 3)])
def test_equal_scores_come_in_the_order_of_the_rows(size, count, k, monkeypatch):
    monkeypatch.setattr(exact, "_QUERIES", 4)
    queries, vectors = numbers(10, 3), numbers(count, 3)
    blocks = (vectors[i : i + size] for i in range(0, count, size))
    near = exact.search(queries, blocks, k)
    scores = queries @ vectors.T
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    assert np.array_equal(near.rows, rows)
    assert np.array_equal(near.scores, np.take_along_axis(scores, rows, 1))


def test_memory_is_that_of_a_block(monkeypatch):
    monkeypatch.setattr(exact, "BLOCK_BYTES", 1 << 16)
    vectors = np.zeros((1000, 16), np.float32)
    sizes = [len(block) for block in exact.blocks_of(vectors)]
    assert sum(sizes) == 1000 and max(sizes) * exact._QUERIES * 4 <= 1 << 16


@pytest.mark.parametrize("width", [1, 8, 11])
def test_bits_in_common(width):
    queries, vectors = (
        RANDOM.integers(0, 256, (n, width)).astype(np.uint8) for n in (5, 40)
    )
    bits = [np.unpackbits(x, axis=1) for x in (queries, vectors)]
    different = (bits[0][:, None] != bits[1]).sum(axis=-1)
    assert np.array_equal(exact.shared_bits(queries, vectors), -different)
