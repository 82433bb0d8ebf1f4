"""Takes a sample of bounded size from input files, spread over all of them."""

import bisect
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from errors import UserError
from files import compression, sources
from text.corpus.formats import FORMATS, TextOptions
from text.corpus.text_format import FileSpan

_BYTES = 4 << 20
_WINDOWS = 32
# A packed file's first bytes are packed worse, so its beginning must be long.
_PACKED_WINDOWS = 8
_UNPACKED_BY = 4  # how many times as long the text of a packed file is, roughly
_MOST_UNPACKED = 16 << 20


class Sample(NamedTuple):
    """A part of the input.

    Attributes:
        parts: spans with their text; those of one part are read together. If a document
            may go on after a part, it ends as if its file did, for what follows is not
            its document's.
        size: the number of bytes they take on disk.
        total: that of all files.
        num_files: files that are not empty.
        is_whole: whether the sample is all of the input, in its order.
        sequential: files that can only have their beginning in the sample.
    """

    parts: list[list[FileSpan]]
    size: int
    total: int
    num_files: int
    is_whole: bool
    sequential: Sequence[str] = ()

    @property
    def scale(self) -> float:
        """How much larger the whole input is."""
        return self.total / self.size if self.size else 1.0

    def documents(self, number: int, input_format: str) -> float:
        """How many documents the whole input has, if the sample has this number."""
        text_format = FORMATS[input_format]
        if self.is_whole or not text_format.splits_documents:
            return number * self.scale
        if text_format.ends_with_file:
            return self.num_files
        ends = sum(span.stop is None for part in self.parts for span in part)
        return max(number - ends, 0) * self.scale + self.num_files

    def place(self) -> str:
        """Where in the input it was taken from, for a user."""
        if not self.sequential:
            return f"at {len(self.parts)} places"
        others = " and other packed files" if len(self.sequential) > 1 else ""
        return f"only at the beginning of {self.sequential[0]}{others}"


def take(paths: Sequence[str], chosen: TextOptions) -> Sample:
    """Reads about 4 MB of text: all of it, or parts from places at equal distances.

    Of a packed file, often only the beginning can be read. More is read from there, the
    more of the places are in the file.

    Raises UserError if a line is too long.
    """
    text_format = FORMATS[chosen.input_format]
    files = [(path, size) for path in paths if (size := sources.size(path))]
    *begins, total = itertools.accumulate((size for _, size in files), initial=0)
    if not files:
        return Sample([], 0, 0, 0, is_whole=True)
    any_packed = any(compression.is_packed(path) for path, _ in files)
    limit = _BYTES // _UNPACKED_BY if any_packed else _BYTES
    any_sequential = any(text_format.is_sequential(*file) for file in files)
    number = _PACKED_WINDOWS if any_sequential else _WINDOWS
    number = 1 if total <= limit else number
    length = total if number == 1 else limit // number
    parts, sequential = [[] for _ in range(number)], {}
    for index, windows in _places(begins, total, number, length):
        path, size = files[index]
        if text_format.is_sequential(path, size):
            sequential[path, size] = sum(stop - start for _, start, stop in windows)
            continue
        spans = text_format.windows(
            path, [place for _, *place in windows], size, chosen
        )
        for (window, *_), span in zip(windows, spans, strict=True):
            parts[window] += [span] if span else []
    parts = list(filter(None, parts))
    text = _BYTES if number == 1 else _BYTES // _WINDOWS
    for (path, size), share in sequential.items():
        for span in _beginning(path, share, size, text, text_format.unit_end):
            if not parts or sum(len(s.block or b"") for s in parts[-1]) >= text:
                parts.append([])
            parts[-1].append(span)
    taken = sum(span.size for part in parts for span in part)
    is_whole = number == 1 and taken == total and len(sequential) in (0, len(files))
    if not is_whole and text_format.splits_documents:
        parts = [[*part, last._replace(stop=None)] for *part, last in parts]
    names = [path for path, _ in sequential]
    return Sample(parts, taken, total, len(files), is_whole, names)


def _places(begins, total, number, length):
    """Yields (index of a file, [(window, start, stop)]) of windows at equal distances.

    Args:
        begins: of files, in bytes of all of them.
        length: of a window in bytes.
    """
    places = {}
    for window in range(number):
        first = (2 * window + 1) * total // (2 * number) - length // 2
        index = bisect.bisect_right(begins, first) - 1
        while index < len(begins) and begins[index] < first + length:
            end = begins[index + 1] if index + 1 < len(begins) else total
            start = max(first - begins[index], 0)
            stop = min(first + length, end) - begins[index]
            places.setdefault(index, []).append((window, start, stop))
            index += 1
    return places.items()


def _beginning(path, share, size, block_bytes, unit_end):
    """Yields spans of the text in the first `share` of a packed file's bytes."""
    text = bytearray()
    try:
        share, is_end = _unpack(path, share, size, text, unit_end)
    except compression.DAMAGE:
        return (yield FileSpan(path, 0, None, size))  # its reader will say it
    if not is_end:
        del text[text.rfind(unit_end) + len(unit_end) :]
    start = 0
    while start < len(text):
        end = text.find(unit_end, start + block_bytes - 1)
        stop = len(text) if end < 0 else end + len(unit_end)
        packed_size = share * stop // len(text) - share * start // len(text)
        block = bytes(text[start:stop])
        ends = is_end and stop == len(text)
        yield FileSpan(path, start, None if ends else stop, packed_size, block)
        start = stop


def _unpack(path, share, size, text, unit_end):
    """Adds to a text what is in about the first `share` of a packed file's bytes.

    Returns how many it took, and whether the text is all of the file. More is read where
    they end within a block of bzip2's, so that they are those of the text, and where no
    unit ends.
    """
    with sources.open_file(path) as packed, compression.unpack(path, packed) as file:
        while len(text) < _MOST_UNPACKED:
            before = packed.tell()
            block = file.read1(1 << 16)
            if not block:
                return size, True
            if share <= before < packed.tell() and unit_end in text:
                return before, False
            text += block
        if unit_end not in text:
            raise UserError(
                f"{path}: no {unit_end.decode().strip() or 'line'} ends within its first "
                f"{_MOST_UNPACKED:,} bytes, too long for a sample; leave out --dry_run"
            )
        return packed.tell(), False
