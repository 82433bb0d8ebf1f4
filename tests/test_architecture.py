"""Imports point down: scripts, training, serving, then modeling and text, which know
nothing of each other, and files below text. No script imports another, and no package goes
round in a circle."""

import ast
import collections
import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import tests
from tests import jobs

ROOT = tests.ROOT
# On the ground: command_line.py imports options.py, options.py errors.py, and errors.py
# nothing. text declares the flags that it knows best. extensions.py finds family/
GROUND = {"command_line", "errors", "extensions", "options"}
_FLAGS = {"errors", "options"}  # only scripts read the command line
FLOORS = {
    "files": {"files", "extensions", *_FLAGS},
    "modeling": {"modeling", "errors", "extensions"},
}
FLOORS["text"] = {"text", "extensions", *FLOORS["files"]}
FLOORS["serving"] = {"serving", *FLOORS["modeling"], *FLOORS["text"]}
FLOORS["training"] = {"training", *FLOORS["serving"]}
FLOORS["family"] = {"family", *FLOORS["training"]}
FLOORS["recipes"] = {"recipes", "command_line", *FLOORS["training"]}
SCRIPTS = {path.stem for path in ROOT.glob("*.py")} - GROUND - tests.MOVED.keys()
LONGEST_FUNCTION, LONGEST_FILE = 60, 600  # lines
OURS = {*FLOORS, *SCRIPTS, *GROUND}


def files_of(*folders: str) -> list[pathlib.Path]:
    """The files in folders and below."""
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def product_files() -> list[pathlib.Path]:
    """All at the root, and on every floor."""
    return [*ROOT.glob("*.py"), *files_of(*FLOORS)]


def modules_imported(path: pathlib.Path) -> set[str]:
    """Our modules that a file imports, and what else it imports, wherever in it."""
    return modules_imported_in(ast.parse(path.read_text(encoding="utf-8")), path)


def modules_imported_in(part: ast.AST, path: pathlib.Path) -> set[str]:
    names = set()
    for node in ast.walk(part):
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
    files = sorted(files_of(floor))
    assert files
    for path in files:
        assert imported(path) & OURS <= FLOORS[floor], path


def test_pre_training_fine_tuning_and_queries_do_not_import_each_other():
    rooms = {"training.pretraining", "training.finetuning", "training.queries"}
    for room in rooms:
        for path in (ROOT / room.replace(".", "/")).glob("*.py"):
            used = {name.rpartition(".")[0] for name in modules_imported(path)}
            assert not used & (rooms - {room}), path


def test_no_package_goes_round_in_a_circle():
    """A package is a folder; its own modules count as one."""
    below = {}
    for floor in FLOORS:
        for path in files_of(floor):
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
    paths = [*product_files(), *files_of("tests")]
    assert len(paths) > 200
    for path in paths:
        content = path.read_text(encoding="utf-8")
        assert content.count("\n") <= LONGEST_FILE, path
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.FunctionDef):
                length = node.end_lineno - node.lineno + 1
                assert length <= LONGEST_FUNCTION, (path, node.name, length)


def test_the_ground_imports_nothing_above_it():
    ground = {"errors", "extensions", "options"}
    assert imported(ROOT / "command_line.py") & OURS == ground
    assert imported(ROOT / "options.py") & OURS == {"errors"}
    assert not imported(ROOT / "errors.py") & OURS


def test_modeling_needs_keras_alone():
    for path in files_of("modeling"):
        assert not imported(path) & {"tensorflow", "tensorflow_text", "jax"}, path


_PRIVATE = re.compile(
    r"keras\.src|tensorflow\.python|\b_(?:flatten_layers|track_variable"
    r"|get_variable_index)\b"
)


def test_one_file_each_uses_what_is_not_public_in_keras_and_in_tensorflow():
    paths = product_files()
    using = {p for p in paths if _PRIVATE.search(p.read_text(encoding="utf-8"))}
    assert using == {ROOT / "modeling/private.py", ROOT / "training/backend.py"}


def test_modeling_names_no_flag():
    """Its messages name settings by `errors.setting`, which knows who reads them."""
    for path in files_of("modeling"):
        assert not re.search(r"--\w", path.read_text(encoding="utf-8")), path


