"""Finds record files, their descriptions, and where their records begin."""

import array
import dataclasses
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from errors import UserError
from files import anywhere
from text.records import blocks, descriptions, framing
from text.records.descriptions import Description


@dataclasses.dataclass(frozen=True)
class RecordFile:
    """One TFRecord file: how it is compressed and how many records it contains.

    `offsets`, int64 [blocks + 1], are the bytes at which blocks begin, and the file's size;
    None if the file is packed.
    """

    path: str
    compression: str  # "" or "GZIP"
    records: int
    offsets: np.ndarray | None = dataclasses.field(repr=False, compare=False)


def find(patterns: Iterable[str]) -> list[str]:
    """Expands file names and globs; an existing name is taken literally."""
    paths = []
    for pattern in patterns:
        literal = anywhere.exists(pattern)
        if literal and anywhere.isdir(pattern):
            raise UserError(
                f"{pattern}: is a folder; name its files, such as "
                f"{os.path.join(pattern, '*.tfrecord')!r}"
            )
        names = [pattern] if literal else sorted(anywhere.glob(pattern))
        names = descriptions.records_among(names)
        if not names:
            raise UserError(f"{pattern}: no file matches; pass TFRecord files or globs")
        paths += names
    return paths


def survey(
    patterns: Iterable[str], described: Mapping[str, Description]
) -> list[RecordFile]:
    """Lists the record files that match patterns, with the number of records in each.

    Number and offsets come from the file's description. Without one, or if it has no
    offsets, a plain file on this machine is scanned by the lengths of its records; others
    are read. Files that have no records according to their description are left out.
    """
    files = []
    for path in find(patterns):
        size = anywhere.stat(path).length
        number, offsets = _number_and_offsets(path, size, described.get(path))
        if number == 0:
            continue
        if not size:
            raise UserError(f"{path}: the file is empty; write its records again")
        with anywhere.access(path):
            compression = "GZIP" if framing.is_gzip(path) else ""
        if number is None or (offsets is None and not compression):
            counted, offsets = count(path, compression)
            check_number(path, counted, counted if number is None else number)
            number = counted
        files.append(
            RecordFile(path, compression, number, None if compression else offsets)
        )
    if not files:
        raise UserError(f"{','.join(patterns)}: the files contain no records")
    return files


def _number_and_offsets(path, size, description):
    """Number and offsets of a file's records from its description, or None."""
    if description is None:
        return None, None
    output = description.output(path)
    if output.get("bytes", size) != size:
        raise UserError(
            f"{path}: has {size} bytes, not {output['bytes']} as {description.path} says; "
            "copy both again, or write the records again"
        )
    number, starts = output["instances"], output.get("offsets")
    if starts is None:
        return number, None
    try:
        offsets = np.array([*starts, size], np.int64)
    except (TypeError, ValueError, OverflowError):
        offsets = np.zeros(0, np.int64)
    blocks_of_file = -(-number // blocks.BLOCK)
    if (
        len(offsets) != blocks_of_file + 1
        or offsets[0]
        or (np.diff(offsets) <= 0).any()
    ):
        raise UserError(
            f"{description.path}: its offsets for {path} do not match its {number} "
            "records; copy both again, or write the records again"
        )
    return number, offsets


def check_number(path, number, expected):
    if number != expected:
        raise UserError(
            f"{path}: {number} records, but {expected} when the run began or according to "
            "its description; copy or write it again"
        )


def count(path, compression):
    """The number of a file's records and, if it is plain, the offsets of its blocks."""
    if not compression and os.path.isfile(path) and os.path.getsize(path):
        number, offsets = _index(_lengths(path))
        if offsets[-1] == os.path.getsize(path):
            return number, offsets
    # If the lengths do not add up, this names the record.
    return _index(map(len, scan(path)))


def _lengths(path):
    """Yields the lengths of records in a plain local file, up to a damaged one."""
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
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


def scan(path: str) -> Iterator[bytes]:
    """Yields the records of a file in order; see `framing.read`."""
    with anywhere.access(path):
        yield from framing.read(path)
