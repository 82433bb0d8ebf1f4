"""Small teachers and students of every fine-tuning script, for tests of distillation."""

import functools
import json
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import run_classifier
import run_ner
import run_squad
import run_swag
from tests import classifier, jobs, ner, squad, swag, tiny

SIDES = [["a", "b"], ["b"], [], ["a"]]
TRAINED = {"do_train": True, "do_eval": True}
WHOLE = {**TRAINED, "do_predict": True}


class Kind(NamedTuple):
    """A script and its files.

    Attributes:
        script: its module.
        write: puts vocabulary, config and the three sets into a folder, and returns flags.
        train: the name of the training set.
    """

    script: object
    write: Callable[[pathlib.Path], dict]
    train: str


def _classifier(kind, labels):
    def write(folder):
        tiny.write(folder, classifier.WORDS, classifier.TINY)
        files = classifier.custom(folder, "jsonl", labels)
        task = {"task_name": "custom", "label_kind": kind, "data_dir": str(folder)}
        return jobs.flags(folder, max_seq_length=32, **files, **task)

    return Kind(run_classifier, write, "train.jsonl")


def _writes(module):
    return lambda folder: module.flags(module.write_files(folder))


KINDS = {
    "single": _classifier("single", ["yes", "no", "perhaps"]),
    "several": _classifier("several", SIDES),
    "number": _classifier("number", [0.5, 1.5, -2.0]),
    "choice": Kind(run_swag, _writes(swag), "train.csv"),
    "spans": Kind(run_squad, _writes(squad), "train.json"),
    "tags": Kind(run_ner, _writes(ner), "train.txt"),
}


class Files(NamedTuple):
    """A folder with the files of a kind, a trained teacher, and a student's config.

    The teacher is in output, a student's folder is student unless `run` says otherwise.
    """

    kind: Kind
    folder: pathlib.Path
    flags: dict

    @property
    def teacher(self) -> str:
        return str(self.folder / "output")

    @property
    def train(self) -> pathlib.Path:
        return self.folder / self.kind.train

    def given(self, name="student", **changes) -> dict:
        """The flags of a student."""
        own = {
            "output_dir": str(self.folder / name),
            "bert_config_file": str(self.folder / "student.json"),
            "distill_from": self.teacher,
            "eval_batch_size": 32,
            "predict_batch_size": 32,
        }
        return self.flags | own | {"do_train": True} | changes

    def run(self, name="student", **changes) -> dict[str, np.ndarray]:
        """Trains a student; returns its weights."""
        jobs.run(self.kind.script, self.given(name, **changes))
        return jobs.weights(self.folder, name)

    def configure(self, config=None, **changes) -> None:
        """Writes the student's config: by default, the teacher's but half as wide."""
        if config is None:
            teacher = json.loads((self.folder / "config.json").read_text())
            sizes = {"hidden_size": 8, "intermediate_size": 12}
            config = teacher | sizes | changes
        (self.folder / "student.json").write_text(json.dumps(config))


def write(kind: str, folder: pathlib.Path) -> Files:
    """Files without a teacher."""
    flags = KINDS[kind].write(folder)
    files = Files(KINDS[kind], folder, flags)
    files.configure()
    return files


def teach(files: Files, **changes) -> None:
    """Trains the teacher."""
    jobs.run(files.kind.script, files.flags | {"do_train": True} | changes)


def taught_by(folder_of: Callable[[str], pathlib.Path]) -> Callable[[str], Files]:
    """Maps a kind to its files and a teacher, which is trained once."""

    @functools.cache
    def taught(kind):
        files = write(kind, folder_of(kind))
        with jobs.untraced():
            teach(files)
        return files

    return taught
