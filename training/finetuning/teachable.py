"""Refuses files and networks from which vectors would learn nothing, silently."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from errors import UserError
from modeling.architectures.config import EncoderConfig
from text.tasks.text_groups import TextGroup


def keep_teachable(
    path: str, groups: Sequence[TextGroup], loss: str, counts: Counter
) -> Sequence[TextGroup]:
    """The groups of a training set that a loss learns from.

    Args:
        path: of the set, for messages.
        loss: the name of a function of `vector_losses`.
        counts: to be increased by what was left out, in words.
    Raises:
        UserError: the loss learns from none.
    """
    if loss == "triplet_margin":
        found = [group for group in groups if len(group.texts) > 2]
        if not found:
            raise UserError(
                f"{path}: no row has a text that does not fit; --loss=triplet_margin "
                "learns from nothing else, so pass another loss"
            )
        counts["rows have no text that does not fit, and are left out"] += len(
            groups
        ) - len(found)
        return found
    if loss == "cosent" and len({group.score for group in groups}) < 2:
        raise UserError(
            f"{path}: no two scores differ; --loss=cosent learns their order, so pass "
            "other pairs or --loss=cosine_error"
        )
    if loss == "in_batch_negatives" and not any(len(g.texts) > 2 for g in groups):
        for place in (0, 1):
            if len({group.keys[place] for group in groups}) < 2:
                raise UserError(
                    f"{path}: the {('first', 'second')[place]} text of all rows is the "
                    "same, so none has a text that does not fit, and there is nothing to "
                    "learn; add other pairs"
                )
    return groups


def check_scores(path: str, scores: np.ndarray | None) -> None:
    """Refuses pairs whose cosines have no rank correlation with their scores.

    Args:
        scores: float [pairs], or None of a search.
    """
    if scores is not None and len(set(scores.tolist())) < 2:
        raise UserError(
            f"{path}: no two scores differ, so there is no order to compare cosines with; "
            "add other pairs"
        )


def check_dropout(config: EncoderConfig, path: str) -> None:
    """Refuses a network that reads a text the same way twice.

    Args:
        path: of the config, for messages.
    """
    rates = {
        config.file_keys.get(field.name, field.name): getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name.endswith("dropout_prob") and not field.name.startswith("head")
    }
    if not any(rates.values()):
        raise UserError(
            f"{path}: has no dropout ({', '.join(rates)}), so both readings of a text are "
            "equal and --train_kind=texts learns nothing from them; pass a copy of it with "
            "0.1 there as --bert_config_file"
        )
