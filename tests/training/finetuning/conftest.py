"""Runs that several tests begin with, each with a copy of its own."""

import contextlib
import shutil

import pytest

from training.backend import tf
from tests.training.finetuning.runs import RUNS, run, write_files


@pytest.fixture
def folder(tmp_path):
    write_files(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Maps a name of RUNS to a folder after that run, and to what it said."""
    made = {}

    def folder_after(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            write_files(folder)
            # As this says, whichever test is the first to want it.
            untraced = tf.config.functions_run_eagerly()
            tf.config.run_functions_eagerly(name != "trained")
            with open(folder / "said", "w") as file, contextlib.redirect_stdout(file):
                run(folder, **RUNS[name])
            tf.config.run_functions_eagerly(untraced)
            said = folder / "said"
            made[name] = folder, said.read_text()
            said.unlink()
        return made[name]

    return folder_after


@pytest.fixture
def trained(once, tmp_path):
    """A folder with a finished run, evaluated and asked."""
    return shutil.copytree(once("trained")[0], tmp_path, dirs_exist_ok=True)


@pytest.fixture
def stopped(once, tmp_path):
    """One with a run of early stopping, that never stopped."""
    return shutil.copytree(once("stopped")[0], tmp_path, dirs_exist_ok=True)


@pytest.fixture
def searched(once, tmp_path):
    """One with a search, whose best was evaluated."""
    return shutil.copytree(once("searched")[0], tmp_path, dirs_exist_ok=True)
