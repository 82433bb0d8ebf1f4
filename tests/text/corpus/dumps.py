"""Writes small dumps of wikis, as MediaWiki does."""

import bz2
from xml.sax.saxutils import escape

NAMESPACES = {0: "", 1: "Talk", 6: "File", 14: "Category"}
KOREAN = {0: "", 1: "토론", 6: "파일", 14: "분류"}
ARABIC = {0: "", 1: "نقاش", 6: "ملف", 14: "تصنيف"}


def head(names=NAMESPACES):
    """What a dump begins with."""
    listed = "".join(
        f'      <namespace key="{key}" case="first-letter">{name}</namespace>\n'
        for key, name in names.items()
    )
    return (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">\n'
        f"  <siteinfo>\n    <namespaces>\n{listed}    </namespaces>\n  </siteinfo>\n"
    )


def page(text, title="A page", ns=0, redirect=False, model="wikitext", revisions=1):
    """A page with its latest revision."""
    redirect = '    <redirect title="Another" />\n' * redirect
    revision = (
        "    <revision>\n      <id>2</id>\n"
        f"      <model>{model}</model>\n"
        f'      <text bytes="1" xml:space="preserve">{escape(text)}</text>\n'
        "    </revision>\n"
    )
    return (
        f"  <page>\n    <title>{escape(title)}</title>\n    <ns>{ns}</ns>\n"
        f"    <id>1</id>\n{redirect}{revision * revisions}  </page>\n"
    )


def dump(*pages, names=NAMESPACES):
    """A whole dump, of pages that `page` made."""
    return (head(names) + "".join(pages) + "</mediawiki>\n").encode()


def multistream(pages, every):
    """A whole dump as a .bz2 of many streams, each of some pages."""
    streams = ["".join(pages[i : i + every]) for i in range(0, len(pages), every)]
    parts = head(), *streams, "</mediawiki>"
    return b"".join(bz2.compress(part.encode()) for part in parts)
