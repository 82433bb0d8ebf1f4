"""Imports point down: scripts, training, serving, then modeling and text, which know
nothing of each other. No script imports another, and no package goes round in a circle."""

import ast
import pathlib
import subprocess
import sys

import pytest

import tests

ROOT = tests.ROOT
# On the ground: options.py imports errors.py, and errors.py nothing. text declares the
# flags that it knows best.
GROUND = {"errors", "options"}
FLOORS = {"text": {"text", *GROUND}, "modeling": {"modeling"}}
FLOORS["serving"] = {"serving", "modeling", "text", *GROUND}
FLOORS["training"] = {"training", "serving", "modeling", "text", *GROUND}
FLOORS["ablations"] = {"ablations", *FLOORS["training"]}
SCRIPTS = {path.stem for path in ROOT.glob("*.py")} - GROUND
LONGEST_FUNCTION, LONGEST_FILE = 60, 600  # lines
OURS = {*FLOORS, *SCRIPTS, *GROUND}


def modules_imported(path: pathlib.Path) -> set[str]:
    """Our modules that a file imports, and what else it imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            ours = {name for name in full if path_of(name).exists()}
            names |= ours if len(ours) == len(full) else {*ours, node.module}
    return names


def path_of(module: str) -> pathlib.Path:
    return ROOT / f"{module.replace('.', '/')}.py"


def imported(path: pathlib.Path) -> set[str]:
    """Top-level names that a file imports."""
    return {name.split(".")[0] for name in modules_imported(path)}


@pytest.mark.parametrize("floor", FLOORS)
def test_floor_imports_only_what_lies_below(floor):
    files = sorted((ROOT / floor).rglob("*.py"))
    assert files
    for path in files:
        assert imported(path) & OURS <= FLOORS[floor], path


def test_no_package_goes_round_in_a_circle():
    """A package is a folder; its own modules count as one."""
    below = {}
    for floor in FLOORS:
        for path in (ROOT / floor).rglob("*.py"):
            package = ".".join(path.parent.relative_to(ROOT).parts)
            for name in modules_imported(path):
                other = name if (ROOT / name.replace(".", "/")).is_dir() else None
                other = other or name.rpartition(".")[0]
                if other != package:
                    below.setdefault(package, set()).add(other)
    assert len(below) > 10

    def reached(package, seen):
        for other in below.get(package, ()):
            if other not in seen:
                seen.add(other)
                reached(other, seen)
        return seen

    assert not [package for package in below if package in reached(package, set())]


def test_no_function_or_file_is_too_long_to_read():
    folders = (*FLOORS, "tests")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    paths += [ROOT / f"{name}.py" for name in SCRIPTS]
    assert len(paths) > 200
    for path in paths:
        content = path.read_text(encoding="utf-8")
        assert content.count("\n") <= LONGEST_FILE, path
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.FunctionDef):
                length = node.end_lineno - node.lineno + 1
                assert length <= LONGEST_FUNCTION, (path, node.name, length)


def test_the_ground_imports_nothing_above_it():
    assert imported(ROOT / "options.py") & OURS == {"errors"}
    assert not imported(ROOT / "errors.py")


def test_modeling_needs_keras_alone():
    for path in (ROOT / "modeling").rglob("*.py"):
        assert not imported(path) & {"tensorflow", "tensorflow_text", "jax"}, path


def test_no_script_imports_another():
    assert "run_pretraining" in SCRIPTS
    for name in SCRIPTS:
        assert not imported(ROOT / f"{name}.py") & SCRIPTS, name


def test_workers_that_write_records_load_no_tensorflow():
    """It would cost each of them half a gigabyte and some seconds."""
    # A worker is started anew, and imports what the script imports.
    program = "import create_pretraining_data, sys; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "text.tokenizers.wordpiece" in loaded
    assert not loaded & {"tensorflow", "keras", "jax"}


@pytest.mark.slow
def test_what_keras_only_looks_for_is_not_loaded_at_the_start():
    """It would double the time of every start; what needs it can still import it."""
    program = (
        "import run_classifier, sys; print(*sys.modules)\n"
        "import sklearn, matplotlib, jax"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "keras" in loaded and not loaded & {"sklearn", "matplotlib", "jax"}


@pytest.mark.slow
def test_tensorflow_is_loaded_by_the_backend():
    """Else its start-up notes are what a user reads first, and it takes twice as long."""
    paths = (path.relative_to(ROOT) for path in (ROOT / "training").rglob("*.py"))
    modules = {".".join(path.with_suffix("").parts) for path in paths}
    # Nothing starts with these.
    inner = ("training.finetuning", "training.interchange")
    modules = {name for name in modules if not name.startswith(inner)}
    loaders = {name: loader(name, set()) for name in modules | SCRIPTS}
    assert set(loaders.values()) == {None, "training.backend"}, loaders
    assert loaders["run_squad"] and not loaders["training.run.run_flags"]


def loader(module: str, seen: set[str]) -> str | None:
    """Which of our modules is the first to load TensorFlow when this one is imported."""
    if module in seen or not path_of(module).exists():
        return None
    seen.add(module)
    for node in ast.parse(path_of(module).read_text(encoding="utf-8")).body:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [n if path_of(n).exists() else node.module for n in names]
        for name in names:
            if name.split(".")[0] in ("tensorflow", "keras"):
                return module
            if found := loader(name, seen):
                return found
    return None
