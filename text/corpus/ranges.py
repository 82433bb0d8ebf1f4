"""Cuts input files into ranges of whole documents, each by its own reader.

Where to cut is known before a file is opened; each reader then moves both ends of its range
to where a document begins, and neighbors agree on that place.
"""

from collections.abc import Iterable, Iterator

from text.corpus.formats import Span
from text.files import inputs, sources

_RANGE_FILES = 1 << 12


def ranges(
    paths: Iterable[str], input_format: str, most_bytes: int
) -> Iterator[list[Span]]:
    """Lists spans of about `most_bytes` together, for `whole_documents`.

    Small files share a range. A file that is packed or is one document is not cut.
    """
    spans, size = [], 0
    for path in paths:
        for span in _spans(path, input_format, most_bytes):
            spans.append(span)
            size += span.size
            if size >= most_bytes or len(spans) == _RANGE_FILES:
                yield spans
                spans, size = [], 0
    if spans:
        yield spans


def _spans(path, input_format, most_bytes):
    # The reader may be on another machine, where the file has another identity.
    status = sources.status(path)._replace(identity=0)
    size, start = status.size, 0
    if not path.endswith(".gz") and input_format != "files":
        while size - start > most_bytes:
            yield Span(path, start, start + most_bytes, most_bytes, status=status)
            start += most_bytes
    yield Span(path, start, None, size - start, status=status)


def whole_documents(span: Span, input_format: str) -> Span | None:
    """The documents that begin in a span; None if none does.

    A document that reaches into the next span, or across several, belongs to the first.

    Raises:
        ChangedFileError: the file has changed since the span was cut.
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
