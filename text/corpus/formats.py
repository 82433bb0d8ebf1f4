"""Reads documents and their sentences from files of any input format, in bounded pieces."""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from errors import UserError
from text.corpus.sentences import split_sentences
from text.files import inputs, packings, sources

FORMATS = ("sentences", "paragraphs", "files", "jsonl")

_PIECE_BYTES = 8 << 20
_PIECE_FILES = 1 << 12
# Unpacking is about ten times as fast as tokenizing. A packed file that is more than a
# tenth of the input is therefore unpacked once and handed out in blocks; smaller ones are
# read in parallel with others, so each is unpacked by its reader.
_MANY_FILES = 10
_PARAGRAPH_CHARACTERS = 1 << 20


class Span(NamedTuple):
    """A part of a file that can be read on its own.

    Attributes:
        start, stop: its bytes, in the unpacked file; a stop of None is the end of the file.
        size: the number of bytes it takes on disk.
        block: its text, if the file had to be unpacked to find the span.
        status: that of the file; None if it does not matter whether it changes.
    """

    path: str
    start: int
    stop: int | None
    size: int
    block: bytes | None = None
    status: sources.Status | None = None


def pieces(
    files: Iterable[tuple[str, sources.Status]], input_format: str, total: int
) -> Iterator[list[Span]]:
    """Cuts the input into pieces of some megabytes, independently of who reads them.

    Small files share a piece. A large file, packed or not, is cut between lines; in the
    format "files", after an empty line, because sentences continue across lines. A document
    may continue in the next piece.

    Args:
        files: paths, and what `read` compares the status of each with.
        total: the size of all files in bytes.
    """
    piece, size = [], 0
    for path, status in files:
        for span in _spans(path, status.size, input_format, total):
            piece.append(span._replace(status=status))
            size += max(span.size, len(span.block or b""))
            if size >= _PIECE_BYTES or len(piece) == _PIECE_FILES:
                yield piece
                piece, size = [], 0
    if piece:
        yield piece


