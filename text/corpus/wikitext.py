"""Turns the markup of a wiki's page into paragraphs of plain text.

mwparserfromhell parses it. Templates, tables, references, files and categories are removed
and counted, and so are lists and headings unless they are kept. Links leave their text.
"""

import html
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import mwparserfromhell
from mwparserfromhell import nodes
from mwparserfromhell.parser import ParserError

FAILURES = (ParserError, RecursionError)  # of markup that is not understood
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
_ITEM = "\ufdd1"  # not a character, so no text has it: before the item of a list
_APOSTROPHES = re.compile("'{2,}")  # of italic and bold text
_SWITCHES = re.compile(r"__[^\W\d_]+__")  # __TOC__
# Chinese in several scripts, -{zh-hans:A;zh-hant:B}-; the first is taken.
_VARIANTS = re.compile(r"-\{(?:[^{}|:;]*[|:])*([^{}|:;]*)[^{}]*\}-")
# What is left of what was in brackets, such as a pronunciation.
_EMPTY_BRACKETS = re.compile(r"\s*[(（][\s,;:،；、]*[)）]")
_LOST_COMMAS = re.compile(
    r"(?<=[(（])(?:\s*[,;،；、])+\s*|(?:\s*[,;،；、])+\s*(?=[)）])"
)
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
    page = mwparserfromhell.parse(markup.replace(_ITEM, ""), skip_style_tags=True)
    writer = _Writer(site, keep_headings, counts)
    writer.write(page.nodes)
    found, lines = [], []
    for line in "".join(writer.parts).split("\n"):
        is_item = line.lstrip().startswith(_ITEM)
        line = _cleaned(line.replace(_ITEM, ""))
        if line and not is_item:
            lines.append(line)
            continue
        if lines:
            found.append(" ".join(lines))
            lines = []
        if line and keep_lists:
            found.append(line)
        elif is_item:
            counts["removed_list_items"] += 1
    if lines:
        found.append(" ".join(lines))
    return found


def _cleaned(line):
    line = _SWITCHES.sub("", _APOSTROPHES.sub("", line))
    if "-{" in line:
        line = _VARIANTS.sub(r"\1", line)
    if "(" in line or "（" in line:
        line = _LOST_COMMAS.sub("", _EMPTY_BRACKETS.sub("", line))
    return line.strip()


class _Writer:
    """Collects the text of nodes in `parts`."""

    def __init__(self, site: Site, keep_headings: bool, counts: Counter):
        self.parts = []
        self._site, self._keep_headings, self._counts = site, keep_headings, counts
        self._writes = {
            nodes.Text: self._text,
            nodes.HTMLEntity: self._entity,
            nodes.Wikilink: self._link,
            nodes.ExternalLink: self._external_link,
            nodes.Heading: self._heading,
            nodes.Tag: self._tag,
            nodes.Template: self._template,
        }

    def write(self, several) -> None:
        """Adds nodes; those of other kinds, such as comments, have no text."""
        for node in several:
            if write := self._writes.get(type(node)):
                write(node)

    def _text(self, node):
        self.parts.append(node.value)

    def _entity(self, node):
        self.parts.append(html.unescape(str(node)))

    def _template(self, node):
        del node
        self._counts["removed_templates"] += 1

    def _link(self, node):
        target = str(node.title).strip()
        shown = node.title if node.text is None else node.text
        prefix, colon, _ = target.partition(":")
        if target.startswith(":"):
            if node.text is None:
                return self.parts.append(target[1:])
        elif colon:
            name = prefix.strip().replace("_", " ").lower()
            number = self._site.namespaces.get(name)
            if number == FILES:
                self._counts["removed_files"] += 1
                return None
            if number == CATEGORIES:
                self._counts["removed_categories"] += 1
                return None
            if number is None and _LANGUAGE.fullmatch(prefix):
                self._counts["removed_language_links"] += 1
                return None
        return self.write(shown.nodes)

    def _external_link(self, node):
        if node.title is not None:
            self.write(node.title.nodes)
        elif not node.brackets:
            self.parts.append(str(node.url))

    def _heading(self, node):
        self.parts.append("\n\n")
        if self._keep_headings:
            self.write(node.title.nodes)
            self.parts.append("\n\n")
        else:
            self._counts["removed_headings"] += 1

    def _tag(self, node):
        name = str(node.tag).strip().lower()
        if removed := _REMOVED_TAGS.get(name):
            self._counts[f"removed_{removed}"] += 1
            if name == "table":
                self.parts.append("\n\n")
            return
        if name == "br":
            self.parts.append(" ")
            return
        if node.wiki_markup and name in ("li", "dd", "dt"):
            self.parts.append(_ITEM)
            return
        is_block = name in _BLOCKS
        if is_block:
            self.parts.append("\n\n" + (_ITEM if name in ("li", "dd", "dt") else ""))
        if node.contents is not None:
            self.write(node.contents.nodes)
        if is_block:
            self.parts.append("\n\n")
