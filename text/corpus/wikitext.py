"""Turns the markup of a wiki's page into paragraphs of plain text.

mwparserfromhell parses it, into tokens: to build its tree of nodes would take three
quarters of the time. Templates, tables, references, files and categories are removed
and counted, and so are lists and headings unless they are kept. Links leave their text.
"""

import html
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from mwparserfromhell.definitions import PARSER_BLACKLIST, SINGLE
from mwparserfromhell.parser import ParserError, tokens
from mwparserfromhell.parser.builder import Builder

try:
    from mwparserfromhell.parser._tokenizer import CTokenizer as Tokenizer
except ImportError:  # where it could not be compiled; much slower
    from mwparserfromhell.parser.tokenizer import Tokenizer


class UnclosedError(Exception):
    """Markup that the parser would try to understand for minutes."""


FAILURES = (ParserError, RecursionError, UnclosedError)  # of what is not understood
FILES, CATEGORIES = 6, 14  # the numbers of these namespaces in every wiki
# Names that wikis understand in addition to those that a dump lists.
_MORE_NAMES = {
    "file": FILES,
    "image": FILES,
    "media": FILES,
    "그림": FILES,
    "صورة": FILES,
    "bild": FILES,
    "category": CATEGORIES,
}
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*|simple")  # of the same page elsewhere
_REMOVED_TAGS = {
    "ref": "references",
    "references": "references",
    "table": "tables",
    "gallery": "files",
    "imagemap": "files",
} | dict.fromkeys(
    "ce chem graph hiero includeonly indicator inputbox mapframe maplink math pre score "
    "script section source style syntaxhighlight templatestyles timeline".split(),
    "other_elements",
)
_BLOCKS = frozenset(
    "blockquote center dd div dl dt h1 h2 h3 h4 h5 h6 hr li ol p poem ul".split()
)
_ITEMS = frozenset(("li", "dd", "dt"))
# How far within something each token leads; the others lead nowhere.
_STEPS = dict.fromkeys(
    (
        tokens.TemplateOpen,
        tokens.ArgumentOpen,
        tokens.WikilinkOpen,
        tokens.ExternalLinkOpen,
        tokens.HeadingStart,
        tokens.CommentStart,
        tokens.TagOpenOpen,
    ),
    1,
) | dict.fromkeys(
    (
        tokens.TemplateClose,
        tokens.ArgumentClose,
        tokens.WikilinkClose,
        tokens.ExternalLinkClose,
        tokens.HeadingEnd,
        tokens.CommentEnd,
        tokens.TagCloseSelfclose,
        tokens.TagCloseClose,
    ),
    -1,
)
# Not characters, so no text has them: before the item of a list, and in the place of what
# is simple: most templates, references and links. The parser, which takes most of the time,
# need not see these; what could be read in another way is left to it.
_ITEM = "\ufdd1"
_TEMPLATE_MARK, _REFERENCE_MARK, _LINK_MARK = "\ufdd2", "\ufdd3", "\ufdd4"
_MARKS = re.compile("[\ufdd1-\ufdd4]")
_PLACES = re.compile("[\ufdd2-\ufdd4]")
_SIMPLE_LINK = re.compile(
    r"\[\[(?:[^{}\[\]<>|\n:]++\|)?([^{}\[\]<>|\n:=][^{}\[\]<>|\n:=]*+)\]\]"
)
_LINK = r"\[\[[^{}\[\]<>\n]*+\]\]"
_SIMPLE_TEMPLATE = re.compile(
    r"\{\{[ \n]*+[^\s|{}\[\]<>&\ufdd2-\ufdd4][^|{}\[\]<>&\n\ufdd2-\ufdd4]*+\n? *+"
    rf"(?:\|(?:[^{{}}\[\]<>]++|{_LINK})*+)?\}}\}}"
)
_NAME = r"""(?:"[^"'<>{}\[\]\n/&=\\]*+"|[^\s"'<>{}\[\]/&=\\]++)"""
_SIMPLE_REFERENCE = re.compile(
    rf"<ref(?: (?:name|group)={_NAME}){{0,2}}>"
    rf"(?:[^<>{{}}\[\]\n]++|{_LINK}|\[https?://[^<>{{}}\[\]\n]*+\])*+</ref>"
)
_MOST_NESTED = 20
_UNPARSED = re.compile(  # tags whose contents stay as they are, markup and all
    "|".join(f"<{name}" for name in PARSER_BLACKLIST if name not in _REMOVED_TAGS),
    re.IGNORECASE,
)
# What is not closed, the parser tries in many ways, each as long as the page, and for many
# headings in one line it calls itself too often. Pages that people wrote are far from this.
_MOST_WORK = 100_000_000  # characters times brackets and the like that are not closed
_MOST_HEADINGS = 10_000  # that open or close
_OPEN_TAG = re.compile(rf"<(?!(?:{'|'.join(SINGLE)})\b)[a-z]", re.IGNORECASE)
_APOSTROPHES = re.compile("'{2,}")  # of italic and bold text
_SWITCHES = re.compile(r"__[^\W\d_]+__")  # __TOC__
_VARIANTS = re.compile(r"-\{([^{}]*+)\}-")  # Chinese in several scripts
# What is left of what was in brackets, such as a pronunciation. What is slow to replace is
# first looked for by what it must contain. All of them take time linear in the line: they
# try a run of spaces or commas once, from its beginning.
_COMMAS = ",;،；、"
_BRACKETS = re.compile(rf"[(（][\s:{_COMMAS}]*+[)）]")
_EMPTY_BRACKETS = re.compile(rf"(?<!\s)\s*+{_BRACKETS.pattern}")
_COMMA_AT_BRACKET = re.compile(rf"[(（]\s*+[{_COMMAS}]|[{_COMMAS}]\s*+[)）]")
_RUN = rf"\s*+[{_COMMAS}][\s{_COMMAS}]*+"
_LOST_COMMAS = re.compile(rf"(?<=[(（]){_RUN}|(?<![\s{_COMMAS}]){_RUN}(?=[)）])")
_TEMPLATE = re.compile(r"\{\{\s*([^|{}<>\n]+)")
_DISAMBIGUATION = frozenset(  # the names of its templates, in several languages
    "dab disamb disambig disambiguation dbig geodis hndis schooldis "
    "aimai anlam_ayrımı begriffsklärung desambig desambiguación desambiguació "
    "desambiguação dezambiguizare disambigua disambiguasi doorverwijspagina dp flertydig "
    "förgrening gren homonymie homonymes rozcestník täsmennyssivu định_hướng "
    "trang_định_hướng ujednoznacznienie неоднозначность багатозначність פירושונים "
    "ابهام‌زدایی توضيح 동음이의 동음이의어 曖昧さ回避 消歧义 消歧義 消歧义页".split()
)


