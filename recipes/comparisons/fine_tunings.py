"""Reads what encoders are fine-tuned for: a name and a folder of data."""

import glob
import os
from collections.abc import Mapping
from typing import NamedTuple

from errors import UserError
from text.tasks import glue, korean, superglue


class DownstreamTask(NamedTuple):
    """What the encoders are fine-tuned for.

    Attributes:
        title: of its column.
        kind: "classification", "spans", "tags" or "choices".
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


_TASKS = {**glue.TASKS, **korean.TASKS, **superglue.TASKS}
# Of choices, their training and dev sets.
_CHOICES = {
    "SWAG": ("train.csv", "val.csv"),
    "COPA": ("train.jsonl", "val.jsonl"),
    "RACE": ("train", "dev"),
}
_OWN = ("custom", "SQuAD", "SQuAD2", "NER", "UD", *_CHOICES)


def custom(title: str, folder: str) -> DownstreamTask:
    """To classify the texts of a folder's train.tsv and dev.tsv."""
    flags = {"task_name": "custom", "data_dir": folder}
    return DownstreamTask(
        title, "classification", "run_classifier.py", flags, "eval_accuracy"
    )


def read_task(item: str) -> DownstreamTask:
    """A task from NAME:FOLDER."""
    name, _, folder = item.partition(":")
    kind = {own.lower(): own for own in _OWN}.get(name.lower(), name.lower())
    names = [*(name for name, data in _TASKS.items() if data.train), *_OWN]
    if not folder or kind not in names:
        raise UserError(
            f"--tasks={item}: must be NAME:FOLDER with a NAME of {', '.join(names)}"
        )
    if not os.path.isdir(folder):
        raise UserError(f"--tasks={item}: {folder} is not a folder")

    def only(pattern):
        paths = glob.glob(os.path.join(glob.escape(folder), pattern))
        if len(paths) != 1:
            raise UserError(
                f"--tasks={item}: {folder} must contain one {pattern}, not {len(paths)}"
            )
        return paths[0]

    if kind in ("SQuAD", "SQuAD2"):
        flags = {
            "train_file": only("train*.json"),
            "predict_file": only("dev*.json"),
        }
        metric = "eval_f1"
        if kind == "SQuAD2":
            flags["version_2_with_negative"] = True
            metric = "eval_best_f1"
        return DownstreamTask(kind, "spans", "run_squad.py", flags, metric, 1.0)
    if kind == "NER":
        only("train.txt"), only("dev.txt")
        return DownstreamTask(
            kind, "tags", "run_ner.py", {"data_dir": folder}, "eval_f1"
        )
    if kind in _CHOICES:
        train, dev = map(only, _CHOICES[kind])
        flags = {"data_dir": folder}
        flags["train_file"] = os.path.basename(train)
        flags["dev_file"] = os.path.basename(dev)
        return DownstreamTask(kind, "choices", "run_swag.py", flags, "eval_accuracy")
    if kind == "UD":
        flags = {"data_dir": folder, "tag_column": "upos"}
        for split in ("train", "dev"):
            flags[f"{split}_file"] = os.path.basename(only(f"*{split}*.conllu"))
        return DownstreamTask(kind, "tags", "run_ner.py", flags, "eval_accuracy")
    if kind == "custom":
        only("train.tsv"), only("dev.tsv")
        return custom(os.path.basename(os.path.abspath(folder)), folder)
    data = _TASKS[kind]
    for table in (data.train, *data.dev.values()):
        for file in (table.file, *table.more_files):
            only(file)
    return custom(name, folder)._replace(
        flags={"task_name": kind, "data_dir": folder}, metric=f"eval_{data.scores[0]}"
    )
