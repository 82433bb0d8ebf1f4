"""Writes the findings of an inspection as one self-contained HTML page."""

import html
import json
import os

import numpy as np

from files.local import replacing
from text import report_page
from text.inspection import figures, words
from text.inspection.inspect import Inspection

_MOST_BARS = 40
_MOST_FILES = 20
# A histogram's size, and the margins around its bars, in its own units.
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 450, 220, 58, 26, 42

_STYLE = """
.grid { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(430px, 100%), 1fr)); }
.grid .card { margin: 0; min-width: 0; }
.good { border-left: 6px solid #2e8b57; }
.bad { border-left: 6px solid #c0392b; }
.bad li { font-family: ui-monospace, monospace; font-size: 13px; }
.bars { width: 100%; }
.bars td { padding: 1px 8px 1px 0; white-space: nowrap; }
.bars td:nth-child(2) { width: 100%; }
.bars td:last-child { text-align: right; font-variant-numeric: tabular-nums; }
.bar { background: var(--bar); height: 13px; border-radius: 2px; min-width: 1px; }
svg { width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--quiet); }
svg rect { fill: var(--bar); }
svg line { stroke: var(--line); }
.mask { background: light-dark(#cfe3f7, #24466b); }
.kept { background: light-dark(#d8efd3, #2a5130); }
.random { background: light-dark(#fbd9c5, #6b3d20); }
.mask, .kept, .random { border-radius: 3px; padding: 0 3px; }
.shown { color: var(--quiet); font-size: 12px; }
"""


def write(path: str, files: list[str], inspection: Inspection) -> None:
    """Writes the page of the inspected files, with the records to show."""
    title = f"Pre-training records: {os.path.basename(files[0])}"
    if len(files) > 1:
        title += f" and {len(files) - 1:,} more"
    parts = [_verdict(inspection), _files(files)]
    if inspection.statistics and inspection.statistics.records:
        cards = "".join(map(_plot, inspection.statistics.plots()))
        parts += [
            "<h2>In numbers</h2>" + report_page.facts(inspection.statistics.lines()),
            f'<h2>In pictures</h2><div class="grid">{cards}</div>',
        ]
    if inspection.shown:
        parts.append(_first_records(inspection))
    parts += [
        _flags(description)
        for description in {
            d.path: d for d in inspection.descriptions.values()
        }.values()
    ]
    page = report_page.render(title, "\n".join(parts), _STYLE)
    with replacing(path) as file:
        # A file's name need not be valid UTF-8.
        file.write(page.encode("utf-8", "backslashreplace"))


def _verdict(inspection):
    lines, total = inspection.violations.lines(), inspection.violations.total
    if not total:
        return (
            f'<p class="card good">{inspection.num_records:,} records were read; no '
            "problems found.</p>"
        )
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return (
        f'<div class="card bad">{inspection.num_records:,} records were read, with '
        f"{total:,} violation(s).<ul>{items}</ul></div>"
    )


def _files(files):
    names = ", ".join(files[:_MOST_FILES])
    more = len(files) - _MOST_FILES
    return (
        f'<p class="note">{len(files):,} file(s): {html.escape(names)}'
        f"{f' and {more:,} more' if more > 0 else ''}</p>"
    )


# === Plots ===


def _plot(plot):
    if isinstance(plot, figures.Histogram):
        picture = _histogram(plot.counts, plot.unit)
    else:
        picture = _bars(plot.rows)
    return (
        f'<div class="card"><h3>{html.escape(plot.title)}</h3>'
        f'<p class="note">{html.escape(plot.note)}</p>{picture}</div>'
    )


def _bars(rows):
    """Horizontal bars of (name, share, text); the longest takes the full width."""
    longest = max((share for _, share, _ in rows), default=0) or 1
    lines = "".join(
        f"<tr><td>{html.escape(name)}</td>"
        f'<td><div class="bar" style="width:{100 * share / longest:.1f}%"></div></td>'
        f"<td>{html.escape(text)}</td></tr>"
        for name, share, text in rows
    )
    return f'<div class="wide"><table class="bars">{lines}</table></div>'


