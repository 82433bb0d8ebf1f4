"""Prints pre-training records as text, with the masked tokens and the originals."""

import textwrap
from typing import NamedTuple

import numpy as np

from text.inspection.rules import name
from text.instances.instances import Instances
from text.tokenizers.vocabulary import MASK, Vocabulary

LEGEND = (
    "[MASK→cat]: cat is to be predicted and was replaced by [MASK]; [dog→cat]: by the "
    "random token dog; [=cat]: it was left unchanged."
)
_WIDTH = 88


class Piece(NamedTuple):
    """A token of the text.

    Attributes:
        original: what the token stands for; ## marks a word that was cut off before it.
        shown: the token in its place, as in the vocabulary.
        outcome: "text" if it is not predicted; otherwise "mask", "kept" or "random",
            depending on the token in its place.
    """

    original: str
    shown: str
    outcome: str

    def __str__(self) -> str:
        if self.outcome == "text":
            return self.original
        if self.outcome == "kept":
            return f"[={self.original}]"
        shown = "MASK" if self.outcome == "mask" else self.shown
        return f"[{shown}→{self.original}]"


def sides(
    record: dict[str, np.ndarray], instances: Instances, vocabulary: Vocabulary
) -> dict[str, list[list[Piece]]]:
    """The words of each side, each a list of pieces; [CLS] and [SEP] are left out.

    Args:
        record: its features, each [length]; they need not be valid.
        instances: the kind of the record.
    """
    layout = _layout(record, instances)
    predicted = set()
    if layout.is_predicted.any():
        predicted.update(record["masked_lm_positions"][layout.is_predicted[0]].tolist())
    if instances.masks.given:  # [CLS] and [SEP] may be among them
        chosen = record["is_masked"].astype(bool) & layout.words(vocabulary)[0]
        predicted.update(np.flatnonzero(chosen).tolist())
    found = {side: [] for side in instances.sides}
    mask_id = vocabulary.special_ids.get(MASK)
    seps, goes_on = 0, False
    for position in range(int(layout.lengths[0])):
        id, shown = int(layout.text[0, position]), int(record["input_ids"][position])
        outcome = "text"
        if position in predicted:
            outcome = "mask" if shown == mask_id else "random"
            outcome = "kept" if shown == id else outcome
        elif (
            id == vocabulary.cls_id
            if position < len(vocabulary.head)
            else vocabulary.is_separator(id)
        ):
            seps += position >= len(vocabulary.head)
            goes_on = False
            continue
        side = int(record["segment_ids"][position])
        if not vocabulary.second_segment:
            side = seps // vocabulary.separators
        known = 0 <= side < len(instances.sides)
        words = found[instances.sides[side if known else 0]]
        is_known = 0 <= id < len(vocabulary)
        goes_on |= bool(is_known and vocabulary.is_joined[id])
        original = vocabulary.texts[id] if is_known else name(vocabulary, id)
        if outcome != "text":
            original = original or name(vocabulary, id)  # it may be the space alone
        if goes_on and not words:  # its word was cut off before it
            original = vocabulary.continuation + original
        if not words or not goes_on:
            words.append([])
        words[-1].append(Piece(original, name(vocabulary, shown), outcome))
        goes_on = bool(is_known and vocabulary.joins_next[id])
    return found


def _layout(record, instances):
    return instances.masks.layout({key: row[None] for key, row in record.items()})


def heading(record: dict[str, np.ndarray], instances: Instances) -> str:
    """The sizes of a record, and its label."""
    parts = [f"{int(record['input_mask'].sum())} tokens"]
    if instances.masks.are_drawn:
        is_predicted = _layout(record, instances).is_predicted
        parts[0] += f", {np.count_nonzero(is_predicted)} to predict"
    if label := instances.label(record):
        parts.append(label)
    return "; ".join(parts)


def text(
    where: str,
    record: dict[str, np.ndarray],
    instances: Instances,
    vocabulary: Vocabulary,
) -> str:
    """A record as lines for a terminal.

    Args:
        where: its file and number.
        instances: the kind of the record.
    """
    lines = [f"{where}: {heading(record, instances)}"]
    for side, words in sides(record, instances, vocabulary).items():
        lines += textwrap.wrap(
            " ".join("".join(map(str, word)) for word in words),
            _WIDTH,
            initial_indent=f"  {side}: ",
            subsequent_indent="     ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)
