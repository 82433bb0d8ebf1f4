"""Defines the features of records: one schema per kind of record."""

from collections.abc import Mapping
from typing import NamedTuple


class Feature(NamedTuple):
    """One feature of a record: `length` values, all int64 or all float32.

    With `below`, they are whole numbers from 0 to less than it. A name such as "vocab_size"
    refers to a size that is unknown where records are declared.
    """

    name: str
    dtype: str
    length: int
    below: int | str | None = None

    def limit(self, sizes: Mapping[str, int]) -> int | None:
        """`below` as a number; None if there is no limit or its size is unknown."""
        return sizes.get(self.below) if isinstance(self.below, str) else self.below