# Arguments of `bert.load`; flags of another script follow its name.
_ARGUMENTS = "vocab_file|bert_config_file|do_lower_case|strip_accents|split_cjk"
_FLAG = re.compile(rf"(?<!\.py )--(?:$|(?:{_ARGUMENTS})\b)")
_BELOW_BOTH_DOORS = (
    *("family", "text/tokenizers"),
    *("training/interchange", "training/queries", "training/storage"),
)


@pytest.mark.parametrize("room", _BELOW_BOTH_DOORS)
def test_errors_that_python_shows_name_options_by_setting(room):
    """In bert.py, they are arguments."""
    for path in files_of(room):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        raised = [n for n in ast.walk(tree) if isinstance(n, ast.Raise)]
        for part in (part for node in raised for part in ast.walk(node)):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                assert not _FLAG.search(part.value), (path, part.lineno)


def test_the_name_of_a_file_of_the_core_says_which_it_is():
    core = files_of(*FLOORS.keys() - {"family"})
    counts = collections.Counter(path.name for path in core)
    several = {name for name, count in counts.items() if count > 1}
    assert several == {"__init__.py", "options.py", "table.py"}


# They need optional packages, and say which where these are missing.
OPTIONAL = {
    "text.corpus.arrow_files",
    "text.corpus.wikitext",
    "text.generation.beam",
    "serving.parquet_answers",
    "serving.server",
}


def test_what_a_file_imports_stands_at_its_top():
    """But in options.py, which is read before TensorFlow is loaded."""
    for path in product_files():
        if path.name != "options.py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    names = modules_imported_in(node, path)
                    ours = {name for name in names if name.split(".")[0] in OURS}
                    assert ours <= OPTIONAL, path


def test_no_script_imports_another():
    assert "run_pretraining" in SCRIPTS
    for name in SCRIPTS:
        assert not imported(ROOT / f"{name}.py") & SCRIPTS, name


@pytest.mark.parametrize("script", tests.MOVED)
def test_the_old_name_of_a_recipe_says_the_new_one(script):
    done = jobs.finished([sys.executable, str(ROOT / f"{script}.py"), "--help"])
    assert done.returncode and not done.stdout and done.stderr.count("\n") == 1
    assert f"python -m {tests.MOVED[script]}," in done.stderr


@pytest.mark.parametrize("recipe", [*tests.MOVED.values(), "recipes.demo"])
def test_a_recipe_is_a_module_to_run(recipe):
    done = jobs.finished([sys.executable, "-m", recipe, "--no_such_flag"], cwd=ROOT)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"(see python -m {recipe} --help)" in done.stderr


# Where text/ reads records and remote files; everything else is NumPy and Python.
READS_WITH_TENSORFLOW = {"files/anywhere", "files/sources"} | {
    f"text/records/{name}" for name in ("blocks", "mixed", "reading", "rows")
}


def test_only_graphs_of_text_need_tensorflow_and_nothing_in_text_needs_graphs():
    """A worker that writes records needs neither: half a gigabyte, and some seconds."""
    need = set()
    for path in files_of("files", "text"):
        if path.parent.name == "graphs":
            continue
        modules = modules_imported(path)
        assert not [name for name in modules if name.startswith("text.graphs")], path
        if imported(path) & {"tensorflow", "tensorflow_text", "keras", "jax"}:
            need.add(str(path.relative_to(ROOT).with_suffix("")))
    assert need == READS_WITH_TENSORFLOW
    assert loader("create_pretraining_data", set()) is None


def test_workers_that_write_records_load_no_tensorflow():
    """Nor does a package that they need."""
    # A worker is started anew, and imports what the script imports.
    program = "import create_pretraining_data, sys; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "text.tokenizers.wordpiece" in loaded
    assert not loaded & {"tensorflow", "keras", "jax"}


