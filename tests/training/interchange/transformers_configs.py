"""Configs of transformers' models with random sizes, and with values that we refuse."""

import dataclasses
import random
from collections.abc import Iterator, Mapping

from tests import samples
from tests.training.interchange.transformers_rows import (
    ADAPTED_OF_BERT,
    ODD_OF_BERT,
    Theirs,
    classes,
    draw_bert,
)

ROWS = {
    "bert": Theirs(
        classes(
            *("Bert", "Model", "ForMaskedLM", "LMHeadModel", "ForPreTraining"),
            "ForNextSentencePrediction",
        ),
        draw_bert,
        ODD_OF_BERT,
        trains_padding=True,
        targets=ADAPTED_OF_BERT,
        few=("no head",),
    )
} | samples.collect("ROWS", "transformers_cases")


@dataclasses.dataclass(frozen=True)
class Case:
    """A model of theirs.

    Attributes:
        values: of its config, by their names.
        odd: those of them that the release's networks may lack.
    """

    number: int
    architecture: str
    their_class: str
    values: Mapping[str, object]
    odd: Mapping[str, object]

    @property
    def row(self) -> Theirs:
        return ROWS[self.architecture]

    def __str__(self):
        said = ", ".join(f"{key}={value!r}" for key, value in self.values.items())
        return f"{self.number} {self.their_class}({said})"


def cases(number: int, seed: int = 0) -> Iterator[Case]:
    """That many, the same ones for a seed; every class in turn, about every third odd."""
    turns = [(name, kind) for name, row in ROWS.items() for kind in row.classes]
    random.Random(seed).shuffle(turns)
    for place in range(number):
        architecture, their_class = turns[place % len(turns)]
        yield case(architecture, their_class, place, random.Random(f"{seed} {place}"))


def case(
    architecture: str,
    their_class: str,
    number: int,
    drawn: random.Random,
    may_be_odd: bool = True,
) -> Case:
    """One of a class."""
    row = ROWS[architecture]
    values = {"num_labels": drawn.randrange(1, 6)} | row.draw(drawn)
    if their_class.endswith(("Answering", "AnsweringSimple", "PreTraining")):
        values["num_labels"] = 2
    reads_forwards = their_class.endswith(("BertLMHeadModel", "CausalLM"))
    values |= {"is_decoder": True} if reads_forwards else {}
    odd = {}
    if may_be_odd and drawn.random() < 1 / 3:
        key = drawn.choice(sorted(row.odd))
        odd = {key: drawn.choice(row.odd[key])}
        if key == "add_cross_attention":  # which only a decoder has
            odd["is_decoder"] = True
    return Case(number, architecture, their_class, values | odd, odd)