def _histogram(counts, unit):
    """Vertical bars: the number of records (y) for each value (x)."""
    values = np.flatnonzero(counts)
    # At least ten values, so that a single one does not fill the picture.
    last = min(max(values[-1], values[0] + 9), len(counts) - 1)
    first = max(min(values[0], last - 9), 0)
    step = _round_step((last - first + 1) / _MOST_BARS)
    first = first // step * step
    starts = np.arange(first, last + 1, step)
    sums = np.add.reduceat(counts[first : last + 1], starts - first)
    heights = _ticks(0, sums.max(), 4)
    base, across, upwards = _HEIGHT - _BOTTOM, _WIDTH - _LEFT, _HEIGHT - _BOTTOM - _TOP
    width = across / len(sums)
    parts = [_label(_LEFT - 6, _TOP - 14, "end", "records")]
    for tick in heights:
        y = base - upwards * tick / heights[-1]
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_label(_LEFT - 6, y + 4, "end", f"{tick:,}"))
    for i, total in enumerate(sums.tolist()):
        start, height = starts[i], upwards * total / heights[-1]
        name = f"{start}" if step == 1 else f"{start} to {start + step - 1}"
        parts.append(
            f'<rect x="{_LEFT + i * width:.2f}" y="{base - height:.2f}" '
            f'width="{max(width - 1, 0.5):.2f}" height="{height:.2f}">'
            f"<title>{name} {unit}: {total:,} records</title></rect>"
        )
    for tick in _ticks(first, last, 8):
        if tick <= last:
            # Below the middle of a bar for one value, below the start of one for more.
            x = _LEFT + ((tick - first) / step + (0.5 if step == 1 else 0)) * width
            parts.append(_label(x, base + 16, "middle", tick))
    parts.append(_label(_LEFT + across / 2, _HEIGHT - 6, "middle", unit))
    return f'<svg viewBox="0 0 {_WIDTH + 12} {_HEIGHT}">{"".join(parts)}</svg>'


def _label(x, y, anchor, text):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _round_step(least):
    """The smallest of 1, 2, 5, 10, 20, 50 ... that is at least `least`."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least:
                return factor * power
        power *= 10


def _ticks(first, last, most):
    """About `most` round numbers from `first` until `last` is reached."""
    step = _round_step((last - first) / most)
    start = -(-int(first) // step) * step
    return list(range(start, int(last) + step, step))


# === Records and flags ===


def _first_records(inspection):
    legend = inspection.inspector.instances.masks.are_drawn and (
        "<p>To predict: "
        '<span class="mask">cat</span> replaced by [MASK], '
        '<span class="random"><span class="shown">dog→</span>cat</span> replaced by the '
        'random token dog, <span class="kept">cat</span> unchanged.</p>'
    )
    records = "".join(
        f'<div class="card"><small>{html.escape(where)}: '
        f"{html.escape(words.heading(record, inspection.inspector))}</small>"
        f"{_sides(record, inspection)}</div>"
        for where, record in inspection.shown
    )
    return f"<h2>The first records</h2>{legend or ''}{records}"


def _sides(record, inspection):
    sides = words.sides(record, inspection.inspector)
    return "".join(
        f"<p><b>{side}</b> <span dir='auto'>"
        + " ".join("".join(map(_piece, word)) for word in words_of_side)
        + "</span></p>"
        for side, words_of_side in sides.items()
    )


def _piece(piece):
    original = html.escape(piece.original)
    if piece.outcome == "text":
        return original
    if piece.outcome == "random":
        shown = html.escape(piece.shown)
        original = f'<span class="shown">{shown}→</span>{original}'
    return f'<span class="{piece.outcome}">{original}</span>'


def _flags(description):
    rows = [("vocabulary", description.vocab_sha256), *description.counts.items()]
    flags = [
        (f"--{name}", value if isinstance(value, str) else json.dumps(value))
        for name, value in description.flags.items()
    ]
    return (
        f"<h2>How they were made</h2><p class='note'>{html.escape(description.path)}</p>"
        f"{report_page.facts(flags)}{report_page.facts(rows)}"
    )
