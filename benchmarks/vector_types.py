"""Measures an index of each type of vectors: its size, what it finds, and how fast.

    python -m benchmarks.vector_types --num_vectors=1000000

Vectors are random around random centers, and queries are some of them, moved. What an exact
search of float32 finds is what the others should find. The approximate search needs
faiss-cpu; without it, its line is left out.
"""

import dataclasses
import importlib.util
import os
import sys
import tempfile
import time

import numpy as np

import command_line
import options
from serving.search import index
from serving.search.vector_types import TYPES

_NOISE = 0.7  # of a vector around its center
_MOVED = 0.3  # of a query
_K = 10


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    num_vectors: int = options.field(200_000, help="How many there are.")
    num_queries: int = options.field(200, help="How many are searched for at once.")
    num_centers: int = options.field(2000, help="Of the vectors.")
    dimensions: int = options.field(256, help="Numbers of a vector.")


def _vectors(flags: Options) -> tuple[np.ndarray, np.ndarray]:
    """float32 [n, d] of length 1: vectors, queries."""
    random = np.random.default_rng(0)

    def unit(values):
        return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype("f4")

    centers = random.standard_normal((flags.num_centers, flags.dimensions), np.float32)
    chosen = random.integers(0, flags.num_centers, flags.num_vectors)
    vectors = random.standard_normal((flags.num_vectors, flags.dimensions), np.float32)
    vectors = unit(centers[chosen] + _NOISE * vectors)
    some = vectors[: flags.num_queries]
    moved = random.standard_normal(some.shape, np.float32) / flags.dimensions**0.5
    return vectors, unit(some + _MOVED * moved)


def _size(folder: str) -> int:
    names = ("vectors.npy", "bits.npy")
    paths = (os.path.join(folder, name) for name in names)
    return sum(os.path.getsize(path) for path in paths if os.path.exists(path))


def _line(name, opened, queries, expected, size, is_approximate=False):
    began = time.perf_counter()
    near = opened.search(queries, _K, is_approximate)
    all_at_once = time.perf_counter() - began
    began = time.perf_counter()
    for query in queries[:10]:
        opened.search(query[None], _K, is_approximate)
    one = (time.perf_counter() - began) / 10
    expected = near.rows if expected is None else expected
    pairs = zip(near.rows.tolist(), expected.tolist(), strict=True)
    recall = np.mean([len({*found} & {*best}) / _K for found, best in pairs])
    print(
        f"| {name} | {size / 1e6:.0f} MB | {recall:.3f} | "
        f"{1000 * all_at_once / len(queries):.1f} ms | {1000 * one:.0f} ms |",
        flush=True,
    )
    return expected


def main(flags: Options) -> None:
    vectors, queries = _vectors(flags)
    print("| type | vectors | found of ten | a query of many | a query alone |")
    print("|---|---|---|---|---|")
    expected = None
    with tempfile.TemporaryDirectory() as scratch:
        for kind in TYPES:
            folder = os.path.join(scratch, kind)
            index.write(
                folder,
                index.IndexDescription(
                    "random", "random", len(vectors), flags.dimensions, kind
                ),
                iter({"text": str(i)} for i in range(len(vectors))),
                lambda rows: vectors[[int(row["text"]) for row in rows]],
                32,
            )
            opened, size = index.Index(folder), _size(folder)
            expected = _line(kind, opened, queries, expected, size)
        if not importlib.util.find_spec("faiss"):
            print("faiss-cpu is not installed", file=sys.stderr)
            return
        opened = index.Index(os.path.join(scratch, "float16"))
        opened.search(queries, _K, is_approximate=True)  # prepares it
        size = os.path.getsize(os.path.join(scratch, "float16", "ivf.faiss"))
        _line("approximate", opened, queries, expected, size, is_approximate=True)


if __name__ == "__main__":
    command_line.run(main, Options)
