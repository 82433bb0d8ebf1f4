"""run_pretraining.py on other replicas, on two hosts, and in a process that fails."""

import json
import re
import sys

import numpy as np
import pytest

from training.storage.folder import Folder
from training.storage.source import Source
from tests import forked, jobs
from tests.pretraining import (
    RECORDS,
    ROOT,
    STILL,
    command,
    flags,
    metrics,
    results,
    run,
)
from text.records import blocks, framing


@pytest.mark.exhaustive
def test_run_goes_on_with_other_replicas_and_back(tmp_path, monkeypatch, untraced):
    """One replica, then two, then one; over the end of whole rounds and of an epoch."""
    many = tmp_path / "many"
    many.write_bytes(framing.frame(list(framing.read(RECORDS)) * 3))  # 2,514
    changes = {
        "config": STILL,
        "input_file": [str(many)],
        "train_batch_size": 128,
        "num_train_steps": 20,
        "log_every_steps": 1,
    }
    # Rounds of two blocks of 1,024 end after 16 steps; the default is 16 blocks.
    monkeypatch.setattr(blocks, "_LANES", 2)
    (tmp_path / "straight").mkdir()
    (tmp_path / "elastic").mkdir()
    run(tmp_path / "straight", **changes)
    programs = [
        f"{ROOT}/tests/programs/{name}.py" for name in ("on_two_cpus", "elastic")
    ]
    given = json.dumps(flags(tmp_path / "elastic", **changes))
    line = [sys.executable, *programs, given, "2"]
    done = forked.finished(line, untraced=True)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"on \d device|continuing from step \d+", done.stdout)
    assert said == [
        "on 1 device",
        "on 2 device",
        "continuing from step 6",
        "on 1 device",
        "continuing from step 17",
    ]
    found, expected = metrics(tmp_path / "elastic"), metrics(tmp_path / "straight")
    assert [row["step"] for row in found] == list(range(1, 21))
    for row, other in zip(found, expected, strict=True):
        assert row["loss"] == pytest.approx(other["loss"], rel=1e-5)


def test_two_hosts_of_different_speed_agree_with_one(tmp_path):
    """Each has a clock of its own, by which it decides how many updates a call makes; they
    do not wait for each other for ever.
    """
    changes = {"config": STILL, "num_train_steps": 5, "do_eval": True}
    changes |= {"eval_batch_size": 64, "max_eval_steps": 4}
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with jobs.untraced():
        run(tmp_path / "one", **changes)
    given = flags(tmp_path / "two", distribution="multi_worker", **changes)
    program = f"{ROOT}/tests/programs/host_with_own_clock.py"
    python, *line = command(given)
    lines = [[python, program, seconds, *line] for seconds in ("0", "1000")]
    chief, second = forked.hosts_finished({"worker": lines})
    for host in (chief, second):
        assert host.returncode == 0, host.stderr
    assert "on 2 devices" in chief.stdout
    assert second.stdout == ""  # it computes and says nothing
    one, two = (
        Source.open(str(tmp_path / name / "output" / "model.ckpt-5")).read()
        for name in ("one", "two")
    )
    for name in one:
        np.testing.assert_allclose(two[name], one[name], rtol=0, atol=1e-5)
    for name, value in results(tmp_path / "one").items():
        assert float(results(tmp_path / "two")[name]) == pytest.approx(
            float(value), abs=1e-5
        )


def test_what_the_chief_refuses_ends_every_host_in_one_line(tmp_path):
    given = flags(tmp_path, distribution="multi_worker")
    cluster = {"chief": [command(given)], "worker": [command(given)]}
    with Folder.open(given["output_dir"]).hold(print):  # the chief alone looks at that
        hosts = forked.hosts_finished(cluster)
    messages = ("in use by process", "the chief refused the run")
    for host, message in zip(hosts, messages, strict=True):
        assert host.returncode == 1, host.stderr
        assert message in host.stderr.splitlines()[-1]
        assert "Traceback" not in host.stderr


def test_errors_are_one_line(tmp_path):
    given = flags(tmp_path, input_file=["nowhere"])
    done = forked.finished(command(given))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "run_pretraining.py: error: nowhere: no file matches; pass TFRecord files or "
        "globs"
    )
    assert "Traceback" not in done.stderr
