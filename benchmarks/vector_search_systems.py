"""What `vector_search.py` asks, one in each process: python -m ... ours|faiss."""

import json
import sys

import numpy as np

from benchmarks import turns

_K = 10


def _ours(vectors, queries):
    from serving.search import exact

    return lambda: exact.search(queries, exact.blocks_of(vectors), _K).rows


def _faiss(vectors, queries):
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return lambda: index.search(queries, _K)[1]


_SYSTEMS = {"ours": _ours, "faiss": _faiss}

if __name__ == "__main__":
    settings = json.loads(sys.stdin.readline())
    vectors = np.load(settings["path"], mmap_mode="r")
    queries = np.array(vectors[: settings["num_queries"]]) + np.float32(0.01)
    search = _SYSTEMS[sys.argv[1]](vectors, queries)
    turns.answer(lambda _: {"rows": search().tolist()})
