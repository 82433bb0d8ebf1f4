"""Devices and hosts: the files that a TPU reaches, and runs that a host leaves."""

import re

import pytest

import tests
from training.backend import tf
from training.run import distribution
from errors import UserError
from tests import forked, jobs, pretraining, tiny
from tests.programs import parity

ROOT = tests.ROOT


def flags(folder, **changes):
    return {
        "data_dir": str(folder),
        "vocab_file": str(folder / "vocab.txt"),
        "bert_config_file": str(folder / "config.json"),
        "output_dir": str(folder / "output"),
        "max_seq_length": 16,
        "do_train": True,
    } | changes


def fine_tuning(folder):
    """A command that fine-tunes, on a set that it makes."""
    for split in ("train", "dev"):
        (folder / f"{split}.txt").write_text("a b\nb\n" * 16)
    tiny.write(folder, ["a", "b"], tiny.config(vocab_size=8))
    given = flags(folder, num_train_epochs=1, do_eval=True)
    return jobs.command("tests/programs/parity.py", given)


@pytest.mark.exhaustive
def test_a_sound_run_on_cpus_leaves_stderr_empty(tmp_path):
    """As one of fine-tuning does; see test_command_of_the_2018_readme_runs."""
    # The default holds back what TensorFlow says of a missing GPU; a user's choice may not.
    env = jobs.ENVIRONMENT | {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
    given = pretraining.flags(tmp_path, num_train_steps=2, num_warmup_steps=1)
    done = jobs.finished(pretraining.command(given), env=env)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.exhaustive
def test_a_host_that_refuses_ends_all_in_one_line(tmp_path):
    script = [*fine_tuning(tmp_path), "--distribution=multi_worker"]
    lacking = [*script, "--data_dir=nowhere"]
    refuses = "nowhere/train.txt: No such file or directory"
    follows = "another host ended or refused; see its output"
    for lines, errors in (
        ([lacking, script], [refuses, follows]),
        ([script, lacking], [follows, refuses]),
    ):
        hosts = forked.hosts_finished({"worker": lines})
        for host, error in zip(hosts, errors, strict=True):
            assert host.returncode == 1
            assert "Traceback" not in host.stderr
            assert host.stderr.splitlines()[-1] == f"parity.py: error: {error}"


@pytest.mark.parametrize("is_last", [False, True])
def test_the_chief_says_why_it_refuses_if_others_end_first(monkeypatch, is_last):
    def any_host(strategy, value):
        if not is_last:
            raise tf.errors.UnavailableError(None, None, "Collective ops is aborted")
        return value

    def work():
        raise UserError("no such corpus")

    monkeypatch.setattr(distribution, "any_host", any_host)
    with pytest.raises(UserError, match="no such corpus"):
        distribution.on_chief(tf.distribute.get_strategy(), work)


def test_other_errors_of_tensorflow_are_not_laid_to_another_host():
    with (
        pytest.raises(tf.errors.InvalidArgumentError),
        distribution.report_lost_hosts(),
    ):
        tf.reshape(tf.zeros([2]), [3])


# --- GPUs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, compiles",
    [
        ({}, True),
        ({"xla": False}, False),
        ({"deterministic": True}, False),
        ({"deterministic": True, "xla": True}, True),
        ({"use_tpu": True}, False),
    ],
)
def test_gpus_compile_unless_told_otherwise(tmp_path, monkeypatch, given, compiles):
    options = parity.Options(**flags(tmp_path, **given))
    assert options.compiles == bool(given.get("xla"))  # on CPUs, only if asked
    monkeypatch.setattr(distribution, "gpus", lambda: ["NVIDIA H200"])
    assert options.compiles == compiles


def test_the_first_line_names_the_gpus(monkeypatch):
    strategy = tf.distribute.get_strategy()
    assert distribution.description(strategy) == "1 device"
    monkeypatch.setattr(distribution, "gpus", lambda: ["NVIDIA H200"])
    assert distribution.description(strategy) == "1 GPU, NVIDIA H200"


def test_a_gpu_that_is_not_used_is_named(monkeypatch, capsys):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    distribution.make("one")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(distribution.os, "listdir", lambda path: ["null", "nvidia1"])
    distribution.make("one")
    assert "GPU that TensorFlow cannot use" in capsys.readouterr().err
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the user wants the CPU
    distribution.make("one")
    assert capsys.readouterr().err == ""


# --- TPUs ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, "local"])
def test_tpu_of_this_machine_may_use_its_files(tmp_path, name):
    parity.Options(**flags(tmp_path, use_tpu=True, tpu_name=name))


@pytest.mark.parametrize(
    "where", [{"tpu_name": "mine"}, {"tpu_name": "grpc://a:8470"}, {"master": "mine"}]
)
def test_tpu_of_other_machines_wants_files_that_those_reach(tmp_path, where):
    given = flags(tmp_path, use_tpu=True, **where)
    with pytest.raises(
        UserError, match="output: the TPU .* other machines.* gs:// .*--tpu_name=local"
    ):
        parity.Options(**given)
    parity.Options(**given | {"output_dir": "gs://bucket/output"})


def test_tpu_that_is_not_there_is_one_short_line(caplog):
    with pytest.raises(
        UserError,
        match=r"^TPU 'local' cannot be reached: TPUs not found in the cluster\.$",
    ):
        distribution.make("tpu", tpu="local")
    assert caplog.messages == []


def requirements(name):
    """The bounds of each package that a requirement file names."""
    lines = (ROOT / name).read_text().splitlines()
    lines = [line.partition("#")[0].strip() for line in lines]
    return dict(re.fullmatch(r"([\w-]+)(.*)", line).groups() for line in lines if line)


def test_what_a_tpu_vm_installs_is_what_others_do_but_for_tensorflow():
    plain, tpu = map(requirements, ("requirements.txt", "requirements/tpu.txt"))
    for name in ("tensorflow", "tensorflow-text"):  # the second pulls in the first
        assert plain.pop(name) and name not in tpu
    assert tpu.pop("tensorflow-tpu")
    for name in ("google-api-python-client", "oauth2client"):
        assert tpu.pop(name)
    assert tpu == plain
