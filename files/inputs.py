"""Finds and reads text files: comma-separated lists, globs, packed or not, strict UTF-8."""

import contextlib
import dataclasses
import io
import os
import sys
from collections.abc import Iterable, Iterator

import options
from errors import UserError
from files import compression, memory, sources

STANDARD_INPUT = "-"
MB = 10**6
MAX_LINE_MB = 64  # a book, or a large set of them
_CHECK_BYTES = 1 << 24  # of text between two looks at the memory
PACKED = f"plain, {compression.ONE_OF_THEM}"  # what a file may be, for flags


@dataclasses.dataclass(frozen=True)
class LineOptions(options.Group):
    """Input files. How long their lines may be."""

    max_line_mb: int = options.field(
        MAX_LINE_MB,
        help="Refuse lines of more MB than this, and rows of tables and JSON documents. "
        "Each is held in memory as a whole and takes about eight times its size, or fifty "
        "times if its words are single letters. Raise it for larger ones.",
        at_least=1,
        at_most=1_000_000,
    )


def expand(patterns: list[str]) -> list[str]:
    """Turns file names and globs into files, each once, sorted within a pattern.

    `**` crosses folders. A name that exists is used literally, whatever it contains.
    """
    files = {}
    for pattern in patterns:
        if sources.is_folder(pattern):
            raise UserError(
                f"{pattern}: is a folder; name its files, such as "
                f"{os.path.join(pattern, '*.txt')!r}"
            )
        is_name = sources.exists(pattern)
        matches = []
        for path in [pattern] if is_name else sources.matching(pattern):
            # There may be millions, so most need only one system call.
            if sources.is_file(path):
                matches.append(path)
            elif not sources.is_folder(path):
                raise UserError(
                    f"{path}: is not a regular file; a pipe can be read only once, so "
                    "write its text to a file"
                )
        if not matches:
            if sources.exists(joined := ",".join(patterns)):
                raise UserError(
                    f"{joined}: a comma separates names; rename the file, or write ? for "
                    f"each comma, as in {joined.replace(',', '?')!r}"
                )
            raise UserError(
                f"no file matches {pattern!r} (in {os.getcwd()}); "
                "separate names and globs with commas"
            )
        files.update(dict.fromkeys(matches))
    if not files:
        raise UserError("no input file; pass names and globs, separated by commas")
    return list(files)


def lines(
    path: str,
    start: int = 0,
    stop: int | None = None,
    block: bytes | None = None,
    max_line_mb: int | None = None,
) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, unpacked if its name says that it is packed, or of
    standard input if it is "-".

    Only a line feed ends a line (not U+2028 or a form feed, at which `str.splitlines` would
    split), so line numbers match those of an editor. A byte order mark is skipped.

    Args:
        start, stop: byte positions in the unpacked text; lines that begin between them are
            read, and a line must begin at `start`.
        block: the text from `start` to `stop`, if it has already been read.
        max_line_mb: the flag that limits the length of a line; None where there is no
            such flag, and MAX_LINE_MB is the limit.

    Raises:
        UserError: a line is too long or not UTF-8, or the lines have filled the memory.
    """
    number, position, next_check = 0, start, start + _CHECK_BYTES
    most = (max_line_mb or MAX_LINE_MB) * MB + 1
    with _open(path) if block is None else io.BytesIO(block) as file:
        try:
            if start and block is None:
                file.seek(start)
            while line := file.readline(most):
                if stop is not None and position >= stop:
                    return
                number += 1
                if len(line) == most and not line.endswith(b"\n"):
                    number += lines_before(path, start)
                    raise too_long(f"{name(path)}:{number}: the line", max_line_mb)
                encoding = "utf-8" if position else "utf-8-sig"
                position += len(line)
                if position > next_check:
                    memory.refuse_if_filled(f"{name(path)}: reading it")
                    next_check = position + _CHECK_BYTES
                yield line.decode(encoding).rstrip("\n")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            what, convert = "", "convert the file, for example with iconv -t UTF-8"
            if _is_cp949(error.object):
                what = ", but probably CP949 (EUC-KR)"
                convert = (
                    f"convert it: iconv -f CP949 -t UTF-8 {name(path)!r} > NEW_FILE"
                )
            raise UserError(
                f"{name(path)}:{number + lines_before(path, start)}: not UTF-8{what} (byte "
                f"0x{byte:02x} after {error.start} bytes of the line); {convert}"
            ) from error
        except compression.DAMAGE as error:
            number += 1 + lines_before(path, start)
            raise UserError(
                f"{path}:{number}: the compressed data is damaged ({error}); compress or "
                "copy the file again"
            ) from error


def whole_text(path: str, lines: Iterable[str], max_line_mb: int | None = None) -> str:
    """The lines of a file that must be read as a whole, such as JSON that is not in lines.

    Args:
        max_line_mb: see `lines`; it limits all of them together.
    """
    parts, length = [], 0
    for line in lines:
        parts.append(line)
        length += len(line) + 1
        if length > (max_line_mb or MAX_LINE_MB) * MB:
            what = f"{name(path)}: is read as a whole, and"
            raise too_long(what, max_line_mb)
    return "\n".join(parts)


def too_long(what: str, max_line_mb: int | None) -> UserError:
    """The error for a line or a part of a file beyond the limit of `lines`."""
    if max_line_mb is None:
        return UserError(f"{what} is longer than {MAX_LINE_MB} MB; break it")
    return UserError(
        f"{what} is longer than --max_line_mb={max_line_mb}; break it, or raise the limit "
        "if there is enough memory"
    )


def _is_cp949(line):
    """Whether bytes make sense as Korean in the encoding that Windows has for it."""
    try:
        text = line.decode("cp949")
    except UnicodeDecodeError:
        return False
    others = [character for character in text if not character.isascii()]
    # Of Chinese in its own encodings, about 60 % would be Hangul.
    return sum("\uac00" <= other <= "\ud7a3" for other in others) > 0.8 * len(others)


def parts_of_line(file: io.BufferedIOBase) -> Iterator[bytes]:
    """Reads to the end of a line, a megabyte at a time, however long it is."""
    while part := file.readline(MB):
        yield part
        if part.endswith(b"\n"):
            return


def name(path: str) -> str:
    """Its name in messages."""
    return "standard input" if path == STANDARD_INPUT else path


def _open(path):
    if path == STANDARD_INPUT:
        return contextlib.nullcontext(sys.stdin.buffer)
    return compression.unpack(path, sources.open_file(path))


def lines_before(path: str, position: int) -> int:
    """How many lines end before a byte of the unpacked file; reads that far."""
    if not position:
        return 0
    count = 0
    with _open(path) as file:
        while position > 0 and (block := file.read(min(position, 1 << 20))):
            count += block.count(b"\n")
            position -= len(block)
    return count
