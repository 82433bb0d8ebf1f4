"""What holds for all tests."""

import collections
import ctypes
import gc
import importlib.util
import itertools
import json
import os
import select
import shutil
import sys
import termios
import time
import types

import absl.logging
import hypothesis
import pytest

import errors
import tests

# As scripts set it, whatever the environment or keras.json names.
os.environ["KERAS_BACKEND"] = "tensorflow"
# Both as training/ sets them. Else JAX, where Keras loads it first, would set another log
# level, and programs that tests start would take it over and say more than they do for a
# user; and what loads TensorFlow before training/ would compute by other routines.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# Else it looks for garbage many times a second, through all that TensorFlow has loaded.
gc.set_threshold(50_000, 20, 20)

# uvicorn closes all handlers of logs, and absl's would close with it what pytest captures
# stderr in.
absl.logging.get_absl_handler().python_handler.setStream(sys.__stderr__)

# On a busy machine, an example may take any time.
hypothesis.settings.register_profile("default", max_examples=30, deadline=None)
hypothesis.settings.register_profile("everything", max_examples=150, deadline=None)

# Forms of answers. test_export.py has labels, and the others add a few operations to one.
_CHECKED = {"span", "tags", "text", "masks"}
_DURATIONS = tests.ROOT / "tests" / "durations.json"


def pytest_addoption(parser):
    parser.addoption(
        "--everything", action="store_true", help="also run what is marked exhaustive"
    )
    parser.addoption(
        "--note_durations",
        action="store_true",
        help="write tests/durations.json: which tests are slow, and the order of files",
    )


def pytest_configure(config):
    everything = config.getoption("everything")
    hypothesis.settings.load_profile("everything" if everything else "default")
    if not everything:  # XLA would optimize for longer than what it compiles is run
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    if config.getoption("note_durations"):
        config.pluginmanager.register(_Durations())


class _Durations:
    """The seconds of each file, its fixtures included, of each fixture that tests of a file
    share, and of each test, all its cases together, whichever process ran them."""

    def __init__(self):
        self._seconds = collections.Counter()
        self._made = {}  # fixtures of the test that is being set up

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        self._made = {}
        try:
            return (yield)
        finally:  # reports carry it to the process that writes the file
            item.user_properties.append(("fixtures", self._made))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            if fixturedef.scope == "module":
                name = f"{request.node.nodeid}::{fixturedef.argname}"
                self._made[name] = time.perf_counter() - began

    def pytest_runtest_logreport(self, report):
        made = {}
        if report.when == "setup":
            made = dict(report.user_properties)["fixtures"]
        self._seconds.update(made)  # adds
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
        self._seconds[_name_of(report.nodeid)] += report.duration - sum(made.values())

    def pytest_sessionfinish(self, session):
        if not hasattr(session.config, "workerinput"):
            known = json.loads(_DURATIONS.read_text()) | self._seconds
            seconds = {
                name: round(value)
                for name, value in known.items()
                if value >= 1 and (tests.ROOT / name.partition("::")[0]).exists()
            }
            text = json.dumps(dict(sorted(seconds.items())), indent=1)
            _DURATIONS.write_text(text + "\n")


def _name_of(nodeid):
    """A test without its case."""
    return nodeid.partition("[")[0]


def _parts_of(item):
    """What may take its time: the test itself, and fixtures of its file."""
    file = item.nodeid.partition("::")[0]
    return {_name_of(item.nodeid), *(f"{file}::{name}" for name in item.fixturenames)}


def pytest_collection_modifyitems(config, items):
    """Marks as slow what takes over a second, or needs what does, and orders the files."""
    seconds = collections.Counter(json.loads(_DURATIONS.read_text()))
    if not config.getoption("everything"):
        kept, left_out = [], []
        for item in items:
            is_left_out = item.get_closest_marker("exhaustive")
            (left_out if is_left_out else kept).append(item)
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
        used = set().union(*map(_parts_of, kept))
        for name in set().union(*map(_parts_of, left_out)) - used:
            seconds[name.partition("::")[0]] -= seconds[name]
    for item in items:
        if any(name in seconds for name in _parts_of(item)):
            item.add_marker("slow")
    # The longest files first: as the last, they would leave the other processes idle.
    items.sort(key=lambda item: -seconds[item.nodeid.partition("::")[0]])
    _skip_oracles(items)


