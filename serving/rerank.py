"""Scores pairs of texts by a classifier that reads both, which is slower and better."""

from collections.abc import Sequence

from errors import UserError
from serving.predictor import Predictor

_PARTS = {"text_a", "text_b"}


class Reranker:
    """What run_classifier.py exported: it rates pairs, or has two labels of them.

    Attributes:
        digest: that of the model.
    """

    def __init__(self, directory: str):
        """Raises:
        UserError: there is no such export, or it is of another task.
        """
        self._predictor = Predictor(directory)
        self.digest = self._predictor.digest
        form, parts = self._predictor.description["form"], set(self._predictor.parts)
        if form not in ("label", "number") or parts != _PARTS:
            raise UserError(
                f"{directory}: takes {self._predictor.describe_request()} and answers "
                f"with a {form}; reranking needs a classifier or a rating of pairs"
            )

    def scores(self, query: str, passages: Sequence[str], batch_size: int = 32):
        """How well each passage fits, list of float: the predicted number, or the
        probability of the second label.
        """
        pairs = [{"text_a": query, "text_b": passage} for passage in passages]
        answers = self._predictor.predict(pairs, batch_size)
        return [self._score(answer) for answer in answers]

    def _score(self, answer):
        if "probabilities" not in answer:
            return answer["predicted"]
        if len(answer["probabilities"]) != 2:
            raise UserError(
                f"{self._predictor.title}: has {len(answer['probabilities'])} labels; "
                "reranking needs two, and the second must say that a passage fits"
            )
        return list(answer["probabilities"].values())[1]
