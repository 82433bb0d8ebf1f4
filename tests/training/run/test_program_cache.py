"""Compiled programs are kept where they can be, apart from those of other machines."""

import os
import shlex
import sys

import pytest

from training.run import program_cache
from errors import UserError
from tests import jobs

DIRECTORY, PREFIX = (
    "tf_xla_persistent_cache_directory",
    "tf_xla_persistent_cache_prefix",
)


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """What `keep_programs` makes TensorFlow read, by name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(folder=None, gpus="NVIDIA H200, 580.1", flags="", **settings):
        monkeypatch.setenv("TF_XLA_FLAGS", flags)
        monkeypatch.setattr(program_cache, "gpus", lambda: gpus)
        program_cache.keep_programs(folder, **settings)
        words = shlex.split(os.environ["TF_XLA_FLAGS"])
        return dict(word.removeprefix("--").split("=") for word in words)

    return call


def test_with_a_gpu_its_programs_are_kept_in_the_cache_folder(kept, tmp_path):
    assert kept()["tf_xla_persistent_cache_device_types"] == "GPU"
    assert kept()[DIRECTORY] == str(tmp_path / "cache/bert-programs")
    assert os.path.isdir(tmp_path / "cache/bert-programs")
    assert kept(folder=str(tmp_path / "x"))[DIRECTORY] == str(tmp_path / "x")


def test_without_one_they_are_kept_only_if_asked(kept, tmp_path):
    assert kept(gpus="") == {}
    assert kept(str(tmp_path), gpus="")[DIRECTORY] == str(tmp_path)


def test_what_they_depend_on_is_in_their_names(kept, monkeypatch):
    names = [kept()[PREFIX], kept(gpus="NVIDIA A100, 580.1")[PREFIX]]
    names += [kept(deterministic=True)[PREFIX], kept(deterministic=None)[PREFIX]]
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    names.append(kept()[PREFIX])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    names.append(kept()[PREFIX])
    assert len({*names}) == len(names)
    assert kept()[PREFIX] == names[-1]


def test_a_folder_that_cannot_be_used_is_refused_if_it_was_asked_for(
    kept, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    for folder in (str(tmp_path / "file/x"), "gs://bucket/x", 'a"b'):
        with pytest.raises(
            UserError, match=f"^--xla_cache_dir={folder}: is not a local"
        ):
            kept(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    program_cache.keep_programs(None)
    assert os.environ["TF_XLA_FLAGS"] == ""


def test_nothing_is_kept_if_it_should_not_be(kept, monkeypatch):
    assert kept(program_cache.NONE) == {}
    mine = f"--{DIRECTORY}=mine"
    assert kept(flags=mine) == {DIRECTORY: "mine"}
    assert kept(flags="--other=1")["other"] == "1"
    monkeypatch.setenv("TF_XLA_FLAGS", "/a/file/of/flags")
    program_cache.keep_programs(None)
    assert os.environ["TF_XLA_FLAGS"] == "/a/file/of/flags"
    monkeypatch.setattr(program_cache, "_LEAST_FREE", 1 << 62)
    assert kept() == {}


def test_gpus_are_asked_for_and_may_be_absent(tmp_path, monkeypatch):
    script = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program_cache.gpus() == ""
    script.write_text("#!/bin/sh\necho NVIDIA H200, 580.1\n")
    script.chmod(0o755)
    assert program_cache.gpus() == "NVIDIA H200, 580.1\n"
    script.write_text("#!/bin/sh\necho no driver\nexit 9\n")
    assert program_cache.gpus() == ""


COMPILE = """
import sys
from training.run import program_cache
program_cache.keep_programs(sys.argv[1])
from training.backend import tf
from training.run import compiler
others = [tf.constant(0) for _ in range(int(sys.argv[2]))]

@tf.function(jit_compile=True, autograph=False)
def compute(x):
    with compiler.steady_names(0):
        return x @ x + x

print(float(compute(tf.ones([8, 8]))[0, 0]))
"""


@pytest.mark.exhaustive
def test_a_second_process_finds_the_program(tmp_path):
    """Also one that did something else before, as a resumed run does.

    In a program that was changed, TensorFlow's reading fails: so it was read.
    """
    folder = tmp_path / "with a space"
    call = [sys.executable, "-c", COMPILE, str(folder)]
    for others in ("0", "7"):
        done = jobs.finished([*call, others])
        assert done.stdout == "9.0\n", done.stderr
        [path] = folder.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert "9.0" not in jobs.finished([*call, "3"]).stdout
