"""Opens tables in files with pyarrow, an optional package: Parquet, and Arrow streams.

A table consists of groups of rows that can be read on their own: the row groups of Parquet,
the record batches of a stream.
"""

import contextlib
import dataclasses
import functools
import io
import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

import pyarrow
from pyarrow import compute, ipc, parquet

from errors import UserError, size
from files import inputs, sources

# Of a file that is not one.
FAILURES = (pyarrow.ArrowException, OSError, ValueError, struct.error)
# In memory at a time, if all texts have the mean length or that of the longest shared one.
_ROWS, _BYTES = 1 << 10, 1 << 26
# Kilobytes may unpack to more than the memory. Text is packed to a third or a tenth.
_MOST_UNPACKED, _MOST_RATIO = 1 << 28, 1000  # bytes, and times the packed size
_FILE_MAGIC = b"ARROW1"
_END_BYTES = 8  # of what ends a stream


class RowGroup(NamedTuple):
    """How many rows, and their size in bytes of any kind."""

    rows: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class ArrowValue:
    """A value of a type that JSON lacks, and Python perhaps, too."""

    array: pyarrow.Array
    place: int

    @property
    def slice(self) -> pyarrow.Array:
        """The array of this value alone."""
        return self.array.slice(self.place, 1)

    def __str__(self):
        return self.slice.to_string(window=1 << 30, container_window=1 << 30)


def values_of(array: pyarrow.Array) -> list[ArrowValue]:
    """All its values."""
    return [ArrowValue(array, place) for place in range(len(array))]


