"""Reads and writes files of tagged words: columns, tokens of one character, CoNLL-U.

A file of columns has one word per line; lines without words separate sentences:

    New    B-LOC        word and tag, separated by spaces or tabs
    York   I-LOC

A line may also hold a character instead of a word. If it is a space, a tab follows it:

    경<TAB>NNG
    찰<TAB>NNG
    은<TAB>JX
     <TAB>O

Files that begin like KLUE-NER's, with `## ... : ...` or `## klue-ner...`, also have
comments: lines that begin with `##`.

Source of CoNLL-U: https://universaldependencies.org/format.html.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from errors import UserError, count
from files import compression
from text.tasks import tags

_DOCUMENT = "-DOCSTART-"
_CELL = re.compile("[^ \t]+")
# In the first line: `## 토큰 구분자 : \n`, or a sentence's if these lines were removed.
_COMMENTS = re.compile("## (.+ : |klue-ner)")


# === Sentences =======================================================================


class Sentence(NamedTuple):
    """The words between two lines without words.

    Attributes:
        lines: the line of each word, from 1.
        document: its number, from 0; a -DOCSTART- line or `# newdoc` begins the next.
        before: number of words before it in the same document.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    lines: Sequence[int]
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


class _Word(NamedTuple):
    line: int
    text: str
    tag: str | None


def _join(blocks: Iterable[tuple[int, list[_Word]]], path: str) -> list[Sentence]:
    """Sentences of the words between two lines without, each with its document."""
    sentences, before = [], 0
    for document, words in blocks:
        if sentences and sentences[-1].document != document:
            before = 0
        lines, texts, marks = zip(*words, strict=True)
        if lines[-1] - lines[0] + 1 == len(lines):
            lines = range(lines[0], lines[-1] + 1)  # its repr is short
        marks = None if None in marks else marks
        sentences.append(Sentence(texts, marks, lines, document, before))
        before += len(words)
    if not sentences:
        raise UserError(f"{path}: contains no words")
    return sentences


# === Columns =========================================================================


class Columns(NamedTuple):
    """Files of columns, counted from 0, or from the end with -1.

    Tags are not read if `tag` is None. `prefix` is removed from words that begin with it.
    Only spaces and tabs separate columns, because a word may contain other whitespace.
    """

    word: int = 0
    tag: int | None = -1
    prefix: str = ""

    def sentences(self, lines: Iterable[str], path: str) -> list[Sentence]:
        """The sentences of a file.

        Args:
            path: for messages.
        Raises:
            UserError: a line has another number of columns, or there are no words.
        """
        return _join(self._blocks(lines, path), path)

    def with_tags(
        self, lines: Iterable[str], marks: Mapping[int, str]
    ) -> Iterator[str]:
        """The lines of a file with an added column of tags, by line number from 1."""
        for number, line, cells in _number_lines(lines):
            if not cells:
                yield line
                continue
            # Other programs treat -DOCSTART- as a word and need all of its columns.
            tag = tags.OUTSIDE if self._begins_document(cells) else marks[number]
            kept = line.rstrip(" \t\r")
            separator = "\t" if "\t" in kept else " "
            yield f"{kept}{separator}{tag}" + "\r" * line.endswith("\r")

    def _blocks(self, lines, path):
        document, block, first, head = 0, [], "", None
        for number, line, cells in _number_lines(itertools.chain(lines, [""])):
            if cells is None:  # a comment
                continue
            if cells and not self._begins_document(cells):
                where = f"{path}:{number}"
                first, head = (first, head) if head else (line, cells)
                if len(cells) != len(head):
                    raise UserError(
                        f"{where}: {count(len(cells), 'column')}, but the first line has "
                        f"{len(head)}; {_remedy(line, first)}"
                    )
                block.append(self._word(number, cells, where))
                continue
            if block:
                yield document, block
                block = []
            document += bool(cells)

    def _word(self, number, cells, where):
        text = _cell(cells, self.word, "word", where)
        tag = None
        if self.tag is not None:
            tag = _cell(cells, self.tag, "tag", where)
            if (self.tag - self.word) % len(cells) == 0:
                only = " (the only one)" if len(cells) == 1 else ""
                raise UserError(
                    f"{where}: the column of the tag is that of the word ({tag!r}){only}; "
                    "separate columns by spaces or tabs, and check --word_column and "
                    "--tag_column"
                )
        return _Word(number, text.removeprefix(self.prefix), tag)

    def _begins_document(self, cells):
        # Some files leave out the other columns of this line.
        words = (cells[0], *cells[self.word :][:1])
        return _DOCUMENT in (word.removeprefix(self.prefix) for word in words)


def _number_lines(lines):
    """Yields number, line and cells of each line; None for a comment."""
    has_comments = False
    for number, line in enumerate(lines, start=1):
        if number == 1:
            has_comments = _COMMENTS.match(line) is not None
        is_comment = has_comments and line.startswith("##")
        yield number, line, None if is_comment else _cells(line)


def _cells(line):
    line = line.rstrip("\r")
    cells = _CELL.findall(line)
    if cells and line.startswith(" \t"):
        return [" ", *cells]  # a token that is a space
    return [] if cells == ["\ufeff"] else cells  # left over from joining files


