"""Writes the scores of a suite next to the BERT paper's tables 1 to 4.

Source: arXiv:1810.04805v2, tables 1 to 4.
"""

import html
import os
import statistics
from collections.abc import Mapping
from typing import NamedTuple

from training.storage.folder import SEARCH
from errors import UserError
from files import json_files, local
from recipes.comparisons import page, submission
from recipes.comparisons.cells import OUTPUT
from recipes.comparisons.suite_plan import SuitePlan, cell_name
from text import report_page

JSON, PAGE = "suite.json", "suite.html"
_INTRODUCTION = (
    "Scores on dev sets, as percentages: of the best setting, the mean over its seeds, ± "
    "their standard deviation. MNLI-mm is scored once, with the best seed. Gray rows are "
    "the paper’s. Its average is over the columns; that of GLUE’s server is over tasks, "
    "each with the mean of its scores, and has WNLI, too, which is left out here."
)


class ScoreColumn(NamedTuple):
    """A column.

    Attributes:
        title: as in the paper.
        task: the title of a task.
        metric: of eval_results.json.
        factor: that makes it a percentage.
    """

    title: str
    task: str
    metric: str
    factor: float = 100.0


class ScoreTable(NamedTuple):
    """A table of the paper.

    Attributes:
        title, paper: what it is about, and which one it is.
        columns: in the paper's order.
        published: rows of the paper, with a number or None for each column.
        averages: by title, means over tasks of the mean of each one's scores.
    """

    title: str
    paper: str
    columns: tuple[ScoreColumn, ...]
    published: Mapping[str, tuple[float | None, ...]]
    averages: Mapping[str, tuple[tuple[ScoreColumn, ...], ...]] = {}


_GLUE = (
    ScoreColumn("MNLI-m", "MNLI", "eval_accuracy"),
    ScoreColumn("MNLI-mm", "MNLI", "eval_dev_mismatched_accuracy"),
    ScoreColumn("QQP, F1", "QQP", "eval_f1"),
    ScoreColumn("QNLI", "QNLI", "eval_accuracy"),
    ScoreColumn("SST-2", "SST-2", "eval_accuracy"),
    ScoreColumn("CoLA, Matthews", "CoLA", "eval_matthews"),
    ScoreColumn("STS-B, Spearman", "STS-B", "eval_spearman"),
    ScoreColumn("MRPC, F1", "MRPC", "eval_f1"),
    ScoreColumn("RTE", "RTE", "eval_accuracy"),
)
# What the server averages: a number for each task, from all scores that it has for it.
_MORE_OF_SERVER = (
    ScoreColumn("", "QQP", "eval_accuracy"),
    ScoreColumn("", "STS-B", "eval_pearson"),
    ScoreColumn("", "MRPC", "eval_accuracy"),
)
_SERVER = tuple(
    tuple(c for c in (*_GLUE, *_MORE_OF_SERVER) if c.task == task)
    for task in dict.fromkeys(c.task for c in _GLUE)
)

TABLES = (
    ScoreTable(
        "GLUE",
        "table 1; the paper’s are on the test sets",
        _GLUE,
        {
            "OpenAI GPT": (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0),
            "BERT-Base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4),
            "BERT-Large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1),
        },
        {"average": tuple((column,) for column in _GLUE), "as the server": _SERVER},
    ),
    ScoreTable(
        "SQuAD 1.1",
        "table 2, dev",
        (
            ScoreColumn("EM", "SQuAD", "eval_exact", 1.0),
            ScoreColumn("F1", "SQuAD", "eval_f1", 1.0),
        ),
        {"BERT-Base": (80.8, 88.5), "BERT-Large": (84.1, 90.9)},
    ),
    ScoreTable(
        "SQuAD 2.0",
        "table 3, dev",
        (
            ScoreColumn("EM", "SQuAD2", "eval_best_exact", 1.0),
            ScoreColumn("F1", "SQuAD2", "eval_best_f1", 1.0),
        ),
        {"BERT-Large": (78.7, 81.9)},
    ),
    ScoreTable(
        "SWAG",
        "table 4, dev",
        (ScoreColumn("accuracy", "SWAG", "eval_accuracy"),),
        {"BERT-Base": (81.6,), "BERT-Large": (86.6,)},
    ),
)