def _spans(path, size, input_format, total):
    if packings.is_packed(path):
        if size > max(_PIECE_BYTES // 4, total // _MANY_FILES):
            yield from _unpacked(path, input_format, size)
            return
        yield Span(path, 0, None, size)
        return
    start = 0
    if size > _PIECE_BYTES:
        with sources.opened(path) as file:
            while size - start > _PIECE_BYTES:
                file.seek(start + _PIECE_BYTES)
                for _ in _to_next_cut(file, input_format):
                    pass
                stop = file.tell()
                if stop >= size:
                    break
                yield Span(path, start, stop, stop - start)
                start = stop
    yield Span(path, start, None, size - start)


def _unpacked(path, input_format, size):
    start = read = 0
    with sources.opened(path) as packed, packings.unpacked(path, packed) as file:
        try:
            while True:
                block = _block(file, input_format)
                if not file.peek(1):
                    yield Span(path, start, None, size - read, block)
                    return
                stop, now_read = file.tell(), packed.tell()
                yield Span(path, start, stop, now_read - read, block)
                start, read = stop, now_read
        except packings.DAMAGE:
            pass
    # Its reader will find the damage, and can report the line.
    yield Span(path, start, None, size - read)


def _block(file, input_format):
    """Reads to the next place to cut; None if the text up to there is too long to hold."""
    parts = [file.read(_PIECE_BYTES)]
    size = len(parts[0])
    for line in _to_next_cut(file, input_format):
        size += len(line)
        if size <= 2 * _PIECE_BYTES:
            parts.append(line)
    return b"".join(parts) if size <= 2 * _PIECE_BYTES else None


def _to_next_cut(file, input_format):
    """Yields the rest of a line, and the lines that follow until a span may end."""
    yield from inputs.parts_of_line(file)
    is_empty = input_format != "files"
    while not is_empty:
        is_empty = True  # as it is at the end of the file
        for part in inputs.parts_of_line(file):
            is_empty &= not part.strip()
            yield part


# --- Ranges of whole documents, each by its own reader -------------------------------
#
# Where to cut is known before a file is opened; each reader then moves both ends of its
# range to where a document begins, and neighbors agree on that place.


def ranges(
    paths: Iterable[str], input_format: str, most_bytes: int
) -> Iterator[list[Span]]:
    """Lists spans of about `most_bytes` together, for `whole_documents`.

    Small files share a range. A file that is packed or is one document is not cut.
    """
    spans, size = [], 0
    for path in paths:
        for span in _uncut(path, input_format, most_bytes):
            spans.append(span)
            size += span.size
            if size >= most_bytes or len(spans) == _PIECE_FILES:
                yield spans
                spans, size = [], 0
    if spans:
        yield spans


def _uncut(path, input_format, most_bytes):
    # The reader may be on another machine, where the file has another identity.
    status = sources.status(path)._replace(identity=0)
    size, start = status.size, 0
    if not packings.is_packed(path) and input_format != "files":
        while size - start > most_bytes:
            yield Span(path, start, start + most_bytes, most_bytes, status=status)
            start += most_bytes
    yield Span(path, start, None, size - start, status=status)


def whole_documents(span: Span, input_format: str) -> Span | None:
    """The documents that begin in a span; None if none does.

    One that reaches into the next span, or across several, belongs to the first. Raises
    ChangedFileError if the file has changed since the span was cut.
    """
    start, stop = span.start, span.stop
    status = sources.refuse_change(span.path, span.status)
    if start or stop is not None:
        size = status.size
        with sources.opened(span.path) as file:
            if start:
                start = _next_document(file, start, input_format, stop)
                if start is None:
                    return None
            if stop is not None:
                stop = _next_document(file, stop, input_format)
        if stop == size:
            stop = None  # the end of the file may have to end a document
        if start == (size if stop is None else stop):
            return None
    return Span(span.path, start, stop, span.size, status=status)


def _next_document(file, position, input_format, limit=None):
    """The byte after the first line from a position on that ends a document.

    None if no line that begins before `limit` does; so no one reads all of a long document
    but its reader.
    """
    file.seek(position - 1)
    for _ in inputs.parts_of_line(file):  # whose beginning may be before
        pass
    if input_format == "jsonl":  # there, every line ends one
        return file.tell()
    while limit is None or file.tell() < limit:
        parts = [bool(part.strip()) for part in inputs.parts_of_line(file)]
        if not any(parts):
            return file.tell()
    return None


# --- Reading -------------------------------------------------------------------------


def read(
    span: Span,
    input_format: str,
    json_field: str,
    max_line_mb: int | None = None,
) -> Iterator[str | None]:
    """Yields the sentences of a span, and None wherever a document ends.

    Args:
        input_format: "sentences": one per line, an empty line ends a document (the
            release's format). "paragraphs": running text, one paragraph per line, an empty
            line ends a document. "files": running text, one document per file, empty lines
            between paragraphs, whose lines may be broken anywhere. "jsonl": one JSON object
            per line, each a document, with its text in json_field.
        max_line_mb: see `inputs.lines`.

    Raises ChangedFileError if the file is not the one that the span was cut from.
    """
    lines = inputs.lines(span.path, span.start, span.stop, span.block, max_line_mb)
    try:
        yield from _read(span, lines, input_format, json_field)
    except UserError:
        _refuse_change(span)  # which may be the reason
        raise
    _refuse_change(span)


def _refuse_change(span):
    if span.status:
        sources.refuse_change(span.path, span.status)


def _read(span, lines, input_format, json_field):
    if input_format == "jsonl":
        yield from _json_lines(span, lines, json_field)
        return
    if input_format == "files":
        yield from _wrapped_paragraphs(lines)
    else:
        for line in lines:
            line = line.strip()
            if not line:
                yield None
            elif input_format == "sentences":
                yield line
            else:
                yield from split_sentences(line)
    if span.stop is None:  # the file ends here, and a document with it
        yield None


def _wrapped_paragraphs(lines):
    paragraph, size = [], 0
    for line in lines:
        line = line.strip()
        if line:
            paragraph.append(line)
            size += len(line)
        if not line or size > _PARAGRAPH_CHARACTERS:
            sentences = split_sentences(" ".join(paragraph))
            # A text without empty lines must not be held in memory as a whole. Its last
            # sentence, which may continue, waits for more lines.
            paragraph = sentences[-1:] if line and len(sentences) > 1 else []
            size = sum(map(len, paragraph))
            yield from sentences[: len(sentences) - len(paragraph)]
    yield from split_sentences(" ".join(paragraph))


def _json_lines(span, lines, field):
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)[field]
            if not isinstance(text, str):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            number += inputs.lines_before(span.path, span.start)
            problem = f"not a JSON object with a string {field!r}"
            if isinstance(error, json.JSONDecodeError):
                problem = f"not JSON ({error.msg}: column {error.colno})"
            elif isinstance(error, (ValueError, RecursionError)):
                problem = "unreadable JSON"
            raise UserError(
                f"{span.path}:{number}: {problem}; each line must be one object such as "
                f'{{"{field}": "..."}} (see --json_field)'
            ) from error
        for paragraph in text.splitlines():
            yield from split_sentences(paragraph)
        yield None
