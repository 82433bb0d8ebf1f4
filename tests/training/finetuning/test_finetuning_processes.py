"""Fine-tuning beside another process, and on two hosts; on two replicas, see
test_distillation.py."""

import dataclasses
import json
import re
import time

import numpy as np
import pytest

from training.storage.folder import Folder
from errors import UserError
from files import local
from tests import forked, jobs
from tests.jobs import results, weights
from tests.training.finetuning.runs import TINY, command, run


@pytest.mark.exhaustive
def test_beside_a_training_evaluations_run_and_another_training_is_refused(folder):
    """The one that was there first saves often, and ends as if it had been alone."""
    often = {"num_train_epochs": [10.0], "save_checkpoints_steps": 2}
    often |= {"iterations_per_loop": 2, "keep_checkpoint_max": 3}
    with open(folder / "said", "w") as said, open(folder / "errors", "w") as errors:
        process = forked.Process(command(folder, **often), stdout=said, stderr=errors)
    while " updates of " not in (folder / "said").read_text():
        assert process.poll() is None
        time.sleep(0.01)
    # It has no checkpoint yet, so another seed would not be refused for being another.
    holder = f"in use by process {process.pid} on {local.host()}, since"
    with pytest.raises(UserError, match=re.escape(holder)):
        run(folder, seed=2, do_eval=True, **often)
    output = folder / "output"
    while process.poll() is None and not Folder.open(str(output)).steps:
        time.sleep(0.01)
    beside = 0
    while process.poll() is None:
        with jobs.untraced():
            run(folder, do_train=False, do_eval=True, do_predict=True)
        beside += 1
    assert (process.returncode, (folder / "errors").read_text()) == (0, "")
    assert beside
    assert json.loads((output / "run.json").read_text())["seed"] == 12345
    run(folder, output_dir=str(folder / "straight"), **often)
    for name, value in weights(folder, "straight").items():
        assert np.array_equal(weights(folder)[name], value)
    lines = {
        name: len((folder / name / "metrics.jsonl").read_text().splitlines())
        for name in ("output", "straight")
    }
    assert lines["output"] == lines["straight"]
    assert results(folder) and (output / "parity.txt").exists()


@pytest.mark.exhaustive
def test_two_hosts_fine_tune_as_one(folder):
    config = dataclasses.replace(
        TINY, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    (folder / "config.json").write_text(config.to_json_string())
    changes = {
        "do_eval": True,
        "do_predict": True,
        "early_stopping_patience": 3,
        "learning_rate": [1e-3, 2e-3],
        "num_train_epochs": [1.0],
        "eval_every_steps": 4,
    }
    with jobs.untraced():
        run(folder, output_dir=str(folder / "one"), **changes)
    line = command(folder, distribution="multi_worker", **changes)
    chief, second = forked.hosts_finished({"worker": [line, line]})
    for host in (chief, second):
        assert host.returncode == 0, host.stderr
    assert "on 2 devices" in chief.stdout
    assert second.stdout == ""  # it computes and says nothing
    expected, got = weights(folder, "one"), weights(folder)
    for key, value in expected.items():
        np.testing.assert_allclose(got[key], value, atol=1e-5, err_msg=key)
    for name in ("parity.txt",):
        one = (folder / "one" / name).read_text()
        assert (folder / "output" / name).read_text() == one
