"""The frame of the pages that programs write."""

import tests
from text import report_page


def test_a_page_shows_names_as_they_are():
    title = "<i>run</i> & co"
    body = report_page.facts([("a<b", "x" * 3), ("--flag", ["<td>"])])
    page = report_page.render(title, body, ".own { color: red; }")
    assert page.count("&lt;i&gt;run&lt;/i&gt; &amp; co") == 2 and "<i>" not in page
    assert "<th>a&lt;b</th><td>xxx</td>" in page and "&lt;td&gt;" in page
    assert ".own { color: red; }" in page


def test_all_pages_have_one_look():
    """A page of a program with a frame of its own would soon look unlike the others."""
    folders = ("text", "modeling", "serving", "training")
    paths = [path for folder in folders for path in (tests.ROOT / folder).rglob("*.py")]
    framing = {p.name for p in paths if "<style" in p.read_text(encoding="utf-8")}
    assert framing == {"report_page.py"}
