"""Tagged text: files with one word per line, the schemes by which tags mark entities, and
which words share a row.

Words that name an entity carry a mark and its kind, all others O. `New York Paris` is

    iob1   I-LOC I-LOC B-LOC   B only where an entity follows another of its kind
    iob2   B-LOC I-LOC B-LOC   B at every beginning
    iobes  B-LOC E-LOC S-LOC   E at every end, S for a single word

Which words make an entity can be told of tags in any scheme, whole or broken; what scheme
they follow is that in which marking these entities changes the fewest tags.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from text.errors import UserError

SCHEMES = ("iob2", "iob1", "iobes")
OUTSIDE = "O"

_DOCUMENT = "-DOCSTART-"
_CELL = re.compile("[^ \t]+")


# === Entities ========================================================================


class Entity(NamedTuple):
    """Words `start` to `stop` of a sentence, without `stop`."""

    kind: str
    start: int
    stop: int


def _parts(tag):
    """B-LOC -> B, LOC; where files have one kind only, B -> B and no name."""
    letter, _, kind = tag.partition("-")
    return letter, kind


def is_tag(text: str) -> bool:
    return text == OUTSIDE or re.fullmatch("[BIES](-.+)?", text) is not None


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities that tags mark, as conlleval reads them.

    An entity also begins where its mark says that it goes on, but nothing of its kind
    goes before.

    Source: the CoNLL-2000 shared task's conlleval, for I and B.
    """
    found = []
    start, open_kind, ended = 0, None, False
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, kind = _parts(tag)
        goes_on = letter in ("I", "E") and kind == open_kind and not ended
        if not goes_on:
            if open_kind is not None:
                found.append(Entity(open_kind, start, place))
            start, open_kind = place, None if letter == OUTSIDE else kind
        ended = letter in ("E", "S")
    return found


def mark(found: Iterable[Entity], length: int, scheme: str) -> list[str]:
    """The tags of `length` words; entities in the order of the text."""
    tags = [OUTSIDE] * length
    before = None
    for entity in found:
        kind, start, stop = entity
        letters = ["I"] * (stop - start)
        follows = before is not None and (before.kind, before.stop) == (kind, start)
        if scheme != "iob1" or follows:
            letters[0] = "B"
        if scheme == "iobes":
            letters[-1] = "S" if stop - start == 1 else "E"
        tags[start:stop] = [f"{a}-{kind}" if kind else a for a in letters]
        before = entity
    return tags


def faults(tags: Sequence[str], scheme: str) -> list[int]:
    """The words whose tags the scheme does not allow where they stand."""
    proper = mark(entities(tags), len(tags), scheme)
    return [i for i, (a, b) in enumerate(zip(tags, proper, strict=True)) if a != b]


def detect(sequences: Iterable[Sequence[str]]) -> str:
    """The scheme with the fewest faults."""
    counts = dict.fromkeys(SCHEMES, 0)
    for tags in sequences:
        for scheme in SCHEMES:
            counts[scheme] += len(faults(tags, scheme))
    return min(SCHEMES, key=counts.get)


# === Files ===========================================================================


