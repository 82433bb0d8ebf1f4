"""Imports point down: scripts, training, modeling; text and modeling know nothing of each
other, and no script imports another."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# options.py stands on text.errors alone; text declares the flags that it knows best.
FLOORS = {"text": {"text", "options"}, "modeling": {"modeling"}}
FLOORS["training"] = {"training", "modeling", "text", "options"}
SCRIPTS = {path.stem for path in ROOT.glob("*.py")} - {"options"}
# Modules of modeling/ that load no Keras.
NETWORKLESS = ("modeling.encoders.bert_config.", "modeling.encoders.config.")
OURS = {*FLOORS, *SCRIPTS, "options"}


def imported(path: pathlib.Path) -> set[str]:
    """Top-level names that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("floor", FLOORS)
def test_floor_imports_only_what_lies_below(floor):
    files = sorted((ROOT / floor).rglob("*.py"))
    assert files
    for path in files:
        assert imported(path) & OURS <= FLOORS[floor], path


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
