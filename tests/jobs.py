"""Whole runs: in this process, in another, killed on the way; and what they leave."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest

import fill_mask
import options
import tests
from training.backend import tf
from training.run import loop
from training.storage.folder import FOUND, Folder
from training.storage.source import Source
from errors import UserError
from serving.predictor import Predictor
from tests.killed import Killed

# What a program of its own needs in order to find ours.
ENVIRONMENT = os.environ | {"PYTHONPATH": str(tests.ROOT)}


def flags(folder: pathlib.Path, **changes) -> dict:
    """Those of a small fine-tuning run on the files of a folder; see `tiny.write`."""
    return {
        "vocab_file": str(folder / "vocab.txt"),
        "bert_config_file": str(folder / "config.json"),
        "output_dir": str(folder / "output"),
        "train_batch_size": [8],
        "learning_rate": [1e-3],
        "num_train_epochs": [1.0],
    } | changes


def run(script, flags: Mapping) -> None:
    """Runs a script in this process: a module with `main` and `Options`."""
    script.main(script.Options(**flags))


def command(program: str, flags: Mapping) -> list[str]:
    """The command line of a program, by its path from the root."""
    return [sys.executable, str(tests.ROOT / program), *options.words(**flags)]


def finished(line: list[str], **given) -> subprocess.CompletedProcess:
    """Runs a command to its end in a process of its own."""
    given = {"env": ENVIRONMENT, "capture_output": True, "text": True} | given
    return subprocess.run(line, **given)


def started(line: list[str], **given) -> subprocess.Popen:
    """Starts a command in a process group of its own."""
    pipe = subprocess.PIPE
    given = {"env": ENVIRONMENT, "stdout": pipe, "stderr": pipe, "text": True} | given
    return subprocess.Popen(
        line,
        start_new_session=True,
        # A shell's background jobs ignore Ctrl-C, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **given,
    )


@contextlib.contextmanager
def untraced():
    """Runs functions of TensorFlow as they are written."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


@contextlib.contextmanager
def dying(step: int):
    """A training inside dies where it has saved a step and is about to go on.

    In this process, and so fast; test_determinism.py kills processes, anywhere.
    """
    save = loop.Trainer.save

    def saved(trainer, directory):
        prefix = save(trainer, directory)
        if trainer.progress.step == step:
            raise Killed
        return prefix

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(loop.Trainer, "save", saved)
        yield


def check_goes_on(run, whole: pathlib.Path, folder: pathlib.Path, capsys, **changes):
    """Killed at step 20, a fine-tuning goes on to the bits of one that was left alone."""
    shutil.copytree(whole / "output", folder / "output")
    forget_after(20, folder)
    run(whole, **changes, do_train=True, output_dir=str(folder / "output"))
    assert "continuing from step 20" in capsys.readouterr().out
    check_same_bits(weights(folder), weights(whole))


def check_refused(run, folder: pathlib.Path, message: str, **changes) -> None:
    """One line for the user; earlier results are as they were, with nothing half done."""
    output = folder / "output"
    Folder.open(str(output)).claim()
    # What was sound may be there already, for the next try.
    sound = {"train.tf_record", "eval.tf_record", "task.json", "run.json", "vocab.txt"}
    sound |= {"bert_config.json", FOUND}
    earlier = {"eval_results.txt", "eval_results.json", "predictions.json"}
    for name in earlier:
        (output / name).write_text(f"earlier {name}")
    earlier |= set(os.listdir(output))
    contents = {name: (output / name).read_bytes() for name in earlier - sound}
    with pytest.raises((UserError, FileNotFoundError), match=message):
        run(folder, **changes)
    for name, content in contents.items():
        assert (output / name).read_bytes() == content
    left = {name for name in os.listdir(output) if "tfevents" not in name}
    rest = left - earlier - sound - {f"{name}.json" for name in sound}
    assert not rest, rest


def forget_after(step: int, folder: pathlib.Path, name: str = "output") -> None:
    """Leaves an output_dir as a run does that is killed with this checkpoint its newest."""
    for saved in Folder.open(str(folder / name)).steps:
        if saved > step:
            for path in (folder / name).glob(f"model.ckpt-{saved}.*"):
                path.unlink()


def results(folder: pathlib.Path, name: str = "output") -> dict:
    """The numbers of an evaluation, from an output_dir within a folder."""
    return json.loads((folder / name / "eval_results.json").read_text())


def predictions(folder: pathlib.Path, name: str = "output") -> list[dict]:
    """The answers to a test set, from an output_dir within a folder."""
    lines = (folder / name / "predictions.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def check_export(folder: pathlib.Path, name: str = "output") -> dict:
    """An export answers as the script did; returns what describes it."""
    known, served = predictions(folder, name), Predictor(str(folder / name))
    found = served.predict([{"text": each["text"]} for each in known])
    for one, other in zip(found, known, strict=True):
        assert one["predicted"] == other["predicted"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
    return served.description


def check_masks(output: str, vocab_file: str, capsys) -> None:
    """fill_mask.py and an export of the same run fill a mask alike."""
    text = "the [MASK]"
    capsys.readouterr()
    fill_mask.main(
        fill_mask.Options(init_checkpoint=output, vocab_file=vocab_file, text=text)
    )
    (line,) = capsys.readouterr().out.splitlines()[1:]
    (answer,) = Predictor(output).predict([{"text": text}])
    assert line.split()[1::2] == [each["token"] for each in answer["masks"][0]]


def weights(folder: pathlib.Path, name: str = "output") -> dict[str, np.ndarray]:
    """The newest checkpoint in an output_dir within a folder."""
    return Source.open(str(folder / name)).read()


def check_same_bits(found: Mapping, expected: Mapping) -> None:
    """Of two networks, by the names of their weights."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
