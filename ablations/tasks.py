"""Reads what encoders are fine-tuned for: a name and a folder of data."""

import glob
import os
from collections.abc import Mapping
from typing import NamedTuple

from errors import UserError
from text.tasks import glue


class Task(NamedTuple):
    """What the encoders are fine-tuned for.

    Attributes:
        title: of its column.
        kind: "classification", "spans" or "tags".
        script: that fine-tunes for it.
        flags: that name its data.
        metric: of eval_results.json, what is compared.
        factor: that makes it a percentage.
    """

    title: str
    kind: str
    script: str
    flags: Mapping[str, object]
    metric: str
    factor: float = 100.0


_OWN = {"custom": "accuracy", "SQuAD": "f1", "SQuAD2": "best_f1", "NER": "f1"}


def read_task(item: str) -> Task:
    """A task from NAME:FOLDER.

    Raises:
        UserError: the name is unknown, or a file is missing.
    """
    name, _, folder = item.partition(":")
    known = {known.lower(): known for known in _OWN}
    kind = known.get(name.lower(), name.lower())
    names = [*(name for name, data in glue.TASKS.items() if data.train), *_OWN]
    if not folder or kind not in names:
        raise UserError(
            f"--tasks={item}: must be NAME:FOLDER with a NAME of {', '.join(names)}"
        )
    if not os.path.isdir(folder):
        raise UserError(f"--tasks={item}: {folder} is not a folder")
    if kind in ("SQuAD", "SQuAD2"):
        flags = {
            "train_file": _only(item, folder, "train*.json"),
            "predict_file": _only(item, folder, "dev*.json"),
        }
        if kind == "SQuAD2":
            flags["version_2_with_negative"] = True
        return Task(kind, "spans", "run_squad.py", flags, f"eval_{_OWN[kind]}", 1.0)
    if kind == "NER":
        for file in ("train.txt", "dev.txt"):
            _only(item, folder, file)
        return Task(kind, "tags", "run_ner.py", {"data_dir": folder}, "eval_f1")
    flags = {"task_name": kind, "data_dir": folder}
    title, metric = name, "eval_accuracy"
    if kind == "custom":
        title = os.path.basename(os.path.abspath(folder))
        for file in ("train.tsv", "dev.tsv"):
            _only(item, folder, file)
    else:
        data = glue.TASKS[kind]
        metric = f"eval_{data.scores[0]}"
        for table in (data.train, *data.dev.values()):
            _only(item, folder, table.file)
    return Task(title, "classification", "run_classifier.py", flags, metric)


def _only(item, folder, pattern):
    found = glob.glob(os.path.join(glob.escape(folder), pattern))
    if len(found) != 1:
        raise UserError(
            f"--tasks={item}: {folder} must contain one {pattern}, not {len(found)}"
        )
    return found[0]
