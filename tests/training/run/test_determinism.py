"""The same command gives the same bits, at sizes where it could do otherwise."""

import json
import os
import random
import subprocess
import sys
import types

import pytest
from tensorflow.python.eager import context

import tests
from training.backend import tf
from training.run import determinism
from benchmarks import kills
from tests import forked, jobs, tiers

ROOT = str(tests.ROOT)
SAME_BITS = os.path.join(ROOT, "tests", "programs", "same_bits.py")


@pytest.mark.parametrize(
    "ways, number", tiers.cases([("few", 1), ("others", 7)], [("few", 1)])
)
def test_two_processes_train_to_the_same_bits_in_every_way(ways, number, tmp_path):
    """Side by side: what races, does so while cores are short. Hash seeds differ, because
    one of them is a fork.
    """
    line = [sys.executable, SAME_BITS, ways]
    env = {k: v for k, v in jobs.ENVIRONMENT.items() if k != "XLA_FLAGS"}
    with open(tmp_path / "fork", "w") as said, open(tmp_path / "errors", "w") as errors:
        fork = forked.Process(line, stdout=said, stderr=errors, env=env)
    process = jobs.started(line, stderr=None, env=env)
    content, _ = process.communicate()
    assert fork.wait() == 0, (tmp_path / "errors").read_text()
    said = content, (tmp_path / "fork").read_text()
    first, second = (json.loads(each.splitlines()[-1]) for each in said)
    assert len(set(first.values())) == len(first) == number
    assert first == second


def test_sums_stay_in_the_order_of_the_program():
    """TensorFlow's memory optimizer would add these in the order in which they come."""

    @tf.function
    def add(x):
        # More than it takes a CPU's memory to be.
        terms = [tf.math.sin(x * float(i)) for i in range(8)]
        return tf.reduce_sum(tf.add_n(terms))

    context.enable_graph_collection()
    try:
        add(tf.ones([1 << 24]))
        found = context.export_run_metadata()
    finally:
        context.disable_graph_collection()
    nodes = [
        node.op
        for graph in found.partition_graphs
        for nodes in (graph.node, *(f.node_def for f in graph.library.function))
        for node in nodes
    ]
    assert "AddN" in nodes and "TemporaryVariable" not in nodes


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    kills.write_inputs(folder, 0.3)
    kills.run(kills.commands(folder)["generation"], folder / "generation")
    return folder


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "job, times",
    [("pretraining", 2), ("fine_tuning", 1)],
)
def test_killed_again_and_again_it_ends_with_the_same_bits(
    job, times, inputs, tmp_path, monkeypatch
):
    """Forks are killed; they are held to a process with a hash seed of its own.

    They are --deterministic, so an operation without an exact form or a seed is an error.
    """
    command = kills.commands(inputs, 0.25)[job]
    kills.run(command, tmp_path / "straight")
    popen = types.SimpleNamespace(
        Popen=forked.Process, TimeoutExpired=subprocess.TimeoutExpired
    )
    monkeypatch.setattr(kills, "subprocess", popen)
    rng = random.Random(1)
    # Soon after a checkpoint has its name, on machines of any speed: it goes on, and has
    # not ended.
    moments = [
        kills.Moment(rng.uniform(0, 0.2), changes=1, written="model.ckpt-*.index")
        for _ in range(times)
    ]
    assert kills.killed(command, tmp_path / "killed", moments) == times
    log = (tmp_path / "killed" / "log").read_text()
    assert log.count("continuing from step") == times
    straight, killed = (
        kills.digests(tmp_path / n / "output") for n in ("straight", "killed")
    )
    assert any(name.endswith(".index") for name in straight)
    assert kills.differing(straight, killed) == []


def configured(deterministic, allow_tf32, devices, monkeypatch):
    """What is set where a machine has these devices."""
    calls = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: devices)
    for name in ("enable_op_determinism", "enable_tensor_float_32_execution"):
        monkeypatch.setattr(
            tf.config.experimental,
            name,
            lambda *given, name=name: calls.append((name, *given)),
        )
    determinism.configure(deterministic, allow_tf32)
    return calls


def test_gpus_are_exact_where_asked_and_said_not_to_be_elsewhere(monkeypatch, capsys):
    float32 = ("enable_tensor_float_32_execution", False)
    exact = ("enable_op_determinism",)
    gpus = ["a GPU"]
    assert configured(True, False, gpus, monkeypatch) == [float32, exact]
    assert configured(False, False, gpus, monkeypatch) == [float32]
    assert configured(None, False, [], monkeypatch) == [float32]
    assert capsys.readouterr().err == ""
    assert configured(None, True, gpus, monkeypatch) == [(float32[0], True)]
    assert "--deterministic makes them identical" in capsys.readouterr().err
