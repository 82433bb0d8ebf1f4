"""Declares what inspection must know of a kind of records.

A kind has the same name here, in text/inspection/table.py, as in text/instances/table.py.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from text.inspection.figures import RunningSums
from text.instances import packing
from text.instances.table import RowOptions
from text.tokenizers.vocabulary import Vocabulary

Batch = dict[str, np.ndarray]  # of decoded records, each [batch, length]


class Unmasked(NamedTuple):
    """A batch of records before masking.

    Attributes:
        ids: int64 [batch, seq_length].
        lengths: int64 [batch], number of tokens, special ones included.
        is_predicted: bool [batch, num_predictions].
    """

    ids: np.ndarray
    lengths: np.ndarray
    is_predicted: np.ndarray

    @property
    def columns(self) -> np.ndarray:
        """int64 [seq_length]."""
        return np.arange(self.ids.shape[1])

    @property
    def is_token(self) -> np.ndarray:
        """bool [batch, seq_length]: not padding."""
        return self.columns < self.lengths[:, None]

    @property
    def last(self) -> np.ndarray:
        """int64 [batch, 1]: the position of the last token."""
        return self.lengths[:, None] - 1

    def separators(self, vocabulary: Vocabulary) -> np.ndarray:
        """bool [batch, seq_length]: tokens that are [SEP]."""
        return self.is_token & vocabulary.is_separator(self.ids)

    def words(self, vocabulary: Vocabulary) -> np.ndarray:
        """bool [batch, seq_length]: tokens that are neither [CLS] nor [SEP]."""
        is_special = vocabulary.is_separator(self.ids)
        if vocabulary.has_cls:
            is_special |= self.ids == vocabulary.cls_id
        return self.is_token & ~is_special

    def of_rows(self, rows: list[int]) -> "Unmasked":
        return Unmasked(*(values[rows] for values in self))


class Rule(NamedTuple):
    """What a feature must be, and where it is not: bool [batch, length]."""

    feature: str
    is_broken: np.ndarray
    text: str


class MaskInspector:
    """What is checked and counted of the tokens to predict.

    Args:
        options: the flags of the records; masked_lm_prob is 0 if unknown.
        is_described: whether the flags are those of a description.
    """

    def __init__(self, options: RowOptions, vocabulary: Vocabulary, is_described: bool):
        self.options = options
        self.vocabulary = vocabulary
        self.is_described = is_described

    def unmask(self, batch: Batch) -> Unmasked:
        """The batch before masking; it means little for records that break a rule."""
        ids = batch["input_ids"]
        lengths = np.clip(batch["input_mask"].sum(axis=1), 0, ids.shape[1])
        return Unmasked(ids, lengths, np.zeros((len(ids), 0), bool))

    def rules(self, batch: Batch, text: Unmasked) -> Iterator[Rule]:
        """Yields the rules for the features of the masks."""
        yield from ()

    def figures(self) -> list[RunningSums]:
        """Makes empty sums over what is predicted."""
        return []


class Inspector:
    """What is checked, counted and said of a kind of rows.

    Attributes:
        instances: the kind.
        masks: the same for what the rows say about the tokens to predict.
        sides: names of the parts of a row, by segment id.
        long_sentences: what happens to sentences that are longer than a row.
    """

    sides: tuple[str, ...] = ("Text",)
    long_sentences = "are truncated"

    def __init__(
        self, options: RowOptions, vocabulary: Vocabulary, masks: MaskInspector
    ):
        self.options = options
        self.vocabulary = vocabulary
        self.instances = options.make_instances()
        self.masks = masks

    def rules(self, batch: Batch, text: Unmasked) -> Iterator[Rule]:
        """Yields the rules of this kind; all records and masks have others."""
        yield from ()

    def is_cls(self, batch: Batch, text: Unmasked) -> np.ndarray:
        """bool [batch, seq_length]: where [CLS] must be, if the vocabulary has it."""
        return text.columns == (0 if self.vocabulary.head else text.last)

    def segment_rule(
        self, batch: Batch, text: Unmasked, in_b: np.ndarray | bool, pairs: str
    ) -> Rule:
        """The rule for segment ids.

        Args:
            in_b: bool [batch, seq_length], the second text and the special tokens after it.
            pairs: what they must be, where the second text has another segment.
        """
        vocabulary = self.vocabulary
        rule = pairs if vocabulary.second_segment else "must be 0"
        if vocabulary.last_segment is not None:
            rule = f"{rule}; {vocabulary.last_segment} at the last token"
        in_b = np.broadcast_to(in_b, text.ids.shape)
        expected = packing.segments(in_b, text.columns == text.last, vocabulary)
        return Rule("segment_ids", batch["segment_ids"] != expected, rule)

    def sums(self, batch: Batch) -> dict[str, int]:
        """Counts of a batch that the description also contains."""
        return {}

    def figures(self) -> list[RunningSums]:
        """Makes empty sums over what only this kind has."""
        return []

    def label(self, record: Batch) -> str:
        """The labels of a record, whose features are [length], in words; "" without any."""
        return ""

    def report(self, counts: dict[str, int], passes: int) -> list[str]:
        """Lines about a finished text: what happened to its tokens and sentences."""
        return []


# === The rules of every record ==========================================================


def first_broken(
    batch: Batch, text: Unmasked, inspector: Inspector
) -> dict[int, tuple[str, str]]:
    """The first rule that each record breaks.

    Returns:
        dict of row to (the rule, how it is broken), for rows that break one.
    """
    broken = {}
    for rule in _rules(batch, text, inspector):
        rows = np.flatnonzero(rule.is_broken.any(axis=1))
        for row in rows.tolist():
            if row not in broken:
                column = int(rule.is_broken[row].argmax())
                value = batch[rule.feature][row, column].item()
                if rule.feature.endswith("_ids") and rule.feature != "segment_ids":
                    value = f"{value} ({name(inspector.vocabulary, value)})"
                broken[row] = (
                    f"{rule.feature} {rule.text}",
                    f"{rule.feature}[{column}] is {value}; {rule.text}",
                )
    return broken


def name(vocabulary: Vocabulary, id: int) -> str:
    """The token of an id, which may be outside the vocabulary."""
    return vocabulary.tokens[id] if 0 <= id < len(vocabulary) else "no token"


def _rules(batch, text, inspector) -> Iterator[Rule]:
    """Yields the rules, those first that later ones depend on."""
    vocabulary = inspector.vocabulary
    for feature in inspector.instances.schema():
        if feature.below == "vocab_size":
            ids = batch[feature.name]
            yield Rule(
                feature.name,
                (ids < 0) | (ids >= len(vocabulary)),
                f"must be in the vocabulary, from 0 to {len(vocabulary) - 1}",
            )
    yield Rule(
        "input_mask",
        batch["input_mask"] != text.is_token,
        "must be 1 for every token, then 0 for padding",
    )
    yield from inspector.masks.rules(batch, text)
    yield from _text_in_place(batch, text, inspector)
    yield from inspector.rules(batch, text)


def _text_in_place(batch, text, inspector):
    """Rules about what is text and what is not, for all kinds of rows."""
    vocabulary = inspector.vocabulary
    is_cls = inspector.is_cls(batch, text) & vocabulary.has_cls
    if vocabulary.has_cls:
        yield Rule(
            "input_ids",
            is_cls & (text.ids != vocabulary.cls_id),
            "must begin with [CLS]" if vocabulary.head else "must end with [CLS]",
        )
    special = list(vocabulary.never_text)
    yield Rule(
        "input_ids",
        text.is_token & ~is_cls & np.isin(text.ids, special),
        "must be a token of the text if not predicted",
    )
    # The release pads with 0, this project with [PAD], which may have another id.
    yield Rule(
        "input_ids",
        ~text.is_token & ~np.isin(batch["input_ids"], (0, vocabulary.pad_id)),
        "must be 0 or [PAD] after the tokens",
    )
