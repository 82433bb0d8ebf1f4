"""Prints pre-training records as text, with the masked tokens and the originals."""

import textwrap
from typing import NamedTuple

import numpy as np

from text.inspection.inspector import Batch, Inspector, name
from text.tokenizers.vocabulary import MASK

LEGEND = (
    "[MASK→cat]: cat is to be predicted and was replaced by [MASK]; [dog→cat]: by the "
    "random token dog; [=cat]: it was left unchanged."
)
_WIDTH = 88


class TextToken(NamedTuple):
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


def sides(record: Batch, inspector: Inspector) -> dict[str, list[list[TextToken]]]:
    """The words of each side, each a list of pieces; [CLS] and [SEP] are left out.

    The features of the record, each [length], need not be valid.
    """
    vocabulary, text = inspector.vocabulary, _unmask(record, inspector)
    predicted = set()
    if text.is_predicted.any():
        predicted.update(record["masked_lm_positions"][text.is_predicted[0]].tolist())
    words_of_sides = {side: [] for side in inspector.sides}
    mask_id = vocabulary.special_ids.get(MASK)
    seps, is_joined = 0, False
    for position in range(int(text.lengths[0])):
        id, shown = int(text.ids[0, position]), int(record["input_ids"][position])
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
            is_joined = False
            continue
        side = int(record["segment_ids"][position])
        if not vocabulary.second_segment:
            side = seps // vocabulary.separators
        is_side = 0 <= side < len(inspector.sides)
        words = words_of_sides[inspector.sides[side if is_side else 0]]
        is_known = 0 <= id < len(vocabulary)
        is_joined |= bool(is_known and vocabulary.is_joined[id])
        original = vocabulary.texts[id] if is_known else name(vocabulary, id)
        if outcome != "text":
            original = original or name(vocabulary, id)  # it may be the space alone
        if is_joined and not words:  # its word was cut off before it
            original = vocabulary.continuation + original
        if not words or not is_joined:
            words.append([])
        words[-1].append(TextToken(original, name(vocabulary, shown), outcome))
        is_joined = bool(is_known and vocabulary.joins_next[id])
    return words_of_sides


def _unmask(record, inspector):
    return inspector.masks.unmask({key: row[None] for key, row in record.items()})


def heading(record: Batch, inspector: Inspector) -> str:
    """The sizes of a record, and its label."""
    parts = [f"{int(record['input_mask'].sum())} tokens"]
    if inspector.instances.masks.are_drawn:
        is_predicted = _unmask(record, inspector).is_predicted
        parts[0] += f", {np.count_nonzero(is_predicted)} to predict"
    if label := inspector.label(record):
        parts.append(label)
    return "; ".join(parts)


def text(where: str, record: Batch, inspector: Inspector) -> str:
    """A record as lines for a terminal; `where` is its file and number."""
    lines = [f"{where}: {heading(record, inspector)}"]
    for side, words in sides(record, inspector).items():
        lines += textwrap.wrap(
            " ".join("".join(map(str, word)) for word in words),
            _WIDTH,
            initial_indent=f"  {side}: ",
            subsequent_indent="     ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)
