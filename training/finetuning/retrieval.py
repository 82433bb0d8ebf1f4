"""Ranks passages by vectors, again by a reranker, and picks those that mislead a model."""

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from serving.rerank import Reranker
from serving.search import exact
from text.tasks.retrieval_files import TextCollection
from text.tasks.text_groups import JudgedTexts
from training.finetuning import ranking_metrics

Run = Mapping[str, Mapping[str, float]]  # query -> passage -> score, the best first
_NEARLY = 0.05  # of the score of the passage that fits; what is so near may fit, too
_OF_A_PART = 2  # times as many passages as queries, at most
_LOOKED_AT = 20  # times as many passages as negatives are wanted


class VectorAnswers(Sequence):
    """An answer for each vector, made when it is asked for: a corpus has many."""

    def __init__(self, vectors: np.ndarray):
        self._vectors = vectors

    def __len__(self):
        return len(self._vectors)

    def __getitem__(self, number):
        return {"vector": self._vectors[number].tolist()}


def collection_of(judged: JudgedTexts) -> TextCollection:
    """Pairs of texts that fit; ids are their numbers, from 0."""
    relevant: dict[str, dict[str, int]] = {}
    for query, passage in judged.pairs.tolist():
        relevant.setdefault(str(query), {})[str(passage)] = 1
    queries, passages = (
        {str(number): text for number, text in enumerate(texts)}
        for texts in (judged.queries, judged.passages)
    )
    return TextCollection(queries, passages, relevant)


def texts_of(
    judged: JudgedTexts | TextCollection,
) -> tuple[Sequence[str], Sequence[str]]:
    """The queries and the passages."""
    if isinstance(judged, JudgedTexts):
        return judged.queries, judged.passages
    return [*judged.queries.values()], [*judged.passages.values()]


def part_of(
    judged: JudgedTexts | TextCollection, most: int
) -> JudgedTexts | TextCollection:
    """At most `most` of the scored pairs, or of the queries of a search.

    The passages are those that are judged for these queries and, where these are fewer,
    others, up to 2 * most.
    """
    if isinstance(judged, JudgedTexts):
        some = _spread(range(len(judged.pairs)), most)
        (queries, first), (passages, second) = (
            np.unique(column, return_inverse=True) for column in judged.pairs[some].T
        )
        return JudgedTexts(
            tuple(judged.queries[number] for number in queries),
            tuple(judged.passages[number] for number in passages),
            np.stack([first, second], axis=1),
            judged.scores[some],
        )
    relevant, ids, room = {}, {}, _OF_A_PART * most
    for query in _spread(judged.queries, most):
        if not relevant or len(ids) + len(judged.relevant[query]) <= room:
            relevant[query] = judged.relevant[query]
            ids |= dict.fromkeys(relevant[query])
    others = [id for id in judged.passages if id not in ids]
    ids |= dict.fromkeys(_spread(others, room - len(ids)))
    return TextCollection(
        {query: judged.queries[query] for query in relevant},
        {id: judged.passages[id] for id in ids},
        relevant,
    )


def _spread(items, most):
    """At most this many, at equal distances."""
    return list(items)[:: -(-len(items) // most) or 1] if most > 0 else []


def rank(collection: TextCollection, queries: np.ndarray, passages: np.ndarray) -> Run:
    """The passages with the largest dot products.

    Args:
        queries, passages: float32 [n, d], in the order of the collection.
    """
    depth = ranking_metrics.DEPTH
    near = exact.search(queries, exact.blocks_of(passages), depth)
    ids = list(collection.passages)
    return {
        query: {
            ids[row]: score for row, score in zip(rows.tolist(), scores, strict=True)
        }
        for query, scores, rows in zip(collection.queries, *near, strict=True)
    }


def rerank(collection: TextCollection, run: Run, reranker: Reranker, top: int) -> Run:
    """The run with the first `top` passages of each query in the reranker's order."""
    reranked = {}
    for query, found in run.items():
        ids = list(found)
        first, rest = ids[:top], ids[top:]
        texts = [collection.passages[id] for id in first]
        scores = reranker.scores(collection.queries[query], texts)
        order = sorted(range(len(first)), key=lambda i: -scores[i])
        reranked[query] = {first[i]: scores[i] for i in order}
        # Below all of these, in their order.
        lowest = min(scores, default=0.0)
        reranked[query] |= {id: lowest - place for place, id in enumerate(rest, 1)}
    return reranked


def mine_negatives(
    judged: JudgedTexts, queries: np.ndarray, passages: np.ndarray, number: int
) -> Iterator[str]:
    """JSON lines of triplets: each pair with passages that are near and do not fit.

    A passage that is nearly as near as the one that fits is left out, because it may fit
    as well.

    Args:
        queries, passages: float32 [n, d].
        number: of negatives for each pair, or fewer if there are no more.
    Source: Moreira et al., arXiv:2407.15831, section 4.1 (TopK-PercPos).
    """
    near = exact.search(queries, exact.blocks_of(passages), number * _LOOKED_AT)
    fitting: dict[int, set[int]] = {}
    for query, passage in judged.pairs.tolist():
        fitting.setdefault(query, set()).add(passage)
    for query, passage in judged.pairs.tolist():
        text = judged.queries[query]
        fit = float(queries[query] @ passages[passage])
        most = fit - _NEARLY * abs(fit)  # below it, even if that is negative
        negatives = [
            judged.passages[row]
            for row, score in zip(
                near.rows[query].tolist(), near.scores[query], strict=True
            )
            if score < most
            and row not in fitting[query]
            and judged.passages[row] != text
        ]
        triplet = {"query": text, "positive": judged.passages[passage]}
        triplet["negative"] = negatives[:number]
        yield json.dumps(triplet, ensure_ascii=False) + "\n"
