"""Starts of programs, up to the first update or for the first row, with files of their own.

Each lies in a folder that has all that it reads: a small BERT as it was released, with its
config and vocabulary, and records or examples.
"""

import json
import pathlib
import shutil
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import NamedTuple

import convert_checkpoint
import create_pretraining_data
import extract_features
import fill_mask
import run_classifier
import run_pretraining
import run_squad
import tests
from training.run import loop
from tests import file_operations, jobs

_MODEL = tests.GOLDEN / "checkpoint"
_CORPUS = tests.GOLDEN / "pretraining" / "corpus.txt"


class Reached(BaseException):
    """Is raised where the first update would be; no handler of errors takes it."""


class SetUp(NamedTuple):
    """A start of a script.

    Attributes:
        script: its module.
        flags: of the script, for a folder.
        write: writes into the folder what it reads, besides the model.
        data: what it reads twice, to refuse a bad line before the long work begins.
    """

    script: ModuleType
    flags: Callable[[str], Mapping]
    write: Callable[[pathlib.Path], None] = lambda folder: None
    data: tuple[str, ...] = ()

    def prepare(self, folder: pathlib.Path) -> None:
        """Writes all that the script reads."""
        (folder / "model").mkdir()
        for path in _MODEL.iterdir():
            if path.suffix != ".npz":
                shutil.copy(path, folder / "model")
        self.write(folder)

    def operations(self, folder: pathlib.Path) -> list[file_operations.Operation]:
        """Starts the script; returns what it does with files up to its first update."""
        script, kept = self.script, loop.Trainer.run_updates
        with file_operations.recorded(str(folder), str(tests.ROOT)) as found:

            def reached(*args):
                until_then.extend(found)
                raise Reached

            until_then, loop.Trainer.run_updates = [], reached
            try:
                script.main(script.Options(**self.flags(str(folder))))
            except Reached:
                return until_then
            finally:
                loop.Trainer.run_updates = kept
        return found


def _records(folder):
    """Those of create_pretraining_data.py, with their description."""
    (folder / "records").mkdir()
    lines = _CORPUS.read_text(encoding="utf-8").splitlines(keepends=True)[:200]
    (folder / "corpus.txt").write_text("".join(lines), encoding="utf-8")
    create_pretraining_data.main(
        create_pretraining_data.Options(
            input_file=[str(folder / "corpus.txt")],
            output_file=[str(folder / "records" / "train.tfrecord")],
            vocab_file=str(folder / "model" / "vocab.txt"),
            max_seq_length=32,
            max_predictions_per_seq=5,
            dupe_factor=1,
            num_workers=1,
        )
    )


def _killed(folder):
    """With an output_dir from which a training goes on behind its first update."""
    _records(folder)
    with jobs.untraced(), jobs.dying(1):
        jobs.run(run_pretraining, _continued(folder))


def _continued(folder):
    checkpoint = f"{folder}/model/bert_model.ckpt"
    return _pretraining(folder, init_checkpoint=checkpoint, save_checkpoints_steps=1)


def _pretraining(folder, **changes):
    return {
        "input_file": [f"{folder}/records/train.tfrecord"],
        "output_dir": f"{folder}/output",
        "do_train": True,
        "do_eval": True,
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "train_batch_size": 8,
        "num_train_steps": 6,
        "num_warmup_steps": 2,
    } | changes


def _released(folder):
    return {
        "vocab_file": f"{folder}/model/vocab.txt",
        "bert_config_file": f"{folder}/model/bert_config.json",
        "init_checkpoint": f"{folder}/model/bert_model.ckpt",
    }


def _fine_tuning(folder, **changes):
    more = {"output_dir": f"{folder}/output", "do_train": True, "max_seq_length": 32}
    more |= {"train_batch_size": [8]}
    return _released(folder) | more | changes


def _tables(folder):
    text = "text\tlabel\n" + "the dog ran\tgood\nthe cat sat\tbad\n" * 8
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text(text)


def _paragraphs(folder):
    question = {"question": "what shines?"}
    question |= {"answers": [{"text": "gold", "answer_start": 4}]}
    paragraphs = [
        {"context": "mud gold dust", "qas": [question | {"id": str(number)}]}
        for number in range(8)
    ]
    data = {"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}
    for split in ("train", "dev"):
        (folder / f"{split}.json").write_text(json.dumps(data))


def _conversion(folder, name):
    return {
        "input": [f"{folder}/model/bert_model.ckpt"],
        "output_dir": f"{folder}/{name}",
        "layout": "hugging_face",
    }


def _convert(folder, name):
    """Writes the model in Hugging Face's layout, too."""
    convert_checkpoint.main(convert_checkpoint.Options(**_conversion(folder, name)))


def _text(folder):
    (folder / "texts.txt").write_text("the dog ran\n")


ALL = {
    "run_pretraining": SetUp(
        run_pretraining,
        lambda folder: _pretraining(
            folder, bert_config_file=f"{folder}/model/bert_config.json"
        ),
        _records,
    ),
    "run_pretraining_from_checkpoint": SetUp(
        run_pretraining,
        lambda folder: _pretraining(
            folder, init_checkpoint=f"{folder}/model/bert_model.ckpt"
        ),
        _records,
    ),
    "run_pretraining_continued": SetUp(run_pretraining, _continued, _killed),
    "run_classifier": SetUp(
        run_classifier,
        lambda folder: _fine_tuning(
            folder, task_name="custom", data_dir=folder, do_eval=True
        ),
        _tables,
    ),
    "run_squad": SetUp(
        run_squad,
        lambda folder: _fine_tuning(
            folder,
            train_file=f"{folder}/train.json",
            predict_file=f"{folder}/dev.json",
            do_predict=True,
            doc_stride=8,
            max_query_length=8,
        ),
        _paragraphs,
    ),
    "fill_mask": SetUp(
        fill_mask,
        lambda folder: {
            "init_checkpoint": f"{folder}/model/bert_model.ckpt",
            "text": "the [MASK] sat",
        },
    ),
    "fill_mask_hugging_face": SetUp(
        fill_mask,
        lambda folder: {
            "init_checkpoint": f"{folder}/converted",
            "text": "the [MASK] sat",
        },
        lambda folder: _convert(folder, "converted"),
    ),
    "extract_features": SetUp(
        extract_features,
        lambda folder: {
            "init_checkpoint": f"{folder}/model/bert_model.ckpt",
            "input_file": f"{folder}/texts.txt",
            "output_file": f"{folder}/features.jsonl",
            "layers": [-1],
            "max_seq_length": 32,
        },
        _text,
        data=("texts.txt",),
    ),
    "convert_checkpoint": SetUp(
        convert_checkpoint,
        lambda folder: _conversion(folder, "output"),
    ),
}
