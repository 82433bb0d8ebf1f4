"""The other side of `peers_wiki.py`: text by mwparserfromhell's nodes and `strip_code`.

    python -m benchmarks.peers_wiki_theirs DUMP OUTPUT_FILE PROCESSES

As the script of Hugging Face's dataset wikipedia does it: one parse of a page; from each of
its sections, links to files, references, tables and lists of notes are removed, and the
rest is stripped. Its own process reads the XML. `datasets` itself is left out, with what it
takes to move and write rows.
"""

import multiprocessing
import re
import sys
from collections.abc import Iterator
from xml.etree import ElementTree

import mwparserfromhell

_FILES = re.compile("(File|Image|Media|파일|ملف):", re.IGNORECASE)
_NOTES = {"reflist", "notelist", "notelist-ua", "notelist-lr"}


def _articles(path: str) -> Iterator[str]:
    events = ElementTree.iterparse(path, events=("start", "end"))
    _, root = next(events)
    for event, element in events:
        if event == "start" or not element.tag.endswith("}page"):
            continue
        place = element.tag.removesuffix("page")
        text = element.findtext(f"{place}revision/{place}text") or ""
        is_article = element.findtext(f"{place}ns") == "0"
        root.clear()
        if is_article and text and not text.lower().startswith("#redirect"):
            yield text


def _text(markup: str) -> str:
    texts = []
    page = mwparserfromhell.parse(markup)
    for section in page.get_sections(flat=True, include_lead=True):
        removed = [
            *section.ifilter_wikilinks(matches=lambda x: _FILES.match(str(x.title))),
            *section.ifilter_templates(matches=lambda x: x.name.lower() in _NOTES),
            *section.ifilter_tags(matches=lambda x: str(x.tag) in ("ref", "table")),
        ]
        for node in removed:
            try:
                section.remove(node)
            except ValueError:  # it was in another one that is removed
                continue
        texts.append(section.strip_code().strip())
    return "\n\n".join(texts)


def main() -> None:
    path, output, processes = sys.argv[1:]
    with (
        multiprocessing.Pool(int(processes)) as pool,
        open(output, "w", encoding="utf-8") as file,
    ):
        for text in pool.imap(_text, _articles(path), chunksize=16):
            file.write(f"{text}\n\n\n")


if __name__ == "__main__":
    main()
