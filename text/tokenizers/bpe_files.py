"""Reads the files of BPE vocabularies: JSON of tokens and ids, and a list of merges."""

import json
from collections.abc import Container

from errors import UserError
from text.files import sources


def content(path: str) -> bytes:
    with sources.opened(path) as file:
        return file.read()


def tokens_by_id(content: bytes) -> list[str]:
    """The tokens of a JSON object of tokens and ids.

    Raises:
        ValueError: it is not such an object, or the ids are not 0, 1, 2 and so on.
    """
    ids = json.loads(content)
    if not isinstance(ids, dict) or not ids:
        raise ValueError("not an object of tokens and ids")
    for token, id in ids.items():
        if type(id) is not int or not 0 <= id < len(ids):
            raise ValueError(
                f"{token!r} has the id {id!r}; {len(ids)} tokens have the ids 0 to "
                f"{len(ids) - 1}, each once"
            )
    tokens = [""] * len(ids)
    for token, id in ids.items():
        if tokens[id]:
            raise ValueError(f"{tokens[id]!r} and {token!r} have the same id, {id}")
        tokens[id] = token
    return tokens


def contents(path: str, merges_path: str, what: str) -> tuple[bytes, bytes]:
    """Reads both files.

    Args:
        what: a sentence about the two files, for the error.
    Raises:
        UserError: a file is missing.
    """
    for needed in (path, merges_path):
        if not sources.is_file(needed):
            raise UserError(f"{needed}: no such file; {what}")
    return content(path), content(merges_path)


def read(path: str, content: bytes) -> list[str]:
    """The tokens by id; arguments as for `merges`.

    Raises:
        UserError: the file is malformed.
    """
    try:
        return tokens_by_id(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a vocabulary: {error}") from error


def merges(
    path: str, content: bytes, known: Container[str], vocabulary_file: str
) -> list[tuple[str, str]]:
    """The pairs of pieces that are merged, first to last.

    Args:
        path, content: of the file, one pair per line.
        known: the tokens.
        vocabulary_file: the name of the file with the tokens, for errors.
    Raises:
        UserError: names the first line that is not a pair, or that does not fit.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 ({error})") from error
    pairs, taken = [], set()
    for number, line in _numbered(text):
        pieces = tuple(line.split(" "))
        if len(pieces) != 2 or not all(pieces):
            raise UserError(
                f"{path}:{number}: {line[:60]!r} is not two pieces with a space between "
                "them"
            )
        for piece in (*pieces, "".join(pieces)):
            if piece not in known:
                raise UserError(
                    f"{path}:{number}: {piece!r} is not in {vocabulary_file}; use the "
                    "merges that belong to it"
                )
        if pieces in taken:
            raise UserError(f"{path}:{number}: {line!r} is repeated; remove the line")
        taken.add(pieces)
        pairs.append(pieces)
    return pairs


def same_merges(first: bytes, second: bytes) -> bool:
    """Whether two files of merges have the same pairs, whatever version they name."""
    lines = (
        [line for _, line in _numbered(content.decode("utf-8", errors="replace"))]
        for content in (first, second)
    )
    return next(lines) == next(lines)


def _numbered(text):
    """The lines with pairs, and their numbers."""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        # The first line is a comment; elsewhere, # is a piece like others.
        if line and not (number == 1 and line.startswith("#version")):
            yield number, line
