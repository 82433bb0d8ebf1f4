"""Small runs of run_pretraining.py, for its tests."""

import dataclasses
import json
import os
import pathlib

import numpy as np

import run_pretraining
import tests
from tests import jobs, tiny

ROOT = str(tests.ROOT)
RECORDS = os.path.join(ROOT, "tests", "golden", "pretraining", "pretraining.tfrecord")
TINY = tiny.config(
    vocab_size=3000,
    hidden_size=8,
    intermediate_size=8,
    max_position_embeddings=64,
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
    """In `whole` undisturbed; in `killed`, killed at step 2, from which it goes on.

    Returns:
        the weights of the first, which those of the second must equal bit for bit.
    """
    for name in ("whole", "killed"):
        (folder / name).mkdir()
    run(folder / "whole", **changes)
    with jobs.dying(2):
        run(folder / "killed", **changes)
    run(folder / "killed", **changes)
    assert "continuing from step 2" in capsys.readouterr().out
    expected = jobs.weights(folder / "whole")
    for name, value in jobs.weights(folder / "killed").items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    return expected


def command(given):
    return jobs.command("run_pretraining.py", given)


def results(directory):
    lines = (pathlib.Path(directory) / "output" / "eval_results.txt").read_text()
    return dict(line.split(" = ") for line in lines.splitlines())


def metrics(directory):
    text = (pathlib.Path(directory) / "output" / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