class Site(NamedTuple):
    """What a wiki calls its namespaces: lowercase names, and their numbers."""

    namespaces: dict[str, int]

    @classmethod
    def of(cls, names: Iterable[tuple[str, int]]) -> "Site":
        own = {name.lower(): number for name, number in names if name}
        return cls(_MORE_NAMES | own)


def is_disambiguation(markup: str) -> bool:
    """Whether a page only lists the pages that a word may mean."""
    if "__DISAMBIG__" in markup:
        return True
    for name in _TEMPLATE.findall(markup):
        name = name.strip().replace(" ", "_").lower()
        if name in _DISAMBIGUATION or name.endswith(("_disambiguation", "_disambig")):
            return True
    return False


def paragraphs(
    markup: str, site: Site, keep_lists: bool, keep_headings: bool, counts: Counter
) -> list[str]:
    """The paragraphs of a page; with `keep_lists`, each item of a list is one.

    Args:
        counts: receives "removed_templates" and so on.

    Raises one of `FAILURES` if the parser does not understand the markup.
    """
    markup = _mark(_MARKS.sub("", markup))
    _refuse_endless(markup)
    page = Tokenizer().tokenize(markup, 0, True)
    writer = _PlainTextWriter(page, site, keep_headings, counts)
    try:
        writer.write()
    except IndexError as error:
        raise ParserError("a close token is missing") from error
    text = "".join(writer.parts)
    counts["removed_templates"] += text.count(_TEMPLATE_MARK)
    counts["removed_references"] += text.count(_REFERENCE_MARK)
    kept, lines = [], []
    for line in _PLACES.sub("", text).split("\n"):
        is_item = line.lstrip().startswith(_ITEM)
        line = _clean(line.replace(_ITEM, ""))
        if line and not is_item:
            lines.append(line)
            continue
        if lines:
            kept.append(" ".join(lines))
            lines = []
        if line and keep_lists:
            kept.append(line)
        elif is_item:
            counts["removed_list_items"] += 1
    if lines:
        kept.append(" ".join(lines))
    return kept


