"""Answers a text with those of an index whose vectors are nearest."""

from collections.abc import Mapping

from errors import UserError
from serving.form import list_of, number_of
from serving.predictor import Predictor, Served
from serving.rerank import Reranker
from serving.search.index import Index
from text.tasks import retrieval_files

FORM = "neighbors"  # of the answers
SCORE = "score"  # what an answer adds to a row of the index
_RERANKED = 10  # times as many are reranked as answered


class NearestTexts(Served):
    """A model of vectors that is asked for the rows of an index."""

    answer_schemas = {FORM: list_of({"type": "object"})}
    purpose = "finds texts that fit"

    def __init__(
        self,
        predictor: Predictor,
        index: Index,
        k: int,
        is_approximate: bool = False,
        reranker: Reranker | None = None,
    ):
        """Args:
        k: how many to answer with; of a smaller index, all.
        is_approximate: see `Index.search`.
        reranker: what scores the first ten times as many again, by their texts.
        Raises:
            UserError: another model wrote the index.
        """
        check_model(predictor)
        index.check_model(predictor.digest, predictor.title)
        super().__init__(
            {**predictor.description, "form": FORM}, predictor._serve, index.folder
        )
        self.title = f"{predictor.title}: {index.folder}"
        self.digests = {
            **predictor.digests,
            "index": index.digest,
            "rerank_with": reranker and reranker.digest,
        }
        self._predictor, self._index, self._k = predictor, index, k
        self._is_approximate, self._reranker = is_approximate, reranker

    def predict(self, requests: list[Mapping], batch_size: int = 32) -> list[dict]:
        """The rows of the nearest texts, each with its `score`, the best first."""
        vectors = self._predictor.vectors(requests, batch_size, are_queries=True)
        k = self._k * (_RERANKED if self._reranker else 1)
        near = self._index.search(vectors, k, self._is_approximate)
        return [
            {FORM: self._neighbors(request, scores, rows[rows >= 0], batch_size)}
            for request, scores, rows in zip(requests, *near, strict=True)
        ]

    def _neighbors(self, request, scores, numbers, batch_size):
        rows = self._index.rows(numbers)
        scores = [number_of(score) for score in scores[: len(rows)]]
        if self._reranker:
            texts = [
                retrieval_files.join_title(row, self._index.folder) for row in rows
            ]
            scores = self._reranker.scores(request["text"], texts, batch_size)
        order = sorted(range(len(rows)), key=lambda i: -scores[i])[: self._k]
        return [{**rows[i], SCORE: scores[i]} for i in order]


def check_model(predictor: Predictor) -> None:
    """Refuses a model that gives no vectors."""
    form = predictor.description["form"]
    if form != "vector":
        raise UserError(
            f"{predictor.title}: answers with a {form}, not with vectors; use what "
            "run_retrieval.py exported"
        )
