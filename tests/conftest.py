"""What holds for all tests."""

import gc
import importlib.util
import os
import select
import shutil
import sys
import termios
import types

import hypothesis
import pytest

# Both as training/ sets them. Else JAX, where Keras loads it first, would set another log
# level, and programs that tests start would take it over and say more than they do for a
# user; and what loads TensorFlow before training/ would compute by other routines.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# Else it looks for garbage many times a second, through all that TensorFlow has loaded.
gc.set_threshold(50_000, 20, 20)

# On a busy machine, an example may take any time.
hypothesis.settings.register_profile("any_time", deadline=None)
hypothesis.settings.load_profile("any_time")


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
    report = sys.modules.get("training.run.report")
    draw = report and report._draw
    with pytest.MonkeyPatch.context() as patch:
        if report:
            write = report.run_folder.write_file
            patch.setattr(report, "_draw", lambda rows, path: write(path, b""))
        yield draw


@pytest.fixture
def drawn(_drawing, monkeypatch):
    """For tests that look at the curves."""
    monkeypatch.setattr("training.run.report._draw", _drawing)


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


class _Terminal:
    """What is shown on a terminal, as a user's program would write it there."""

    def __init__(self):
        self._screen, device = os.openpty()
        self.columns = 60
        termios.tcsetwinsize(device, (24, self.columns))
        self.file = open(device, "w", encoding="utf-8")

    def read(self) -> str:
        """What was written since the last time."""
        found = b""
        while select.select([self._screen], [], [], 0)[0]:
            found += os.read(self._screen, 1 << 16)
        return found.decode()

    def close(self):
        self.file.close()
        os.close(self._screen)


@pytest.fixture
def terminal(monkeypatch):
    """stderr is a terminal."""
    from text import progress

    terminal = _Terminal()
    # pytest takes sys.stderr itself for every test.
    monkeypatch.setattr(
        "text.progress.sys", types.SimpleNamespace(stderr=terminal.file)
    )
    yield terminal
    progress.clear()
    terminal.close()


@pytest.fixture
def untraced():
    """For runs of a few updates, which take less time than the tracing of functions.

    Not for tests that compare the numbers of a training with those of one that is traced.
    """
    from tests import jobs

    with jobs.untraced():
        yield


@pytest.fixture(scope="module")
def browser():
    """A real browser, for tests of what a person sees on a page.

    Needs Chromium and its driver (on Debian: apt-get install chromium chromium-driver).
    With BROWSER=required in the environment, as where a machine checks, missing ones are a
    failure.
    """
    from selenium import webdriver

    programs = [shutil.which("chromium"), shutil.which("chromedriver")]
    if None in programs:
        needed = (
            "needs chromium and chromedriver (apt-get install chromium chromium-driver)"
        )
        if os.environ.get("BROWSER") == "required":
            pytest.fail(needed)
        pytest.skip(needed)
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for argument in ("headless", "no-sandbox", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(programs[1])
    with webdriver.Chrome(options=options, service=service) as driver:
        yield driver