def _remedy(line, first):
    """What to do with a line that has not as many columns as the first one.

    Args:
        line, first: as they are in the file.
    """
    if first.startswith("##"):
        return "remove the comments, lines that begin with ##"
    for some in (line, first):
        fields = some.rstrip("\r").split("\t")
        if len(fields) > 1 and "" in fields:
            return "a column between tabs is empty; fill it in"
        if cut := [
            field for field in fields if len(fields) > 1 < len(field.split(" "))
        ]:
            return f"spaces separate columns, too; remove that in {cut[0]!r}"
    if line.startswith("  "):
        return "a token that is a space needs a tab after it"
    if first.startswith("#"):
        return "fix the line, or pass --tag_column=upos or xpos if this is CoNLL-U"
    return "fix the line"


def _cell(cells, column, what, where):
    if not -len(cells) <= column < len(cells):
        raise UserError(
            f"{where}: {count(len(cells), 'column')}, but --{what}_column={column}; "
            "columns count from 0, or from the end with -1"
        )
    return cells[column]


# === CoNLL-U =========================================================================

CONLLU = "id form lemma upos xpos feats head deprel deps misc".split()  # the columns
_FORM = CONLLU.index("form")
_EMPTY = "_"  # no value
_RANGE = re.compile("[1-9][0-9]*-[1-9][0-9]*")  # 1-2: the word as it is written
_NODE = re.compile("[0-9]+[.][1-9][0-9]*")  # 8.1: was left out in the sentence
_NEW_DOCUMENT = re.compile("# *newdoc( |$)")


class Conllu(NamedTuple):
    """Files of CoNLL-U: ten columns between tabs; `form` has the words.

    Comments are skipped. So are the ranges of multi-word tokens (`1-2 don't`), whose parts
    follow as words, and empty nodes (`8.1`). Tags are not read unless `has_tags`.
    """

    tag: int
    prefix: str = ""
    has_tags: bool = True

    def sentences(self, lines: Iterable[str], path: str) -> list[Sentence]:
        """The sentences of a file; see `Columns.sentences`.

        Raises:
            UserError: a line does not follow the format, or no word has a tag.
        """
        sentences = _join(self._blocks(lines, path), path)
        if self.has_tags and all(set(one.tags) == {_EMPTY} for one in sentences):
            raise UserError(
                f"{path}: no word has a tag in the column {CONLLU[self.tag]}; check "
                "--tag_column"
            )
        return sentences

    def with_tags(
        self, lines: Iterable[str], marks: Mapping[int, str]
    ) -> Iterator[str]:
        """The lines of a file with tags in place of its own, by line number from 1."""
        for number, line in enumerate(lines, start=1):
            if number in marks:
                fields = line.split("\t")
                ending = "\r" * (self.tag == len(CONLLU) - 1 and line.endswith("\r"))
                fields[self.tag] = marks[number] + ending
                line = "\t".join(fields)
            yield line

    def _blocks(self, lines, path):
        document, block = 0, []
        for number, line in enumerate(itertools.chain(lines, [""]), start=1):
            line = line.removesuffix("\r")
            if line.startswith("#"):
                document += _NEW_DOCUMENT.match(line) is not None
            elif line:
                fields = self._word_fields(line, f"{path}:{number}", len(block) + 1)
                if fields:
                    word = fields[_FORM].removeprefix(self.prefix)
                    tag = fields[self.tag] if self.has_tags else None
                    block.append(_Word(number, word, tag))
            elif block:
                yield document, block
                block = []

    def _word_fields(self, line, where, expected):
        """The fields of a word; None if the line has none of its own."""
        fields = line.split("\t")
        if len(fields) != len(CONLLU):
            raise UserError(
                f"{where}: {count(len(fields), 'column')}; a line of CoNLL-U has "
                f"{len(CONLLU)}, separated by tabs; fix the line"
            )
        if "" in fields:
            raise UserError(
                f"{where}: the column {CONLLU[fields.index('')]} is empty; CoNLL-U has "
                f"{_EMPTY} where there is no value"
            )
        number = fields[0]
        if _RANGE.fullmatch(number) or _NODE.fullmatch(number):
            return None
        if number != str(expected):
            raise UserError(
                f"{where}: the ID is {number!r}, but the words of a sentence count 1, 2, "
                f"3, ..., and this is number {expected}; fix the line, or put an empty "
                "line between sentences"
            )
        return fields


# === Which of them ===================================================================

TAGS = ("upos", "xpos")  # the columns of tags of CoNLL-U, by name


def layout_of(
    path: str, word_column: int, tag_column: str, prefix: str, has_tags: bool
) -> Columns | Conllu:
    """The layout of a file, from its name and from the flags of the columns.

    Args:
        tag_column: a number, or one of TAGS.
        has_tags: whether to read them.
    Raises:
        UserError: the file is CoNLL-U, and the flags do not fit.
    """
    is_conllu = compression.without_suffix(path).endswith(".conllu")
    if tag_column not in TAGS and not is_conllu:
        return Columns(word_column, int(tag_column) if has_tags else None, prefix)
    if word_column:
        raise UserError(
            f"{path}: CoNLL-U has its words in the column form; remove --word_column"
        )
    if tag_column in TAGS:
        column = CONLLU.index(tag_column)
    elif tag_column == "-1":
        raise UserError(f"{path}: is CoNLL-U; pass --tag_column=upos or xpos")
    elif not -len(CONLLU) <= int(tag_column) < len(CONLLU):
        raise UserError(
            f"--tag_column={tag_column}: {path} is CoNLL-U and has {len(CONLLU)} columns, "
            "counted from 0, or from the end with -1; pass upos or xpos"
        )
    else:
        column = int(tag_column) % len(CONLLU)
    return Conllu(column, prefix, has_tags)
