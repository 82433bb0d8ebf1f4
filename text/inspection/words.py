"""Prints pre-training records as text, with the masked tokens and the originals."""

import textwrap
from typing import NamedTuple

import numpy as np

from text.inspection.rules import Layout, name
from text.tokenizers.vocabulary import Vocabulary

LEGEND = (
    "[MASK→cat]: cat is to be predicted, and [MASK] stands in its place; [dog→cat]: the "
    "random token dog does; [=cat]: cat itself does."
)
LABELS = ("B follows A in the text", "B is from elsewhere, at random")

_WIDTH = 88


class Piece(NamedTuple):
    """A token of the text.

    Attributes:
        original: the token, without the ## of a continuation.
        shown: the token in its place, as the vocabulary has it.
        outcome: "text" where nothing is predicted; else "mask", "kept" or "random", by
            what stands in its place.
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
    record: dict[str, np.ndarray], vocabulary: Vocabulary
) -> tuple[list[list[Piece]], list[list[Piece]]]:
    """The words of both sides, each a list of pieces; [CLS] and [SEP] are left out.

    Args:
        record: its features, each [length]; they need not be right.
    """
    layout = Layout.of({key: row[None] for key, row in record.items()}, vocabulary)
    predicted = set(record["masked_lm_positions"][layout.is_predicted[0]].tolist())
    found = [], []
    for position in range(int(layout.lengths[0])):
        id, shown = int(layout.text[0, position]), int(record["input_ids"][position])
        outcome = "text"
        if position in predicted:
            outcome = "mask" if shown == vocabulary.mask_id else "random"
            outcome = "kept" if shown == id else outcome
        elif id == (vocabulary.sep_id if position else vocabulary.cls_id):
            continue
        words = found[int(record["segment_ids"][position] == 1)]
        original = name(vocabulary, id)
        if words and original.startswith("##"):
            original = original.removeprefix("##")
        else:
            words.append([])
        words[-1].append(Piece(original, name(vocabulary, shown), outcome))
    return found


def label(record: dict[str, np.ndarray]) -> str:
    """The next-sentence label in words."""
    value = int(record["next_sentence_labels"][0])
    return LABELS[value] if value in (0, 1) else f"next_sentence_labels is {value}"


def heading(record: dict[str, np.ndarray]) -> str:
    """The sizes of a record, and its label."""
    tokens = int(record["input_mask"].sum())
    predictions = np.count_nonzero(record["masked_lm_weights"])
    return f"{tokens} tokens, {predictions} to predict; {label(record)}"


def text(where: str, record: dict[str, np.ndarray], vocabulary: Vocabulary) -> str:
    """A record as lines for a terminal.

    Args:
        where: its file and number.
    """
    lines = [f"{where}: {heading(record)}"]
    for side, words in zip("AB", sides(record, vocabulary), strict=True):
        lines += textwrap.wrap(
            " ".join("".join(map(str, word)) for word in words),
            _WIDTH,
            initial_indent=f"  {side}: ",
            subsequent_indent="     ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)
