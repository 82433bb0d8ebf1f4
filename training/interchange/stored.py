"""Where a file of Hugging Face has a weight."""

from typing import NamedTuple

import numpy as np


class Stored(NamedTuple):
    """A weight is a tensor, one of equal parts of its columns, or several tensors.

    Attributes:
        layers: the tensors to put on top of each other, if each layer has one.
    """

    name: str
    transposed: bool
    part: int
    parts: int
    layers: tuple[str, ...] = ()

    def shape(self, file) -> tuple[int, ...]:
        shape = file.get_slice(self.name).get_shape()
        if self.layers:
            return (len(self.layers), *shape)
        *rest, columns = shape[:: -1 if self.transposed else 1] or [self.parts]
        return (*rest, columns // self.parts) if shape else ()

    def of(self, value: np.ndarray) -> np.ndarray:
        """The weight, of the tensor's value."""
        value = value.T if self.transposed else value
        if self.parts > 1:
            value = np.array_split(value, self.parts, axis=-1)[self.part]
        return np.ascontiguousarray(value)
