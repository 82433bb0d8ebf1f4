"""Reads documents from the text column of tables: each row is one.

A file consists of groups of rows that can be read on their own; spans are groups, by their
numbers. Other columns stay unread.
"""

import contextlib
import dataclasses
import itertools
import os

import options
from errors import UserError
from files import inputs, json_files, sources
from text.corpus import text_format
from text.corpus.sentences import split_sentences
from text.corpus.text_format import PARAGRAPH_END, FileSpan, TextFormat


@dataclasses.dataclass(frozen=True)
class ColumnOptions(inputs.LineOptions):
    """Input files. Tables."""

    text_column: str = options.field(
        "text",
        help="The column of the text; the other columns are not read.",
        only_for={"input_format": ("parquet", "arrow")},
    )


class TextColumn(TextFormat):
    """Tables with a column of text.

    Attributes:
        file_format: what users call such a file.
        table: the name of the class in `arrow_files` that opens it.
    """

    file_format: str
    table: str

    def spans(self, path, size, total):
        with self.open_table(path) as table:
            groups = table.groups
        sizes = [group.size for group in groups]
        # Shares of the file, so that their sum is its size.
        start = text = begin = 0
        for number, group_size in enumerate(sizes, start=1):
            text += group_size
            is_last = number == len(groups)
            if is_last or text - begin >= text_format.PIECE_BYTES:
                share = size * text // sum(sizes) - size * begin // sum(sizes)
                yield FileSpan(path, start, None if is_last else number, share)
                start, begin = number, text
        if not groups:
            yield FileSpan(path, 0, None, size)

    def is_sequential(self, path, size):
        return False

    def whole_documents(self, span, size):
        """See `TextFormat`: the groups that would begin there, were all packed alike."""
        with self.open_table(span.path) as table:
            sizes = [group.size for group in table.groups]
        ends = list(itertools.accumulate(sizes, initial=0))
        begins = [size * end // max(ends[-1], 1) for end in ends[:-1]]
        stop = size if span.stop is None else span.stop
        inside = [n for n, begin in enumerate(begins) if span.start <= begin < stop]
        if not inside:
            return None
        first, last = inside[0], inside[-1] + 1
        return FileSpan(
            span.path, first, None if last == len(begins) else last, stop - span.start
        )

    def windows(self, path, places, size, chosen):
        """See `TextFormat`: some rows from the place of each, as if all had one size."""
        tables = _arrow_files(path, self.file_format)
        with self.open_table(path) as table:
            tables.check_column(path, table.schema, chosen.text_column)
            total = sum(group.rows for group in table.groups)
            text = max(sum(group.size for group in table.groups), 1)
            end = 0
            for start, stop in places:
                if not start and stop == size:
                    yield FileSpan(path, 0, None, size)
                    continue
                first = max(end, total * start // size)
                end = min(first + max(total * (stop - start) // text, 1), total)
                if first >= end:
                    yield None
                    continue
                rows = _rows(table, first, end, chosen.text_column)
                block, number = tables.pack_arrays(rows)
                end = first + number
                share = size * end // total - size * first // total
                yield FileSpan(path, first, end, share, block)

    def read(self, span, chosen, counts):
        """See `TextFormat`.

        Raises UserError if the file lacks the column, a text is longer than the limit, or
        something else than text is in it.
        """
        column = chosen.text_column
        tables = _arrow_files(span.path, self.file_format)
        with self.open_table(span.path) as table:
            tables.check_column(span.path, table.schema, column)
            if span.block is None:
                groups = table.groups
                stop = len(groups) if span.stop is None else span.stop
                number = sum(group.rows for group in groups[: span.start])
                batches = table.batches(span.start, stop, column)
            else:  # of a sample
                number, batches = span.start, tables.unpack_arrays(span.block)
            for text in _texts(tables, batches, number, span.path, chosen):
                for paragraph in text.splitlines():
                    yield from split_sentences(paragraph)
                    yield PARAGRAPH_END
                yield None

    @contextlib.contextmanager
    def open_table(self, path):
        """A table whose damage is one line."""
        arrow_files = _arrow_files(path, self.file_format)
        try:
            with getattr(arrow_files, self.table).open(path) as table:
                yield table
        except arrow_files.FAILURES as error:
            if isinstance(error, UserError) or getattr(error, "errno", None):
                raise
            problem = " ".join(str(error).split())
            raise UserError(
                f"{path}: is not {self.file_format} that can be read ({problem:.200}); "
                "check --input_format, or copy the file again"
            ) from error


class Parquet(TextColumn):
    """Spans are row groups."""

    help = "Apache Parquet, each row a document whose text is in --text_column"
    file_format = "a Parquet file"
    table = "ParquetTable"


class Arrow(TextColumn):
    """Spans are record batches."""

    help = (
        "a folder that Hugging Face datasets saved (save_to_disk), or its .arrow files, "
        "each row a document whose text is in --text_column"
    )
    file_format = "an Arrow stream"
    table = "StreamTable"

    def files_in(self, folder):
        return _saved_files(folder)


def _arrow_files(path, file_format):
    """The module that opens tables, whose package is optional."""
    try:
        from text.corpus import arrow_files
    except ModuleNotFoundError as error:
        raise UserError(
            f"{path}: reading {file_format} needs the package pyarrow, which is not "
            "installed; run pip install -r requirements/corpus.txt"
        ) from error
    return arrow_files


def _texts(tables, batches, number, path, chosen):
    """Yields the texts of the rows from a number on, none of them too long."""
    most = chosen.max_line_mb * inputs.MB
    for batch in batches:
        if tables.are_short(batch, most):
            yield from (cell.as_py() for cell in batch)
            number += len(batch)
            continue
        for size, cell in tables.cells(batch):
            number += 1
            if size is None:
                raise UserError(
                    f"{path}: row {number:,} has no text in column "
                    f"{chosen.text_column!r}; leave out such rows"
                )
            if size > most:
                raise inputs.too_long(
                    f"{path}: row {number:,}: the text", chosen.max_line_mb
                )
            yield cell.as_py()


def _rows(table, first, end, column):
    """Yields arrays: the column in some rows."""
    begin = 0
    for number, group in enumerate(table.groups):
        if begin + group.rows > first and begin < end:
            place = begin
            for batch in table.batches(number, number + 1, column):
                if place >= end:
                    break
                start = max(first - place, 0)
                if start < len(batch):
                    yield batch.slice(start, end - place - start)
                place += len(batch)
        begin += group.rows


def _saved_files(folder):
    """The files of a folder that datasets saved, in their order."""
    state = os.path.join(folder, "state.json")
    if not sources.exists(state):
        if sources.exists(os.path.join(folder, "dataset_dict.json")):
            raise UserError(
                f"{folder}: has a folder for each split; name one, such as "
                f"{os.path.join(folder, 'train')}"
            )
        return [folder]
    try:
        saved = json_files.read(state)
        names = [each["filename"] for each in saved["_data_files"]]
        is_selection = bool(saved.get("_indices_data_files"))
        paths = [os.path.join(folder, name) for name in names]
    except (UserError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{state}: does not list the files of a saved dataset; save it again, or name "
            "its .arrow files"
        ) from error
    if is_selection:
        raise UserError(
            f"{folder}: is a selection of rows, saved by an old release of datasets; load "
            "it and save it again with a new one"
        )
    if not paths:
        raise UserError(f"{folder}: is a saved dataset without rows; name another")
    return paths
