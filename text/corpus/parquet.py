"""Reads documents from the text column of Parquet files: every row is one."""

import contextlib
import dataclasses
from collections.abc import Iterator

import options
from errors import UserError
from text.corpus import text_format
from text.corpus.sentences import split_sentences
from text.corpus.text_format import PARAGRAPH_END, ReadingOptions, Span, TextFormat
from text.files import sources

_ROWS = 1 << 10  # that are in memory at a time


@dataclasses.dataclass(frozen=True)
class ParquetOptions(ReadingOptions):
    """Input files. Parquet."""

    text_column: str = options.field(
        "text",
        help="The column of the text; the other columns are not read.",
        only_for={"input_format": "parquet"},
    )


class Parquet(TextFormat):
    """Spans are row groups, by their numbers. Other columns stay unread."""

    help = "Apache Parquet, each row a document whose text is in --text_column"

    def spans(self, path, size, total):
        """See `TextFormat`."""
        with _opened(path) as file:
            groups = range(file.metadata.num_row_groups)
            sizes = [file.metadata.row_group(group).total_byte_size for group in groups]
        # Shares of the file, so that their sum is its size.
        start = text = begin = 0
        for group in groups:
            text += sizes[group]
            is_last = group == groups[-1]
            if is_last or text - begin >= text_format.PIECE_BYTES:
                share = size * text // sum(sizes) - size * begin // sum(sizes)
                yield Span(path, start, None if is_last else group + 1, share)
                start, begin = group + 1, text
        if not groups:
            yield Span(path, 0, None, size)

    def excerpt(self, span, most):
        """See `TextFormat`."""
        with _opened(span.path) as file:
            last = file.num_row_groups if span.stop is None else span.stop
            groups = range(span.start, last)
            sizes = [file.metadata.row_group(group).total_byte_size for group in groups]
        size = text = 0
        for group, more in zip(groups, sizes, strict=True):
            text += more
            size = span.size * text // sum(sizes)
            if size >= most and group + 1 < last:
                return span._replace(stop=group + 1, size=size)
        return span

    def read(self, span, chosen, counts):
        """See `TextFormat`.

        Raises UserError if the file lacks the column, or something else than text is in it.
        """
        with _opened(span.path) as file:
            _check_column(span.path, file.schema_arrow, chosen.text_column)
            stop = file.num_row_groups if span.stop is None else span.stop
            groups = list(range(span.start, stop))
            number = sum(file.metadata.row_group(i).num_rows for i in range(span.start))
            for text in _texts(file, groups, chosen.text_column):
                number += 1
                if text is None:
                    raise UserError(
                        f"{span.path}: row {number:,} has no text in column "
                        f"{chosen.text_column!r}; leave out such rows"
                    )
                for paragraph in text.splitlines():
                    yield from split_sentences(paragraph)
                    yield PARAGRAPH_END
                yield None


def _texts(file, groups, column) -> Iterator[str | None]:
    batches = file.iter_batches(_ROWS, groups, [column], use_threads=False)
    for batch in batches:
        yield from (value.as_py() for value in batch.column(0))


def _check_column(path, schema, column):
    import pyarrow

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


@contextlib.contextmanager
def _opened(path):
    """A file whose damage is one line."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise UserError(
            "--input_format=parquet needs the package pyarrow, which is not installed; run "
            "pip install -r requirements/corpus.txt"
        ) from error
    with sources.opened(path) as source:
        try:
            with parquet.ParquetFile(source) as file:
                yield file
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            problem = " ".join(str(error).split())
            raise UserError(
                f"{path}: is not a Parquet file that can be read ({problem:.200}); check "
                "--input_format, or copy the file again"
            ) from error
