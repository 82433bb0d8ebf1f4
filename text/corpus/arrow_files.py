"""Opens tables in files with pyarrow, an optional package: Parquet, and Arrow streams.

A table consists of groups of rows that can be read on their own: the row groups of Parquet,
the record batches of a stream.
"""

import contextlib
import functools
import io
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow
from pyarrow import ipc, parquet

from errors import UserError
from text.files import sources

FAILURES = (pyarrow.ArrowException, OSError, ValueError)  # of a file that is not one
_ROWS = 1 << 10  # that are in memory at a time
_FILE_MAGIC = b"ARROW1"
_END_BYTES = 8  # of what ends a stream


class Group(NamedTuple):
    """How many rows, and their size in bytes of any kind."""

    rows: int
    size: int


class ParquetTable:
    """The rows of a Parquet file; other columns stay unread.

    Attributes:
        groups: what can be read on its own.
        schema: the names and types of columns.
    """

    def __init__(self, file: parquet.ParquetFile):
        self._file = file
        self.schema = file.schema_arrow
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        self.groups = [Group(group.num_rows, group.total_byte_size) for group in groups]

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str) -> Iterator["ParquetTable"]:
        with sources.opened(path) as source, parquet.ParquetFile(source) as file:
            yield cls(file)

    def batches(self, start: int, stop: int, column: str) -> Iterator[pyarrow.Array]:
        """Yields the column in those groups, some rows at a time."""
        groups = list(range(start, stop))
        record_batches = self._file.iter_batches(
            _ROWS, groups, [column], use_threads=False
        )
        return (batch.column(0) for batch in record_batches)


class StreamTable:
    """The rows of an Arrow stream, as Hugging Face datasets saves them.

    The attributes and methods are those of `ParquetTable`.
    """

    def __init__(self, path: str, file: pyarrow.NativeFile):
        self._file = file
        self.schema, self.groups, self._begins = _layout(path, sources.status(path))

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str) -> Iterator["StreamTable"]:
        with _opened(path) as file:
            yield cls(path, file)

    def batches(self, start: int, stop: int, column: str) -> Iterator[pyarrow.Array]:
        for begin in self._begins[start:stop]:
            self._file.seek(begin)
            message = ipc.read_message(self._file)
            yield ipc.read_record_batch(message, self.schema).column(column)


@contextlib.contextmanager
def _opened(path):
    """A file; of a local one, only what is needed is read."""
    with sources.opened(path) as source:
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
    with _opened(path) as file:
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
            batch = ipc.read_record_batch(message, schema)
            groups.append(Group(batch.num_rows, file.tell() - begin))
            begins.append(begin)
        if file.tell() - begin != _END_BYTES:
            raise UserError(
                f"{path}: ends without the mark of its end, so it was cut off; copy or "
                "save it again"
            )
    return schema, groups, begins


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
    is_text = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
    if not (is_text or pyarrow.types.is_string_view(kind)):
        raise UserError(
            f"{path}: column {column!r} is of type {str(kind):.60}, not text (string); "
            "check --text_column"
        )


def packed(arrays: Iterable[pyarrow.Array]) -> bytes:
    """A stream of arrays of one type, for `unpacked`."""
    batches = [pyarrow.record_batch([array], ["text"]) for array in arrays]
    file = io.BytesIO()
    with ipc.new_stream(file, batches[0].schema) as stream:
        for batch in batches:
            stream.write(batch)
    return file.getvalue()


def unpacked(block: bytes) -> Iterator[pyarrow.Array]:
    with ipc.open_stream(block) as stream:
        for batch in stream:
            yield batch.column(0)
