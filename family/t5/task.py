"""Fine-tuning tasks whose answers are texts that the model writes."""

import abc
import dataclasses
import functools
import json
from typing import NamedTuple, Protocol

from errors import UserError
from family.t5 import as_text, as_text_graph
from family.t5.text_to_text import Generation
from text.graphs.row_chunks import run_in_chunks
from text.records.rows import Field, Row, static_lengths
from training.finetuning.task import SAMPLE_TEXTS, Judgement, ServedTask

_TARGETS = ("target_ids", "target_mask")  # what rows hold besides the inputs
_ANOTHER = "(another text)"  # a class in the page of mistakes


class TextToTextExample(NamedTuple):
    """One input and its answer.

    Attributes:
        texts: by the names of the task's features.
        label: what the answer means: a label, a number, a text, or several right
            texts; None if it is unknown.
        index: from its line or its id; otherwise its number from 0.
    """

    texts: dict[str, str]
    label: str | float | tuple[str, ...] | None
    index: str


class TextFlags(Protocol):
    """The flags that all such tasks read."""

    data_dir: str
    task_name: str
    task: str  # the same in lower case
    max_seq_length: int
    max_target_length: int


class TextTask(ServedTask):
    """What all such tasks have in common; the script's own reads files and scores.

    Args:
        flags: the script's.
        wording: how examples are written, and answers read.
    """

    form = "text"

    def __init__(self, flags: TextFlags, tokenizer, wording: as_text.Wording):
        own = flags.task == "custom"
        super().__init__(tokenizer, flags.data_dir if own else flags.task_name)
        self.flags, self.wording = flags, wording
        self.has_classes = bool(wording.words)
        # Targets are few, and those of a set are looked at twice.
        self._encode = functools.cache(lambda text: tokenizer.encode(text))

    @functools.cached_property
    def reads(self):
        """A written text -> its label or number; see `Wording.reader`."""
        return self.wording.reader(self.spell)

    def spell(self, text: str) -> str:
        """What the model writes if it writes this text."""
        return self.tokenizer.vocabulary.text_of(self._encode(text))

    @property
    def inputs(self):
        return dict.fromkeys(self.wording.features, "text")

    @property
    @abc.abstractmethod
    def columns(self) -> dict[str, str]:
        """The features' names in tables."""

    def settings(self):
        names = ("task_name", "max_target_length")
        return {name: getattr(self.flags, name) for name in names}

    def description(self):
        return super().description() | {"columns": self.columns}

    # --- Rows ------------------------------------------------------------------------

    def target(self, example: TextToTextExample) -> str | None:
        """What the model is to write; None if it is unknown."""
        label = example.label
        if isinstance(label, tuple):
            label = label[0]
        return None if label is None else self.wording.target(label)

    def _target_ids(self, example):
        target = self.target(example)
        if target is None:
            return [], False
        most = self.flags.max_target_length
        return as_text.row(self.tokenizer.vocabulary, self._encode(target), most)

    def layout(self, examples, max_seq_length):
        """See `Task`; targets are padded to a length that fits the longest."""
        longest = max((len(self._target_ids(e)[0]) for e in examples), default=1)
        lengths = static_lengths(self.flags.max_target_length)
        width = next(length for length in lengths if length >= longest)
        layout = super().layout(examples, max_seq_length)
        fields = {name: Field("int64", (width,)) for name in _TARGETS}
        return dataclasses.replace(layout, labels=fields)

    def featurize(self, example, split):
        vocabulary = self.tokenizer.vocabulary
        ids = self.tokenizer.encode(self.wording.input(example.texts))
        ids, was_cut = as_text.row(vocabulary, ids, self.flags.max_seq_length)
        self.counts["inputs were cut to --max_seq_length"] += was_cut
        target, was_cut = self._target_ids(example)
        self.counts["targets were cut to --max_target_length"] += was_cut
        is_unknown = vocabulary.unk_id in target
        self.counts["targets contain unknown tokens"] += is_unknown
        is_lost = target == [vocabulary.end_id]
        self.counts["targets are empty, because the vocabulary drops them"] += is_lost
        if split == "train" and self.has_classes:
            self.counts[f"labelled {self.target(example)}"] += 1
        targets = zip(_TARGETS, (target, [1] * len(target)), strict=True)
        yield Row(ids, [0] * len(ids), dict(targets))

    def objective(self):
        return Generation(self.flags.max_target_length)

    # --- Answers ---------------------------------------------------------------------

    def predicted_texts(self, predictions) -> list[str]:
        """What the model wrote for each example."""
        ids = predictions.outputs["output_ids"].tolist()
        return [self.tokenizer.vocabulary.text_of(row) for row in ids]

    def answers(self, predictions):
        return [{"predicted": text} for text in self.predicted_texts(predictions)]

    def is_right(self, example: TextToTextExample, text: str) -> bool:
        """Whether a written text is the target, as the vocabulary spells it."""
        return text == self.spell(self.target(example))

    def error(self, example: TextToTextExample, text: str) -> float:
        """How wrong a written text is, to order the mistakes by."""
        return float(not self.is_right(example, text))

    def judge(self, predictions):
        if predictions.examples[0].label is None:
            return []
        pairs = zip(
            predictions.examples, self.predicted_texts(predictions), strict=True
        )
        return [self._judgement(*pair) for pair in pairs]

    def _judgement(self, example, text):
        shown, gold = self.wording.input(example.texts), self.target(example)
        predicted = gold if self.is_right(example, text) else text
        if self.has_classes and predicted != gold:
            label = self.reads(text)
            predicted = _ANOTHER if label is None else self.wording.target(label)
            if label is None:
                shown += f"\nwrites: {text}"
        return Judgement(shown, gold, predicted, self.error(example, text))

    def prediction_files(self, predictions):
        return self.files(predictions, self.predicted_texts(predictions))

    def files(self, predictions, texts: list[str]) -> dict[str, str]:
        """The files of a test set's answers, name to content.

        Args:
            texts: what the model wrote.
        """
        split = predictions.split
        ending = "" if split == self.test_sets[0] else f"_{split}"
        lines = map(self._line, predictions.examples, texts)
        return {f"predictions{ending}.jsonl": "".join(lines)}

    def _line(self, example, text):
        values = {"index": example.index, **example.texts}
        if example.label is not None:
            values["gold"] = example.label
        values["predicted"] = text
        if self.has_classes:
            values["label"] = self.reads(text)
        return json.dumps(values, ensure_ascii=False) + "\n"

    # --- Export ----------------------------------------------------------------------

    def samples(self):
        names = self.wording.features
        orders = (SAMPLE_TEXTS, SAMPLE_TEXTS[::-1])[: len(names)]
        return [
            TextToTextExample(dict(zip(names, texts, strict=True)), None, "")
            for texts in zip(*orders, strict=True)
        ]

    def request(self, example):
        return example.texts

    def serve(self, tokenizer, predict, **texts):
        ids = tokenizer.encode(as_text_graph.inputs(self.wording, texts))
        batch = as_text_graph.rows(tokenizer, ids, self.flags.max_seq_length)
        return {
            "predicted": tokenizer.text_of(run_in_chunks(predict, batch)["output_ids"])
        }


def check_target(text: str, where: str) -> str:
    """A target from a file.

    Raises:
        UserError: it is empty.
    """
    if not text.strip():
        raise UserError(
            f"{where}: the target is empty; add one or remove the example, because a model "
            "that writes nothing cannot be told from one that fails"
        )
    return text
