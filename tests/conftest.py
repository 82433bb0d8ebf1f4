"""What holds for all tests."""

import gc
import importlib.util
import os
import sys

import pytest

# Both as training/ sets them. Else JAX, where Keras loads it first, would set another log
# level, and programs that tests start would take it over and say more than they do for a
# user; and what loads TensorFlow before training/ would compute by other routines.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# Else it looks for garbage many times a second, through all that TensorFlow has loaded.
gc.set_threshold(50_000, 20, 20)


def pytest_collection_modifyitems(items):
    """The longest files first: as the last, they would leave the other processes idle."""
    items.sort(key=lambda item: "training" not in item.path.parent.parts)
    _skip_oracles(items)


def _skip_oracles(items):
    """Skips test_transformers*.py without transformers, unless ORACLES=required."""
    if os.environ.get("ORACLES") == "required" or importlib.util.find_spec(
        "transformers"
    ):
        return
    skip = pytest.mark.skip(
        reason="transformers is not installed (CONTRIBUTING.md says how to run these)"
    )
    for item in items:
        if item.path.match("test_transformers*.py"):
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def _drawing():
    """A picture takes as long as the training of most models here: curves.png is empty."""
    report = sys.modules.get("training.report")
    draw = report and report._draw
    with pytest.MonkeyPatch.context() as patch:
        if report:
            write = report.run_folder.write_file
            patch.setattr(report, "_draw", lambda rows, path: write(path, b""))
        yield draw


@pytest.fixture
def drawn(_drawing, monkeypatch):
    """For tests that look at the curves."""
    monkeypatch.setattr("training.report._draw", _drawing)


@pytest.fixture(scope="session", autouse=True)
def _reloading():
    """Exports are checked by forks, which have our modules; test_export.py has one by a
    process that has not.
    """
    export = sys.modules.get("serving.export")
    with pytest.MonkeyPatch.context() as patch:
        if export:
            from tests import forked

            patch.setattr(export, "subprocess", forked)
        yield


@pytest.fixture
def no_fsync(monkeypatch):
    """For tests that write many small files, and look only at what is written."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def in_a_folder(tmp_path, monkeypatch):
    """The working directory is the folder of the test."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def untraced():
    """For runs of a few updates, which take less time than the tracing of functions.

    Not for tests that compare the numbers of a training with those of one that is traced.
    """
    from tests import jobs

    with jobs.untraced():
        yield
