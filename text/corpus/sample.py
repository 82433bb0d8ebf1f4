"""Takes a sample of bounded size from input files, spread over all of them."""

import bisect
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from text.corpus import formats
from text.errors import UserError
from text.files import sources

_BYTES = 4 << 20
_WINDOWS = 32
_UNPACKED_BY = 4  # how many times as long the text of a .gz file is, roughly
_LONGEST_LINE = 8 << 20


class Sample(NamedTuple):
    """A part of the input.

    Attributes:
        parts: spans with their text; those of one part are read together.
        size: the number of bytes they take on disk.
        total: that of all files.
        num_files: files that are not empty.
        is_whole: whether the sample is all of the input, in its order.
    """

    parts: list[list[formats.Span]]
    size: int
    total: int
    num_files: int
    is_whole: bool


def take(paths: Iterable[str]) -> Sample:
    """Reads about 4 MB of text: all of it, or lines from 32 places at equal distances.

    A .gz file can only be read from its beginning. More is read from there, the more of the
    places are in the file.

    Raises:
        UserError: a line is too long.
        OSError: a file cannot be read.
    """
    files = [(path, size) for path in paths if (size := sources.size(path))]
    *begins, total = itertools.accumulate((size for _, size in files), initial=0)
    any_packed = any(path.endswith(".gz") for path, _ in files)
    limit = _BYTES // _UNPACKED_BY if any_packed else _BYTES
    number = 1 if total <= limit else _WINDOWS
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
            if path.endswith(".gz"):
                packed[path, size] = packed.get((path, size), 0) + stop - start
            elif span := _window(path, start, stop, size):
                part.append(span)
        if part:
            parts.append(part)
    text = _BYTES // number if number > 1 else _BYTES
    for (path, size), share in packed.items():
        for span in _beginning(path, size, share, text):
            if not parts or _length(parts[-1]) >= text:
                parts.append([])
            parts[-1].append(span)
    taken = sum(span.size for part in parts for span in part)
    is_whole = number == 1 and taken == total and len(packed) in (0, len(files))
    return Sample(parts, taken, total, len(files), is_whole)


def _length(part):
    return sum(len(span.block or b"") for span in part)


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
    return formats.Span(path, start, None if stop == size else stop, len(block), block)


def _line(file, path):
    line = file.readline(_LONGEST_LINE)
    if len(line) == _LONGEST_LINE:
        raise UserError(
            f"{path}: a line is longer than {_LONGEST_LINE:,} bytes, too long for a "
            "sample; leave out --dry_run"
        )
    return line


def _beginning(path, size, share, block_bytes):
    """Spans of a packed file that take about `share` of its bytes."""
    taken = text = 0
    for span in formats.unpacked(path, "sentences", size, block_bytes):
        yield span
        taken += span.size
        text += len(span.block or b"")
        if text >= min(_BYTES, 2 * _UNPACKED_BY * share) or (share <= taken < size):
            return
