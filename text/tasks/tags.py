"""Reads tagged text: one word per line, in any scheme of entity tags.

It also decides which words share a row. Words of an entity have a tag with a letter and a
kind, all others O. `New York Paris` is

    iob1   I-LOC I-LOC B-LOC   B only where an entity follows another of its kind
    iob2   B-LOC I-LOC B-LOC   B at every beginning
    iobes  B-LOC E-LOC S-LOC   E at every end, S for a single word

Entities can be found in tags of any scheme, valid or not; the scheme of tags is the one in
which marking these entities changes the fewest tags.
"""

import collections
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from errors import UserError

SCHEMES = ("iob2", "iob1", "iobes")
OUTSIDE = "O"

_DOCUMENT = "-DOCSTART-"
_CELL = re.compile("[^ \t]+")


# === Entities ========================================================================


class Entity(NamedTuple):
    """Words `start` to `stop` of a sentence, excluding `stop`."""

    kind: str
    start: int
    stop: int


def is_tag(text: str) -> bool:
    return text == OUTSIDE or re.fullmatch("[BIES](-.+)?", text) is not None


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities that tags mark, as conlleval reads them.

    An entity also begins where its tag says that it continues, but nothing of its kind
    precedes it.

    Source: the CoNLL-2000 shared task's conlleval, for I and B.
    """
    marked = []
    start, open_kind, ended = 0, None, False
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, _, kind = tag.partition("-")  # B-LOC, or B where there is one kind only
        goes_on = letter in ("I", "E") and kind == open_kind and not ended
        if not goes_on:
            if open_kind is not None:
                marked.append(Entity(open_kind, start, place))
            start, open_kind = place, None if letter == OUTSIDE else kind
        ended = letter in ("E", "S")
    return marked


def mark(marked: Iterable[Entity], length: int, scheme: str) -> list[str]:
    """The tags of `length` words; entities in the order of the text."""
    tags = [OUTSIDE] * length
    before = None
    for entity in marked:
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


def labels_of(kinds: Iterable[str]) -> list[str]:
    """The tags of the scheme iob2 for these types: O, then B and I of each."""
    marks = (mark([Entity(kind, 0, 2)], 2, "iob2") for kind in kinds)
    return [OUTSIDE, *itertools.chain.from_iterable(marks)]


def faults(tags: Sequence[str], scheme: str) -> list[int]:
    """The words whose tags the scheme does not allow there."""
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
    """The words between two lines without words.

    Attributes:
        line: the line of the first word, from 1; the others are on the lines after it.
        document: its number, from 0; a -DOCSTART- line begins the next.
        before: number of words before it in the same document.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    line: int
    document: int
    before: int


class SentenceInDocument(Sentence):
    """A sentence that knows its document.

    Attributes:
        context: all words of the document, one tuple for all of its sentences; this one
            begins after `before` of them. It is not part of the named tuple, whose repr
            would grow with the document.
    """

    context: tuple[str, ...] = ()


def in_documents(sentences: Iterable[Sentence]) -> Iterator[SentenceInDocument]:
    """Each sentence with the words of its document."""
    for _, some in itertools.groupby(sentences, key=lambda one: one.document):
        some = list(some)
        context = tuple(itertools.chain.from_iterable(one.words for one in some))
        for one in some:
            sentence = SentenceInDocument(*one)
            sentence.context = context
            yield sentence


class Columns(NamedTuple):
    """The columns of a line, counted from 0, or from the end with -1.

    Tags are not read if `tag` is None. `prefix` is removed from words that begin with it.
    """

    word: int = 0
    tag: int | None = -1
    prefix: str = ""


