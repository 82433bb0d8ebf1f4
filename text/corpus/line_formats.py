"""Reads documents from lines of text, plain or packed."""

import dataclasses
import json
from collections.abc import Iterator

import options
from errors import UserError
from files import compression, inputs, sources
from text.corpus import text_format
from text.corpus.sentences import split_sentences
from text.corpus.text_format import PARAGRAPH_END, FileSpan, TextFormat

# Unpacking is about ten times as fast as tokenizing. A packed file that is more than a
# tenth of the input is therefore unpacked once and handed out in blocks; smaller ones are
# read in parallel with others, so each is unpacked by its reader.
_MANY_FILES = 10
_PARAGRAPH_CHARACTERS = 1 << 20
_LONGEST_SAMPLED_LINE = 8 << 20


@dataclasses.dataclass(frozen=True)
class JsonOptions(inputs.LineOptions):
    """Input files. JSON lines."""

    json_field: str = options.field(
        "text",
        help="The key of the text, with --input_format=jsonl.",
        only_for={"input_format": "jsonl"},
    )


class LineFormat(TextFormat):
    """The release's: one sentence per line, an empty line ends a document.

    A large file, packed or not, is cut between lines. A document may continue in the next
    span.

    Attributes:
        cuts_at_empty: whether a span may end only after an empty line.
    """

    help = "one sentence per line, an empty line ends a document, as in the release"
    splits_documents = True
    cuts_at_empty = False

    def spans(self, path, size, total):
        if compression.is_packed(path):
            if size > max(text_format.PIECE_BYTES // 4, total // _MANY_FILES):
                yield from self._unpack_span(path, size)
                return
            yield FileSpan(path, 0, None, size)
            return
        start = 0
        if size > text_format.PIECE_BYTES:
            with sources.open_file(path) as file:
                while size - start > text_format.PIECE_BYTES:
                    file.seek(start + text_format.PIECE_BYTES)
                    for _ in self._to_next_cut(file):
                        pass
                    stop = file.tell()
                    if stop >= size:
                        break
                    yield FileSpan(path, start, stop, stop - start)
                    start = stop
        yield FileSpan(path, start, None, size - start)

    def _unpack_span(self, path, size):
        start = read = 0
        with (
            sources.open_file(path) as packed,
            compression.unpack(path, packed) as file,
        ):
            try:
                while True:
                    block = self._block(file)
                    if not file.peek(1):
                        yield FileSpan(path, start, None, size - read, block)
                        return
                    stop, now_read = file.tell(), packed.tell()
                    yield FileSpan(path, start, stop, now_read - read, block)
                    start, read = stop, now_read
            except compression.DAMAGE:
                pass
        # Its reader will find the damage, and can report the line.
        yield FileSpan(path, start, None, size - read)

    def _block(self, file):
        """Reads to the next place to cut; None if the text is too long to hold."""
        parts = [file.read(text_format.PIECE_BYTES)]
        size = len(parts[0])
        for line in self._to_next_cut(file):
            size += len(line)
            if size <= 2 * text_format.PIECE_BYTES:
                parts.append(line)
        return b"".join(parts) if size <= 2 * text_format.PIECE_BYTES else None

    def _to_next_cut(self, file):
        """Yields the rest of a line, and the lines that follow until a span may end."""
        yield from inputs.parts_of_line(file)
        is_empty = not self.cuts_at_empty
        while not is_empty:
            is_empty = True  # as it is at the end of the file
            for part in inputs.parts_of_line(file):
                is_empty &= not part.strip()
                yield part

    def is_sequential(self, path, size):
        return compression.is_packed(path)

    def whole_documents(self, span, size):
        start, stop = span.start, span.stop
        with sources.open_file(span.path) as file:
            if start:
                start = self._next_document(file, start, stop)
                if start is None:
                    return None
            if stop is not None:
                stop = self._next_document(file, stop)
        if stop == size:
            stop = None  # the end of the file may have to end a document
        if start == (size if stop is None else stop):
            return None
        return span._replace(start=start, stop=stop)

    def _next_document(self, file, position, limit=None):
        """The byte after the first line from a position on that ends a document.

        None if no line that begins before `limit` does; so no one reads all of a long
        document but its reader.
        """
        file.seek(position - 1)
        for _ in inputs.parts_of_line(file):  # whose beginning may be before
            pass
        if not self.splits_documents:  # every line is one
            return file.tell()
        while limit is None or file.tell() < limit:
            parts = [bool(part.strip()) for part in inputs.parts_of_line(file)]
            if not any(parts):
                return file.tell()
        return None

    def windows(self, path, places, size, chosen):
        """See `TextFormat`. The lines that begin between two bytes, or the next one."""
        with sources.open_file(path) as file:
            for start, stop in places:
                if start:
                    file.seek(start - 1)
                    _line(file, path)
                    start = file.tell()
                else:
                    file.seek(0)
                block = file.read(max(stop - start, 0))
                if not block.endswith(b"\n"):
                    block += _line(file, path)
                stop = start + len(block)
                stop = None if stop == size else stop
                yield FileSpan(path, start, stop, len(block), block) if block else None

    def read(self, span, chosen, counts):
        """See `TextFormat`; also `inputs.lines`, for what it raises."""
        lines = inputs.lines(
            span.path, span.start, span.stop, span.block, chosen.max_line_mb
        )
        yield from self._sentences(span, lines, chosen)

    def _sentences(self, span, lines, chosen):
        for line in lines:
            line = line.strip()
            if line:
                yield from self._sentences_of(line)
            else:
                yield None
        if span.stop is None:  # the file ends here, and a document with it
            yield None

    def _sentences_of(self, line: str) -> list[str]:
        return [line]


def _line(file, path):
    line = file.readline(_LONGEST_SAMPLED_LINE)
    if len(line) == _LONGEST_SAMPLED_LINE:
        raise UserError(
            f"{path}: a line is longer than {_LONGEST_SAMPLED_LINE:,} bytes, too long for "
            "a sample; leave out --dry_run"
        )
    return line


class Paragraphs(LineFormat):
    """Running text, one paragraph per line."""

    help = "running text, one paragraph per line, an empty line ends a document"
    words_format = "sentences"

    def _sentences_of(self, line):
        return [*split_sentences(line), PARAGRAPH_END]


class WholeFiles(LineFormat):
    """Running text, one document per file; sentences continue across lines."""

    help = (
        "running text, one document per file, lines broken anywhere, empty lines between "
        "paragraphs"
    )
    words_format = "sentences"
    ends_with_file = True
    cuts_at_empty = True

    def _sentences(self, span, lines, chosen):
        yield from _wrapped_paragraphs(lines)
        if span.stop is None:
            yield None


def _wrapped_paragraphs(lines: Iterator[str]) -> Iterator[str]:
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
            if not line:
                yield PARAGRAPH_END
    yield from split_sentences(" ".join(paragraph))


class JsonLines(LineFormat):
    """One JSON object per line, each a document, with its text in --json_field."""

    help = "one JSON object per line, each a document"
    splits_documents = False

    def _sentences(self, span, lines, chosen):
        field = chosen.json_field
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
                    f"{span.path}:{number}: {problem}; each line must be one object such "
                    f'as {{"{field}": "..."}} (see --json_field)'
                ) from error
            for paragraph in text.splitlines():
                yield from split_sentences(paragraph)
                yield PARAGRAPH_END
            yield None
