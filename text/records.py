"""Knows TFRecord files and one schema per kind of record, for writing and for reading.

No TensorFlow here: a worker that writes records then needs 60 MB instead of 600, and a
batch is encoded by array operations instead of a call for every instance.
"""

import gzip
import struct
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c
import numpy as np

from text.errors import UserError


class Feature(NamedTuple):
    """One feature of a record: `length` values, all int64 or all float32."""

    name: str
    dtype: str
    length: int


def pretraining_schema(
    max_seq_length: int, max_predictions_per_seq: int
) -> tuple[Feature, ...]:
    """The features of a pre-training record.

    Source: google-research/bert@eedf571 create_pretraining_data.py:133-140.
    """
    return (
        Feature("input_ids", "int64", max_seq_length),
        Feature("input_mask", "int64", max_seq_length),
        Feature("segment_ids", "int64", max_seq_length),
        Feature("masked_lm_positions", "int64", max_predictions_per_seq),
        Feature("masked_lm_ids", "int64", max_predictions_per_seq),
        Feature("masked_lm_weights", "float32", max_predictions_per_seq),
        Feature("next_sentence_labels", "int64", 1),
    )


# === Protocol buffers: a batch of tf.train.Example as one array of bytes ===


class _Columns:
    """Bytes of all rows, side by side, before those that a row does not have are left out.

    A varint differs in length from row to row, so it gets the columns of the widest.
    """

    def __init__(self, blocks, sizes):
        # (uint8 [batch, width], bool [batch, width] of what a row has; None: all of it)
        self.blocks = blocks
        self.sizes = sizes  # int64 [batch], the bytes that each row has

    @classmethod
    def of(cls, values, used=None):
        if used is None:
            return cls([(values, None)], np.full(len(values), values.shape[1]))
        return cls([(values, used)], used.sum(axis=1))

    @classmethod
    def constant(cls, content, batch_size):
        row = np.frombuffer(content, np.uint8)
        return cls.of(np.broadcast_to(row, (batch_size, len(row))))

    @classmethod
    def varints(cls, numbers):
        """Of non-negative int [batch, n]: seven bits a byte, the lowest first."""
        width = max(1, -(-int(numbers.max(initial=0)).bit_length() // 7))
        if width == 1:
            return cls.of(numbers.astype(np.uint8))
        values = np.empty((*numbers.shape, width), np.uint8)
        used = np.ones(values.shape, bool)
        for k in range(width):
            values[..., k] = (numbers >> 7 * k) & 0x7F
            if k:
                used[..., k] = goes_on = numbers >= 1 << 7 * k
                values[..., k - 1] |= goes_on.view(np.uint8) << 7
        rows = len(numbers)
        return cls.of(values.reshape(rows, -1), used.reshape(rows, -1))

    def __add__(self, other):
        return _Columns(self.blocks + other.blocks, self.sizes + other.sizes)

    def rows(self):
        """The bytes of each row."""
        values = np.concatenate([values for values, _ in self.blocks], axis=1)
        used = np.ones(values.shape, bool)
        start = 0
        for block, block_used in self.blocks:
            stop = start + block.shape[1]
            if block_used is not None:
                used[:, start:stop] = block_used
            start = stop
        content = values[used].tobytes()
        ends = np.cumsum(self.sizes).tolist()
        return [content[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def _field(number, content):
    """A length-delimited field: its tag, the length of each row, the content."""
    tag = _Columns.constant(bytes([number << 3 | 2]), len(content.sizes))
    return tag + _Columns.varints(content.sizes[:, None]) + content


def encode(batch: dict[str, np.ndarray], schema: tuple[Feature, ...]) -> list[bytes]:
    """Serializes a batch as tf.train.Example, one string a row.

    Args:
        batch: feature name to array [batch, length] of non-negative integers or floats.
        schema: the features; their order is the order of the bytes.
    Returns:
        the bytes that TensorFlow's own encoder gives for the same order of features.
    """
    example = _Columns([], 0)
    for name, dtype, length in schema:
        values = batch[name]
        assert values.shape == (len(values), length), (name, values.shape, length)
        if dtype == "float32":
            content = values.astype("<f4").view(np.uint8)
            feature = _field(2, _field(1, _Columns.of(content)))
        else:
            feature = _field(3, _field(1, _Columns.varints(values)))
        key = _field(1, _Columns.constant(name.encode(), len(values)))
        example += _field(1, key + _field(2, feature))
    return _field(1, example).rows()


# === TFRecord framing: length, its checksum, the data, its checksum ===


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
        return file.read(2) == b"\x1f\x8b"


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