class Sentence(NamedTuple):
    """What stands between two lines without words.

    Attributes:
        words: as in the file.
        tags: theirs, or None.
        line: of the first word, from 1; the others are on the lines behind it.
        document: a -DOCSTART- line begins the next; from 0.
        before: words of the same document that go before.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    line: int
    document: int
    before: int


class Columns(NamedTuple):
    """What is where in a line; columns count from 0, or from the end with -1.

    Attributes:
        word: column of the word.
        tag: column of the tag; None: tags are not read.
        prefix: is cut off words that begin so.
    """

    word: int = 0
    tag: int | None = -1
    prefix: str = ""


def parse(lines: Iterable[str], path: str, columns: Columns) -> list[Sentence]:
    """Reads a file in which every line is a word, and lines without one end a sentence.

    Columns are separated by spaces and tabs and nothing else, for a word may well hold
    other white space.

    Args:
        lines: as `inputs.lines` yields them.
        path: for messages.
    Raises:
        UserError: a line has other columns or no proper tag, or there is no word.
    """
    sentences, before, width = [], 0, None
    for document, block in _blocks(lines, columns):
        width = width or len(block[0][1])
        words, tags = [], []
        for number, cells in block:
            where = f"{path}:{number}"
            if len(cells) != width:
                raise UserError(
                    f"{where}: {len(cells)} columns, not {width} as in the first line; "
                    "mend the line"
                )
            word = _cell(cells, columns.word, "word", where)
            words.append(word.removeprefix(columns.prefix))
            if columns.tag is not None:
                tags.append(_tag(cells, columns, where))
        if sentences and sentences[-1].document != document:
            before = 0
        tags = None if columns.tag is None else tuple(tags)
        sentences.append(Sentence(tuple(words), tags, block[0][0], document, before))
        before += len(words)
    if not sentences:
        raise UserError(f"{path}: no line of it is a word")
    return sentences


def _blocks(lines, columns):
    """Yields the lines between two without words: document, [(number, cells), ...]."""
    document, block = 0, []
    for number, line in enumerate(itertools.chain(lines, [""]), start=1):
        cells = _cells(line)
        if cells and not _begins_document(cells, columns):
            block.append((number, cells))
            continue
        if block:
            yield document, block
            block = []
        document += bool(cells)


def _begins_document(cells, columns):
    # Some files leave out its other columns.
    words = (cells[0], *cells[columns.word :][:1])
    return _DOCUMENT in (word.removeprefix(columns.prefix) for word in words)


def _cells(line):
    cells = _CELL.findall(line.rstrip("\r"))
    return [] if cells == ["\ufeff"] else cells  # left over where files were joined


def _cell(cells, column, what, where):
    if not -len(cells) <= column < len(cells):
        raise UserError(
            f"{where}: {len(cells)} columns, and --{what}_column={column}; they count from "
            "0, or from the end with -1"
        )
    return cells[column]


def _tag(cells, columns, where):
    tag = _cell(cells, columns.tag, "tag", where)
    if (columns.tag - columns.word) % len(cells) == 0:
        raise UserError(
            f"{where}: the word and no tag ({tag!r}); another --word_column or "
            "--tag_column?"
        )
    if not is_tag(tag):
        raise UserError(
            f"{where}: {tag!r} is no tag; it is O outside of entities, and begins with B-, "
            "I-, E- or S- inside; another --tag_column?"
        )
    return tag


def with_column(
    lines: Iterable[str], columns: Columns, tags: Mapping[int, str]
) -> Iterator[str]:
    """The lines of a file with one column more, in which its words have these tags.

    Args:
        lines, columns: as `parse` took them.
        tags: by the number of the line, from 1.
    """
    for number, line in enumerate(lines, start=1):
        cells = _cells(line)
        if not cells:
            yield line
            continue
        # Other programs take -DOCSTART- for a word, and want all of its columns.
        tag = OUTSIDE if _begins_document(cells, columns) else tags[number]
        kept = line.rstrip(" \t\r")
        separator = "\t" if "\t" in kept else " "
        yield f"{kept}{separator}{tag}" + "\r" * line.endswith("\r")


# === Rows ============================================================================


class Window(NamedTuple):
    """Words `start` to `stop`, of which `own_start` to `own_stop` are asked for."""

    start: int
    own_start: int
    own_stop: int
    stop: int


def windows(
    edges: np.ndarray, own_start: int, own_stop: int, capacity: int
) -> Iterator[Window]:
    """Rows that together ask once for each of some words, among others as context.

    Words that share a row go together. More of them than a row takes are asked for in
    parts of half a row each, so that every word has context on both sides, as far as the
    text has it.

    Args:
        edges: int [words + 1], ascending: how many pieces go before each word; each word
            has at least one piece, and at most `capacity`.
        own_start, own_stop: the words that are asked for.
        capacity: pieces of a row.
    """
    at_once = capacity
    if edges[own_stop] - edges[own_start] > capacity:
        at_once = capacity // 2
    while own_start < own_stop:
        last = np.searchsorted(edges, edges[own_start] + at_once, side="right") - 1
        part_stop = min(max(int(last), own_start + 1), own_stop)
        spare = capacity - (edges[part_stop] - edges[own_start])
        left, right = edges[own_start], edges[-1] - edges[part_stop]
        # Half on either side, and more where the other side has less.
        left = min(left, max(spare // 2, spare - right))
        right = min(right, spare - left)
        start = np.searchsorted(edges, edges[own_start] - left)
        stop = np.searchsorted(edges, edges[part_stop] + right, side="right") - 1
        yield Window(int(start), own_start, part_stop, int(stop))
        own_start = part_stop
