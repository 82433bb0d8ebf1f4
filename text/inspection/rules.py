"""Checks the rules that every pre-training record must follow, on batches."""

from collections.abc import Iterator

import numpy as np

from text.instances.instances import Instances, Layout, Rule
from text.tokenizers.vocabulary import Vocabulary


def first_broken(
    batch: dict[str, np.ndarray],
    layout: Layout,
    instances: Instances,
    vocabulary: Vocabulary,
    is_described: bool,
) -> dict[int, tuple[str, str]]:
    """The first rule that each record breaks.

    Args:
        instances: the kind of the records.
        is_described: whether their recipe is known from a description.
    Returns:
        dict of row to (the rule, how it is broken), for rows that break one.
    """
    found = {}
    for rule in _rules(batch, layout, instances, vocabulary, is_described):
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
    """The token of an id, which may be outside the vocabulary."""
    return vocabulary.tokens[id] if 0 <= id < len(vocabulary) else "no token"


def _rules(batch, layout, instances, vocabulary, is_described) -> Iterator[Rule]:
    """Yields the rules, those first that later ones depend on."""
    for feature in instances.schema():
        if feature.below == "vocab_size":
            ids = batch[feature.name]
            yield Rule(
                feature.name,
                (ids < 0) | (ids >= len(vocabulary)),
                f"must be in the vocabulary, from 0 to {len(vocabulary) - 1}",
            )
    is_token = np.arange(layout.text.shape[1]) < layout.lengths[:, None]
    yield Rule(
        "input_mask",
        batch["input_mask"] != is_token,
        "must be 1 for every token, then 0 for padding",
    )
    yield from instances.masks.rules(batch, layout, vocabulary, is_described)
    yield from _text_in_place(batch, layout, is_token, vocabulary)
    yield from instances.rules(batch, layout, vocabulary)


def _text_in_place(batch, layout, is_token, vocabulary):
    """Rules about what is text and what is not, for all kinds of rows."""
    place = 0 if vocabulary.head else layout.lengths[:, None] - 1
    is_cls = np.arange(is_token.shape[1]) == place
    is_cls &= vocabulary.has_cls
    if vocabulary.has_cls:
        yield Rule(
            "input_ids",
            is_cls & (layout.text != vocabulary.cls_id),
            "must begin with [CLS]" if vocabulary.head else "must end with [CLS]",
        )
    special = list(vocabulary.never_text)
    yield Rule(
        "input_ids",
        is_token & ~is_cls & np.isin(layout.text, special),
        "must be a token of the text if not predicted",
    )
    # The release pads with 0, this project with [PAD], which may have another id.
    yield Rule(
        "input_ids",
        ~is_token & ~np.isin(batch["input_ids"], (0, vocabulary.pad_id)),
        "must be 0 or [PAD] after the tokens",
    )
