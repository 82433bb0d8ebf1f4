"""Writes what a plan has found so far: as JSON, as an HTML page, and a figure's picture."""

import base64
import dataclasses
import html
import io
import math
import os
import statistics
from collections.abc import Mapping

from errors import UserError
from files import json_files, local
from recipes.comparisons.paper_tables import TABLES
from recipes.comparisons.plan import Column, Plan, Value
from text import report_page

JSON, PAGE = "ablations.json", "ablations.html"
_INTRODUCTION = (
    "Each number is the mean of all runs, ± their standard deviation. Gray columns are "
    "the paper’s own numbers, on its dev sets and at its scale. Scores are percentages."
)
# The papers' numbers.
STYLE = ".paper { color: var(--quiet); }"


def _earlier(path: str) -> dict:
    """The tables of an ablations.json."""
    if not os.path.exists(path):
        return {}
    try:
        tables = json_files.read_object(path, "delete it")["tables"]
        for name, results in tables.items():
            _section(name, results)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: was not written by this version ({error!r}); delete it"
        ) from error
    return tables


def _section(name: str, results: dict) -> tuple[str, bytes | None]:
    """A table's part of the page, and its picture if it is a figure."""
    table = TABLES[name]
    picture = _draw(results) if table.steps else None
    shown = _figure(picture) if picture else _rows(results)
    return (
        f"<h2>{html.escape(table.title)} ({html.escape(table.paper)})</h2>\n{shown}"
        f"<p>{html.escape(table.note)}</p>\n{_scale(results['facts'], table.scale)}"
    ), picture


class Results:
    """The numbers of finished cells, and what is made of them.

    Args:
        root: the plan's folder. Other tables that were written there are kept.
        facts: the scale of these runs: name to value.
    """

    def __init__(self, root: str, plan: Plan, facts: Mapping[str, str]):
        self._root, self._plan = root, plan
        self._facts = dict(facts)
        self._earlier = _earlier(os.path.join(root, JSON))
        self.cells: dict[str, dict] = {}

    def write(self) -> dict:
        """Writes all files; returns this plan's tables."""
        own = {name: self._table(name) for name in self._plan.columns}
        # In the papers' order.
        tables = {name: (self._earlier | own).get(name) for name in TABLES}
        tables = {name: results for name, results in tables.items() if results}
        parts = []
        for name, results in tables.items():
            part, picture = _section(name, results)
            parts.append(part)
            if picture:
                with local.replacing(os.path.join(self._root, f"{name}.png")) as file:
                    file.write(picture)
        name = os.path.basename(os.path.abspath(self._root))
        body = f"<p>{_INTRODUCTION}</p>\n{''.join(parts)}"
        page = report_page.render(f"Ablations: {name}", body, STYLE)
        local.write_json(os.path.join(self._root, JSON), {"tables": tables})
        with local.replacing(os.path.join(self._root, PAGE), "w") as file:
            file.write(page)
        return own

    def _table(self, name: str) -> dict:
        rows = []
        for i, row in enumerate(TABLES[name].rows):
            config = self._plan.configs[row.variant.name]
            columns = self._plan.columns[name]
            rows.append(
                {
                    "label": row.label.format(**dataclasses.asdict(config)),
                    "here": {c.title: self._measure(c, i) for c in columns},
                    "published": TABLES[name].numbers_of(row),
                }
            )
        return {
            "title": TABLES[name].title,
            "paper": TABLES[name].paper,
            "facts": self._facts,
            "rows": rows,
        }

    def _measure(self, column: Column, row: int) -> dict:
        value = column.values[row]
        if isinstance(value, float):  # known without a run
            return {"mean": value, "deviation": None, "runs": [], "planned": 0}
        if isinstance(value, dict):
            return {str(step): self._summary(one) for step, one in value.items()}
        return self._summary(value)

    def _summary(self, value: Value) -> dict:
        """Mean and deviation of the runs that have finished."""
        results = [self.cells[n]["results"] for n in value.cells if n in self.cells]
        # Memory is not known on every system.
        runs = [r[value.metric] * value.factor for r in results if value.metric in r]
        if value.is_loss:
            runs = [math.exp(min(loss, 700.0)) for loss in runs]
        return summary(runs, len(value.cells))