class SuiteResults:
    """The scores of finished cells, and what is made of them.

    Args:
        root: the suite's folder.
    """

    def __init__(self, root: str, planned: SuitePlan):
        self._root, self._plan = root, planned
        self.cells: dict[str, dict] = {}

    def write(self) -> list[str]:
        """Writes all files; returns the lines for a terminal."""
        tables = {table.title: self._table(table) for table in self._tables()}
        lines = page.console(tables)
        parts = [_section(results) for results in tables.values()]
        zips = self._submissions()
        lines += zips
        facts = report_page.facts(self._plan.facts.items())
        notes = "".join(f"<p>{html.escape(line)}</p>\n" for line in zips)
        body = f"<p>{_INTRODUCTION}</p>\n{''.join(parts)}{notes}{facts}"
        name = os.path.basename(os.path.abspath(self._root))
        local.write_json(
            os.path.join(self._root, JSON),
            {"facts": dict(self._plan.facts), "tables": tables},
        )
        path = os.path.join(self._root, PAGE)
        with local.replacing(path, "w") as file:
            file.write(report_page.render(f"Suite: {name}", body, page.STYLE))
        return [*lines, "", f"Written to {path} and {JSON}"]

    def _tables(self):
        """The paper's tables that have a task here, and one of all other tasks."""
        shown = {column.task for table in TABLES for column in table.columns}
        for table in TABLES:
            if any(column.task in self._plan.tasks for column in table.columns):
                yield table
        others = tuple(
            ScoreColumn(title, title, task.metric, task.factor)
            for title, task in self._plan.tasks.items()
            if title not in shown
        )
        if others:
            yield ScoreTable("Other tasks", "not in the paper", others, {})

    def _table(self, table: ScoreTable) -> dict:
        columns = [c for c in table.columns if c.task in self._plan.tasks]
        rows = []
        for model in self._plan.models:
            here = {column.title: self._score(model, column) for column in columns}
            for title, tasks in table.averages.items():
                here[title] = self._average(model, tasks)
            rows.append({"label": model, "here": here})
        published = []
        for label, numbers in table.published.items():
            by_title = dict(zip((c.title for c in table.columns), numbers, strict=True))
            if table.averages:
                by_title["average"] = round(statistics.mean(numbers), 1)
            published.append({"label": label, "numbers": by_title})
        return {
            "title": table.title,
            "paper": table.paper,
            "rows": rows,
            "published": published,
        }

    def _score(self, model: str, column: ScoreColumn) -> dict:
        cell = cell_name(model, column.task)
        if cell not in self.cells:
            return page.summary([], 1)
        runs, planned = self._runs(cell, column.metric)
        return page.summary([score * column.factor for score in runs], planned)

    def _average(self, model: str, tasks: tuple[tuple[ScoreColumn, ...], ...]) -> dict:
        """A mean over tasks, once all of them have a number."""
        means = [
            [self._score(model, column)["mean"] for column in of_task]
            for of_task in tasks
        ]
        is_whole = all(None not in of_task for of_task in means)
        runs = [statistics.mean(map(statistics.mean, means))] if is_whole else []
        return page.summary(runs, 1)

    def _runs(self, cell: str, metric: str) -> tuple[list[float], int]:
        """A score of each seed of the best setting, and how many seeds were tried.

        Only of the kept run if no other has it. A seed that diverged has none.
        """
        of_kept = [self.cells[cell]["results"][metric]], 1
        path = os.path.join(self._root, cell, OUTPUT, SEARCH)
        if not os.path.exists(path):
            return of_kept
        search = json_files.read(path)
        try:
            means = {name: of["mean"] for name, of in search["settings"].items()}
            best = max(means, key=means.get)
            runs = [r for r in search["runs"] if r["name"].startswith(f"{best}-seed")]
            scores = [run[metric] for run in runs if metric in run]
        except (LookupError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}: damaged ({error!r}); delete its folder"
            ) from error
        return (scores, len(runs)) if scores else of_kept

    def _submissions(self) -> list[str]:
        """Writes a zip for each model whose tasks of GLUE have finished."""
        lines = []
        for model in self._plan.models:
            folders = {
                name.lower(): os.path.join(self._root, cell, OUTPUT)
                for name in (*self._plan.tasks, "AX")
                if (cell := cell_name(model, name)) in self.cells
            }
            wanted = {expected.task for expected in submission.FILES.values()}
            if not wanted & folders.keys():
                continue
            path = os.path.join(model, submission.ZIP)
            problems = submission.write(os.path.join(self._root, path), folders)
            lines.append(f"{path}: {'; '.join(problems) or 'complete'}")
        return lines


def _section(results: dict) -> str:
    titles = list(results["rows"][0]["here"])
    rows = [
        [
            html.escape(row["label"]),
            *(page.number(summary) for summary in row["here"].values()),
        ]
        for row in results["rows"]
    ]
    rows += [
        [
            page.of_paper(row["label"]),
            *(page.of_paper(row["numbers"].get(title, "")) for title in titles),
        ]
        for row in results["published"]
    ]
    heading = (
        f"<h2>{html.escape(results['title'])} ({html.escape(results['paper'])})</h2>"
    )
    return f"{heading}\n{report_page.numbers(['', *map(html.escape, titles)], rows)}"
