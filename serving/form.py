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
        names: the names in an answer.
        task: what hubs call the task.
        purpose: what such a model does, in words.
        faults: (name, texts) -> what is wrong with a list of a request, for a person.
        export: "module:class" of the `TextExport` that answers so with a network of
            pre-training; None if only fine-tuned models do.
    """

    answer: Callable[[Mapping, Mapping], dict]
    names: tuple[str, ...]
    task: str
    purpose: str
    faults: Callable[[str, Sequence[str]], Iterator[str]] | None = None
    export: str | None = None


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