def test_no_case_waits_for_a_relative_that_is_nowhere():
    """It would be skipped everywhere."""
    asked = set()
    for path in (tests.ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        asked.update(re.findall(r'tiers\.of_family\("(\w+)"\)', text))
    known = importlib.import_module("family").PACKAGES
    assert asked and {f"family.{name}" for name in asked} <= set(known)


ROWS = ("instances", "inspectors", "row_options", "tokenizers", "forms")


def test_rows_of_a_relative_load_no_tensorflow_and_its_encoder_no_text():
    """Workers and `--help` read the one; the other is a part of modeling/."""
    seen = 0
    for package in importlib.import_module("family").PACKAGES:
        extension = importlib.import_module(package).EXTENSION
        light = [package]
        for table in ROWS:
            rows = getattr(extension, table)
            light += rows.values() if isinstance(rows, dict) else rows
        light += [group for _, group in extension.objectives.values() if group]
        for name in light:
            assert loader(name.partition(":")[0], set()) is None, name
        for name in (n for names in extension.architectures.values() for n in names):
            reached = modules_reached(name.partition(":")[0], set())
            assert not [n for n in reached if n.startswith(("text.", "training."))]
            seen += 1
    assert seen > 8


def modules_reached(module: str, seen: set[str]) -> set[str]:
    """Our modules that a module imports, and what they import."""
    if module not in seen and path_of(module).exists():
        seen.add(module)
        for name in modules_imported(path_of(module)):
            modules_reached(name, seen)
    return seen


def test_what_keras_only_looks_for_is_not_loaded_at_the_start(tmp_path):
    """It would double the time of every start; what needs it can still import it."""
    program = tmp_path / "program.py"
    program.write_text(
        "import run_classifier, sys; print(*sys.modules)\n"
        "import sklearn, matplotlib, jax\n"
    )
    done = jobs.finished([sys.executable, str(program)])
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "keras" in loaded and not loaded & {"sklearn", "matplotlib", "jax"}


def test_strangers_addresses_are_opened_through_one_door():
    """Whose errors are one line; the others write into the folder of a new model."""
    allowed = {"files/anywhere.py", "files/sources.py"}
    allowed |= {"serving/portable.py", "serving/warm_up.py"}
    allowed |= {"text/graphs/graph_tokenizer.py", "text/graphs/listed_words_graph.py"}
    users = {
        str(path.relative_to(ROOT))
        for path in product_files()
        if "io.gfile" in path.read_text(encoding="utf-8")
    }
    assert users == allowed


def test_json_files_are_read_through_one_door():
    """Which bounds their size and depth, and says in one line what is wrong."""
    allowed = {
        "files/json_files.py",
        "modeling/architectures/config.py",  # from_json_file, as in the release
        "serving/export.py",  # asks
        "serving/reload.py",  # which is a process without our modules
        "serving/speed.py",  # what its own process is asked and answers
        "text/corpus/line_formats.py",
        "text/tasks/squad.py",
    }
    # Of a file, and not of what was in memory.
    reads = re.compile(r"json\.loads?\((?!json\.dumps|.*to_(?:str|json_string)\()")
    found = {
        str(path.relative_to(ROOT))
        for path in product_files()
        if reads.search(path.read_text(encoding="utf-8"))
    }
    assert found == allowed


def test_tensorflow_is_loaded_by_the_backend():
    """Else its start-up notes are what a user reads first, and it takes twice as long."""
    paths = (path.relative_to(ROOT) for path in files_of("training"))
    modules = {".".join(path.with_suffix("").parts) for path in paths}
    # Nothing starts with these.
    inner = ("training.finetuning", "training.interchange")
    modules = {name for name in modules if not name.startswith(inner)}
    loaders = {name: loader(name, set()) for name in modules | SCRIPTS}
    assert set(loaders.values()) == {None, "training.backend"}, loaders
    assert loaders["run_squad"] and not loaders["training.run.options"]


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


def functions_of_flags():
    """(file, function, its parameter `flags`) of the product, without those of absl's."""
    for path in product_files():
        if path.stem in GROUND:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for argument in (*node.args.args, *node.args.kwonlyargs):
                    if argument.arg == "flags":
                        yield path, node, argument


def test_no_function_reads_flags_but_those_of_the_group_that_it_names():
    seen = 0
    for path, node, argument in functions_of_flags():
        where = f"{path.relative_to(ROOT)}: {node.name}"
        assert argument.annotation, f"{where}: the flags of what group?"
        kind = ast.unparse(argument.annotation)
        if kind in ("str", "dict") or not kind.isidentifier():  # names, or values
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        group = getattr(importlib.import_module(module), kind)
        known = {
            *dir(group),
            *(n for c in group.__mro__ for n in inspect.get_annotations(c)),
        }
        for read in ast.walk(node):
            if isinstance(read, ast.Attribute) and ast.unparse(read.value) == "flags":
                assert read.attr in known, f"{where}: {kind} has no --{read.attr}"
                seen += 1
    assert seen > 300


# What the core does not name, outside docstrings: a relative says it in its EXTENSION.
RELATIVES = {
    path.parent.name: path.parent.name for path in ROOT.glob("family/*/__init__.py")
} | {
    "roberta": "roberta(?!Processing)",  # a step in Hugging Face's tokenizer.json
    "t5": r"\bt5",
}
# What only its own file, its adapter and tables should know. A new one is a row there.
SYSTEMS = {
    "byte_bpe": "byte_bpe|/bpe|tokenizers.bpe",
    "sentencepiece": "sentencepiece",
    "whole_words": "WholeWords|tokenizers.whole_words",
    "wordpiece": "wordpiece",
    "bidirectional_lm": "bidirectional_lm",
    "next_token": "next_token",
    "permuted": "permuted",
    "replaced_tokens": "replaced_tokens",
    "span_corruption": "span_corruption",
}
# Files that know others by name; the list may only become shorter.
KNOWING = {"build_vocab.py": ["sentencepiece"], "run_text_to_text.py": ["t5"]}


def strings(node: ast.AST) -> list[ast.Constant]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Constant)]


