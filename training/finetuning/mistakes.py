"""Draws a page of a model's mistakes: metrics, confusion matrix, the worst examples."""

import collections
import html
from typing import NamedTuple

from training.finetuning.task import Judgement

_MOST_CLASSES = 40
_MOST_MISTAKES = 100
_LONGEST_TEXT = 1500


class Page(NamedTuple):
    """What is shown of one set."""

    split: str
    values: dict[str, float]
    judgements: list[Judgement]
    has_classes: bool = True  # rather than texts of any kind


_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto;
       padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top;
         border-bottom: 1px solid #8884; }
.matrix td { text-align: right; font-variant-numeric: tabular-nums; }
.matrix th { font-weight: 600; }
.wide { overflow-x: auto; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
"""


def render(pages: list[Page], title: str) -> str:
    """One self-contained HTML page about one or several sets.

    Args:
        title: names the run and the data.
    """
    title = _escape(title)
    sections = "".join(_section(page) for page in pages)
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style>\n"
        f"<h1>{title}</h1>\n{sections}</html>\n"
    )


def _section(page: Page) -> str:
    rows = "".join(
        f'<tr><th>{_escape(name)}</th><td class="number">{value:.4f}</td></tr>'
        for name, value in page.values.items()
    )
    parts = [f"<h2>{_escape(page.split)}</h2>\n<table>{rows}</table>\n"]
    if page.judgements:
        if page.has_classes:
            parts.append(_matrix(page.judgements))
        parts.append(_worst(page.judgements))
    return "".join(parts)


def _matrix(judgements) -> str:
    counts = collections.Counter((j.gold, j.predicted) for j in judgements)
    classes = sorted({name for pair in counts for name in pair})
    title = "Confusions: a row for each true answer, a column for each predicted one"
    if len(classes) > _MOST_CLASSES:
        frequent = collections.Counter(j.gold for j in judgements)
        classes = sorted(name for name, _ in frequent.most_common(_MOST_CLASSES))
        title += f"; the {len(classes)} most frequent of {len(frequent)}"
    most = max(counts.values())
    head = "".join(f"<th>{_escape(name)}</th>" for name in classes)
    lines = []
    for gold in classes:
        cells = []
        for predicted in classes:
            n = counts[gold, predicted]
            hue = 140 if gold == predicted else 10
            color = f"hsl({hue} 70% 45% / {0.6 * n / most:.2f})"
            cells.append(f'<td style="background:{color}">{n}</td>')
        lines.append(f"<tr><th>{_escape(gold)}</th>{''.join(cells)}</tr>")
    return (
        f"<h3>{title}</h3>\n"
        f'<div class="wide"><table class="matrix"><tr><th></th>{head}</tr>'
        f"{''.join(lines)}</table></div>\n"
    )


def _worst(judgements) -> str:
    wrong = sorted(
        (j for j in judgements if j.gold != j.predicted), key=lambda j: -j.wrongness
    )
    shown = wrong[:_MOST_MISTAKES]
    lines = "".join(
        f'<tr><td class="number">{j.wrongness:.3f}</td><td>{_escape(j.gold)}</td>'
        f'<td>{_escape(j.predicted)}</td><td class="text">{_text(j.text)}</td></tr>\n'
        for j in shown
    )
    return (
        f"<h3>The {len(shown)} worst of {len(wrong)} mistakes in {len(judgements)} "
        'answers</h3>\n<div class="wide"><table><tr><th>how wrong</th><th>true</th>'
        f"<th>predicted</th><th>text</th></tr>\n{lines}</table></div>\n"
    )


def _text(text: str) -> str:
    cut = " …" if len(text) > _LONGEST_TEXT else ""
    return _escape(text[:_LONGEST_TEXT]) + cut


def _escape(text: str) -> str:
    return html.escape(text)
