"""The rules that every pre-training record must follow, checked on batches."""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from text.instances import packing
from text.instances.masking import prediction_counts
from text.records.descriptions import Description
from text.tokenizers.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How records were made, as far as it is known.

    Attributes:
        masked_lm_prob: share of the tokens to predict, or None.
        mask_share, random_share: of the predicted tokens.
        whole_words: whether words were masked as a whole, which leaves some predictions
            out.
        random_next: whether second sentences were also taken from elsewhere.
        is_described: whether all this is known from the records' description.
    """

    masked_lm_prob: float | None = None
    mask_share: float = 0.8
    random_share: float = 0.1
    whole_words: bool = False
    random_next: bool = True
    is_described: bool = False

    @classmethod
    def of(cls, description: Description, masked_lm_prob: float | None) -> "Recipe":
        """From a description; `masked_lm_prob` counts more where it is given."""
        flags = description.flags
        return cls(
            masked_lm_prob=masked_lm_prob or flags["masked_lm_prob"],
            mask_share=flags["mask_share"],
            random_share=flags["random_share"],
            whole_words=flags["do_whole_word_mask"],
            random_next=flags["random_next_sentences"],
            is_described=True,
        )

    def predictions(self, lengths: np.ndarray, most: int) -> np.ndarray:
        """How many predictions records ask for: int64 [batch], `most` at most."""
        counts = prediction_counts(lengths, self.masked_lm_prob)
        return np.minimum(
            counts, np.minimum(most, lengths - packing.NUM_SPECIAL_TOKENS)
        )


class Layout(NamedTuple):
    """Where things are in a batch of records.

    Attributes:
        text: int64 [batch, seq_length], input_ids before they were masked.
        lengths: int64 [batch], tokens with [CLS] and [SEP].
        first_seps: int64 [batch], position of the first [SEP].
        is_predicted: bool [batch, num_predictions].
    """

    text: np.ndarray
    lengths: np.ndarray
    first_seps: np.ndarray
    is_predicted: np.ndarray

    @classmethod
    def of(cls, batch: dict[str, np.ndarray], vocabulary: Vocabulary) -> "Layout":
        """Of any batch; it means little where a record breaks a rule."""
        text = batch["input_ids"].copy()
        is_predicted = batch["masked_lm_weights"] == 1
        positions = np.clip(batch["masked_lm_positions"], 0, text.shape[1] - 1)
        rows, slots = np.nonzero(is_predicted)
        text[rows, positions[rows, slots]] = batch["masked_lm_ids"][rows, slots]
        lengths = np.clip(batch["input_mask"].sum(axis=1), 0, text.shape[1])
        first_seps = (text == vocabulary.sep_id).argmax(axis=1)
        return cls(text, lengths, first_seps, is_predicted)


class Rule(NamedTuple):
    """What a feature must be, and where it is not: bool [batch, length]."""

    feature: str
    is_broken: np.ndarray
    text: str


def first_broken(
    batch: dict[str, np.ndarray], layout: Layout, vocabulary: Vocabulary, recipe: Recipe
) -> dict[int, tuple[str, str]]:
    """The first rule that each record breaks.

    Returns:
        row to (the rule, how it is broken), for rows that break one.
    """
    found = {}
    for rule in _rules(batch, layout, vocabulary, recipe):
        rows = np.flatnonzero(rule.is_broken.any(axis=1))
        for row in rows.tolist():
            if row not in found:
                column = int(rule.is_broken[row].argmax())
                value = batch[rule.feature][row, column].item()
                if rule.feature.endswith("_ids") and rule.feature != "segment_ids":
                    value = f"{value} ({name(vocabulary, value)})"
                found[row] = (
                    f"{rule.feature} {rule.text}",
                    f"{rule.feature}[{column}] is {value}; {rule.text}",
                )
    return found


def name(vocabulary: Vocabulary, id: int) -> str:
    """The token of an id, which may be no id of the vocabulary."""
    return vocabulary.tokens[id] if 0 <= id < len(vocabulary) else "no token"


def _rules(batch, layout, vocabulary, recipe) -> Iterator[Rule]:
    """Yields the rules, those first that the later ones lean on."""
    weights = batch["masked_lm_weights"]
    columns = np.arange(batch["input_ids"].shape[1])
    slots = np.arange(weights.shape[1])
    is_token = columns < layout.lengths[:, None]
    is_predicted = layout.is_predicted

    yield from _ids_in_range(batch, is_predicted, vocabulary)
    yield Rule(
        "input_mask",
        batch["input_mask"] != is_token,
        "must be 1 for every token, then 0 for padding",
    )
    yield Rule(
        "masked_lm_weights",
        weights != (slots < np.maximum(1, is_predicted.sum(axis=1))[:, None]),
        "must be 1 for every prediction, at least one, then 0 for padding",
    )
    positions = batch["masked_lm_positions"]
    yield Rule(
        "masked_lm_positions",
        is_predicted & ((positions < 1) | (positions >= layout.lengths[:, None])),
        "must lie within the tokens",
    )
    yield Rule(
        "masked_lm_positions",
        is_predicted & (np.diff(positions, axis=1, prepend=-1) <= 0),
        "must rise from one prediction to the next",
    )
    yield from _text_in_place(batch, layout, is_token, vocabulary)
    yield from _sides_in_place(batch, layout, is_token, vocabulary)
    for feature in ("masked_lm_positions", "masked_lm_ids"):
        is_broken = ~is_predicted & (batch[feature] != 0)
        yield Rule(feature, is_broken, "must be 0 for padding")
    if recipe.is_described:
        yield _as_many_as_asked_for(layout, weights, recipe)
    labels = batch["next_sentence_labels"]
    if recipe.random_next:
        text = "must be 0 (really next) or 1 (random)"
    else:
        text = "must be 0, by --random_next_sentences=false of the description"
    yield Rule(
        "next_sentence_labels", (labels < 0) | (labels > recipe.random_next), text
    )


def _ids_in_range(batch, is_predicted, vocabulary):
    for feature, is_used in (("input_ids", True), ("masked_lm_ids", is_predicted)):
        ids = batch[feature]
        yield Rule(
            feature,
            is_used & ((ids < 0) | (ids >= len(vocabulary))),
            f"must lie within the vocabulary, from 0 to {len(vocabulary) - 1}",
        )


def _text_in_place(batch, layout, is_token, vocabulary):
    """Rules of [CLS] and [SEP], and of what lies between them."""
    columns = np.arange(is_token.shape[1])
    first_seps, last_seps = layout.first_seps[:, None], layout.lengths[:, None] - 1
    special = (
        vocabulary.pad_id,
        vocabulary.cls_id,
        vocabulary.sep_id,
        vocabulary.mask_id,
    )
    yield Rule(
        "masked_lm_ids",
        layout.is_predicted & np.isin(batch["masked_lm_ids"], special),
        "must be a token of the text: special tokens are never predicted",
    )
    is_sep = (columns == first_seps) | (columns == last_seps)
    yield Rule(
        "input_ids",
        (columns == 0) & (layout.text != vocabulary.cls_id),
        "must be [CLS] in front",
    )
    yield Rule(
        "input_ids",
        is_token & ((layout.text == vocabulary.sep_id) != is_sep),
        "must be [SEP] at the end of the two sides, and nowhere else",
    )
    yield Rule(
        "input_ids",
        (columns == first_seps) & ((first_seps < 2) | (last_seps - first_seps < 2)),
        "must have two sides, each with tokens in front of its [SEP]",
    )
    yield Rule(
        "input_ids",
        is_token & (columns > 0) & ~is_sep & np.isin(layout.text, special),
        "must be a token of the text where nothing is predicted",
    )


def _sides_in_place(batch, layout, is_token, vocabulary):
    """Rules of what lies behind the tokens, and of which side they are on."""
    # The release pads with 0, this project with [PAD], which may have another id.
    padding = (0, vocabulary.pad_id)
    yield Rule(
        "input_ids",
        ~is_token & ~np.isin(batch["input_ids"], padding),
        "must be 0 or [PAD] behind the tokens",
    )
    columns = np.arange(is_token.shape[1])
    in_b = is_token & (columns > layout.first_seps[:, None])
    yield Rule(
        "segment_ids",
        batch["segment_ids"] != in_b,
        "must be 0 up to the first [SEP], 1 up to the second, then 0",
    )


def _as_many_as_asked_for(layout, weights, recipe):
    most = weights.shape[1]
    wanted = recipe.predictions(layout.lengths, most)[:, None]
    is_wrong = layout.is_predicted != (np.arange(most) < wanted)
    if recipe.whole_words:
        is_wrong &= layout.is_predicted  # a long word may leave places empty
    return Rule(
        "masked_lm_weights",
        is_wrong,
        f"--masked_lm_prob={recipe.masked_lm_prob:g} asks for "
        f"{'fewer' if recipe.whole_words else 'another number of'} predictions",
    )
