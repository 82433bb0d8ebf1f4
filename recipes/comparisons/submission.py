"""Writes the answers to GLUE's test sets as its server takes them.

Source: gluebenchmark.com/faq; sizes and labels of the test sets as of arXiv:1804.07461.
"""

import os
import zipfile
from collections.abc import Mapping
from typing import NamedTuple

from errors import UserError
from files import local
from text.tasks import glue

ZIP = "glue_submission.zip"
_HEADER = "index\tprediction"


class _Answers(NamedTuple):
    """A file of the zip.

    Attributes:
        size: answers that the server expects.
        task: in `glue.TASKS`.
    """

    size: int
    task: str


FILES = {
    "CoLA.tsv": _Answers(1_063, "cola"),
    "SST-2.tsv": _Answers(1_821, "sst-2"),
    "MRPC.tsv": _Answers(1_725, "mrpc"),
    "STS-B.tsv": _Answers(1_379, "sts-b"),
    "QQP.tsv": _Answers(390_965, "qqp"),
    "MNLI-m.tsv": _Answers(9_796, "mnli"),
    "MNLI-mm.tsv": _Answers(9_847, "mnli"),
    "QNLI.tsv": _Answers(5_463, "qnli"),
    "RTE.tsv": _Answers(3_000, "rte"),
    "WNLI.tsv": _Answers(146, "wnli"),
    "AX.tsv": _Answers(1_104, "ax"),
}
# What the paper's authors sent for WNLI: always the more frequent answer.
_WNLI = "".join(
    [f"{_HEADER}\n", *(f"{index}\t0\n" for index in range(FILES["WNLI.tsv"].size))]
)


def write(path: str, folders: Mapping[str, str]) -> list[str]:
    """Writes the zip, with every file that one of the folders has.

    Args:
        folders: the folder of each task's answers, by the task's name in lower case.
    Returns:
        What the server would not take: a line for each.
    Raises:
        UserError: a file is not of the format that was written there.
    """
    contents, problems, lacking = {}, [], []
    for name, expected in FILES.items():
        source = os.path.join(folders.get(expected.task, ""), name)
        if expected.task in folders and os.path.exists(source):
            with open(source, encoding="utf-8") as file:
                contents[name] = file.read()
            problems += _problems(source, contents[name], expected)
        elif name == "WNLI.tsv":
            contents[name] = _WNLI
        else:
            lacking.append(name)
    if lacking:
        problems.append(
            f"lacks {', '.join(lacking)}; the server takes only all 11 files"
        )
    with local.replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in contents.items():
            # Without the time, so that the same answers are the same file.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return problems


def _problems(path, content, expected: _Answers) -> list[str]:
    data = glue.TASKS[expected.task]
    header, *lines = content.splitlines()
    if header != _HEADER:
        raise UserError(
            f"{path}:1: is not {_HEADER!r}; delete its folder and run again"
        )
    for number, line in enumerate(lines):
        index, _, answer = line.partition("\t")
        if index != str(number) or not _is_answer(answer, data):
            raise UserError(
                f"{path}:{number + 2}: {line!r:.60} is not the answer {number}; delete its "
                "folder and run again"
            )
    if len(lines) != expected.size:
        name = os.path.basename(path)
        return [
            f"{name} has {len(lines):,} answers, and the server’s test set "
            f"{expected.size:,}"
        ]
    return []


def _is_answer(text, data: glue.DataSet) -> bool:
    if data.labels:
        return text in data.labels
    lowest, highest = data.bounds
    try:
        return lowest <= float(text) <= highest
    except ValueError:
        return False
