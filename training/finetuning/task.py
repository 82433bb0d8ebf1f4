"""The contract of a fine-tuning task.

A script subclasses `Task` and passes it to `finetune.finetune`, which does the rest.
"""

import abc
import collections
import dataclasses
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from text.records.rows import Field, Layout, Row

# For `ServedTask.samples`: nothing, several scripts, and more than fits into a row.
SAMPLE_TEXTS = (
    "A wonderful little production.",
    "",
    "Zürich, ΑΘΗΝΑ, Москва",
    "東京は大きい 서울은 크다 \u200b",
    "one of many words " * 200,
)


@dataclasses.dataclass(frozen=True)
class Predictions:
    """A model's predictions for one set.

    Attributes:
        split: the set's name.
        examples: what `Task.read` returned.
        notes: of each row that `Task.featurize` made from them, in order.
        example_numbers: int [rows], the example of each row.
        outputs: name -> float32 or int32 [rows, ...], what the objective's `answer`
            returns for every row. A sequence axis has max_seq_length entries; those after
            the row's tokens are very low.
    """

    split: str
    examples: list
    notes: list
    example_numbers: np.ndarray
    outputs: Mapping[str, np.ndarray]


def spread(items: Iterable, most: int) -> list:
    """At most this many of the items, at equal distances."""
    items = list(items)
    return items[:: -(-len(items) // most) or 1] if most > 0 else []


class Judgement(NamedTuple):
    """One prediction, for a person to look at.

    Attributes:
        error: the loss, or another number; the page lists the highest first.
        probabilities: of the answers to choose from.
        pairs: gold and predicted of each part, if there are several.
        words: what was read, in parts, and what each contributed to the prediction; maybe
            none.
    """

    text: str
    gold: str
    predicted: str
    error: float
    probabilities: Mapping[str, float] = {}
    pairs: Sequence[tuple[str, str]] = ()
    words: Sequence[tuple[str, float]] = ()


class Task(abc.ABC):
    """What one script knows: its files, its labels, its scores.

    Attributes:
        tokenizer: the `Tokenizer`.
        title: what pages call the data.
        fields: what rows hold besides the encoder's inputs.
        metric: which of the scores to compare runs by; higher is better.
        eval_sets, test_sets: the splits to evaluate on and to predict. Runs are compared
            on the first of eval_sets.
        has_classes: whether `judge` names classes, which get a confusion matrix.
        has_percentages: whether `score` returns shares in percent, as SQuAD's script does,
            and not from 0 to 1.
        counts: what `featurize` reports about a set, such as how many texts it cut.
    """

    fields: Mapping[str, Field] = {}
    has_classes = False
    has_percentages = False
    metric = "accuracy"
    eval_sets = ("dev",)
    test_sets = ("test",)

    def __init__(self, tokenizer, data: str = ""):
        """Args:
        data: the data's own name, or the path of its files; "" for the name of the class.
        """
        self.tokenizer = tokenizer
        self.title = (
            os.path.basename(os.path.abspath(data)) if data else type(self).__name__
        )
        self.counts = collections.Counter()

    @abc.abstractmethod
    def read(self, split: str) -> list:
        """The examples of "train", or of one of eval_sets and test_sets.

        Their repr must contain everything that determines the rows.

        Raises:
            UserError: a file is missing or a line is bad; names file and line.
        """

    @abc.abstractmethod
    def featurize(self, example, split: str) -> Iterator[Row]:
        """Makes the rows of an example: one, several windows, or none if it is unusable."""

    @abc.abstractmethod
    def objective(self):
        """An Objective of modeling/objectives; called once examples have been read."""

    @abc.abstractmethod
    def score(self, predictions: Predictions) -> dict[str, float]:
        """Scores by name, including `metric`."""

    @abc.abstractmethod
    def prediction_files(self, predictions: Predictions) -> dict[str, str]:
        """A test set's answers: the names of the files to write, and their contents."""

    # Optional for a task.

    def layout(self, examples: list, max_seq_length: int) -> Layout:
        """The arrays of the rows of some examples."""
        pad_id = self.tokenizer.vocabulary.pad_id
        return Layout(max_seq_length, labels=self.fields, pad_id=pad_id)

    def warnings(self) -> Iterable[str]:
        """Lines for the log about flags that may not do what a user expects."""
        return ()

    def part(self, split: str, examples: list, most: int) -> tuple[str, list]:
        """A part of a set that can be scored by itself: the name of this set, and its
        examples, at most about `most`.
        """
        return split, spread(examples, most)

    def judge(self, predictions: Predictions) -> list[Judgement]:
        """All predictions, for the page of mistakes."""
        return []

    def trivial_score(self, examples: list) -> float | None:
        """The metric of a constant answer; a run that is no better is degenerate."""
        return None

    def settings(self) -> dict:
        """Flags that rows or the network depend on, besides those that all tasks have."""
        return {}

    @property
    def identity(self) -> dict:
        """What makes a training of this task another run; flags say it themselves."""
        name = type(self).__name__
        return {"task": name, **self.settings(), **self.tokenizer.settings}

    @property
    def script(self) -> str:
        """The name of the file that defines the task; "" in a notebook."""
        module = sys.modules[type(self).__module__]
        return os.path.basename(getattr(module, "__file__", None) or "")

    def state(self) -> dict:
        """What was learned from the training file, as JSON: the labels, for example."""
        return {}

    def restore(self, state: dict) -> str | None:
        """Restores the state of an earlier run, before anything is read.

        Returns:
            a line for the log, if there is something to say about it.
        """
        return None

    def description(self) -> dict:
        """What an export says about the task, as JSON."""
        return self.settings() | self.state()


class ServedTask(Task):
    """A task that --do_export turns into a SavedModel, which answers raw text.

    Attributes:
        form: of the answers; one of `forms.FORMS`.
        inputs: the parts of a request: name -> "text", or "list" of texts.
        explains: whether there is `scores_to_explain`.
    """

    form: str
    inputs: Mapping[str, str]
    explains = False

    @abc.abstractmethod
    def samples(self) -> list:
        """Varied examples to check an export on; reads no files."""

    @abc.abstractmethod
    def request(self, example) -> dict:
        """The request for an example: the inputs, str or list[str] by name."""

    @abc.abstractmethod
    def answers(self, predictions: Predictions) -> Sequence[dict]:
        """The expected answer for each example, in the form `form`."""

    @abc.abstractmethod
    def serve(self, tokenizer, predict, **texts) -> dict:
        """The same answers in a graph, from raw texts; traced once.

        Args:
            tokenizer: the `GraphTokenizer`.
            predict: the network, from dict of int32 input_ids, input_mask, segment_ids
                [rows, s] (or [rows, choices, s]) to its outputs, for any number of rows
                and any s up to max_seq_length.
            texts: the inputs by name; string [b], or [b, n] padded with "".
        Returns:
            the outputs that `form` has, tensors [b, ...].
        """

    # Optional for a task.

    def scores_to_explain(self, tokenizer, predict, **texts):
        """The logits behind the answers, in a graph.

        Args:
            tokenizer: a `NumberedTokens`; `predict` takes rows that are packed with it.
            others: as for `serve`.
        Returns:
            the `integrated_gradients.Scores`.
        """
        raise NotImplementedError
