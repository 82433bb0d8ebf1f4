"""Small runs of run_pretraining.py, for its tests."""

import dataclasses
import json
import os
import pathlib
import shutil

import run_pretraining
import tests
from tests import jobs, tiny

ROOT = str(tests.ROOT)
RECORDS = os.path.join(ROOT, "tests", "golden", "pretraining", "pretraining.tfrecord")
TINY = tiny.config(
    vocab_size=3000, hidden_size=8, intermediate_size=8, max_position_embeddings=64
)
STILL = dataclasses.replace(
    TINY, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
)


def flags(directory, config=TINY, **changes):
    """Flags of a run of six updates."""
    config_file = pathlib.Path(directory) / "config.json"
    config_file.write_text(config.to_json_string())
    return {
        "bert_config_file": str(config_file),
        "input_file": [RECORDS],
        "output_dir": str(pathlib.Path(directory) / "output"),
        "do_train": True,
        "max_seq_length": 64,
        "max_predictions_per_seq": 10,
        "train_batch_size": 8,
        "num_train_steps": 6,
        "num_warmup_steps": 2,
        "learning_rate": 1e-3,
        "save_checkpoints_steps": 4,
    } | changes


def run(directory, **changes):
    jobs.run(run_pretraining, flags(directory, **changes))


def run_twice(folder, capsys, **changes):
    """In `whole` undisturbed; in `killed`, from step 2, as if killed behind it."""
    (folder / "whole").mkdir()
    run(folder / "whole", **changes)
    return run_on(folder, capsys, 2, **changes)


def run_on(folder, capsys, step, **changes):
    """In `killed`, from a step that the run in `whole` saved, as if killed behind it."""
    shutil.copytree(folder / "whole", folder / "killed")
    jobs.forget_after(step, folder / "killed")
    run(folder / "killed", **changes)
    assert f"continuing from step {step} in" in capsys.readouterr().out
    expected = jobs.weights(folder / "whole")
    jobs.check_same_bits(jobs.weights(folder / "killed"), expected)
    return expected


def command(given):
    return jobs.command("run_pretraining.py", given)


def results(directory):
    lines = (pathlib.Path(directory) / "output" / "eval_results.txt").read_text()
    return dict(line.split(" = ") for line in lines.splitlines())


def metrics(directory):
    text = (pathlib.Path(directory) / "output" / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