def _mark(markup):
    """The markup with marks in the place of what is simple."""
    if "{{{" in markup or _UNPARSED.search(markup):
        return markup
    markup = _SIMPLE_LINK.sub(_LINK_MARK + r"\1", markup)
    for _ in range(_MOST_NESTED):
        markup, templates = _SIMPLE_TEMPLATE.subn(_TEMPLATE_MARK, markup)
        markup, references = _SIMPLE_REFERENCE.subn(_REFERENCE_MARK, markup)
        if not templates and not references:
            break
    return markup


def _refuse_endless(markup):
    """Raises UnclosedError if the parser would take minutes, or crash."""
    count = markup.count
    if count("==") > _MOST_HEADINGS:
        raise UnclosedError(f"it has {count('=='):,} marks of headings")
    tags = sum(1 for _ in _OPEN_TAG.finditer(markup))
    unclosed = sum(
        max(opened - closed, 0)
        for opened, closed in (
            (count("["), count("]")),
            (count("{"), count("}")),
            (count("<!--"), count("-->")),
            (tags, count("</") + count("/>")),
        )
    )
    if unclosed * len(markup) > _MOST_WORK:
        raise UnclosedError(f"{unclosed:,} brackets, tags or comments are not closed")


def _variant(match):
    """The first of -{zh-hans:A;zh-hant:B}-, without its name."""
    return re.split("[|:]", match[1].split(";")[0])[-1]


def _clean(line):
    if "''" in line:
        line = _APOSTROPHES.sub("", line)
    if "__" in line:
        line = _SWITCHES.sub("", line)
    if "-{" in line:
        line = _VARIANTS.sub(_variant, line)
    if "(" in line or "（" in line:
        if _BRACKETS.search(line):
            line = _EMPTY_BRACKETS.sub("", line)
        if _COMMA_AT_BRACKET.search(line):
            line = _LOST_COMMAS.sub("", line)
    return line.strip()