def _skip_oracles(items):
    """Skips test_transformers*.py without transformers, unless ORACLES=required."""
    if os.environ.get("ORACLES") == "required" or importlib.util.find_spec(
        "transformers"
    ):
        return
    skip = pytest.mark.skip(
        reason="transformers is not installed (docs/CONTRIBUTING.md says how to run these)"
    )
    for item in items:
        if item.path.match("test_transformers*.py"):
            item.add_marker(skip)


def pytest_unconfigure():
    """Lets sentencepiece leave its types alone while Python ends.

    What SWIG makes of it (0.2.1) frees them after what that needs is gone: beside PyTorch,
    a process whose tests all passed ended with a segmentation fault.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("swig_runtime_data"):
            capsule = ctypes.py_object(module.type_pointer_capsule)
            ctypes.pythonapi.Py_IncRef(capsule)


def pytest_collection_finish():
    gc.freeze()  # what the tests import stays, and need not be looked through again


@pytest.fixture(scope="session", autouse=True)
def _one_line():
    """Whatever a user is told is one line, in every test."""

    def init(error, message="", *more):
        assert "\n" not in str(message), message
        Exception.__init__(error, message, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(errors.UserError, "__init__", init)
        yield


@pytest.fixture(scope="session", autouse=True)
def _drawing():
    """A picture takes as long as the training of most models here: curves.png is empty."""
    report = sys.modules.get("training.run.report")
    draw = report and report._draw
    with pytest.MonkeyPatch.context() as patch:
        if report:
            patch.setattr(report, "_draw", lambda rows: b"")
        yield draw


@pytest.fixture
def drawn(_drawing, monkeypatch):
    """For tests that look at the curves."""
    monkeypatch.setattr("training.run.report._draw", _drawing)


def _kinds_of(export, product, directory):
    """What loading an export can depend on, one at a time: its operations, and what
    decides which files and signatures it has.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    from files import anywhere

    path = os.path.join(directory, export.TEXT, "saved_model.pb")
    with anywhere.open_file(path) as file:
        [saved] = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    functions = (function.node_def for function in saved.graph_def.library.function)
    nodes = itertools.chain(saved.graph_def.node, *functions)
    yield from {node.op for node in nodes}
    yield from (product.form, *(f"{name} of {product.form}" for name in product.more))
    yield from (type(product.tokenizer).__name__, product.config.architecture)
    yield product.precision


def _check_here(export, product, directory):
    """An export answers what is expected, loaded by this process."""
    import tensorflow as tf

    loaded = tf.saved_model.load(os.path.join(directory, export.TEXT)).signatures
    texts = {k: tf.constant(v, t, s) for k, (t, s, v) in export._texts(product).items()}
    answers, outputs = (
        {name: value.numpy() for name, value in loaded[signature](**inputs).items()}
        for signature, inputs in (
            ("serving_default", texts),
            ("tensors", {k: tf.constant(v) for k, v in product.batch.items()}),
        )
    )
    export._check_answers("once loaded, it", product, answers)
    what = "once loaded, it returns different"
    export._compare_arrays(what, product.outputs, outputs, product.tolerance)


@pytest.fixture(scope="session", autouse=True)
def _reloading(request, tmp_path_factory):
    """Exports are checked by forks, which have our modules; test_export.py has one by a
    process that has not. A fork checks the first export of each form whose graph is unlike
    that of others, in whichever process of the tests, the first of all also as a server
    loads it, and those of modules that use `every_export_is_checked`. Where all is tested,
    it is the first of each kind (`_kinds_of`), all as a server loads them, and this process
    checks the others. test_graph_sessions.py has every kind of vocabulary in a server.
    """
    export = sys.modules.get("serving.export")
    if export is None:
        yield
        return
    from tests import forked

    check, seen = export._check, tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        seen = seen.parent  # of all processes
    everything = request.config.getoption("everything")

    def is_first(kind):
        try:
            (seen / f"checked-{kind}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def run(command, **given):
        in_a_server = everything or is_first("in_a_server")
        return forked.run(command, **given, in_a_server=in_a_server)

    def check_the_first(product, directory):
        if not everything:
            if product.form in _CHECKED and is_first(product.form):
                check(product, directory)
            return
        first = [is_first(kind) for kind in _kinds_of(export, product, directory)]
        if any(first):
            check(product, directory)
        else:
            _check_here(export, product, directory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "subprocess", types.SimpleNamespace(run=run))
        patch.setattr(export, "_check", check_the_first)
        yield check


@pytest.fixture(scope="module")
def every_export_is_checked(_reloading):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serving.export._check", _reloading)
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
