"""Scores pairs of texts by a classifier that reads both, which is slower and better."""

from collections.abc import Sequence

from errors import UserError
from serving.predictor import Predictor, description_of

_PARTS = {"text_a", "text_b"}


def check(directory: str) -> None:
    """Reads what an export says of itself; loads no model.

    Raises:
        UserError: there is no export, or it cannot score pairs.
    """
    description = description_of(directory)
    form, parts = description["form"], description["inputs"]
    if form not in ("label", "number") or parts.keys() != _PARTS:
        raise UserError(
            f"{directory}: takes {', '.join(parts)} and answers with the form {form}; "
            "reranking needs a classifier or a rating of pairs"
        )
    labels = description.get("labels") or ()
    if form == "label" and len(labels) != 2:
        raise UserError(
            f"{directory}: has {len(labels)} labels; reranking needs two, and the second "
            "must say that a passage fits"
        )


class Reranker:
    """What run_classifier.py exported: it rates pairs, or has two labels of them.

    Attributes:
        digest: that of the model.
    """

    def __init__(self, directory: str):
        """Raises:
        UserError: there is no such export, or it is of another task.
        """
        check(directory)
        self._predictor = Predictor(directory)
        self.digest = self._predictor.digest

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
        return list(answer["probabilities"].values())[1]
