"""Takes a sample of bounded size from input files, spread over all of them."""

import bisect
import io
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from errors import UserError
from text.corpus.formats import FORMATS
from text.corpus.text_format import Span, TextFormat
from text.files import packings, sources

_BYTES = 4 << 20
_WINDOWS = 32
# A packed file's first bytes are packed worse, so its beginning must be long.
_PACKED_WINDOWS = 8
_UNPACKED_BY = 4  # how many times as long the text of a packed file is, roughly
_LONGEST_LINE = 8 << 20
_MOST_UNPACKED = 16 << 20


class Sample(NamedTuple):
    """A part of the input.

    Attributes:
        parts: spans with their text; those of one part are read together. Where the text
            goes on, each ends as if its file did, for what follows is not its document's.
        size: the number of bytes they take on disk.
        total: that of all files.
        num_files: files that are not empty.
        is_whole: whether the sample is all of the input, in its order.
    """

    parts: list[list[Span]]
    size: int
    total: int
    num_files: int
    is_whole: bool

    @property
    def scale(self) -> float:
        """How much larger the whole input is."""
        return self.total / self.size if self.size else 1.0

    def documents(self, number: int, input_format: str) -> float:
        """How many documents the whole input has, if the sample has this number."""
        lines = FORMATS[input_format]
        if self.is_whole or not lines.cuts_lines or lines.ends_with_line:
            return number * self.scale
        if lines.ends_with_file:
            return self.num_files
        ends = sum(span.stop is None for part in self.parts for span in part)
        return max(number - ends, 0) * self.scale + self.num_files


def take(paths: Iterable[str], input_format: str) -> Sample:
    """Reads about 4 MB of text: all of it, or parts from places at equal distances.

    A packed file can only be read from its beginning, unless it is of many streams. More is
    read from there, the more of the places are in the file.

    Raises UserError if a line is too long.
    """
    files = [(path, size) for path in paths if (size := sources.size(path))]
    if not FORMATS[input_format].cuts_lines:
        return _excerpts(files, FORMATS[input_format])
    *begins, total = itertools.accumulate((size for _, size in files), initial=0)
    if not files:
        return Sample([], 0, 0, 0, is_whole=True)
    any_packed = any(packings.is_packed(path) for path, _ in files)
    limit = _BYTES // _UNPACKED_BY if any_packed else _BYTES
    number = _PACKED_WINDOWS if any_packed else _WINDOWS
    number = 1 if total <= limit else number
    length = total if number == 1 else limit // number
    parts, packed = [], {}
    for window in range(number):
        first = (2 * window + 1) * total // (2 * number) - length // 2
        part = []
        for index in range(bisect.bisect_right(begins, first) - 1, len(files)):
            begin, (path, size) = begins[index], files[index]
            if begin >= first + length:
                break
            start, stop = max(first - begin, 0), min(first + length - begin, size)
            if packings.is_packed(path):
                packed[path, size] = packed.get((path, size), 0) + stop - start
            elif span := _window(path, start, stop, size):
                part.append(span)
        if part:
            parts.append(part)
    text = _BYTES if number == 1 else _BYTES // _WINDOWS
    for (path, size), share in packed.items():
        for span in _beginning(path, share, size, text):
            if not parts or sum(len(s.block or b"") for s in parts[-1]) >= text:
                parts.append([])
            parts[-1].append(span)
    taken = sum(span.size for part in parts for span in part)
    is_whole = number == 1 and taken == total and len(packed) in (0, len(files))
    if not is_whole:
        parts = [[*part, last._replace(stop=None)] for *part, last in parts]
    return Sample(parts, taken, total, len(files), is_whole)


def _excerpts(files, text_format: TextFormat) -> Sample:
    """Beginnings of spans at equal distances, or all spans of little text."""
    total = sum(size for _, size in files)
    any_packed = any(packings.is_packed(path) for path, _ in files)
    limit = _BYTES // _UNPACKED_BY if any_packed else _BYTES
    spans = []
    for path, size in files:
        unpacked = 0
        for span in text_format.spans(path, size, total):
            spans.append(span)
            unpacked += span.size if span.block is not None else 0
            if unpacked >= limit < total:
                break  # to find the next one, all before it would have to be unpacked
    if total <= limit:
        return Sample([spans] if spans else [], total, total, len(files), is_whole=True)
    number = min(_PACKED_WINDOWS, len(spans))
    chosen = [spans[(2 * i + 1) * len(spans) // (2 * number)] for i in range(number)]
    parts = [[text_format.excerpt(span, limit // number)] for span in chosen]
    taken = sum(span.size for part in parts for span in part)
    return Sample(parts, taken, total, len(files), is_whole=False)


def _window(path, start, stop, size):
    """The lines that begin between two bytes of a file, or the first that follows."""
    with sources.opened(path) as file:
        if start:
            file.seek(start - 1)
            _line(file, path)
            start = file.tell()
        block = file.read(max(stop - start, 0))
        if not block.endswith(b"\n"):
            block += _line(file, path)
    if not block:
        return None
    stop = start + len(block)
    return Span(path, start, None if stop == size else stop, len(block), block)


def _line(file, path):
    line = file.readline(_LONGEST_LINE)
    if len(line) == _LONGEST_LINE:
        raise UserError(
            f"{path}: a line is longer than {_LONGEST_LINE:,} bytes, too long for a "
            "sample; leave out --dry_run"
        )
    return line


def _beginning(path, share, size, block_bytes):
    """Yields spans of the text in the first `share` of a packed file's bytes."""
    text = bytearray()
    while not text:
        try:
            share = _unpack(path, share, text)
        except EOFError:
            if share == size:  # it is cut off, which its reader will say
                return (yield Span(path, 0, None, size))
        except packings.DAMAGE:
            return (yield Span(path, 0, None, share))
        if share == size:
            break
        if not text:  # less than one block of bzip2's
            share = min(2 * share, size)
    is_end = share == size
    if not is_end:
        del text[text.rfind(b"\n") + 1 :]
    start = 0
    while start < len(text):
        stop = text.find(b"\n", start + block_bytes - 1) + 1 or len(text)
        packed_size = share * stop // len(text) - share * start // len(text)
        block = bytes(text[start:stop])
        ends = is_end and stop == len(text)
        yield Span(path, start, None if ends else stop, packed_size, block)
        start = stop


def _unpack(path, share, text):
    """Adds to a text what is in the first bytes of a packed file; returns how many it took.

    Raises EOFError, with the text unpacked so far, if they end within a stream.
    """
    with sources.opened(path) as file:
        packed = io.BytesIO(file.read(share))
    with packings.unpacked(path, packed) as file:
        while len(text) < _MOST_UNPACKED and (block := file.read1(1 << 16)):
            text += block
        return packed.tell()
