"""Renders a page of a model's mistakes: metrics, confusion matrix, the worst examples."""

import collections
import html
from typing import NamedTuple

from errors import count
from text import report_page
from training.finetuning.task import Judgement

_MOST_CLASSES = 40
_MOST_MISTAKES = 100
_LONGEST_TEXT = 1500
_MOST_PROBABLE = 3  # answers shown with probabilities, besides the true ones
_ERROR = (
    "The error is the loss; for sentences of tagged words, its mean; for numbers, the "
    "distance; for texts, the probability times the missing F1; for a search, the rank of "
    "the first passage that fits; for pairs of texts, how far apart their two ranks are."
)

_CONTRIBUTIONS = " Blue words speak for what was predicted, red ones against it."


class Page(NamedTuple):
    """What is shown for one set."""

    split: str
    values: dict[str, str]  # the losses and scores, as people read them
    judgements: list[Judgement]
    has_classes: bool = True  # rather than free text


# A mistake's answers are next to its text where there is room, else below it.
_STYLE = """
h3 { font-size: 17px; margin: 24px 0 4px; }
.matrix tr:first-child th { white-space: normal; overflow-wrap: break-word; }
.mistake { display: flex; flex-wrap: wrap; gap: 8px 24px; }
.mistake > * { min-width: 0; }
.text { flex: 3 1 340px; white-space: pre-wrap; }
.answers { flex: 2 1 260px; }
.answers th { font-weight: 400; color: var(--quiet); }
"""


def render(pages: list[Page], title: str) -> str:
    """One self-contained HTML page about one or several sets.

    Args:
        title: names the run and the data.
    """
    has_several = len(pages) > 1  # else the title names the set
    sections = "".join(_section(page, has_several) for page in pages)
    return report_page.render(title, sections, _STYLE)


def _section(page: Page, has_heading: bool) -> str:
    heading = f"<h2>{html.escape(page.split)}</h2>\n" if has_heading else ""
    parts = [heading, report_page.facts(page.values.items())]
    if page.judgements:
        if page.has_classes:
            parts.append(_matrix(page.judgements))
        parts.append(_worst(page.judgements))
    return "".join(parts)


def _matrix(judgements) -> str:
    counts = collections.Counter(
        pair for j in judgements for pair in j.pairs or [(j.gold, j.predicted)]
    )
    classes = sorted({name for pair in counts for name in pair})
    note = "A row per true answer, a column per predicted one"
    if len(classes) > _MOST_CLASSES:
        frequent = collections.Counter()
        for (gold, _), number in counts.items():
            frequent[gold] += number
        classes = sorted(name for name, _ in frequent.most_common(_MOST_CLASSES))
        note += f"; the {len(classes)} most frequent of {len(frequent)}"
    most = max(counts.values())
    head = "".join(f"<th>{html.escape(name)}</th>" for name in classes)
    lines = []
    for gold in classes:
        cells = []
        for predicted in classes:
            n = counts[gold, predicted]
            hue = 140 if gold == predicted else 10
            color = f"hsl({hue} 70% 45% / {0.6 * n / most:.2f})"
            cells.append(f'<td style="background:{color}">{n}</td>')
        lines.append(f"<tr><th>{html.escape(gold)}</th>{''.join(cells)}</tr>")
    return (
        f'<h3>Confusion matrix</h3>\n<p class="note">{note}.</p>\n'
        '<div class="card wide"><table class="numbers matrix">'
        f"<tr><th></th>{head}</tr>{''.join(lines)}</table></div>\n"
    )


def worst(judgements: list[Judgement]) -> list[int]:
    """The numbers of those that are wrong, the worst first."""
    wrong = (i for i, j in enumerate(judgements) if j.gold != j.predicted)
    return sorted(wrong, key=lambda i: -judgements[i].error)


def _worst(judgements) -> str:
    wrong = [judgements[number] for number in worst(judgements)]
    shown = wrong[:_MOST_MISTAKES]
    # A sentence of tagged words is judged as a whole.
    judged = "sentence" if any(j.pairs for j in judgements) else "answer"
    number = count(len(wrong), "wrong sentence" if judged == "sentence" else "mistake")
    if len(shown) < len(wrong):
        number = f"The {len(shown)} worst of {number}"
    elif len(wrong) > 1:
        number = f"All {number}"
    answers = count(len(judgements), judged)
    order = ", the worst first" * (len(wrong) > 1)
    notes = _ERROR + _CONTRIBUTIONS * any(j.words for j in shown)
    return (
        f"<h3>{number} in {answers}{order}</h3>\n"
        f'<p class="note">{notes}</p>\n{"".join(map(_mistake, shown))}'
    )


def _mistake(judgement: Judgement) -> str:
    rows = [
        ("true", [judgement.gold]),
        ("predicted", [judgement.predicted]),
        ("error", [f"{judgement.error:.3f}"]),
    ]
    if judgement.probabilities:
        rows.append(("probabilities", _odds(judgement)))
    text = _color(judgement.words) or _text(judgement.text)
    # Each line is written in the direction of its own script.
    lines = "".join(
        f"<tr><th>{name}</th><td>"
        + "".join(f'<div dir="auto">{html.escape(value)}</div>' for value in values)
        + "</td></tr>"
        for name, values in rows
    )
    return (
        f'<div class="card mistake"><div class="text" dir="auto">{text}'
        f'</div><div class="answers"><table>{lines}</table></div></div>\n'
    )


def _odds(judgement) -> list[str]:
    """The most probable answers, and what is true and predicted in any case."""
    probabilities = judgement.probabilities
    ranked = sorted(probabilities, key=probabilities.get, reverse=True)
    both = {judgement.gold, judgement.predicted}
    named = both.union(*(names.split(", ") for names in both))
    return [
        f"{probabilities[name]:.3f} {name}"
        for i, name in enumerate(ranked)
        if i < _MOST_PROBABLE or name in named
    ]


def _color(words) -> str:
    """Each word the more colored, the more it contributed."""
    most = max((abs(part) for _, part in words), default=0) or 1
    shown, left = [], _LONGEST_TEXT
    for text, part in words:
        kept = html.escape(text[:left])
        left -= len(text)
        if part:
            hue, share = 215 if part > 0 else 10, 0.7 * abs(part) / most
            kept = (
                f'<span title="{part:.3f}" style="background:hsl({hue} 90% 55% / '
                f'{share:.2f})">{kept}</span>'
            )
        shown.append(kept)
        if left <= 0:
            break
    return "".join(shown) + " …" * (left < 0)


def _text(text: str) -> str:
    cut = " …" if len(text) > _LONGEST_TEXT else ""
    return html.escape(text[:_LONGEST_TEXT]) + cut
