"""Knows the input formats: files to documents of sentences, in pieces of bounded size."""

import json
import os
from collections.abc import Iterator
from typing import NamedTuple

from text import inputs
from text.errors import UserError
from text.sentences import split_sentences

FORMATS = ("sentences", "paragraphs", "files", "jsonl")

_PIECE_BYTES = 8 << 20
_PARAGRAPH_CHARACTERS = 1 << 20


class Span(NamedTuple):
    """Some bytes of a file that hold whole documents; stop None: to its end."""

    path: str
    start: int
    stop: int | None
    size: int


def pieces(paths: list[str], input_format: str) -> list[list[Span]]:
    """Cuts the input into pieces of some megabytes, which do not depend on who reads them.

    A file that is packed, or is one document, is not cut; small files share a piece.
    """
    found, piece, size = [], [], 0
    for path in paths:
        for span in _spans(path, input_format):
            piece.append(span)
            size += span.size
            if size >= _PIECE_BYTES:
                found.append(piece)
                piece, size = [], 0
    return found + [piece] if piece else found


def _spans(path, input_format):
    size = os.path.getsize(path)
    if input_format == "files" or path.endswith(".gz"):
        return [Span(path, 0, None, size)]
    spans, start = [], 0
    with open(path, "rb") as file:
        while size - start > _PIECE_BYTES:
            file.seek(start + _PIECE_BYTES)
            file.readline()
            if input_format != "jsonl":
                # Documents end at empty lines only.
                while (line := file.readline()) and line.strip():
                    pass
            stop = min(file.tell(), size)
            spans.append(Span(path, start, stop, stop - start))
            start = stop
    if start < size or not spans:
        spans.append(Span(path, start, size, size - start))
    return spans


def read(
    span: Span, input_format: str, json_field: str, ends_at_file_end: bool
) -> Iterator[str | None]:
    """Yields the sentences of a span, and None wherever a document ends.

    Args:
        input_format: "sentences": one a line, an empty line ends a document (the release's
            format). "paragraphs": running text, one paragraph a line, an empty line ends a
            document. "files": running text, each file a document, empty lines between
            paragraphs, whose lines may be broken anywhere. "jsonl": one JSON object a
            line, a document each, its text in json_field.
        ends_at_file_end: whether the end of a file ends a document.
    Raises:
        UserError: not UTF-8, not JSON, or a field that is missing or no text, by file:line.
    """
    lines = inputs.lines(span.path, span.start, span.stop)
    if input_format == "jsonl":
        yield from _json_lines(span, lines, json_field)
    elif input_format == "files":
        yield from _wrapped_paragraphs(lines)
        yield None
    else:
        for line in lines:
            line = line.strip()
            if not line:
                yield None
            elif input_format == "sentences":
                yield line
            else:
                yield from split_sentences(line)
        if ends_at_file_end:
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
            # A text without empty lines must not be held as a whole: its last sentence,
            # which may go on, waits for more lines.
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
            problem = f"no JSON object whose {field!r} is a text"
            if isinstance(error, json.JSONDecodeError):
                problem = f"not JSON ({error.msg}: column {error.colno})"
            elif isinstance(error, (ValueError, RecursionError)):
                problem = "not JSON that can be read"
            raise UserError(
                f"{span.path}:{number}: {problem}; each line is one object such as "
                f'{{"{field}": "..."}} (see --json_field)'
            ) from error
        for paragraph in text.splitlines():
            yield from split_sentences(paragraph)
        yield None
