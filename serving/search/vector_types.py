"""The types in which vectors are stored, by name; and back."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_LARGEST = 127  # of int8; -128 has no counterpart


class VectorType(NamedTuple):
    """A row of the table.

    Attributes:
        dtype: of the stored numbers.
        store: float32 [n, d] -> what is stored, [n, numbers of a vector].
        load: what is stored -> float32 [n, d], for d.
        keeps_length: whether not only the direction of a vector is stored.
        per_number: how many of a vector's numbers one stored number holds.
    """

    dtype: str
    store: Callable[[np.ndarray], np.ndarray]
    load: Callable[[np.ndarray, int], np.ndarray]
    keeps_length: bool = True
    per_number: int = 1

    def width(self, dimensions: int) -> int:
        """The stored numbers of a vector."""
        return -(-dimensions // self.per_number)


def normalize(vectors: np.ndarray) -> np.ndarray:
    """The vectors divided by their lengths; one of zeros stays."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    return vectors / np.where(lengths > 0, lengths, 1)


def _to_int8(vectors):
    """Each times 127 by its largest number, rounded: its length is lost."""
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    scale = np.divide(
        _LARGEST, largest, out=np.zeros_like(vectors[:, :1]), where=largest > 0
    )
    return np.rint(vectors * scale).astype(np.int8)


def _from_int8(values, dimensions):
    return normalize(values.astype(np.float32))


def _to_bits(vectors):
    """A bit for each number, whether it is above 0; the first is the highest of a byte."""
    return np.packbits(vectors > 0, axis=1)


def _from_bits(values, dimensions):
    bits = np.unpackbits(values, axis=1, count=dimensions)
    return normalize(2 * bits.astype(np.float32) - 1)


def _as_float32(values, dimensions):
    return values.astype(np.float32, copy=False)


TYPES = {
    "float32": VectorType("<f4", lambda x: x.astype("<f4"), _as_float32),
    "float16": VectorType("<f2", lambda x: x.astype("<f2"), _as_float32),
    "int8": VectorType("|i1", _to_int8, _from_int8, keeps_length=False),
    "binary": VectorType("|u1", _to_bits, _from_bits, keeps_length=False, per_number=8),
}
