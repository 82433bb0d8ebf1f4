"""Judges the entities of a sentence, for the page of mistakes."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from text.tasks import tags
from training.finetuning.task import Judgement

_NO_ENTITY = "no entity"
_WORDS_AROUND = 50  # of an entity


def judged(
    words: Sequence[str],
    entities: tuple[list, list],
    probabilities: np.ndarray,
    labels: list[str],
    true_labels: list[str],
) -> Iterator[Judgement]:
    """Judges each entity of a sentence that is in the file, or was found, or both.

    Args:
        entities: the true and the found `tags.Entity`s.
        probabilities: float [words, labels].
        labels: IOB2 tags, one for each column.
        true_labels: those of the words.
    """
    losses = -np.log(np.maximum(probabilities, 1e-12))
    numbers = {label: number for number, label in enumerate(labels)}
    kinds = list(dict.fromkeys(label[2:] for label in labels if label != tags.OUTSIDE))

    def loss(start, stop, marks):
        places = np.arange(start, stop), [numbers[mark] for mark in marks]
        return float(losses[places].sum())

    true, found = (
        {(start, stop): kind or "entity" for kind, start, stop in side}
        for side in entities
    )
    for start, stop in sorted(true | found):
        size = stop - start
        chances = {_NO_ENTITY: math.exp(-loss(start, stop, [tags.OUTSIDE] * size))}
        for kind in kinds:
            marks = tags.mark([tags.Entity(kind, 0, size)], size, "iob2")
            chances[kind or "entity"] = math.exp(-loss(start, stop, marks))
        yield Judgement(
            text=_in_context(words, start, stop),
            gold=true.get((start, stop), _NO_ENTITY),
            predicted=found.get((start, stop), _NO_ENTITY),
            error=loss(start, stop, true_labels[start:stop]),
            probabilities=chances,
        )


def _in_context(words: Sequence[str], start: int, stop: int) -> str:
    """The words `start` to `stop` in brackets, among those around them."""
    first, last = max(start - _WORDS_AROUND, 0), stop + _WORDS_AROUND
    before, after = words[first:start], words[stop:last]
    before = ("…", *before) if first else before
    after = (*after, "…") if last < len(words) else after
    return " ".join((*before, f"[{' '.join(words[start:stop])}]", *after))
