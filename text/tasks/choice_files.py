"""Reads data sets of questions with choices as run_swag.py's JSON lines are: RACE and COPA.

Each becomes an object with a context, the start of what follows it, the choices and,
unless it is of a test set, the number of the right one.
"""

import glob
import os
from collections.abc import Iterator, Mapping

from errors import UserError
from files import tables

_GAP = "_"
# What joins the premise of COPA and what may be its cause or its effect.
_LINKS = {"cause": "because", "effect": "so"}


def race(folder: str, max_line_mb: int | None = None) -> Iterator[tuple[str, dict]]:
    """Yields the questions of a folder of RACE, such as train or train/high.

    Where a question has a gap, the choices are the question with the gap filled in, as in
    ALBERT's release.

    Yields:
        the place of a question, and its object.
    Raises:
        UserError: a file is not RACE's, or there is none.
    Source: arXiv:1704.04683; google-research/albert race_utils.py.
    """
    pattern = os.path.join(glob.escape(folder), "**", "*.txt")
    paths = sorted(glob.glob(pattern, recursive=True))
    if not paths:
        raise UserError(f"{folder}: contains no .txt files, as RACE's folders do")
    for path in paths:
        passages = tables.read(path, form="jsonl", max_line_mb=max_line_mb)
        for number, passage in passages:
            where = f"{path}:{number}"
            try:
                questions = list(_questions(passage))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise UserError(
                    f"{where}: is not a passage of RACE ({error!r}), with article, "
                    "questions, options and answers"
                ) from error
            yield from ((where, question) for question in questions)


def _questions(passage: Mapping) -> Iterator[dict]:
    answers = passage.get("answers", [None] * len(passage["questions"]))
    for question, options, answer in zip(
        passage["questions"], passage["options"], answers, strict=True
    ):
        if _GAP in question:
            start, choices = "", [question.replace(_GAP, option) for option in options]
        else:
            start, choices = question, options
        row = {"context": passage["article"], "start": start, "choices": choices}
        if answer is not None:
            row["label"] = ord(answer) - ord("A")
        yield row


def is_copa(values: Mapping) -> bool:
    return {"premise", "choice1", "choice2", "question"} <= values.keys()


def copa(values: Mapping, where: str) -> dict:
    """A line of COPA: "because" or "so" begins each of its two choices.

    Source: arXiv:1905.00537; files as in v2 of super.gluebenchmark.com.
    """
    if values["question"] not in _LINKS:
        raise UserError(
            f"{where}: question is {values['question']!r:.40}; it must be cause or effect"
        )
    row = {
        "context": values["premise"],
        "start": _LINKS[values["question"]],
        "choices": [values["choice1"], values["choice2"]],
    }
    return row | ({"label": values["label"]} if "label" in values else {})
