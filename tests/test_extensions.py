"""Extensions: the core without family/ and recipes/, without a folder, or with more."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import tests
from tests import jobs

CORE = ("files", "modeling", "serving", "text", "training")
# The script of one relative.
_OF_RELATIVES = {"run_text_to_text"}
SCRIPTS = sorted(
    path.stem
    for path in tests.ROOT.glob("*.py")
    if "command_line.parse(" in path.read_text(encoding="utf-8")
)


def copy(target: pathlib.Path, *more: str) -> pathlib.Path:
    """The core, and other folders, in a place of their own."""
    target.mkdir()
    for path in tests.ROOT.glob("*.py"):
        shutil.copy(path, target)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in (*CORE, *more):
        shutil.copytree(tests.ROOT / name, target / name, ignore=ignore)
    return target


def run(place: pathlib.Path, *command: str) -> subprocess.CompletedProcess:
    """Runs Python in a copy."""
    environment = jobs.ENVIRONMENT | {"PYTHONPATH": str(place)}
    return subprocess.run(
        [sys.executable, *command],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
    )


def modules_in(place: pathlib.Path) -> list[str]:
    """The modules of the core that need no optional package."""
    paths = (path for name in CORE for path in (place / name).rglob("*.py"))
    names = (".".join(p.relative_to(place).with_suffix("").parts) for p in paths)
    optional = ("beam", "arrow", "wikitext", "server", "portable")
    return sorted(n for n in names if not any(word in n for word in optional))


@pytest.mark.exhaustive
def test_the_core_runs_without_family_and_recipes(tmp_path):
    core = copy(tmp_path / "core")
    program = "import importlib, sys\nfor n in sys.argv[1:]: importlib.import_module(n)"
    done = run(
        core, "-c", f"from training.backend import tf\n{program}", *modules_in(core)
    )
    assert done.returncode == 0, done.stderr
    for name in SCRIPTS:
        done = run(core, f"{name}.py", "--help")
        if name in _OF_RELATIVES:
            assert done.returncode == 1
            assert done.stderr == (
                f"{name}.py: needs family.t5, which is not here; get the folder family/t5\n"
            )
        else:
            assert done.returncode == 0, done.stderr


# They look at the whole repository: its folders, its pages, and copies of it.
_OF_THE_WHOLE = (
    "serving/test_image",
    "test_architecture",
    "test_docs",
    "test_extensions",
)


@pytest.mark.exhaustive
def test_the_core_passes_its_tests_without_family_and_recipes(tmp_path):
    core = copy(tmp_path / "core", "benchmarks", "docs", "requirements", "vocab")
    for path in filter(pathlib.Path.is_file, tests.ROOT.iterdir()):
        shutil.copy(path, core)
    ignore = shutil.ignore_patterns("__pycache__", "family", "recipes")
    shutil.copytree(tests.ROOT / "tests", core / "tests", ignore=ignore)
    ignored = (f"--ignore=tests/{name}.py" for name in _OF_THE_WHOLE)
    done = run(core, "-m", "pytest", "-m", "not slow or without_family", *ignored)
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"\b\d{4} passed", done.stdout)


def test_what_asks_for_a_missing_folder_says_so_in_one_line(tmp_path):
    core = copy(tmp_path / "core", "family")
    shutil.rmtree(core / "family" / "xlnet")
    config = {"architecture": "xlnet", "vocab_size": 9}
    (core / "config.json").write_text(json.dumps(config))
    (core / "none").touch()  # is found before it is read
    asked = [
        "run_pretraining.py",
        "--do_train",
        "--input_file=none",
        "--output_dir=out",
        "--bert_config_file=config.json",
    ]
    done = run(core, *asked)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "architecture is 'xlnet'; it must be one of 'bert'" in line
    assert line.endswith("missing, though family/__init__.py lists it: family.xlnet")
    done = run(core, *asked, "--objective=permuted")
    [line] = done.stderr.splitlines()
    assert "objective=permuted: value should be one of" in line and done.returncode
    assert "family/__init__.py lists it: family.xlnet" in line
    asked = ["--input_file=none", "--output_file=none", "--vocab_file=vocab.json"]
    # RoBERTa's and ModernBERT's vocabularies have the same name.
    shutil.rmtree(core / "family" / "modern_bert")
    (core / "vocab.json").write_text('{"[CLS]": 0, "[PAD]": 1}')
    (core / "merges.txt").touch()
    done = run(core, "create_pretraining_data.py", *asked, "--output_file=out")
    [line] = done.stderr.splitlines()
    assert "has no token <pad>" in line and line.endswith(
        "family.xlnet, family.modern_bert"
    )
    shutil.copytree(tests.ROOT / "family/modern_bert", core / "family" / "modern_bert")
    shutil.rmtree(core / "family" / "roberta")
    (core / "vocab.json").write_text('{"<s>": 0, "<pad>": 1}')
    done = run(core, "create_pretraining_data.py", *asked)
    [line] = done.stderr.splitlines()
    assert line.endswith("family/__init__.py lists it: family.roberta, family.xlnet")
    # The others are still there.
    done = run(core, "-c", "from text.instances.table import INSTANCES as x; print(*x)")
    assert "electra" in done.stdout and "contiguous" not in done.stdout


_PROGRAM = """
from modeling.architectures import table
from training.interchange.table import ADAPTERS
config = table.config_from_dict({"architecture": "windows", "vocab_size": 9})
print(type(table.make_encoder(config)).__name__, type(ADAPTERS["windows"]).__name__)
"""


@pytest.fixture
def stranger(tmp_path):
    """A package that knows a core elsewhere."""
    core, package = copy(tmp_path / "core", "family"), tmp_path / "acme_windows"
    package.mkdir()
    content = (tests.ROOT / "tests" / "programs" / "windows.py").read_text()
    (package / "encoder.py").write_text(content)
    (package / "__init__.py").write_text(
        "from extensions import Extension\n"
        "EXTENSION = Extension(\n"
        '    architectures={"windows": ("acme_windows.encoder:WindowsConfig",\n'
        '                               "acme_windows.encoder:WindowsEncoder")},\n'
        '    adapters={"windows": "acme_windows.encoder:WindowsAdapter"},\n'
        ")\n"
    )
    return core, package


def ask(core, package):
    program = f"from training.backend import tf\n{_PROGRAM}"
    return run(
        core, "-c", f"import sys; sys.path.append({str(package.parent)!r})\n{program}"
    )


def check_added(core, package):
    done = ask(core, package)
    assert done.stdout.split() == ["WindowsEncoder", "WindowsAdapter"], done.stderr


def add_line(core, package):
    path = core / "family" / "__init__.py"
    path.write_text(path.read_text().replace("= (\n", f'= (\n    "{package}",\n'))


@pytest.mark.exhaustive
def test_a_package_elsewhere_is_added_by_being_installed_whatever_the_line(stranger):
    core, package = stranger
    assert "it must be one of" in ask(core, package).stderr
    folder = package.parent / "acme_windows-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-windows\n")
    (folder / "entry_points.txt").write_text(
        "[bert_extensions]\nwindows = acme_windows\n"
    )
    check_added(core, package)
    add_line(core, "acme_windows")
    check_added(core, package)


@pytest.mark.exhaustive
def test_a_package_elsewhere_is_added_by_a_line_and_no_row_is_lost(stranger):
    core, package = stranger
    add_line(core, "acme_windows")
    add_line(core, "nowhere.at_all")  # without its package, and what that would be in
    check_added(core, package)
    shutil.copytree(package, package.parent / "acme_doors")
    add_line(core, "acme_doors")
    done = ask(core, package)
    [line] = done.stderr.splitlines()
    assert "two extensions have rows of architectures for windows; rename the" in line
    assert done.returncode == 1


# The core's table, and a key of that, for one of extensions. What others import is first.
_OF_THE_CORE = {
    "architectures": ("modeling.architectures.table", "bert"),
    "optimizers": ("modeling.optimizers.table", "lamb"),
    "objectives": ("modeling.objectives.table", "masked_lm"),
    "tokenizer_classes": ("text.tokenizers.wordpiece", "BertTokenizer"),
    "piece_models": ("text.tokenizers.sentencepiece", "kobert"),
    "tokenizers": ("text.tokenizers.table", "sentencepiece"),
    "instances": ("text.instances.table", "pairs"),
    "inspectors": ("text.inspection.table", "pairs"),
    "forms": ("serving.forms", "masks"),
    "adapters": ("training.interchange.table", "bert"),
    "span_heads": ("run_squad", "independent"),
}
_TRY_ALL = f"""
import importlib
import extensions
for table, (module, key) in {_OF_THE_CORE}.items():
    stranger = extensions.Extension(**{{table: {{key: "acme:Class"}}}})
    extensions._extensions = lambda: (stranger,)
    try:
        importlib.import_module(module)
    except SystemExit as error:
        print(error.code.removeprefix("-c: "))
"""


@pytest.mark.slow
def test_no_extension_replaces_a_row_of_the_core():
    lines = run(tests.ROOT, "-c", _TRY_ALL).stdout.splitlines()
    assert lines == [
        f"an extension and the core have rows of {table} for {key}; rename the "
        "extension's, or remove its line from family/__init__.py (if it is installed, its "
        "package)"
        for table, (_, key) in _OF_THE_CORE.items()
    ]