def words_of_code(path) -> tuple[set[str], set[str]]:
    """Names and strings in a file's code, and those in help and messages."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose, docstrings = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.add(id(node.value))
        elif isinstance(node, ast.Expr | ast.Raise) or (
            isinstance(node, ast.keyword) and node.arg == "help"
        ):
            prose |= set(map(id, strings(node)))
    words = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.alias | ast.FunctionDef | ast.ClassDef):
            words.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            words.add(node.module)
        elif isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
    constants = [n for n in strings(tree) if id(n) not in docstrings]
    words |= {str(n.value) for n in constants if id(n) not in prose}
    return words, {str(n.value) for n in constants if id(n) in prose}


def test_no_file_knows_a_system_that_is_not_its_own():
    knowing = collections.defaultdict(list)
    folders = ("files", "modeling", "serving", "text", "training")
    for path in [*ROOT.glob("*.py"), *files_of(*folders)]:
        where = str(path.relative_to(ROOT))
        words, prose = words_of_code(path)
        systems = {} if path.stem == "table" else SYSTEMS
        for name, pattern in (RELATIVES | systems).items():
            spelled = re.compile(pattern.replace("_", "_?"), re.IGNORECASE)
            searched = words | prose if name in RELATIVES else words
            if not spelled.search(where) and any(map(spelled.search, searched)):
                knowing[where].append(name)
    assert {where: sorted(names) for where, names in knowing.items()} == KNOWING


# Those without -ed, and words that leave open, as these do, what a function does.
PARTICIPLES = (
    "begun bound broken brought built chosen done drawn driven found fallen forgotten "
    "given gone grown held hidden kept known left lost made met paid rebuilt rewritten "
    "risen said seen sent shown sold sought spent spoken stolen struck swept "
    "taken thrown told torn undone unread unseen won worn written "
    "alike alone implausible together"
).split()
NO_PARTICIPLES = {"embed", "exceed", "feed", "need", "seed", "shed", "speed"}
# After a participle, they make no noun of it: `made_of`, but not `masked_tokens`.
LINKS = (
    "alike and as at back but by for from if in of on or out over to together under up "
    "what where who whole whose with"
).split()
STAYS = {"done"}  # as a Future's, in text/generation/work.py


def is_participle(name: str) -> bool:
    """Whether a function's name leaves open whether it changes, returns or checks."""
    first, *rest = name.strip("_").split("_")
    if first not in PARTICIPLES:
        if not first.endswith("ed") or first in NO_PARTICIPLES:
            return False
    return not rest or rest[0] in LINKS


def test_functions_are_named_by_what_they_do_or_return():
    assert is_participle("completed") and is_participle("_made_of")
    assert not is_participle("masked_tokens") and not is_participle("is_frozen")
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    named = collections.defaultdict(list)
    for path in product_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, functions) and is_participle(node.name):
                named[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert named.keys() == STAYS, dict(named)


def test_the_name_of_a_class_says_which_it_is():
    """Not those of scripts: each has `Options`, and bert.py names what users know."""
    classes = collections.defaultdict(list)
    for path in set(product_files()) - {ROOT / "bert.py"}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    several = {name: where for name, where in classes.items() if len(where) > 1}
    assert several.keys() == {"Options"}, several
