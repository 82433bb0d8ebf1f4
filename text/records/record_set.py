"""Opens sets of record files. What a file says is read once, when it is first asked for."""

import array
import decimal
import functools
import hashlib
import itertools
import math
import mmap
import os
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from errors import UserError
from files import anywhere, sources
from text.records import blocks, descriptions, framing
from text.records.descriptions import Description

_FIRST_RECORDS = 16
_COMPARED_BYTES = 1 << 16


class Beginning(NamedTuple):
    """What a file's beginning says.

    Attributes:
        size: of the whole file, in bytes.
        digest: the SHA-256 of the first 64 KB.
        compression: "" or "GZIP".
        records: the first 16, serialized; once they are checked, only the first.
    """

    size: int
    digest: bytes
    compression: str
    records: list[bytes]


class RecordFile:
    """One TFRecord file.

    Attributes:
        path: of the file.
        description: the one that lists it, if there is one.
    """

    def __init__(self, path: str, description: Description | None = None):
        self.path, self.description = path, description

    @functools.cached_property
    def beginning(self) -> Beginning:
        """Raises UserError: the file cannot be read, is damaged, or not as described."""
        with anywhere.access(self.path), sources.open_file(self.path) as file:
            size = file.seek(0, os.SEEK_END)
            self._check_size(size)
            file.seek(0)
            digest = hashlib.sha256(file.read(_COMPARED_BYTES)).digest()
            file.seek(0)
            compression = "GZIP" if framing.is_gzip(file) else ""
            records = framing.read_open(file, self.path)
            first = list(itertools.islice(records, _FIRST_RECORDS))
        return Beginning(size, digest, compression, first)

    def _check_size(self, size):
        description = self.description
        known = description.output(self.path) if description else {}
        if known.get("bytes", size) != size:
            raise UserError(
                f"{self.path}: has {size} bytes, not {known['bytes']} as "
                f"{description.path} says; copy both again, or write the records again"
            )
        if not size and known.get("instances") != 0:
            raise UserError(f"{self.path}: the file is empty; write its records again")

    @property
    def total(self) -> int:
        """How many records it contains."""
        return self._index[0]

    @property
    def offsets(self) -> np.ndarray | None:
        """int64 [blocks + 1], the bytes at which blocks begin, and the file's size.

        None if the file is packed.
        """
        return None if self.beginning.compression else self._index[1]

    @functools.cached_property
    def _index(self):
        """The number of records, and the offsets of a plain file.

        They are its description's. Without one, or if it has no offsets, a plain file on
        this machine is scanned by the lengths of its records; others are read.
        """
        number, offsets = self._described_index()
        is_plain = not self.beginning.compression
        if number is None or (number and offsets is None and is_plain):
            counted, offsets = self.count()
            self._check_number(counted, counted if number is None else number)
            number = counted
        return number, offsets

    def _described_index(self):
        """What the description says of number and offsets; None for what it does not."""
        if self.description is None:
            return None, None
        output = self.description.output(self.path)
        number, starts = output["instances"], output.get("offsets")
        if starts is None:
            return number, None
        try:
            offsets = np.array([*starts, self.beginning.size], np.int64)
        except (TypeError, ValueError, OverflowError):
            offsets = np.zeros(0, np.int64)
        blocks_of_file = -(-number // blocks.BLOCK)
        if (
            len(offsets) != blocks_of_file + 1
            or offsets[0]
            or (np.diff(offsets) <= 0).any()
        ):
            raise UserError(
                f"{self.description.path}: its offsets for {self.path} do not match its "
                f"{number} records; copy both again, or write the records again"
            )
        return number, offsets

    def _check_number(self, number, expected):
        if number != expected:
            raise UserError(
                f"{self.path}: {number} records, but {expected} when the run began or "
                "according to its description; copy or write it again"
            )

    # --- Reading all of it -----------------------------------------------------------

    def scan(self) -> Iterator[bytes]:
        """Yields the records in order; see `framing.read`."""
        with anywhere.access(self.path):
            yield from framing.read(self.path)

    def count(self) -> tuple[int, np.ndarray]:
        """Counts the records and finds where blocks begin, whatever was known of it."""
        if not (self.beginning.compression or sources.is_remote(self.path)):
            with anywhere.access(self.path), open(self.path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                number, offsets = _index(_lengths(file) if size else ())
            if offsets[-1] == size:
                return number, offsets
        # If the lengths do not add up, this names the record.
        return _index(map(len, self.scan()))

    def check_unchanged(self, number: int) -> None:
        """Refuses a file with another number of records than before."""
        self._check_number(number, self.total)


def _lengths(file):
    """Yields the lengths of records in a plain local file, up to a damaged one."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        position = 0
        while position + framing.FRAME <= len(content):
            length = framing.length_at(content, position)
            if length is None:
                return
            yield length
            position += framing.FRAME + length


def _index(lengths):
    """The number of records of these lengths, and the offsets of their blocks."""
    number = position = 0
    offsets = array.array("q")
    for number, length in enumerate(lengths, 1):
        if not (number - 1) % blocks.BLOCK:
            offsets.append(position)
        position += framing.FRAME + length
    return number, np.array([*offsets, position], np.int64)


class RecordSet:
    """The record files that patterns match. A file that several match is opened once.

    Attributes:
        patterns: file names and globs, perhaps with weights, as in wiki-*:0.7.
        weights: pattern -> its weight, None if it has none.
        descriptions: those next to the files that list some of them, each once.
    Raises:
        UserError: a pattern matches nothing, a folder, or unfinished records; a weight is
            not a number above 0; a description is damaged.
    """

    def __init__(self, patterns: Iterable[str]):
        self.patterns = list(patterns)
        self._paths, self.weights = {}, {}
        for pattern in self.patterns:
            if pattern not in self._paths:
                self._paths[pattern], self.weights[pattern] = _find(pattern)
        paths = list(itertools.chain(*self._paths.values()))
        described = descriptions.find(paths)
        self._files = {path: RecordFile(path, described.get(path)) for path in paths}
        self.descriptions = list({one.path: one for one in described.values()}.values())

    @property
    def files(self) -> list[RecordFile]:
        """All, in the order of the patterns."""
        return self.matching(self.patterns)

    def matching(self, patterns: Iterable[str]) -> list[RecordFile]:
        """Those of some of the patterns."""
        return [self._files[path] for p in patterns for path in self._paths[p]]


def split_weight(pattern: str) -> tuple[str, str | None]:
    """A pattern and what follows its last colon; None where that cannot be a weight."""
    name, colon, weight = pattern.rpartition(":")
    is_address = not name or set(weight) & {"/", os.sep}
    return (pattern, None) if is_address or not colon else (name, weight)


def _find(pattern):
    """The paths that a file name or a glob matches, and the weight behind it, or None.

    An existing name is taken literally, and what a glob matches has no weight: so a colon
    may be part of either.
    """
    paths = _matches(pattern)
    name, text = split_weight(pattern)
    weight = None
    if not paths and text is not None:
        try:
            weight = float(text)
        except ValueError:
            raise UserError(
                f"{pattern}: no file matches; pass TFRecord files or globs, with weights "
                f"if they are to be mixed, as in {name}:0.7"
            ) from None
        if not 0 < weight < math.inf:
            raise UserError(f"{pattern}: a weight must be a number above 0")
        weight = Fraction(decimal.Decimal(text))
        pattern, paths = name, _matches(name)
    paths = descriptions.records_among(paths)
    if not paths:
        raise UserError(f"{pattern}: no file matches; pass TFRecord files or globs")
    return paths, weight


def _matches(pattern):
    """The paths of a file name or a glob; an existing name is taken literally."""
    is_literal = anywhere.exists(pattern)
    if is_literal and anywhere.isdir(pattern):
        raise UserError(
            f"{pattern}: is a folder; name its files, such as "
            f"{os.path.join(pattern, '*.tfrecord*')!r}"
        )
    return [pattern] if is_literal else sorted(anywhere.glob(pattern))
