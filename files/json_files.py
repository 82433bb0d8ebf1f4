"""Reads JSON files; the one place that does, because anyone may have written them.

Only the rows of corpora and SQuAD's files are parsed where they are read, for speed.

Whatever a file contains, reading takes less than two gigabytes, and what comes of it can be
walked through, converted to floats, printed and written again.
"""

import json
import re
from collections.abc import Callable

from errors import UserError
from files import sources

MAX_DEPTH = 100
_MAX_DIGITS = 300  # of a whole number; a longer one is beyond every float
_LONG = re.compile(rf"\d{{{_MAX_DIGITS + 1}}}")


def read(path: str):
    """The content of a file.

    Raises:
        UserError: it is not JSON, or is larger or deeper than files of this kind are.
        OSError: it cannot be read.
    """
    try:
        return parse(sources.content(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON ({error.msg})") from error
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def read_object(path: str, advice: str) -> dict:
    """The object in a file.

    Args:
        advice: what to do about a file that has none.
    Raises:
        UserError: it cannot be read or is not an object.
    """
    try:
        value = read(path)
    except UserError as error:
        raise UserError(f"{error}; {advice}") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise UserError(f"{path}: is a JSON {kind} instead of an object; {advice}")
    return value


def read_own(path: str, kind: type = dict):
    """What this program noted in a file.

    Args:
        kind: of the value, dict or list.
    Returns:
        an empty one if there is no such file, or it is somebody else's.
    Raises:
        UserError: it cannot be read.
    """
    try:
        value = read(path)
    except (UserError, FileNotFoundError, NotADirectoryError, IsADirectoryError):
        value = None
    except OSError as error:
        raise _unreadable(path, error) from error
    return value if isinstance(value, kind) else kind()


def parse(content: bytes | str, **hooks: Callable[[str | dict], object]):
    """What a text says in JSON.

    Args:
        hooks: object_hook and parse_constant, as `json.loads` takes them.
    Raises:
        ValueError: it is not JSON, or is nested too deeply or has too large a number.
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        is_long = len(text) > _MAX_DIGITS and _LONG.search(text)
        integer = _integer if is_long else None  # it takes its time
        value = json.loads(text, parse_int=integer, **hooks)
        if "\\u" in text:  # may be half of a pair, which no file can contain
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise _too_deep() from error
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start})") from error
    except UnicodeEncodeError as error:
        raise ValueError("has half of a surrogate pair, such as \\ud800") from error
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    return value


def _integer(digits):
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"has a number of {len(digits):,} digits")
    return int(digits)


def _check_depth(value):
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for parent in level
            if isinstance(parent, list | dict)
            for item in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(item, list | dict)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep():
    return ValueError(f"nested too deeply; at most {MAX_DEPTH} levels are read")


def _unreadable(path, error):
    reason = error.strerror or str(error)
    return UserError(f"{path}: cannot be read or written: {reason}")
