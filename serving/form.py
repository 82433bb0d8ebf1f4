"""Declares a form of answers, and how values of outputs are written as JSON.

Loads only NumPy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Form(NamedTuple):
    """A row of the table.

    Attributes:
        answer: (an output's row by name, the request) -> the JSON answer; strings are UTF-8
            bytes, and lists of the request tell how much of a padded row to use.
        schemas: the JSON Schema of each value in an answer, by name.
        task: what hubs call the task.
        purpose: what such a model does, in words.
        faults: (name, texts) -> what is wrong with a list of a request, for a person.
        export: "module:class" of the `TextExport` that answers so with a network of
            pre-training; None if only fine-tuned models do.
        verdicts: (answer) -> what it decides: labels, of a closed set, and their
            probabilities if it has them; None if it decides nothing of the kind.
        explains: whether an export that answers so can explain its answers.
    """

    answer: Callable[[Mapping, Mapping], dict]
    schemas: Mapping[str, Mapping]
    task: str
    purpose: str
    faults: Callable[[str, Sequence[str]], Iterator[str]] | None = None
    export: str | None = None
    verdicts: Callable[[Mapping], Iterator[tuple[str, float | None]]] | None = None
    explains: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names in an answer."""
        return tuple(self.schemas)


# JSON Schemas of values; positions are whole numbers from 0 on.
TEXT = {"type": "string"}
NUMBER = {"type": "number"}
POSITION = {"type": "integer", "minimum": 0}
PROBABILITY = {"type": "number", "minimum": 0, "maximum": 1}


def list_of(schema: Mapping) -> dict:
    """The schema of a list."""
    return {"type": "array", "items": schema}


def by_name(schema: Mapping) -> dict:
    """The schema of an object with any names."""
    return {"type": "object", "additionalProperties": schema}


def object_of(**schemas: Mapping) -> dict:
    """The schema of an object with these names."""
    return {"type": "object", "properties": schemas, "required": list(schemas)}


TOKENS = list_of(object_of(token=TEXT, probability=PROBABILITY))  # of `tokens_of`


def tokens_of(tokens: np.ndarray, probabilities: np.ndarray) -> list[dict]:
    """Tokens, bytes, with their probabilities; empty ones only pad."""
    return [
        {"token": text_of(token), "probability": number_of(probability)}
        for token, probability in zip(tokens, probabilities, strict=True)
        if token
    ]


def text_of(value: bytes) -> str:
    """The text of UTF-8 bytes."""
    return value.decode("utf-8")


def numbers_of(values: np.ndarray) -> list[float]:
    """`number_of` each."""
    return [number_of(value) for value in values]


def number_of(value: np.float32) -> float:
    """The shortest number that is this float32: 0.9, not 0.8999999761581421."""
    return float(str(value))
