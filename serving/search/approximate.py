"""Finds most of the nearest of millions of vectors in a part of them, by faiss.

faiss divides the vectors into clusters (IVF), stores them as float16, and searches those
clusters whose centers are near.
"""

import os
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from errors import UserError
from serving.search.exact import Nearest
from text.progress import Progress

FEWEST = 10_000  # vectors for which there is anything to gain
_PER_CLUSTER = 64  # vectors that the clusters are learned from
_SEARCHED = 32  # clusters


def _load_faiss():
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise UserError(
            "--approximate needs the package faiss-cpu, which is not installed; run pip "
            "install -r requirements/search.txt, or search exactly"
        ) from error
    return faiss


def search(
    path: str,
    blocks: Callable[[], Iterator[np.ndarray]],
    num_rows: int,
    queries: np.ndarray,
    k: int,
) -> Nearest:
    """The k nearest of those in the searched clusters, and -1 where these have fewer.

    Args:
        path: of the clusters, which are written if there are none.
        blocks: all vectors, float32 [any, d] each.
        queries: float32 [queries, d].
    """
    faiss = _load_faiss()
    if num_rows < FEWEST:
        raise UserError(
            f"--approximate: the index has {num_rows:,} vectors; below {FEWEST:,}, an "
            "exact search is fast, so leave this flag out"
        )
    if not os.path.exists(path):
        _write(faiss, path, blocks, num_rows, queries.shape[1])
    try:
        clusters = faiss.read_index(path, faiss.IO_FLAG_MMAP)
    except RuntimeError as error:
        raise UserError(
            f"{path}: is damaged; remove it, and the next search writes it again"
        ) from error
    clusters.nprobe = _SEARCHED
    scores, rows = clusters.search(np.ascontiguousarray(queries), min(k, num_rows))
    return Nearest(scores, rows)


def _write(faiss, path, blocks, num_rows, dimensions):
    number = int(2 * num_rows**0.5)
    clusters = faiss.index_factory(
        dimensions, f"IVF{number},SQfp16", faiss.METRIC_INNER_PRODUCT
    )
    every = max(1, num_rows // (number * _PER_CLUSTER))
    clusters.train(np.concatenate([block[::every] for block in blocks()]))
    with Progress("clustering", num_rows, "vectors") as progress:
        for block in blocks():
            clusters.add(np.ascontiguousarray(block))
            progress.advance(len(block))
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        temporary = os.path.join(folder, os.path.basename(path))
        faiss.write_index(clusters, temporary)
        os.replace(temporary, path)
