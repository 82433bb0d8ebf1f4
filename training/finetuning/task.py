"""The contract of a fine-tuning task.

A script subclasses `Task` and passes it to `finetuning.finetune`, which does the rest.
"""

import abc
import collections
import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from text.records.rows import Field, Layout, Row


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What a model says of one set.

    Attributes:
        split: the set's name.
        examples: what `Task.read` gave.
        notes: of each row that `Task.featurize` made of them, in their order.
        example_numbers: int [rows], the example of each row.
        outputs: name -> float32 [rows, ...], the outputs of the objective's model. An
            axis of the sequence has max_seq_length entries, very low ones behind the
            row's tokens.
    """

    split: str
    examples: list
    notes: list
    example_numbers: np.ndarray
    outputs: Mapping[str, np.ndarray]


class Judgement(NamedTuple):
    """One prediction, for a person to look at."""

    text: str
    gold: str
    predicted: str
    wrongness: float  # the worst come first; a loss, or what else orders them


class Task(abc.ABC):
    """What one script knows: its files, its labels, its numbers.

    Attributes:
        tokenizer: the `Tokenizer`.
        fields: what rows hold beside the encoder's inputs.
        metric: of what `score` gives, that by which runs are compared; higher is better.
        eval_sets, test_sets: the splits to evaluate on and to predict. Runs are compared
            on the first of eval_sets.
        has_classes: whether `judge` names classes, whose confusions make a table.
        counts: what `featurize` wants to be said of a set, such as how many texts it cut.
    """

    fields: Mapping[str, Field] = {}
    has_classes = False
    metric = "accuracy"
    eval_sets = ("dev",)
    test_sets = ("test",)

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.counts = collections.Counter()

    @abc.abstractmethod
    def read(self, split: str) -> list:
        """The examples of "train", or of one of eval_sets and test_sets.

        Their repr has to tell all that rows follow from.

        Raises:
            UserError: a file is missing or a line is bad; names file and line.
        """

    @abc.abstractmethod
    def featurize(self, example, split: str) -> Iterator[Row]:
        """One example to its rows: one, or several windows; none where it is no use."""

    @abc.abstractmethod
    def objective(self):
        """An Objective of modeling/objectives; asked for once examples are read."""

    @abc.abstractmethod
    def score(self, predictions: Predictions) -> dict[str, float]:
        """Numbers by name, `metric` among them."""

    @abc.abstractmethod
    def write_predictions(self, predictions: Predictions, directory: str) -> list[str]:
        """Writes a test set's answers; returns the paths of the files."""

    # What a task may leave as it is.

    def layout(self, examples: list, max_seq_length: int) -> Layout:
        """The arrays of the rows of some examples."""
        return Layout(max_seq_length, labels=self.fields)

    def judge(self, predictions: Predictions) -> list[Judgement]:
        """All predictions, for the page of mistakes."""
        return []

    def trivial_score(self, examples: list) -> float | None:
        """The metric of the same answer to everything; a run no better is degenerate."""
        return None

    def settings(self) -> dict:
        """Flags on which rows or the network depend, beside those that all tasks have."""
        return {}

    def state(self) -> dict:
        """What was learned of the training file, as JSON: the labels, say."""
        return {}

    def restore(self, state: dict) -> None:  # noqa: B027  nothing is a good default
        """Takes up the state of an earlier run, before anything is read."""

    def description(self) -> dict:
        """What an export says of the task, as JSON."""
        return self.settings() | self.state()


class ServedTask(Task):
    """A task that --do_export turns into a SavedModel, which answers raw text.

    Attributes:
        form: of the answers; one of `forms.FORMS`.
        inputs: what a request has: by name "text", or "list" of texts.
    """

    form: str
    inputs: Mapping[str, str]

    @abc.abstractmethod
    def samples(self) -> list:
        """Examples to try an export on, of texts of any kind; no files are read."""

    @abc.abstractmethod
    def request(self, example) -> dict:
        """What to send for an example: the inputs, str or list[str] by name."""

    @abc.abstractmethod
    def answers(self, predictions: Predictions) -> list[dict]:
        """What is to come back for each example, as `form` has it."""

    @abc.abstractmethod
    def serve(self, tokenizer, predict, **texts) -> dict:
        """The same in a graph, from raw texts; traced once.

        Args:
            tokenizer: the `GraphTokenizer`.
            predict: the network, from dict of int32 input_ids, input_mask, segment_ids
                [rows, s] (or [rows, choices, s]) to its outputs, for any numbers of rows
                and any s up to max_seq_length.
            texts: the inputs by name; string [b], or [b, n] filled up with "".
        Returns:
            the outputs that `form` has, tensors [b, ...].
        """
