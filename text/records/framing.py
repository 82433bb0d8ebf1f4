"""Reads and writes TFRecord files, which frame each record with a length and checksums."""

import functools
import gzip
import struct
from collections.abc import Iterator
from typing import BinaryIO

import google_crc32c
import numpy as np

from errors import UserError
from files import sources

FRAME = 16  # bytes around a record: its length, and two checksums
MAX_BYTES = 1 << 28  # of a record; a few thousand are usual
_HEADER = 12  # of these, the length and its checksum


def length_at(content, position: int) -> int | None:
    """The length of the record whose frame begins at a position.

    None if its checksum is wrong, or the file's content ends before the record does.
    """
    (length,) = struct.unpack_from("<Q", content, position)
    if position + FRAME + length > len(content):
        return None
    header = content[position : position + _HEADER]
    return length if header == _header(length) else None


def _mask(crc):
    """The checksums as TFRecord files have them: int, or uint64 [records]."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _mask_crc(content):
    return _mask(google_crc32c.value(content))


@functools.lru_cache(1 << 12)
def _header(length):
    content = struct.pack("<Q", length)
    return content + struct.pack("<I", _mask_crc(content))


def frame(examples: list[bytes]) -> bytes:
    """Joins serialized examples in the format of a TFRecord file."""
    crcs = np.fromiter(map(google_crc32c.value, examples), np.uint64, len(examples))
    footers = _mask(crcs).astype("<u4").tobytes()
    parts = []
    for i, example in enumerate(examples):
        parts += _header(len(example)), example, footers[4 * i : 4 * i + 4]
    return b"".join(parts)


def is_gzip(file: BinaryIO) -> bool:
    """Whether a TFRecord file, open at its beginning, is compressed with gzip."""
    magic = file.read(3)
    file.seek(0)
    return magic == b"\x1f\x8b\x08"


def read(path: str) -> Iterator[bytes]:
    """Yields the serialized examples of a TFRecord file."""
    with sources.open_file(path) as file:
        yield from read_open(file, path)


def read_open(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yields the serialized examples of a TFRecord file, open at its beginning."""
    number = 0
    if is_gzip(file):
        file = gzip.GzipFile(fileobj=file)
    try:
        while header := file.read(12):
            number += 1
            yield _read_record(file, header, f"{path}: record {number}")
    except (EOFError, gzip.BadGzipFile, gzip.zlib.error) as error:
        raise UserError(
            f"{path}: record {number + 1}: the compressed data is damaged "
            f"({error}); write or copy the file again"
        ) from error


def _read_record(file, header, where):
    if len(header) == 12:
        length, crc = struct.unpack("<QI", header)
        if crc != _mask_crc(header[:8]):
            raise UserError(
                f"{where}: the length's checksum is wrong; the file is damaged or is not a "
                "TFRecord file"
            )
        if length > MAX_BYTES:
            raise UserError(
                f"{where}: has {length:,} bytes; a record has at most {MAX_BYTES:,}; write "
                "the file again, with shorter rows"
            )
        content, footer = file.read(length), file.read(4)
        if len(content) == length and len(footer) == 4:
            if struct.unpack("<I", footer)[0] != _mask_crc(content):
                raise UserError(
                    f"{where}: the data's checksum is wrong; write or copy the file again"
                )
            return content
    raise UserError(f"{where}: the file ends within it; write or copy the file again")
