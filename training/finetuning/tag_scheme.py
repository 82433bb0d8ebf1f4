"""The contract of tag schemes: what tags mean to a tagger."""

import abc
import collections
from collections.abc import Iterator, Sequence

import numpy as np

from text.tasks.tag_files import Sentence
from training.finetuning.task import Judgement

SPACE = " "  # a token of files with one character per line; it is not scored


class TagScheme(abc.ABC):
    """How tags are read, learned, scored and answered.

    Args:
        counts: of the task; see `Task.counts`.

    Attributes:
        form: of the answers; one of `forms.FORMS`.
        metric: which of the scores to compare runs by.
        is_by_character: whether the tokens of the files are characters, spaces too.
    """

    form: str
    metric: str

    def __init__(self, counts: collections.Counter):
        self.counts = counts
        self.is_by_character = False

    @property
    @abc.abstractmethod
    def labels(self) -> list[str]:
        """The network's classes; empty while none are known."""

    @abc.abstractmethod
    def read(self, sentences: list[Sentence], path: str, split: str) -> list[Sentence]:
        """Learns from the training set; checks the tags of each set.

        Returns:
            the sentences, with tags as an answer has them.
        Raises:
            UserError: a tag does not belong to the scheme; names file and line.
        """

    @abc.abstractmethod
    def encode(self, tags: Sequence[str], split: str) -> tuple[np.ndarray, np.ndarray]:
        """The classes of tags, int64 [words], and their weights, float32 [words]."""

    @abc.abstractmethod
    def score(
        self, sentences: list[Sentence], logits: list[np.ndarray]
    ) -> dict[str, float]:
        """Scores by name.

        Args:
            logits: of each sentence, float [words, labels].
        """

    @abc.abstractmethod
    def trivial_score(self, sentences: list[Sentence]) -> float:
        """The metric of a constant answer."""

    @abc.abstractmethod
    def judge(self, sentence: Sentence, logits: np.ndarray) -> Iterator[Judgement]:
        """Judges the answer for one sentence."""

    @abc.abstractmethod
    def answer(self, words: Sequence[str], logits: np.ndarray) -> dict:
        """The answer for one sentence, in the form `form`."""

    @abc.abstractmethod
    def serve(self, words, labels) -> dict:
        """The same answers in a graph, but the probabilities.

        Args:
            words: string tensor [b, n], padded with "".
            labels: int32 tensor [b, n], 0 for empty words.
        """

    def state(self) -> dict:
        """What a later run needs, as JSON."""
        return {"characters": True} if self.is_by_character else {}

    @property
    def separator(self) -> str:
        """What is between the tokens of a text."""
        return "" if self.is_by_character else " "

    def learn_characters(self, sentences: list[Sentence], split: str) -> None:
        """Finds out whether tokens are characters."""
        if split == "train" or not self.labels:
            self.is_by_character |= any(
                SPACE in sentence.words for sentence in sentences
            )

    def tags_to_score(self, words: Sequence[str], marks: Sequence[str]) -> list[str]:
        """The tags of the words that are scored."""
        pairs = zip(words, marks, strict=True)
        return [mark for word, mark in pairs if word != SPACE]