class _PlainTextWriter:
    """Collects the text of a page's tokens in `parts`.

    Of a token that opens something, a method writes what it must and returns the place
    where to continue: within it, or after it if it is left out.
    """

    def __init__(self, page: list, site: Site, keep_headings: bool, counts: Counter):
        self.parts = []
        self._tokens, self._kinds = page, list(map(type, page))
        self._site, self._keep_headings, self._counts = site, keep_headings, counts
        self._are_blocks = []  # the tags that are open
        self._writes = {
            tokens.TemplateOpen: self._template,
            tokens.ArgumentOpen: self._after,
            tokens.CommentStart: self._after,
            tokens.HTMLEntityStart: self._entity,
            tokens.WikilinkOpen: self._link,
            tokens.ExternalLinkOpen: self._external_link,
            tokens.HeadingStart: self._heading,
            tokens.HeadingEnd: self._heading_end,
            tokens.TagOpenOpen: self._tag,
            tokens.TagOpenClose: self._tag_end,
        }

    def write(self) -> None:
        """Adds the text. Raises IndexError if a close token is missing."""
        page, kinds = self._tokens, self._kinds
        writes, add = self._writes.get, self.parts.append
        place, end = 0, len(kinds)
        while place < end:
            kind = kinds[place]
            if kind is tokens.Text:
                add(page[place]["text"])
                place += 1
            else:
                write = writes(kind)
                place = write(place) if write else place + 1

    def _after(self, place):
        """The place after what opens there."""
        kinds, step = self._kinds, _STEPS.get
        depth = 0
        while True:
            depth += step(kinds[place], 0)
            place += 1
            if not depth:
                return place

    def _find(self, place, *wanted):
        """The first place of one of these kinds that is not within something."""
        kinds, depth = self._kinds, 0
        while depth or kinds[place] not in wanted:
            depth += _STEPS.get(kinds[place], 0)
            place += 1
        return place

    def _markup(self, start, stop):
        """The markup that became these tokens."""
        if stop - start == 1 and self._kinds[start] is tokens.Text:
            return self._tokens[start]["text"]
        return str(Builder().build(self._tokens[start:stop]))

    def _template(self, place):
        self._counts["removed_templates"] += 1
        return self._after(place)

    def _entity(self, place):
        end = self._find(place, tokens.HTMLEntityEnd) + 1
        self.parts.append(html.unescape(self._markup(place, end)))
        return end

    def _link(self, place):
        end = self._find(place + 1, tokens.WikilinkSeparator, tokens.WikilinkClose)
        has_text = self._kinds[end] is tokens.WikilinkSeparator
        target = self._markup(place + 1, end).strip()
        prefix, colon, _ = target.partition(":")
        if not prefix and colon:
            if not has_text:
                return self._after_colon(place + 1)
        elif colon and (removed := self._removed_link(prefix)):
            self._counts[removed] += 1
            return self._after(place)
        return end if has_text else place + 1

    def _after_colon(self, place):
        """Writes the first text of a link's target without its colon."""
        self.parts.append(self._tokens[place]["text"].strip()[1:])
        return place + 1

    def _removed_link(self, prefix):
        name = prefix.strip().replace("_", " ").lower()
        number = self._site.namespaces.get(name)
        if number == FILES:
            return "removed_files"
        if number == CATEGORIES:
            return "removed_categories"
        if number is None and _LANGUAGE.fullmatch(prefix):
            return "removed_language_links"
        return None

    def _external_link(self, place):
        end = self._find(
            place + 1, tokens.ExternalLinkSeparator, tokens.ExternalLinkClose
        )
        if self._kinds[end] is tokens.ExternalLinkClose:
            if not self._tokens[place].brackets:
                return place + 1
        return end

    def _heading(self, place):
        self.parts.append("\n\n")
        if self._keep_headings:
            return place + 1
        self._counts["removed_headings"] += 1
        return self._after(place)

    def _heading_end(self, place):
        self.parts.append("\n\n")
        return place + 1

    def _tag(self, place):
        end = self._find(
            place + 1,
            tokens.TagAttrStart,
            tokens.TagCloseOpen,
            tokens.TagCloseSelfclose,
        )
        name = self._markup(place + 1, end).strip().lower()
        if removed := _REMOVED_TAGS.get(name):
            self._counts[f"removed_{removed}"] += 1
            if name == "table":
                self.parts.append("\n\n")
            return self._after(place)
        if name == "br":
            self.parts.append(" ")
            return self._after(place)
        is_item, is_block = name in _ITEMS, name in _BLOCKS
        if is_item and self._tokens[place].wiki_markup:
            self.parts.append(_ITEM)
            return self._after(place)
        if is_block:
            self.parts.append("\n\n" + _ITEM * is_item)
        end = self._find(end, tokens.TagCloseOpen, tokens.TagCloseSelfclose)
        if self._kinds[end] is tokens.TagCloseOpen:
            self._are_blocks.append(is_block)
        elif is_block:
            self.parts.append("\n\n")
        return end + 1

    def _tag_end(self, place):
        if self._are_blocks.pop():
            self.parts.append("\n\n")
        return self._find(place, tokens.TagCloseClose)