class ParquetTable:
    """The rows of a Parquet file; other columns stay unread.

    Attributes:
        groups: what can be read on its own.
        schema: the names and types of columns.
    """

    def __init__(self, path: str, source: BinaryIO):
        self._path, self._source = path, source
        file = parquet.ParquetFile(source)
        self._metadata, self.schema = file.metadata, file.schema_arrow
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        self.groups = [
            RowGroup(group.num_rows, group.total_byte_size) for group in groups
        ]

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: str) -> Iterator["ParquetTable"]:
        with sources.open_file(path) as source:
            yield cls(path, source)

    def batches(self, start: int, stop: int, column: str) -> Iterator[pyarrow.Array]:
        """Yields the column in those groups, some rows at a time.

        Raises UserError if a group cannot be text of a size that fits in memory.
        """
        file = parquet.ParquetFile(self._source, metadata=self._metadata)
        for number in range(start, stop):
            rows = self._rows_at_once(number, column)
            for batch in file.iter_batches(rows, [number], [column], use_threads=False):
                yield batch.column(0)

    @property
    def columns_not_json(self) -> list[str]:
        """The columns of types that JSON lacks."""
        return [field.name for field in self.schema if not is_json(field.type)]

    def rows(self, max_line_mb: int | None) -> Iterator[dict]:
        """Yields all rows; values of Python where JSON has the type, otherwise
        of `ArrowValue`.

        Raises UserError if a text is longer than the limit of `inputs.lines`, or a group
        cannot be text of a size that fits in memory.
        """
        names = self.schema.names
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(f"{self._path}: two columns are {twice[0]!r}; rename one")
        most = (max_line_mb or inputs.MAX_LINE_MB) * inputs.MB
        for batch in self._record_batches():
            for name, column in zip(names, batch.columns, strict=True):
                if _longest(column) > most:
                    what = f"{self._path}: a text in column {name!r}"
                    raise inputs.too_long(what, max_line_mb)
            columns = [
                column.to_pylist() if is_json(column.type) else values_of(column)
                for column in batch.columns
            ]
            for row in zip(*columns, strict=True):
                yield dict(zip(names, row, strict=True))

    def _record_batches(self):
        """All columns, some rows at a time."""
        file = parquet.ParquetFile(self._source, metadata=self._metadata)
        for number in range(len(self.groups)):
            group = self._metadata.row_group(number)
            paths = (group.column(i).path_in_schema for i in range(group.num_columns))
            rows = min((self._rows_at_once(number, path) for path in paths), default=1)
            yield from file.iter_batches(rows, [number], use_threads=False)

    def _rows_at_once(self, number, column):
        """How many rows of a group may be in memory at a time."""
        group = self._metadata.row_group(number)
        chunks = map(group.column, range(group.num_columns))
        chunk, *others = (each for each in chunks if each.path_in_schema == column)
        if others:
            raise UserError(
                f"{self._path}: {column!r} is also the name of a column within another; "
                "rename one of them"
            )
        unpacked, packed = chunk.total_uncompressed_size, chunk.total_compressed_size
        if unpacked > _MOST_UNPACKED and unpacked > _MOST_RATIO * packed:
            raise _bomb(self._path, f"row group {number}", unpacked)
        longest = unpacked // max(group.num_rows, 1)
        if chunk.has_dictionary_page:
            longest = max(longest, self._longest_shared(number, column))
        return max(min(_ROWS, _BYTES // max(longest, 1)), 1)

    def _longest_shared(self, number, column):
        """The bytes of the longest text that is stored once for many rows."""
        file = parquet.ParquetFile(
            self._source,
            metadata=self._metadata,
            read_dictionary=[column],
            pre_buffer=False,
            buffer_size=1 << 16,
        )
        for batch in file.iter_batches(1, [number], [column], use_threads=False):
            texts = batch.column(0)
            if not pyarrow.types.is_dictionary(texts.type):
                break  # a number, or a column within another
            lengths = compute.binary_length(texts.dictionary)
            return compute.max(lengths).as_py() or 0
        return 0


class StreamTable:
    """The rows of an Arrow stream, as Hugging Face datasets saves them.

    The attributes and methods are those of `ParquetTable`.
    """

    def __init__(self, path: str, file: pyarrow.NativeFile):
        self._path, self._file = path, file
        self.schema, self.groups, self._begins = _layout(path, sources.status(path))

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: str) -> Iterator["StreamTable"]:
        with _open_mapped(path) as file:
            yield cls(path, file)

    def batches(self, start: int, stop: int, column: str) -> Iterator[pyarrow.Array]:
        for number in range(start, stop):
            self._file.seek(self._begins[number])
            message = ipc.read_message(self._file)
            unpacked = _RecordBatch(message).unpacked_bytes()
            if unpacked > _MOST_UNPACKED and unpacked > _MOST_RATIO * message.body.size:
                raise _bomb(self._path, f"record batch {number}", unpacked)
            array = ipc.read_record_batch(message, self.schema).column(column)
            array.validate(full=True)  # else a damaged one is read beyond its end
            yield array


class _RecordBatch:
    """What a message of an Arrow stream says of its record batch, without unpacking it.

    Source: Message.fbs of Apache Arrow; flatbuffers' internals. Arrow has checked them.
    """

    def __init__(self, message: ipc.Message):
        self._body, self._header = message.body, memoryview(message.metadata)
        (root,) = self._numbers("I", 0)
        self._batch = self._at(self._field(root, 2))

    @property
    def rows(self) -> int:
        place = self._field(self._batch, 0)
        return self._numbers("q", place)[0] if place else 0

    def unpacked_bytes(self) -> int:
        """What all columns take if they are packed; else 0, as they lie in the file."""
        if not self._field(self._batch, 3):
            return 0
        vector, total = self._at(self._field(self._batch, 2)), 0
        for number in range(self._numbers("I", vector)[0]):
            offset, size = self._numbers("qq", vector + 4 + 16 * number)
            if size:
                length = struct.unpack_from("<q", self._body, offset)[0]
                total += max(length, 0)  # -1: this one is as it is
        return total

    def _numbers(self, form, place):
        return struct.unpack_from(f"<{form}", self._header, place)

    def _at(self, place):
        """Where something is that a place refers to."""
        return place + self._numbers("I", place)[0]

    def _field(self, table, number):
        """Where a table has a field; 0 if it has not."""
        fields = table - self._numbers("i", table)[0]
        if 4 + 2 * number >= self._numbers("H", fields)[0]:
            return 0
        offset = self._numbers("H", fields + 4 + 2 * number)[0]
        return table + offset if offset else 0


def _bomb(path, part, unpacked):
    return UserError(
        f"{path}: {part} unpacks to {size(unpacked)}, over {_MOST_RATIO:,} times its size, "
        "which text does not; check where the file is from"
    )


@contextlib.contextmanager
def _open_mapped(path):
    """A file; of a local one, only what is needed is read."""
    with sources.open_file(path) as source:
        is_mapped = not sources.is_remote(path) and sources.size(path)
        mapped = pyarrow.memory_map(path) if is_mapped else pyarrow.PythonFile(source)
        with contextlib.closing(mapped) as file:
            yield file


@functools.lru_cache(maxsize=8)
def _layout(path, status):
    """The schema of a stream, its groups, and the bytes where they begin.

    Raises UserError if the file is another one or does not end as a stream does.
    """
    del status  # a file that changes is read again
    groups, begins = [], []
    with _open_mapped(path) as file:
        if file.read(len(_FILE_MAGIC)) == _FILE_MAGIC:
            raise UserError(
                f"{path}: is an Arrow file with a footer (Feather), not a stream, which "
                "datasets saves; write the table as Parquet"
            )
        file.seek(0)
        schema = ipc.read_schema(file)
        for field in schema:
            if pyarrow.types.is_dictionary(field.type):
                raise UserError(
                    f"{path}: column {field.name!r} has categories (dictionary), which "
                    "are not read from a stream; write the table as Parquet"
                )
        while True:
            begin = file.tell()
            try:
                message = ipc.read_message(file)
            except EOFError:
                break
            if message.type != "record batch":
                raise ValueError(f"a {message.type} in place of a record batch")
            groups.append(RowGroup(_RecordBatch(message).rows, file.tell() - begin))
            begins.append(begin)
        if file.tell() - begin != _END_BYTES:
            raise UserError(
                f"{path}: ends without the mark of its end, so it was cut off; copy or "
                "save it again"
            )
    return schema, groups, begins


def is_json(kind: pyarrow.DataType) -> bool:
    """Whether JSON has values of a type."""
    types = pyarrow.types
    if types.is_dictionary(kind):
        return is_json(kind.value_type)
    if types.is_struct(kind):
        return all(is_json(field.type) for field in kind)
    if (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
    ):
        return is_json(kind.value_type)
    is_number = types.is_integer(kind) or types.is_floating(kind)
    return _is_text(kind) or is_number or types.is_boolean(kind) or types.is_null(kind)


def _is_text(kind: pyarrow.DataType) -> bool:
    return _has_lengths(kind) or pyarrow.types.is_string_view(kind)


def _has_lengths(kind: pyarrow.DataType) -> bool:
    """Whether pyarrow computes the lengths of a type's values, which are texts."""
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)