def summary(runs: list[float], planned: int) -> dict:
    """Mean and deviation of the runs that have finished, of those that are planned."""
    return {
        "mean": statistics.mean(runs) if runs else None,
        "deviation": statistics.stdev(runs) if len(runs) > 1 else None,
        "runs": runs,
        "planned": planned,
    }


def console(tables: dict) -> list[str]:
    """The lines of all tables, for a terminal."""
    lines = []
    for results in tables.values():
        width = max(len(row["label"]) for row in results["rows"])
        lines += ["", f"{results['title']} ({results['paper']})"]
        for row in results["rows"]:
            cells = []
            for title, value in row["here"].items():
                points = value.items() if "mean" not in value else [("", value)]
                cells += [
                    f"{title}{f' at {step}' if step else ''} {number(point)}"
                    for step, point in points
                ]
            lines.append(f"  {row['label']:{width}}  {'  '.join(cells)}")
    return lines


def number(summary: dict) -> str:
    """A mean with its deviation, as `summary` has them."""
    if summary["mean"] is None:
        return "–"
    form = ",.0f" if summary["mean"] >= 1000 else ".1f"
    text = format(summary["mean"], form)
    if summary["deviation"] is not None:
        text += f" ± {format(summary['deviation'], form)}"
    if len(summary["runs"]) < summary["planned"]:
        text += f" ({len(summary['runs'])} of {summary['planned']} runs)"
    return text


def _scale(facts: dict, there: str) -> str:
    return (
        "<details><summary>What differs from the paper</summary>"
        f"{report_page.facts(facts.items())}<p>In {html.escape(there)}.</p></details>\n"
    )


def _rows(results: dict) -> str:
    here = list(results["rows"][0]["here"])
    published = list(dict.fromkeys(c for r in results["rows"] for c in r["published"]))
    titles = ["", *map(html.escape, here), *(of_paper(title) for title in published)]
    rows = [
        [
            html.escape(row["label"]),
            *(number(row["here"][title]) for title in here),
            *(of_paper(row["published"].get(title, "")) for title in published),
        ]
        for row in results["rows"]
    ]
    return report_page.numbers(titles, rows)


def of_paper(cell) -> str:
    """HTML of what was published, not measured."""
    return f'<span class="paper">{html.escape(str(cell))}</span>'


def _figure(picture: bytes) -> str:
    data = base64.b64encode(picture).decode()
    return (
        f'<img alt="scores by pre-training steps" src="data:image/png;base64,{data}">\n'
    )


def _draw(results: dict) -> bytes:
    """A picture with a panel for each column and a curve for each row."""
    from matplotlib.figure import Figure

    titles = list(results["rows"][0]["here"])
    figure = Figure(figsize=(5.5 * len(titles), 4.2), layout="constrained")
    for axis, title in zip(
        figure.subplots(1, len(titles), squeeze=False)[0], titles, strict=True
    ):
        for row in results["rows"]:
            points = [
                (int(step), value)
                for step, value in row["here"][title].items()
                if value["mean"] is not None
            ]
            axis.errorbar(
                [step for step, _ in points],
                [value["mean"] for _, value in points],
                [value["deviation"] or 0.0 for _, value in points],
                marker="o",
                markersize=4,
                capsize=3,
                label=row["label"],
            )
        steps = {int(step) for row in results["rows"] for step in row["here"][title]}
        axis.set_xticks(sorted(steps), labels=[f"{step:,}" for step in sorted(steps)])
        axis.set_xlabel("pre-training steps")
        axis.set_ylabel(f"{title}, dev".replace("$", r"\$"))
        axis.grid(alpha=0.3)
    handles, labels = axis.get_legend_handles_labels()  # the same in all panels
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    return picture.getvalue()
