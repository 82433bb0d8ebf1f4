"""Reads documents and their sentences from files of any input format, in bounded pieces."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator

import options
from errors import UserError
from files import inputs, sources
from text.corpus import text_format
from text.corpus.columns import Arrow, ColumnOptions, Parquet
from text.corpus.line_formats import (
    JsonLines,
    JsonOptions,
    LineFormat,
    Paragraphs,
    WholeFiles,
)
from text.corpus.text_format import PARAGRAPH_END, FileSpan, TextFormat
from text.corpus.wikipedia import Wikipedia, WikipediaOptions

FORMATS: dict[str, TextFormat] = {
    "sentences": LineFormat(),
    "paragraphs": Paragraphs(),
    "files": WholeFiles(),
    "jsonl": JsonLines(),
    "parquet": Parquet(),
    "arrow": Arrow(),
    "wikipedia": Wikipedia(),
}

_PIECE_FILES = 1 << 12


@dataclasses.dataclass(frozen=True)
class TextOptions(WikipediaOptions, ColumnOptions, JsonOptions):
    """Input files. How documents lie in them."""

    input_format: str = options.field(
        "sentences",
        choices=FORMATS,
        help=" ".join(f"{name}: {each.help}." for name, each in FORMATS.items()),
    )


def expand(patterns: Iterable[str], input_format: str) -> list[str]:
    """Turns names and globs into files; see `inputs.expand`.

    In some formats, a folder is a text.
    """
    names = []
    for pattern in patterns:
        is_folder = sources.is_folder(pattern)
        names += FORMATS[input_format].files_in(pattern) if is_folder else [pattern]
    return inputs.expand(names)


def pieces(
    files: Iterable[tuple[str, sources.Status]], input_format: str, total: int
) -> Iterator[list[FileSpan]]:
    """Cuts the input into pieces of some megabytes, independently of who reads them.

    Small files share a piece; a document may continue in the next piece.

    Args:
        files: paths, and what `read` compares the status of each with.
        total: the size of all files in bytes.
    """
    piece, size = [], 0
    for path, status in files:
        for span in FORMATS[input_format].spans(path, status.size, total):
            piece.append(span._replace(status=status))
            size += max(span.size, len(span.block or b""))
            if size >= text_format.PIECE_BYTES or len(piece) == _PIECE_FILES:
                yield piece
                piece, size = [], 0
    if piece:
        yield piece


# --- Ranges of whole documents, each by its own reader -------------------------------
#
# Where to cut is known before a file is opened; each reader then moves both ends of its
# range to where a document begins, and neighbors agree on that place.


def ranges(
    paths: Iterable[str], input_format: str, most_bytes: int
) -> Iterator[list[FileSpan]]:
    """Lists spans of about `most_bytes` together, for `whole_documents`.

    Small files share a range. A file that is sequential or is one document is not cut.
    """
    spans, size = [], 0
    for path in paths:
        for span in _uncut(path, FORMATS[input_format], most_bytes):
            spans.append(span)
            size += span.size
            if size >= most_bytes or len(spans) == _PIECE_FILES:
                yield spans
                spans, size = [], 0
    if spans:
        yield spans


def _uncut(path, text_format, most_bytes):
    # The reader may be on another machine, where the file has another identity.
    status = sources.status(path)._replace(identity=0)
    size, start = status.size, 0
    may_be_cut = size > most_bytes and not text_format.ends_with_file
    if may_be_cut and not text_format.is_sequential(path, size):
        while size - start > most_bytes:
            yield FileSpan(path, start, start + most_bytes, most_bytes, status=status)
            start += most_bytes
    yield FileSpan(path, start, None, size - start, status=status)


def whole_documents(span: FileSpan, input_format: str) -> FileSpan | None:
    """The documents that begin in a span of `ranges`; None if none does.

    One that reaches into the next span, or across several, belongs to the first. Raises
    ChangedFileError if the file has changed since the span was cut.
    """
    status = sources.refuse_change(span.path, span.status)
    if span.start or span.stop is not None:
        span = FORMATS[input_format].whole_documents(span, status.size)
    return span._replace(status=status) if span else None


# --- Reading -------------------------------------------------------------------------


def read(
    span: FileSpan,
    chosen: TextOptions,
    counts: Counter | None = None,
    with_paragraphs: bool = False,
) -> Iterator[str | None]:
    """Yields the sentences of a span, and None wherever a document ends.

    Args:
        counts: receives what is left out, if the format leaves out anything.
        with_paragraphs: yield PARAGRAPH_END, too; in the format "sentences" are none.

    Raises ChangedFileError if the file is not the one that the span was cut from.
    """
    counts = Counter() if counts is None else counts
    sentences = FORMATS[chosen.input_format].read(span, chosen, counts)
    if not with_paragraphs:
        sentences = (each for each in sentences if each != PARAGRAPH_END)
    try:
        yield from sentences
    except UserError:
        _refuse_change(span)  # which may be the reason
        raise
    _refuse_change(span)


def read_together(
    spans: Iterable[FileSpan], chosen: TextOptions
) -> tuple[list[str], Counter]:
    """The sentences of spans, without the ends of documents, and what is left out."""
    counts = Counter()
    sentences = (each for span in spans for each in read(span, chosen, counts))
    return [each for each in sentences if each is not None], counts


def _refuse_change(span):
    if span.status:
        sources.refuse_change(span.path, span.status)
