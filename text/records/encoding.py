"""Converts batches of rows to serialized tf.train.Example and back.

It does not use TensorFlow: a worker that writes records needs 60 MB instead of 600, and
array operations encode a whole batch instead of one call per instance.
"""

from collections.abc import Container

import numpy as np

from text.records.schema import Feature

# === A batch as one array of bytes ===

_ROWS_AT_A_TIME = 256


class _Columns:
    """The bytes of all rows in columns, before each row's unused bytes are removed.

    The length of a varint varies between rows, so it gets as many columns as the longest.
    """

    def __init__(self, blocks, sizes):
        # (uint8 [batch, width], bool [batch, width] of the bytes used; None: all)
        self.blocks = blocks
        self.sizes = sizes  # int [batch], the number of bytes of each row

    @classmethod
    def of(cls, values, used=None):
        if used is None:
            return cls([(values, None)], np.full(len(values), values.shape[1]))
        sizes = np.add.reduce(used.view(np.uint8), axis=1, dtype=np.int32)
        return cls([(values, used)], sizes)

    @classmethod
    def constant(cls, content, batch_size):
        row = np.frombuffer(content, np.uint8)
        return cls.of(np.broadcast_to(row, (batch_size, len(row))))

    @classmethod
    def varints(cls, numbers):
        """Of non-negative int [batch, n]: seven bits per byte, lowest first."""
        width = max(1, -(-int(numbers.max(initial=0)).bit_length() // 7))
        if width == 1:
            return cls.of(numbers.astype(np.uint8))
        values = np.empty((*numbers.shape, width), np.uint8)
        used = np.empty(values.shape, bool)
        is_used = np.True_
        for k in range(width):
            goes_on = numbers >= 1 << 7 * (k + 1)
            low = (numbers >> 7 * k).astype(np.uint8) & np.uint8(0x7F)
            values[..., k] = low | goes_on.view(np.uint8) << 7
            used[..., k], is_used = is_used, goes_on
        rows = len(numbers)
        return cls.of(values.reshape(rows, -1), used.reshape(rows, -1))

    def __add__(self, other):
        return _Columns(self.blocks + other.blocks, self.sizes + other.sizes)

    def rows(self):
        """The bytes of each row."""
        content = []
        # As many at a time as fit into a cache.
        for first in range(0, len(self.sizes), _ROWS_AT_A_TIME):
            some = slice(first, first + _ROWS_AT_A_TIME)
            values = np.concatenate([values[some] for values, _ in self.blocks], axis=1)
            used = np.ones(values.shape, bool)
            start = 0
            for block, block_used in self.blocks:
                stop = start + block.shape[1]
                if block_used is not None:
                    used[:, start:stop] = block_used[some]
                start = stop
            content.append(values[used].tobytes())
        content = b"".join(content)
        ends = np.cumsum(self.sizes).tolist()
        return [content[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def _field(number, content):
    """A length-delimited field: its tag, the length of each row, the content."""
    tag = _Columns.constant(bytes([number << 3 | 2]), len(content.sizes))
    return tag + _Columns.varints(content.sizes[:, None]) + content


def encode(batch: dict[str, np.ndarray], schema: tuple[Feature, ...]) -> list[bytes]:
    """Serializes a batch as tf.train.Example, one string per row.

    Args:
        batch: feature name to array [batch, length] of non-negative integers or floats.
        schema: the features, in the order in which they are encoded.
    Returns:
        the bytes that TensorFlow's own encoder produces for this order of features.
    """
    example = _Columns([], 0)
    for name, dtype, length, _ in schema:
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


# === Decoding examples ===

# tensorflow/models writes the same inputs with other names.
OTHER_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}


def name_in(features: Container[str], name: str) -> str:
    """What a feature is called in a record."""
    other = OTHER_NAMES.get(name, name)
    return other if name not in features and other in features else name


_DTYPES = {0x0A: "bytes", 0x12: "float32", 0x1A: "int64"}  # by tag in a Feature
# Numbers are packed in one field (0x0A) or, unpacked, each has its own field.
_VALUE_TAGS = {"bytes": (0x0A,), "float32": (0x0A, 0x0D), "int64": (0x0A, 0x08)}


def _read_varint(message, position):
    """The number that starts at a position, and the position after it."""
    number = shift = 0
    while True:
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7


def _fields(message):
    """Tag to list of contents; joining the contents merges the messages."""
    fields, position, end = {}, 0, len(message)
    while position < end:
        tag, start = message[position], position + 1
        wire_type = tag & 7
        if wire_type == 2:
            size, position = message[start], start + 1
            if size > 0x7F:
                size, position = _read_varint(message, start)
            start, position = position, position + size
        elif wire_type == 0:
            _, position = _read_varint(message, start)
        elif wire_type == 5:
            position = start + 4
        else:
            raise ValueError(f"tag {tag}")
        if position > end:
            raise ValueError("a field is longer than its message")
        if tag in fields:
            fields[tag].append(message[start:position])
        else:
            fields[tag] = [message[start:position]]
    return fields


def features_of(example):
    """Name to (dtype, list of contents) of a serialized tf.train.Example, or ValueError."""
    features = {}
    try:
        for entry in _fields(b"".join(_fields(example)[0x0A])).get(0x0A, ()):
            fields = _fields(entry)
            kinds = _fields(b"".join(fields.get(0x12, ())))
            # A feature without a list is the same as an empty list of strings.
            tag, lists = kinds.popitem() if kinds else (0x0A, [])
            dtype = _DTYPES[tag]
            values = _fields(b"".join(lists))
            contents = [c for t in _VALUE_TAGS[dtype] for c in values.pop(t, ())]
            if dtype == "float32":
                is_cut = any(len(content) % 4 for content in contents)
            else:
                is_cut = dtype == "int64" and contents and contents[-1][-1:] > b"\x7f"
            if values or is_cut:
                raise ValueError("values of another type, or an incomplete value")
            features[fields[0x0A][-1].decode()] = dtype, contents
    except (IndexError, KeyError) as error:
        raise ValueError(repr(error)) from error
    return features


def _numbers(contents, dtype):
    """The concatenated values of several lists, and how many each list has."""
    packed = np.frombuffer(b"".join(contents), np.uint8)
    stops = np.cumsum([len(content) for content in contents])
    if dtype == "float32":
        return packed.view("<f4"), np.diff(stops // 4, prepend=0)
    ends = np.flatnonzero(packed < 0x80)
    counts = np.diff(np.searchsorted(ends, stops), prepend=0)
    if len(ends) == len(packed):
        return packed.astype(np.int64), counts
    starts = np.concatenate([[0], ends[:-1] + 1])
    values = np.zeros(len(ends), np.uint64)
    # Ten bytes hold 64 bits; a longer varint is cut there, as in protocol buffers.
    for k in range(min(10, int((ends - starts).max()) + 1)):
        rows = np.flatnonzero(starts + k <= ends)
        bits = (packed[starts[rows] + k] & 0x7F).astype(np.uint64)
        values[rows] |= bits << np.uint64(7 * k)
    return values.view(np.int64), counts


def schema_of(example: bytes) -> tuple[Feature, ...]:
    """The features of a serialized tf.train.Example by name, or ValueError.

    A dtype may also be "bytes". Those of `OTHER_NAMES` have the release's names.
    """
    ours = {other: name for name, other in OTHER_NAMES.items()}
    schema = []
    for name, (dtype, contents) in sorted(features_of(example).items()):
        length = len(contents)
        if dtype != "bytes":
            length = len(_numbers([b"".join(contents)], dtype)[0])
        schema.append(Feature(ours.get(name, name), dtype, length))
    return tuple(schema)


def decode(
    examples: list[bytes], schema: tuple[Feature, ...]
) -> tuple[dict[str, np.ndarray], dict[int, str]]:
    """Parses a batch of serialized tf.train.Example from any encoder.

    Args:
        schema: the features to take; those of `OTHER_NAMES` are found by either name.
    Returns:
        dict of feature name to int64 or float32 [batch, length]; and dict of row to what is
        wrong with it, for rows that do not fit the schema, whose values are meaningless.
    """
    parsed, faults = [], {}
    for row, example in enumerate(examples):
        try:
            parsed.append(features_of(example))
        except ValueError:
            parsed.append({})
            faults[row] = "is not a tf.train.Example"
    batch = {}
    for name, dtype, length, _ in schema:
        packed = []
        for row, features in enumerate(parsed):
            feature = features.get(name_in(features, name))
            if feature and feature[0] == dtype:
                packed.append(b"".join(feature[1]))
                continue
            packed.append(b"")
            has = f"{name} as {feature[0]}, not {dtype}" if feature else f"no {name}"
            faults.setdefault(row, f"has {has}")
        values, counts = _numbers(packed, dtype)
        fits = counts == length
        for row in np.flatnonzero(~fits).tolist():
            faults.setdefault(row, f"has {counts[row]} values of {name}, not {length}")
        batch[name] = np.zeros((len(examples), length), dtype)
        batch[name][fits] = values[np.repeat(fits, counts)].reshape(-1, length)
    return batch, faults