def _longest(array: pyarrow.Array) -> int:
    """The bytes of the longest text of an array; 0 if it has none."""
    if not _has_lengths(array.type):
        return 0
    return compute.max(compute.binary_length(array)).as_py() or 0


def check_column(path: str, schema: pyarrow.Schema, column: str) -> None:
    """Raises UserError if a table lacks a column, or it is not of text."""
    if column not in schema.names:
        names = ", ".join(map(repr, schema.names))
        raise UserError(
            f"{path}: has no column {column!r}, only {names}; check --text_column"
        )
    kind = schema.field(column).type
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    if not _is_text(kind):
        raise UserError(
            f"{path}: column {column!r} is of type {str(kind):.60}, not text (string); "
            "check --text_column"
        )


def are_short(array: pyarrow.Array, most_bytes: int) -> bool:
    """Whether all rows surely have a text, and none is longer; `cells` says which is."""
    if array.null_count or not _has_lengths(array.type):
        return False
    return _longest(array) <= most_bytes


def cells(array: pyarrow.Array) -> Iterator[tuple[int | None, pyarrow.Scalar]]:
    """Yields for each row the length of its text in UTF-8, and the text, not yet copied.

    The length is None where there is no text.
    """
    if not pyarrow.types.is_dictionary(array.type):
        values = array
    else:  # of all texts so far; these rows may have few of them
        texts = array.dictionary
        values = (None if n is None else texts[n] for n in array.indices.to_pylist())
    for cell in values:
        is_text = cell is not None and cell.is_valid
        yield cell.as_buffer().size if is_text else None, cell


def pack_arrays(arrays: Iterable[pyarrow.Array]) -> tuple[bytes, int]:
    """A stream of arrays of one type, for `unpack_arrays`, and how many rows it has.

    It ends with the array that fills the memory that a sample may take.
    """
    batches, size = [], 0
    for array in arrays:
        batches.append(pyarrow.record_batch([array], ["text"]))
        size += array.nbytes
        if size >= _BYTES:
            break
    file = io.BytesIO()
    with ipc.new_stream(file, batches[0].schema) as stream:
        for batch in batches:
            stream.write(batch)
    return file.getvalue(), sum(batch.num_rows for batch in batches)


def unpack_arrays(block: bytes) -> Iterator[pyarrow.Array]:
    with ipc.open_stream(block) as stream:
        for batch in stream:
            yield batch.column(0)
