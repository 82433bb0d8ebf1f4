"""Ranks passages by vectors, again by a reranker, and picks those that mislead a model."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from serving.rerank import Reranker
from serving.search import exact
from text.tasks.retrieval_files import TextCollection
from text.tasks.text_groups import JudgedTexts
from training.finetuning import ranking_metrics
from training.finetuning.task import Judgement, spread

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
        some = spread(range(len(judged.pairs)), most)
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
    for query in spread(judged.queries, most):
        if not relevant or len(ids) + len(judged.relevant[query]) <= room:
            relevant[query] = judged.relevant[query]
            ids |= dict.fromkeys(relevant[query])
    others = [id for id in judged.passages if id not in ids]
    ids |= dict.fromkeys(spread(others, room - len(ids)))
    return TextCollection(
        {query: judged.queries[query] for query in relevant},
        {id: judged.passages[id] for id in ids},
        relevant,
    )


def rank(collection: TextCollection, queries: np.ndarray, passages: np.ndarray) -> Run:
    """The passages with the largest dot products, without a query's own text.

    Args:
        queries, passages: float32 [n, d], in the order of the collection.
    """
    own, depth = collection.own_passages(), ranking_metrics.DEPTH
    most = depth + max(map(len, own.values()), default=0)
    near = exact.search(queries, exact.blocks_of(passages), most)
    ids, run = list(collection.passages), {}
    for query, scores, rows in zip(collection.queries, *near, strict=True):
        found = zip(map(ids.__getitem__, rows.tolist()), scores, strict=True)
        others = (pair for pair in found if pair[0] not in own.get(query, ()))
        run[query] = dict(itertools.islice(others, depth))
    return run


def cosines(
    judged: JudgedTexts, queries: np.ndarray, passages: np.ndarray
) -> np.ndarray:
    """float32 [pairs]: of the vectors of each judged pair, of any length."""
    first, second = judged.pairs.T
    a, b = queries[first], passages[second]
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(axis=1) / np.maximum(lengths, 1e-12)


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


def judge_search(collection: TextCollection, run: Run) -> list[Judgement]:
    """For each query, the first passage found, and the first relevant one with its rank."""
    judgements = []
    for query, relevant in collection.relevant.items():
        found = ranking_metrics.rank(run[query])
        fitting = [id for id, score in relevant.items() if score]
        places = {id: place for place, id in enumerate(found, 1)}
        best = min(fitting, key=lambda id: places.get(id, len(found) + 1))
        texts = (collection.passages[id] for id in (best, found[0]))
        rank = places.get(best, len(found) + 1)
        judgements.append(Judgement(collection.queries[query], *texts, rank))
    return judgements


def judge_pairs(
    judged: JudgedTexts, values: np.ndarray, score_range: Sequence[float]
) -> list[Judgement]:
    """For each pair its score and cosine, and how far apart their ranks are.

    Args:
        values: float [pairs], the cosines.
        score_range: the lowest and the highest score in files.
    """
    low, high = score_range
    ranks = _ranks(judged.scores), _ranks(values)
    scores = low + judged.scores * (high - low)
    return [
        Judgement(
            f"{judged.queries[query]}\n{judged.passages[passage]}",
            f"{score:.4g}, rank {rank:g}",
            f"cosine {value:.3f}, rank {other:g}",
            abs(rank - other),
        )
        for (query, passage), score, value, rank, other in zip(
            judged.pairs.tolist(), scores, values, *ranks, strict=True
        )
    ]


def _ranks(values):
    """From 1, the highest first; equal values share the mean of theirs."""
    ordered = np.sort(-values)
    first, after = (np.searchsorted(ordered, -values, s) for s in ("left", "right"))
    return (first + after + 1) / 2


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
