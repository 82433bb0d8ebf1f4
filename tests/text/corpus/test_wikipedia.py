"""Dumps of wikis: what becomes text, what is left out, and how a dump is shared."""

import bz2
import gzip
import random
import re
import sys
import time
from collections import Counter

import pytest

from errors import UserError
from files import sources
from tests.packed import pack
from tests.text.corpus.dumps import ARABIC, KOREAN, dump, multistream, page
from tests.text.corpus.readers import documents
from text.corpus import formats, text_format, wikipedia

pytest.importorskip("mwparserfromhell")
from text.corpus import wikitext  # noqa: E402


def cut(path):
    files = [(str(path), sources.status(str(path)))]
    pieces = formats.pieces(files, "wikipedia", files[0][1].size)
    return [span for piece in pieces for span in piece]


def read(path, counts=None, **given):
    """The documents, each a list of sentences."""
    found = documents(cut(path), counts, input_format="wikipedia", **given)
    return list(filter(None, found))


@pytest.fixture
def write(tmp_path):
    def write(content, name="dump.xml"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


@pytest.fixture
def article(write):
    """The sentences of an article, and the counts."""

    def article(markup, names=None, **given):
        path = write(dump(page(markup), **({"names": names} if names else {})))
        counts = Counter()
        found = read(path, counts, **given)
        return (found[0] if found else []), counts

    return article


MARKUP = """{{Infobox city|name={{PAGENAME}}|image=[[File:a.jpg|Alt [[text]]]]}}
'''Paris''' ({{IPA|x}}) is the [[capital city|capital]] of [[France]].<ref name="a">A
book, [[page]] 3.</ref> It&nbsp;lies on the ''Seine'' &amp; more.<ref name="a" />
[[File:Paris.jpg|thumb|Its [[tower]]]]
This line goes on.

== History ==
Caesar came. See [https://example.org the site]<!-- a comment -->.
* One item
** Another [[item]]
{| class="wikitable"
! A !! B
|-
| c || d
|}
H<sub>2</sub>O is <nowiki>[[water]]</nowiki>. <math>x^2</math>
[[Category:Cities]] [[fr:Paris]] __NOTOC__
"""


def test_paragraphs_and_the_texts_of_links_stay(article):
    sentences, counts = article(MARKUP)
    assert sentences == [
        "Paris is the capital of France.",
        "It lies on the Seine & more.",
        "This line goes on.",
        "Caesar came.",
        "See the site.",
        "H2O is [[water]].",
    ]
    assert counts == {
        "pages": 1,
        "pages_without_text": 0,
        "removed_templates": 2,
        "removed_files": 1,
        "removed_references": 2,
        "removed_headings": 1,
        "removed_list_items": 2,
        "removed_tables": 1,
        "removed_other_elements": 1,
        "removed_categories": 1,
        "removed_language_links": 1,
    }


def test_lists_and_headings_stay_by_flag(article):
    sentences, counts = article(MARKUP, keep_lists=True, keep_headings=True)
    assert sentences[3:8] == [
        "History",
        "Caesar came.",
        "See the site.",
        "One item",
        "Another item",
    ]
    assert not counts["removed_list_items"] and not counts["removed_headings"]


def test_a_korean_page(article):
    markup = (
        "{{도시 정보|이름=서울}}'''서울특별시'''(서울特別市, {{llang|en|Seoul}})는 "
        "[[대한민국]]의 [[수도]]이다. [[한강|강]]이 흐른다.\n"
        "[[파일:서울.jpg|섬네일|[[남산]]]][[그림:옛것.jpg]]\n[[분류:대한민국의 수도]]\n"
    )
    sentences, counts = article(markup, KOREAN)
    assert sentences == [
        "서울특별시(서울特別市)는 대한민국의 수도이다.",
        "강이 흐른다.",
    ]
    assert counts["removed_files"] == 2 and counts["removed_categories"] == 1


def test_an_arabic_page(article):
    markup = (
        "{{معلومات مدينة}}'''القاهرة''' هي [[عاصمة|عاصمة]] [[مصر]]. هل هي كبيرة؟ نعم.\n"
        "[[ملف:القاهرة.jpg|تصغير|[[النيل]]]]\n[[تصنيف:عواصم]]\n"
    )
    sentences, counts = article(markup, ARABIC)
    assert sentences == ["القاهرة هي عاصمة مصر.", "هل هي كبيرة؟", "نعم."]
    assert counts["removed_files"] == counts["removed_categories"] == 1


def test_other_pages_are_left_out_and_counted(write):
    path = write(
        dump(
            page("Talk. It is.", ns=1),
            page("#REDIRECT [[Another]]", redirect=True),
            page("A may mean:\n* [[B]]\n{{disambiguation}}"),
            page("가는 다음을 뜻한다.\n{{동음이의}}"),
            page("This [[Mercury]]{{disambiguation needed|date=May}} is. It stays."),
            page("return {}", model="Scribunto"),
            page(""),
            page("{{only a template}}"),
            page("It stays, too."),
        )
    )
    counts = Counter()
    found = read(path, counts)
    assert found == [["This Mercury is.", "It stays."], ["It stays, too."]]
    assert counts["pages"] == 9
    report = list(formats.FORMATS["wikipedia"].report(counts))
    assert report == [
        "Wiki: 9 pages; left out: 1 of other namespaces, 1 redirects, "
        "2 disambiguations, 1 not wikitext, 2 without text",
        "Removed from the others: 2 templates",
    ]


def test_a_page_that_breaks_the_parser_is_named_and_counted(write, monkeypatch, capsys):
    path = write(dump(page("One.", "Good"), page("Two {{{.", "Bad"), page("Three.")))
    tokenizer = wikitext.Tokenizer

    class Broken:
        def tokenize(self, markup, *given):
            if "Two" in markup:
                raise wikitext.ParserError("a bug")
            return tokenizer().tokenize(markup, *given)

    monkeypatch.setattr(wikitext, "Tokenizer", Broken)
    counts = Counter()
    assert read(path, counts) == [["One."], ["Three."]]
    assert counts["broken_pages"] == 1
    said = capsys.readouterr().err
    assert "dump.xml: page 'Bad' cannot be parsed" in said and "a bug" in said


def test_deep_nesting_is_a_page_at_most(write):
    deep = "<b>" * 5_000 + "x" + "</b>" * 5_000 + "{{" * 5_000 + "[[" * 5_000
    path = write(dump(page(deep, "Deep"), page("It stays.")))
    assert read(path)[-1] == ["It stays."]


# Without brackets that are not closed: the parser leaves those around what is simple.
FRAGMENTS = """{{a}} {{a|b}} {{A_b~|x=[[y|z]]~}} {{~a|b=c}} {{#if:x|y}} {{a|<br>}} [[a]]
[[a|b_c]] [[a#b]] | = == ~ ~*_ <ref> </ref> <ref>x</ref> <ref_name=a> <ref_name="b_c">
<ref_name=a/> <nowiki> </nowiki> <!-- --> &amp; http://a.b_ [http://c.d_[[e]]] File: : a
B_c '' ( ) <table> </table> <div_class="{{x}}"> </div> <math> </math> {{a|{{b}}}} {{{a}}}
<ref>{{a|~b}}</ref> [[File:a.jpg|{{b}}<ref>c</ref>]] [[Category:a]] [[:a:b]] [[a|{{b}}]]
[[*a]]"""


def test_to_mark_what_is_simple_changes_nothing(monkeypatch):
    """The parser alone finds the same, but more slowly."""
    rng, site, first = random.Random(0), wikitext.Site.of([]), wikitext._mark
    fragments = FRAGMENTS.split()
    removed = 0
    for _ in range(3_000):
        markup = "".join(rng.choices(fragments, k=rng.randint(1, 15)))
        markup = markup.replace("_", " ").replace("~", "\n")
        found = []
        for before in (first, lambda markup: markup):
            monkeypatch.setattr(wikitext, "_mark", before)
            counts = Counter()
            text = wikitext.paragraphs(markup, site, True, True, counts)
            found.append((text, +counts))
        assert found[0] == found[1], markup
        removed += first(markup) != markup
    assert removed > 1_000


def test_markup_that_is_kept_as_it_is_keeps_its_templates(article):
    sentences, counts = article(
        "A <nowiki>{{b}}</nowiki>. C{{d}}.\n\nE {{{f|g}}}{{h}}."
    )
    assert sentences == ["A {{b}}.", "C.", "E ."] and counts["removed_templates"] == 2


def test_templates_within_addresses_are_removed(article):
    sentences, counts = article(
        "See http://a.b/c?d&amp;e={{f|g}} now. Or [[:h{{i}}]] or [[:Category:J]]."
    )
    assert sentences == ["See http://a.b/c?d&e= now.", "Or h or Category:J."]
    assert counts["removed_templates"] == 2


ENDLESS = {
    "{{a|": "brackets, tags or comments are not closed",
    "[[a|": "brackets, tags or comments are not closed",
    "<ref>": "brackets, tags or comments are not closed",
    "{|\n": "brackets, tags or comments are not closed",
    "<!--": "brackets, tags or comments are not closed",
    "== ": "marks of headings",  # the parser would crash, and its process with it
}


def test_markup_that_the_parser_takes_minutes_for_is_left_out(write, capsys):
    wikipedia._say_once.cache_clear()
    broken = [
        page(kind * (500_000 // len(kind)), f"Page {n}")
        for n, kind in enumerate(ENDLESS)
    ]
    counts = Counter()
    assert read(write(dump(*broken, page("It stays."))), counts) == [["It stays."]]
    assert counts["broken_pages"] == len(ENDLESS)
    said = capsys.readouterr().err.splitlines()
    for number, (line, reason) in enumerate(zip(said, ENDLESS.values(), strict=True)):
        assert f"page 'Page {number}' cannot be parsed" in line and reason in line


@pytest.mark.parametrize(
    ("begin", "repeated"),
    [("-{", "a"), ("-{", "a:"), ("x", " "), ("(", ","), ("x", ","), ("", "(,")],
)
def test_no_line_is_slow(begin, repeated):
    """A pattern that tries each beginning would take an hour for such a page."""
    markup = f"{begin}{repeated * 250_000} x () (,"
    counts, site = Counter(), wikitext.Site.of([])
    begun = time.process_time()
    wikitext.paragraphs(markup, site, True, True, counts)
    assert time.process_time() - begun < 5


PAGES = [page(f"Text {n}. " + "It is so. " * (n % 5), f"{n}") for n in range(60)]


def pieces_of_a_stream(size):
    """As pbzip2 packs: streams end anywhere."""
    whole = dump(*PAGES)
    return b"".join(
        bz2.compress(whole[i : i + size]) for i in range(0, len(whole), size)
    )


FORMS = {
    "plain.xml": lambda: dump(*PAGES),
    "one.xml.gz": lambda: gzip.compress(dump(*PAGES)),
    "one.xml.bz2": lambda: pack(dump(*PAGES), "bz2"),
    "one.xml.zst": lambda: pack(dump(*PAGES), "zst"),
    "multistream.xml.bz2": lambda: multistream(PAGES, 7),
    "parallel.xml.bz2": lambda: pieces_of_a_stream(997),
}


@pytest.mark.parametrize("piece_bytes", [1, 7, 100, 997, 3000, 1 << 20])
@pytest.mark.parametrize("name", FORMS)
def test_each_page_is_read_once_wherever_a_dump_is_cut(
    write, monkeypatch, name, piece_bytes
):
    if piece_bytes == 1 and name == "plain.xml":
        piece_bytes = 3  # within a tag, and not 15,000 spans
    path = write(FORMS[name](), name)
    expected = [[f"Text {n}.", *["It is so."] * (n % 5)] for n in range(60)]
    monkeypatch.setattr(text_format, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(wikipedia, "_CHUNK", max(piece_bytes, 20))
    spans = cut(path)
    assert read(path) == expected
    assert sum(span.size for span in spans) == path.stat().st_size
    if piece_bytes == 100:
        assert len(spans) > 5


def test_streams_are_shared_and_one_stream_is_said_to_be_one(
    write, monkeypatch, capsys
):
    monkeypatch.setattr(text_format, "PIECE_BYTES", 400)
    path = write(multistream(PAGES, 5), "multistream.xml.bz2")
    assert not any(span.block for span in cut(path))
    assert not capsys.readouterr().err
    path = write(bz2.compress(dump(*PAGES)), "one.xml.bz2")
    assert all(span.block for span in cut(path))
    assert "one.xml.bz2: one process unpacks it; all cores" in capsys.readouterr().err


WHOLE = dump(*PAGES)
REFUSED = {
    "within a page": ("a.xml", WHOLE[:-60], "ends within a page, so it was cut off"),
    "between pages": ("a.xml", WHOLE[:-14], "ends without </mediawiki>, so it was cut"),
    "a truncated bz2": (
        "a.bz2",
        bz2.compress(WHOLE)[:-20],
        "compressed data is damaged",
    ),
    "a truncated gz": (
        "a.gz",
        gzip.compress(WHOLE)[:-20],
        "compressed data is damaged",
    ),
    "a truncated zst": (
        "a.zst",
        lambda: pack(WHOLE, "zst")[:-20],
        "compressed data is damaged",
    ),
    "a truncated multistream": (
        "a.bz2",
        multistream(PAGES, 9)[:-60],
        "compressed data is",
    ),
    "streams without the last": (
        "a.bz2",
        multistream(PAGES, 9).removesuffix(bz2.compress(b"</mediawiki>")),
        "ends without </mediawiki>",
    ),
    "an index": (
        "a.bz2",
        bz2.compress(b"600:10:Paris\n" * 99),
        "not begin like a wiki's",
    ),
    "text": ("a.xml", b"It is so.\n", "not begin like a wiki's dump .*pages-articles"),
    "revisions": (
        "a.xml",
        dump(page("One.", revisions=2)),
        "has 2 revisions; name a dump",
    ),
    "bad XML": ("a.xml", dump("<page>\n<title>a</tilte></page>"), "a page is not XML"),
    "not UTF-8": ("a.xml", WHOLE.replace(b"Text 9.", b"T\xff"), "a page is not XML"),
}


@pytest.mark.parametrize("piece_bytes", [400, 1 << 23])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_a_whole_dump_is_refused(write, monkeypatch, kind, piece_bytes):
    monkeypatch.setattr(text_format, "PIECE_BYTES", piece_bytes)
    name, content, message = REFUSED[kind]
    path = write(content() if callable(content) else content, name)
    with pytest.raises(
        UserError, match=f"^{re.escape(str(path))}: .*{message}"
    ) as error:
        read(path)
    assert "\n" not in str(error.value)


def test_a_page_without_end_is_refused_before_memory_is_full(write, monkeypatch):
    long = dump(page("word " * 300_000))
    for name, content in {"a.xml": long, "a.xml.gz": gzip.compress(long, 0)}.items():
        monkeypatch.setattr(text_format, "PIECE_BYTES", 10_000)
        monkeypatch.setattr(wikipedia.inputs, "MAX_LINE_MB", 1)
        with pytest.raises(
            UserError, match="a page is longer than 1 MB; name a dump of"
        ):
            read(write(content, name), max_line_mb=1)


def test_without_the_parser_the_requirements_are_named(write, monkeypatch):
    monkeypatch.delitem(sys.modules, "text.corpus.wikitext")
    monkeypatch.delattr(sys.modules["text.corpus"], "wikitext")
    for name in ("mwparserfromhell", "mwparserfromhell.parser"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match="mwparserfromhell.*requirements/corpus.txt"):
        cut(write(WHOLE))
