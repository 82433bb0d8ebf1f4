"""Measures exact search side by side with faiss's IndexFlatIP.

    python -m benchmarks.vector_search --peers_python=peers/bin/python

The environment of --peers_python needs numpy and faiss-cpu. Vectors are random, of length
1, in a file that both map; faiss copies them into its own memory before its first turn.
Ours reads them from the file in every turn.
"""

import dataclasses
import os
import sys
import tempfile

import numpy as np

import command_line
import options
from benchmarks import turns


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    peers_python: str = options.field(help="Python with faiss-cpu.")
    num_vectors: int = options.field(1_000_000, help="How many there are.")
    num_queries: int = options.field(1000, help="How many are searched for at once.")
    dimensions: int = options.field(256, help="Numbers of a vector.")
    rounds: int = options.field(3, help="Turns of each; medians are printed.")
    num_threads: int = options.field(0, help="Of each; 0 leaves it to them.")
    json_file: str | None = options.field(None, help="Also writes all figures there.")


def _write(path: str, flags: Options) -> None:
    """Random vectors, a block at a time."""
    random = np.random.default_rng(0)
    shape = (flags.num_vectors, flags.dimensions)
    vectors = np.lib.format.open_memmap(path, "w+", "<f4", shape)
    for first in range(0, len(vectors), 1 << 16):
        block = random.standard_normal(vectors[first : first + (1 << 16)].shape)
        block /= np.linalg.norm(block, axis=1, keepdims=True)
        vectors[first : first + (1 << 16)] = block
    vectors.flush()


def main(flags: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vectors.npy")
        _write(path, flags)
        environment = turns.with_threads(flags.num_threads)
        environment["OPENBLAS_NUM_THREADS"] = environment.get("OMP_NUM_THREADS", "")
        settings = {"path": path, "num_queries": flags.num_queries}
        module = ("-m", "benchmarks.vector_search_systems")
        pythons = {"ours": sys.executable, "faiss": flags.peers_python}
        systems = turns.started(
            {
                name: ([python, *module, name], environment, settings)
                for name, python in pythons.items()
            }
        )
        figures = turns.take(systems, flags.rounds)
        for system in systems.values():
            system.end()
    answers = [each[0].pop("rows") for each in figures.values()]
    same = np.mean([set(a) == set(b) for a, b in zip(*answers, strict=True)])
    print(turns.table(figures, {"peak GB": turns.peak}))
    print(f"the same ten vectors: {same:.1%} of the queries")
    turns.write(flags.json_file, dataclasses.asdict(flags), figures)


if __name__ == "__main__":
    command_line.run(main, Options)