def parse(lines: Iterable[str], path: str, columns: Columns) -> list[Sentence]:
    """Reads a file in which every line is a word, and lines without one end a sentence.

    Only spaces and tabs separate columns, because a word may contain other whitespace.
    """
    sentences, before, width = [], 0, None
    for document, block in _blocks(lines, columns):
        width = width or len(block[0][1])
        words, tags = [], []
        for number, cells in block:
            where = f"{path}:{number}"
            if len(cells) != width:
                raise UserError(
                    f"{where}: {len(cells)} columns, but the first line has {width}; fix "
                    "the line"
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
        raise UserError(f"{path}: contains no words")
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
    # Some files leave out the other columns of this line.
    words = (cells[0], *cells[columns.word :][:1])
    return _DOCUMENT in (word.removeprefix(columns.prefix) for word in words)


def _cells(line):
    cells = _CELL.findall(line.rstrip("\r"))
    return [] if cells == ["\ufeff"] else cells  # left over from joining files


def _cell(cells, column, what, where):
    if not -len(cells) <= column < len(cells):
        raise UserError(
            f"{where}: {len(cells)} columns, but --{what}_column={column}; columns count "
            "from 0, or from the end with -1"
        )
    return cells[column]


def _tag(cells, columns, where):
    tag = _cell(cells, columns.tag, "tag", where)
    if (columns.tag - columns.word) % len(cells) == 0:
        raise UserError(
            f"{where}: the column of the tag is that of the word ({tag!r}); check "
            "--word_column and --tag_column"
        )
    if not is_tag(tag):
        raise UserError(
            f"{where}: {tag!r} is not a tag; tags are O outside of entities and begin with "
            "B-, I-, E- or S- inside; check --tag_column"
        )
    return tag


def with_column(
    lines: Iterable[str], columns: Columns, tags: Mapping[int, str]
) -> Iterator[str]:
    """The lines of a file with an added column of tags, by line number from 1; see
    `parse`.
    """
    for number, line in enumerate(lines, start=1):
        cells = _cells(line)
        if not cells:
            yield line
            continue
        # Other programs treat -DOCSTART- as a word and need all of its columns.
        tag = OUTSIDE if _begins_document(cells, columns) else tags[number]
        kept = line.rstrip(" \t\r")
        separator = "\t" if "\t" in kept else " "
        yield f"{kept}{separator}{tag}" + "\r" * line.endswith("\r")


def types(sentences: Iterable[Sentence]) -> tuple[str, ...]:
    """The types of all entities, sorted."""
    entities_of = (entities(sentence.tags) for sentence in sentences)
    return tuple(sorted({entity.kind for some in entities_of for entity in some}))


def check_types(sentences: Iterable[Sentence], types: Sequence[str], path: str) -> None:
    """Refuses an entity of another type, and names its line."""
    for sentence in sentences:
        for entity in entities(sentence.tags):
            if entity.kind not in types:
                raise UserError(
                    f"{path}:{sentence.line + entity.start}: entity type {entity.kind!r} "
                    f"is not one of {', '.join(types)}, the types of the training set or "
                    "--entity_types"
                )


def first_fault(sentences: Iterable[Sentence], scheme: str) -> int | None:
    """The first line whose tag the scheme does not allow."""
    for sentence in sentences:
        if words := faults(sentence.tags, scheme):
            return sentence.line + words[0]


# === Rows ============================================================================


class Window(NamedTuple):
    """Words `start` to `stop`, of which `own_start` to `own_stop` are labeled."""

    start: int
    own_start: int
    own_stop: int
    stop: int


class Pieces:
    """Turns words into a tokenizer's pieces.

    Args:
        most: the most pieces of a word to keep.
        counts: counts the words that are longer.
    """

    def __init__(self, tokenizer, most: int, counts: collections.Counter):
        self.tokenizer = tokenizer
        self.most = most
        self.counts = counts
        self._last = None, None  # the last document, and its pieces

    def of_document(self, words: tuple[str, ...]):
        """Same as `of`, once for all consecutive sentences of a document.

        A document is recognized by identity: hashing all of its words for each of its
        sentences would take longer than everything else.
        """
        if self._last[0] is not words:
            self._last = words, self.of(words)
        return self._last[1]

    def of(self, words: Iterable[str]) -> tuple[list[list[int]], np.ndarray]:
        """The pieces of each word; and the number of pieces before each, and in total."""
        pieces = []
        for word in words:
            # The space begins a word, also the first one: some tokenizers take it in.
            ids = self.tokenizer.encode(f" {word}")
            if not ids:  # a word of control characters only
                ids = [self.tokenizer.vocabulary.unk_id]
            self.counts["words are longer than a row and cut"] += len(ids) > self.most
            pieces.append(ids[: self.most])
        return pieces, np.cumsum([0, *map(len, pieces)])


def windows(
    edges: np.ndarray, own_start: int, own_stop: int, capacity: int
) -> Iterator[Window]:
    """Rows that together label each of some words once, with others as context.

    The words share one row if they fit. Otherwise they are labeled in parts of half a row
    each, so that every word has context on both sides, as far as the text has any.

    Args:
        edges: int [words + 1], ascending: the number of pieces before each word, and in
            total; each word has at least one piece, and at most `capacity`.
        own_start, own_stop: the words to label.
        capacity: pieces per row.
    """
    at_once = capacity
    if edges[own_stop] - edges[own_start] > capacity:
        at_once = capacity // 2
    while own_start < own_stop:
        last = np.searchsorted(edges, edges[own_start] + at_once, side="right") - 1
        part_stop = min(max(int(last), own_start + 1), own_stop)
        spare = capacity - (edges[part_stop] - edges[own_start])
        left, right = edges[own_start], edges[-1] - edges[part_stop]
        # Half on either side, and more if the other side has less.
        left = min(left, max(spare // 2, spare - right))
        right = min(right, spare - left)
        start = np.searchsorted(edges, edges[own_start] - left)
        stop = np.searchsorted(edges, edges[part_stop] + right, side="right") - 1
        yield Window(int(start), own_start, part_stop, int(stop))
        own_start = part_stop
