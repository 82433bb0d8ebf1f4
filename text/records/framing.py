"""TFRecord files: each record between its length and two checksums."""

import gzip
import struct
from collections.abc import Iterator

import google_crc32c

from text.errors import UserError


def _masked_crc(content):
    crc = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(examples: list[bytes]) -> bytes:
    """Joins serialized examples as they stand in a TFRecord file."""
    parts = []
    for example in examples:
        length = struct.pack("<Q", len(example))
        parts += (
            length,
            struct.pack("<I", _masked_crc(length)),
            example,
            struct.pack("<I", _masked_crc(example)),
        )
    return b"".join(parts)


def is_gzip(path: str, opener=open) -> bool:
    """Whether a TFRecord file is packed by gzip, by its first bytes."""
    with opener(path, "rb") as file:
        return file.read(3) == b"\x1f\x8b\x08"


def read(path: str, opener=open) -> Iterator[bytes]:
    """Yields the serialized examples of a TFRecord file.

    Args:
        opener: called as `open` is, for paths that are not of this machine.
    Raises:
        UserError: the file is no TFRecord file, ends within a record or is damaged; the
            message names the file and the record, counted from 1.
    """
    number = 0
    packed = is_gzip(path, opener)
    with opener(path, "rb") as raw:
        file = gzip.GzipFile(fileobj=raw) if packed else raw
        try:
            while header := file.read(12):
                number += 1
                yield _read_record(file, header, f"{path}: record {number}")
        except (EOFError, gzip.BadGzipFile, gzip.zlib.error) as error:
            raise UserError(
                f"{path}: record {number + 1}: the compressed data is damaged "
                f"({error}); make or copy the file again"
            ) from error


def _read_record(file, header, where):
    if len(header) == 12:
        length, crc = struct.unpack("<QI", header)
        if crc != _masked_crc(header[:8]):
            raise UserError(
                f"{where}: the length's checksum is wrong; the file is damaged or is no "
                "TFRecord file"
            )
        content, footer = file.read(length), file.read(4)
        if len(content) == length and len(footer) == 4:
            if struct.unpack("<I", footer)[0] != _masked_crc(content):
                raise UserError(
                    f"{where}: the data's checksum is wrong; make or copy the file again"
                )
            return content
    raise UserError(f"{where}: the file ends within it; make or copy the file again")
