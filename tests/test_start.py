"""A script answers --help and mistakes at once: it loads TensorFlow only to work."""

import ast
import builtins
import platform
import re
import sys

import pytest

import tests
from tests import jobs

SCRIPTS = sorted(
    {path.name for path in tests.ROOT.glob("*.py")}
    - {f"{n}.py" for n in ("bert", "command_line", "errors", "extensions", "options")}
    - {f"{name}.py" for name in tests.MOVED}
)
SCRIPTS += [
    str(path.relative_to(tests.ROOT))
    for path in sorted(tests.ROOT.glob("recipes/*.py"))
    if "command_line.run(" in path.read_text(encoding="utf-8")
]
SWAG = {"data_dir": ".", "bert_config_file": "c", "vocab_file": "v", "output_dir": "o"}

PROGRAM = """
import dataclasses
import command_line
import options
from errors import UserError

@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    count: int = options.field(help="A count.")

    def __post_init__(self):
        super().__post_init__()
        print("checked")
        if self.count == 13:
            raise UserError("--count=13: is unlucky")

if __name__ == "__main__":
    command_line.parse(Options)

print("loaded")

def main(given):
    print(given)

if __name__ == "__main__":
    command_line.run(main, Options)
"""

_NOTE = "note: KERAS_BACKEND=jax has no effect here; scripts always run on TensorFlow\n"

_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


def loaded(script, *arguments):
    """Runs a script; returns its status and the packages that it loaded."""
    line = [sys.executable, "-X", "importtime", str(tests.ROOT / script), *arguments]
    done = jobs.finished(line)
    return done.returncode, set(re.findall(r"\| +(\w+)$", done.stderr, re.M)), done


def early_imports(script):
    """The modules that a script loads before its flags are read, theirs included."""
    body = ast.parse((tests.ROOT / script).read_text(encoding="utf-8")).body
    ends = (i for i, s in enumerate(body) if "command_line.parse(" in ast.unparse(s))
    found, waiting = set(), list(imported_by(body[: next(ends, None)]))
    while waiting:
        name = waiting.pop()
        path = tests.ROOT / (name.replace(".", "/") + ".py")
        if name not in found and path.exists():
            waiting += imported_by(ast.parse(path.read_text(encoding="utf-8")).body)
        found.add(name)
    return found


def imported_by(statements):
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield statement.module
            yield from (f"{statement.module}.{a.name}" for a in statement.names)


HEAVY = {"tensorflow", "tensorflow_text", "keras", "jax"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_nothing_that_is_loaded_early_names_tensorflow(script):
    found = early_imports(script)
    assert "options" in found and not {n.split(".")[0] for n in found} & HEAVY


@pytest.mark.parametrize("script", ["run_pretraining.py", "run_squad.py", "predict.py"])
def test_help_loads_no_tensorflow(script):
    status, packages, done = loaded(script, "--help")
    assert status == 0 and "\n  --" in done.stdout
    assert "absl" in packages and not packages & {"tensorflow", "keras", "jax"}


@pytest.mark.parametrize(
    "arguments, status, answer",
    [
        (["--no_such_flag"], 2, "Unknown command line flag 'no_such_flag'"),
        (["--pooling=median"], 2, "--pooling=median: value should be one of"),
        (["--do_train"], 2, "--output_dir, --data_dir required"),
        (
            ["--do_train", "--output_dir=/nowhere", "--data_dir=/nowhere"],
            1,
            "error: --vocab_file, --bert_config_file required: there is no --init_",
        ),
        ([*(f"--{k}={v}" for k, v in SWAG.items())], 1, "error: nothing to do; pass"),
        (
            [
                *(f"--{k}={v}" for k, v in SWAG.items()),
                "--do_train",
                "--only_check_args",
            ],
            0,
            "",
        ),
    ],
    ids=["unknown", "wrong value", "missing", "unsupplied", "combined", "only checked"],
)
def test_mistakes_load_no_tensorflow(arguments, status, answer):
    found, packages, done = loaded("run_swag.py", *arguments)
    assert found == status and answer in done.stderr
    assert not packages & {"tensorflow", "keras", "jax"}


@pytest.mark.parametrize(
    "arguments, status, said",
    [
        (["--count=1"], 0, "checked\nloaded\nOptions(count=1)\n"),
        (
            ["--count=1", "--only_check_args"],
            0,
            "checked\njob.py: the flags are valid\n",
        ),
        (["--count=13"], 1, "checked\n"),
        (["--count=a"], 2, ""),
        ([], 2, ""),
    ],
    ids=str,
)
def test_the_command_line_is_read_once_and_early(tmp_path, arguments, status, said):
    (tmp_path / "job.py").write_text(PROGRAM)
    done = jobs.finished([sys.executable, str(tmp_path / "job.py"), *arguments])
    assert (done.returncode, done.stdout) == (status, said)
    assert done.stderr.count("\n") == bool(status)


def defined_by(statement):
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name for alias in statement.names}
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    return used_by(statement, ast.Store)


def used_by(node, context=ast.Load):
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, context)}


EARLY = [
    name for name in SCRIPTS if "command_line.parse(" in (tests.ROOT / name).read_text()
]


@pytest.mark.parametrize("script", EARLY)
def test_what_checks_flags_is_defined_before_they_are_read(script):
    body = ast.parse((tests.ROOT / script).read_text(encoding="utf-8")).body
    (end,) = (i for i, s in enumerate(body) if "command_line.parse(" in ast.unparse(s))
    known = {"__file__", *dir(builtins)}.union(*map(defined_by, body[:end]))
    for statement in body[:end]:
        local = used_by(statement, ast.Store)
        local |= {n.arg for n in ast.walk(statement) if isinstance(n, ast.arg)}
        assert used_by(statement) <= known | local


@pytest.mark.exhaustive
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="only asked for on x86"
)
@pytest.mark.parametrize("given, used", [({}, True), ({_ONEDNN: "0"}, False)])
def test_onednn_is_used_unless_the_user_says_otherwise(given, used):
    """TensorFlow alone would not use it on processors without AVX-512 VNNI."""
    asked = (
        "from training import backend\n"
        "from tensorflow.python.util import _pywrap_util_port\n"
        "print(_pywrap_util_port.IsMklEnabled())\n"
    )
    others = {k: v for k, v in jobs.ENVIRONMENT.items() if k != _ONEDNN}
    done = jobs.finished([sys.executable, "-c", asked], env=others | given)
    assert done.stdout == f"{used}\n", done.stderr


def test_a_script_runs_on_tensorflow_and_says_so_once(tmp_path):
    """Also in the processes that it starts."""
    program = PROGRAM.replace(
        'print("loaded")',
        'from training import backend\nprint(backend.NAME, os.environ["KERAS_BACKEND"])',
    )
    (tmp_path / "job.py").write_text("import os\n" + program)
    line = [sys.executable, str(tmp_path / "job.py"), "--count=1"]
    env = jobs.ENVIRONMENT | {"KERAS_BACKEND": "jax"}
    done = jobs.finished(line, env=env)
    assert "tensorflow tensorflow\n" in done.stdout, done.stderr
    assert done.stderr == _NOTE
