"""Imports point down: scripts, training, serving, then modeling and text, which know
nothing of each other. No script imports another, and no package goes round in a circle."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# options.py stands on text.errors alone; text declares the flags that it knows best.
FLOORS = {"text": {"text", "options"}, "modeling": {"modeling"}}
FLOORS["serving"] = {"serving", "modeling", "text", "options"}
FLOORS["training"] = {"training", "serving", "modeling", "text", "options"}
SCRIPTS = {path.stem for path in ROOT.glob("*.py")} - {"options"}
# Modules of modeling/ that load no Keras.
NETWORKLESS = ("modeling.encoders.bert_config.", "modeling.encoders.config.")
LONGEST_FUNCTION = 60  # lines
OURS = {*FLOORS, *SCRIPTS, "options"}


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


def test_no_function_is_too_long_to_read():
    for floor in FLOORS:
        for path in (ROOT / floor).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    length = node.end_lineno - node.lineno + 1
                    assert length <= LONGEST_FUNCTION, (path, node.name, length)


def test_modeling_needs_keras_alone():
    for path in (ROOT / "modeling").rglob("*.py"):
        assert not imported(path) & {"tensorflow", "tensorflow_text", "jax"}, path


def test_no_script_imports_another():
    assert "run_pretraining" in SCRIPTS
    for name in SCRIPTS:
        assert not imported(ROOT / f"{name}.py") & SCRIPTS, name


def test_workers_that_write_records_load_no_tensorflow():
    """It would cost each of them half a gigabyte and some seconds."""
    waiting, seen = ["create_pretraining_data.py"], set()
    while waiting:
        path = ROOT / waiting.pop()
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("text"):
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
                modules.append(node.module)
                found = {f"{module.replace('.', '/')}.py" for module in modules}
                waiting += [f for f in found if (ROOT / f) not in seen]
                waiting = [f for f in waiting if (ROOT / f).exists()]
        assert not imported(path) & {"tensorflow", "keras"}, path
    assert len(seen) > 10


def test_training_is_imported_before_what_loads_tensorflow():
    """Else TensorFlow's start-up notes are what a user reads first."""
    seen = 0
    for name in SCRIPTS:
        names = []
        for node in ast.parse((ROOT / f"{name}.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names += [f"{node.module}.{alias.name}" for alias in node.names]
        loud = [
            number
            for number, module in enumerate(names)
            if module.split(".")[0] in ("keras", "tensorflow", "modeling")
            and not module.startswith(NETWORKLESS)
        ]
        if loud:
            assert "training" in names[: loud[0]], name
            seen += 1
    assert seen > 5
