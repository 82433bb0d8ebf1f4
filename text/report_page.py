"""Frames the HTML pages that programs write: one look, one self-contained file each."""

import html
from collections.abc import Iterable

_STYLE = """
:root {
  color-scheme: light dark;
  --page: light-dark(#f5f6f8, #14171c); --card: light-dark(#fff, #1d2129);
  --line: light-dark(#dfe3e8, #39404c); --text: light-dark(#1c2733, #e7eaf0);
  --quiet: light-dark(#5d6b7a, #a0a9ba); --bar: light-dark(#4878a8, #7fa9d4);
}
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
  max-width: 1040px; margin: 0 auto; padding: 24px; overflow-wrap: anywhere; }
h1 { font-size: 26px; line-height: 1.3; margin: 0 0 8px; }
h2 { font-size: 19px; margin: 34px 0 10px; }
h3 { font-size: 15px; margin: 0; }
p { margin: 4px 0 12px; }
small, .note { color: var(--quiet); font-size: 13px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 14px 16px; margin: 0 0 12px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: start; vertical-align: top; padding: 2px 12px 2px 0; }
th { font-weight: 600; white-space: nowrap; }
.numbers th, .numbers td { text-align: end; white-space: nowrap; padding: 4px 12px;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
.numbers :is(th, td):first-child { text-align: start; padding-inline-start: 0; }
.numbers tr:last-child :is(th, td) { border-bottom: 0; }
img { max-width: 100%; }
"""


def render(title: str, body: str, style: str = "") -> str:
    """A page; the body is HTML, and the style CSS of what only this page has."""
    title = html.escape(title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}{style}</style></head>\n"
        f"<body><h1>{title}</h1>\n{body}</body></html>\n"
    )


def facts(rows: Iterable[tuple[str, object]]) -> str:
    """A card with a table of names and values."""
    cells = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows
    )
    return f'<div class="card wide"><table>{cells}</table></div>\n'


def numbers(titles: list[str], rows: list[list[str]]) -> str:
    """A card with a table of numbers, whose cells are HTML; the first column names rows."""
    lines = [f"<tr>{''.join(f'<th>{title}</th>' for title in titles)}</tr>"]
    for name, *cells in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f"<tr><th>{name}</th>{cells}</tr>")
    table = "\n".join(lines)
    return f'<div class="card wide"><table class="numbers">{table}</table></div>\n'
