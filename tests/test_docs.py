"""What the front page, the guides and the help texts say exists."""

import collections
import dataclasses
import importlib
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from absl import flags as absl_flags

import command_line
import options
import tests
from errors import UserError
from modeling.architectures.table import ARCHITECTURES

ROOT = tests.ROOT
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = sorted((ROOT / "benchmarks").glob("*.md"))
CHANGELOG = ROOT / "docs" / "CHANGELOG.md"
# Bytes of a page; one of 14 kB is read in ten minutes.
LARGEST = 14_000
OTHER_LIMITS = {"README.md": 9_000, "docs/pretraining.md": 10_000}
_HEADING = re.compile(r"^#+ (.*)$", re.M)


def anchors(page):
    """What links to parts of a page may name."""
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(page.read_text())
    }


def links(page):
    """The (page, anchor) pairs that a page links to, without those of the web."""
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            yield (page.parent / path).resolve() if path else page, anchor


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for other, anchor in links(page):
        assert other.exists(), other
        assert not anchor or anchor in anchors(other), (other, anchor)


def test_files_that_are_named_exist():
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir())
    name = re.compile(rf"`((?:{folders})/(?:[\w/]*/|[\w./]+\.(?:py|md|txt)))`")
    seen = set()
    for page in [*PAGES, *OTHERS]:
        for path in name.findall(page.read_text()):
            assert (ROOT / path).exists(), (page.name, path)
            seen.add(path)
    assert len(seen) > 20


def test_links_lead_from_the_front_page_to_every_guide():
    found, new = set(), {PAGES[0]}
    while new:
        found |= new
        new = {p for page in new for p, _ in links(page) if p.suffix == ".md"} - found
    assert set(PAGES) <= found


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.name)
def test_a_page_is_short_enough_to_be_read(page):
    assert page.stat().st_size <= OTHER_LIMITS.get(str(page.relative_to(ROOT)), LARGEST)


def test_the_map_of_the_front_page_is_the_tree():
    """It names each script and each folder with a meaning of its own, on one screen."""
    drawn = PAGES[0].read_text().partition("## The tree")[2]
    (drawn,) = re.findall(r"```text\n(.*?)```", drawn, re.S)
    assert drawn.count("\n") <= 45
    paths, folder = set(), ""
    for line in drawn.splitlines():
        words = line.split()
        last = next(i for i, word in enumerate(words) if not word.endswith(","))
        names = [word.rstrip(",").rstrip("/") for word in words[: last + 1]]
        is_below = line.startswith(" ")
        folder = folder if is_below else f"{names[0]}/"
        paths |= {folder + name if is_below else name for name in names}
    assert all((ROOT / path).exists() for path in paths)
    tree = {path.name for path in ROOT.glob("*.py") if path.stem not in tests.MOVED}
    tree |= {path.parent.name for path in ROOT.glob("*/__init__.py")}
    for floor in ("text", "modeling", "training"):
        packages = (ROOT / floor).rglob("__init__.py")
        tree |= {str(path.parent.relative_to(ROOT)) for path in packages}
    # A folder of an architecture is a long file.
    tree = {path for path in tree if "architectures/" not in path}
    assert tree <= paths


def test_the_root_is_short():
    """Without what begins with a dot, and the old names of recipes."""
    command = ["git", "-C", str(ROOT), "ls-files"]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    entries = {path.partition("/")[0] for path in listed.stdout.splitlines()}
    entries -= {f"{name}.py" for name in tests.MOVED}
    entries = {name for name in entries if not name.startswith(".")}
    assert 30 < len(entries) <= 40, sorted(entries)


def test_every_relative_has_a_page_with_all_of_it():
    parts = "Config Vocabulary Records Training Fine-tuning Checkpoints"
    for name in ARCHITECTURES.keys() - {"bert", "word_embeddings"}:
        headings = _HEADING.findall((ROOT / f"docs/family/{name}.md").read_text())
        assert headings[1:] == [*parts.split(), "What differs"], name


def test_the_release_is_the_one_to_cite():
    release = re.search(r"(?m)^## (\S+) \((\S+)\)$", CHANGELOG.read_text()).groups()
    cited = re.search(
        r'(?m)^version: (\S+)\ndate-released: "(\S+)"$',
        (ROOT / "CITATION.cff").read_text(),
    )
    assert release == cited.groups()


def commands(page):
    """The scripts that a page runs, each with its arguments."""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.S):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.replace('"$SLURM_ARRAY_TASK_ID"', "0").partition(" > ")[0]
            words = shlex.split(line.partition("| python")[2] or line, comments=True)
            words = [word for word in words if word not in ("python", "&")]
            while words and "=" in words[0]:
                del words[0]  # of the environment
            if words[:1] == ["-m"]:
                del words[0]
            if words and re.fullmatch(r"\w+\.py|recipes\.\w+", words[0]):
                yield words[0], words[1:]


def test_commands_are_accepted_by_their_scripts():
    seen, own = collections.Counter(), "random_tokens"  # your_own_objective.md adds it
    for page in PAGES:
        for script, arguments in commands(page):
            if f"Save it as `{script}`" in page.read_text():
                continue
            seen[script] += 1
            arguments = [word.replace(own, "masked_lm") for word in arguments]
            options_class = importlib.import_module(script.removesuffix(".py")).Options
            flag_values = absl_flags.FlagValues()
            command_line.define(options_class, flag_values)
            where = f"{page.name}: {script} {shlex.join(arguments)}"
            try:
                assert flag_values([script, *arguments]) == [script], where
                given = command_line.from_flags(options_class, flag_values)
            except (absl_flags.Error, UserError) as error:
                pytest.fail(f"{where}: {error}")
            for field in dataclasses.fields(given):
                if options.is_required(field):
                    assert getattr(given, field.name) not in (None, ""), where
    assert len(seen) >= 13 and seen.total() >= 80


def test_the_container_is_made_of_what_is_there():
    """Its last stage is tried by tests/serving/test_image.py."""
    content = re.sub(r"\\\n#?", " ", (ROOT / "serving" / "Dockerfile").read_text())
    training, _, _ = content.partition(" AS training")[2].partition("\nFROM ")
    copied = re.findall(r"^COPY (.*) \S+$", training, re.M)
    installed = re.findall(r"-r (\S+)", training)
    assert len(copied) == 3 and len(installed) == 2
    assert all((ROOT / path).exists() for path in (*copied, *installed))
    # Before the rest is copied.
    assert {path.partition("/")[0] for path in installed} <= set(copied)
    commands = [json.loads(re.search(r"^CMD (.*)$", content, re.M)[1])[1:]]
    commands += map(
        str.split, re.findall(r" bert-training +(\w+\.py .*)$", content, re.M)
    )
    served = re.search(r"/model:ro\" bert (.*)$", content, re.M)[1]
    entry = json.loads(re.search(r"^ENTRYPOINT (.*predict.*)$", content, re.M)[1])
    commands.append([*entry[1:], *served.split()])
    assert len(commands) == 3
    for script, *arguments in commands:
        module = importlib.import_module(script.removesuffix(".py"))
        flag_values = absl_flags.FlagValues()
        command_line.define(module.Options, flag_values)
        words = [script, *(word for word in arguments if word != "...")]
        assert flag_values(words) == [script], words


# --- The page of differences ---------------------------------------------------------


def rows_of_flags(heading):
    """The (script, flag) pairs of the table after a sentence of docs/differences.md."""
    text = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    table = text.partition(heading)[2].partition("\n\n")[2].partition("\n\n")[0]
    for row in table.splitlines()[2:]:
        flags, scripts = (re.findall("`(.*?)`", cell) for cell in row.split("|")[1:3])
        yield from itertools.product(scripts, flags)


def test_differences_of_flags_are_listed():
    release = json.loads((ROOT / "tests/golden/release_flags.json").read_text())
    different = set()
    for script, flags in release.items():
        options_class = importlib.import_module(script.removesuffix(".py")).Options
        fields = {field.name: field for field in dataclasses.fields(options_class)}
        assert set(flags) <= set(fields), script
        for name, default in flags.items():
            field, is_list = fields[name], "list" in str(fields[name].type)
            ours = options.default_of(field)
            ours = "required" if ours is dataclasses.MISSING else ours
            if ours != default or is_list:
                different.add((script, name))
    assert different == set(rows_of_flags("have another default or form"))
    others = list(rows_of_flags("these have another effect"))
    assert others and all(name in release[script] for script, name in others)


def test_every_flag_is_on_a_page():
    """In words or in a command, where a user would look for it."""
    pages = [
        page for page in PAGES if page.name not in ("CHANGELOG.md", "CONTRIBUTING.md")
    ]
    named = {
        flag for page in pages for flag in re.findall(r"--(\w+)", page.read_text())
    }
    for heading in ("have another default or form", "these have another effect"):
        named |= {flag for _, flag in rows_of_flags(heading)}
    flags = {flag for names in flags_of_scripts().values() for flag in names}
    assert len(flags) > 200
    assert not sorted(flags - named)


def test_flags_that_make_another_run_are_those_that_change_its_numbers():
    """One that is forgotten would let a run go on with other numbers, without a word."""
    expected = json.loads((ROOT / "tests/golden/identity_flags.json").read_text())
    for script, flags in expected.items():
        fields = dataclasses.fields(importlib.import_module(script).Options)
        assert sorted(f.name for f in fields if f.metadata["identity"]) == flags


# Chains that a reader has to untangle. "each of which" and the like are plain English.
_CHAINS = re.compile(
    r"\bbut\s+for\b|(?<!\beach )(?<!\ball )(?<!\bneither )\bof\s+which\b"
)


def test_prose_is_plain():
    """In pages, docstrings, comments, help and messages."""
    files = [*ROOT.glob("*.py"), *PAGES, *OTHERS]
    for folder in (
        "files",
        "text",
        "modeling",
        "serving",
        "training",
        "family",
        "recipes",
    ):
        files += (ROOT / folder).rglob("*.py")
    assert len(files) > 300
    found = {}
    for path in files:
        lines = _CHAINS.findall(path.read_text(encoding="utf-8"))
        found |= {str(path.relative_to(ROOT)): lines} if lines else {}
    assert not found


# The flags of --help are in groups, not as they are declared.
_BY_ORDER = re.compile(
    r"\bnext (?:ones?|two|three|flags?|options?)\b|\bsame way\b"
    r"|\b(?:flags?|options?|ones?|see|described|listed|as) (?:above|below)\b"
)


def flags_of_scripts():
    """The flags of each script, with their help."""
    modules = {p.name: importlib.import_module(p.stem) for p in ROOT.glob("*.py")}
    recipes = (f"recipes.{p.stem}" for p in (ROOT / "recipes").glob("*.py"))
    modules |= {name: importlib.import_module(name) for name in recipes}
    return {
        name: {f.name: f.metadata["help"] for f in dataclasses.fields(module.Options)}
        for name, module in modules.items()
        if hasattr(module, "Options")
    }


def unknown_flags(text, script, scripts):
    """Flags in a help text that neither its script has nor one that its sentence names."""
    text = re.sub("='[^']*'", "", text)  # a value may be flags of something else
    for sentence in re.split(r"(?<=\.)\s+", text):
        named = [script, *re.findall(r"\w+\.py\b|recipes\.\w+", sentence)]
        known = {flag for name in named for flag in scripts.get(name, ())}
        yield from set(re.findall(r"--(\w+)", sentence)) - known


def test_help_names_flags_that_there_are():
    scripts = flags_of_scripts()
    assert len(scripts) >= 18
    for script, flags in scripts.items():
        for flag, text in flags.items():
            where = f"{script}: the help of --{flag}"
            assert not list(unknown_flags(text, script, scripts)), where
            assert not _BY_ORDER.search(text), where


# --- The samples of the pages on your own task and objective ---------------------------


@pytest.fixture
def checkout(tmp_path):
    """A copy of the code, to which a page adds files."""
    for path in ROOT.iterdir():
        if path.name == "modeling":
            shutil.copytree(path, tmp_path / path.name)
        elif not path.name.startswith("."):
            (tmp_path / path.name).symlink_to(path)
    for script in ROOT.glob("*.py"):  # a link would find its modules in ROOT
        (tmp_path / script.name).unlink()
        shutil.copy(script, tmp_path)
    return tmp_path


def blocks(page, language):
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def follow(commands, checkout):
    """Runs a block of commands; returns the scores in the eval_results.txt it leaves."""
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.run(
        ["bash", "-euc", commands],
        cwd=checkout,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    (scores,) = checkout.glob("*/output/eval_results.txt")
    return dict(line.split(" = ") for line in scores.read_text().splitlines())


@pytest.mark.exhaustive
def test_the_sample_of_a_task_runs_as_its_page_says(checkout):
    (code,) = blocks("your_own_task.md", "python")
    assert code == (ROOT / "tests" / "programs" / "parity.py").read_text()
    (checkout / "run_parity.py").write_text(code)
    (commands,) = blocks("your_own_task.md", "bash")
    assert 0 < float(follow(commands, checkout)["eval_accuracy"]) <= 1
    answers = (checkout / "parity" / "output" / "parity.txt").read_text().splitlines()
    assert len(answers) == 500 and set(answers) <= {"0", "1"}


@pytest.mark.exhaustive
def test_the_sample_of_an_objective_learns_as_its_page_says(checkout):
    code, row = blocks("your_own_objective.md", "python")
    assert code == (ROOT / "tests" / "programs" / "random_tokens.py").read_text()
    (checkout / "modeling" / "objectives" / "random_tokens.py").write_text(code)
    with open(checkout / "modeling" / "objectives" / "table.py", "a") as file:
        file.write(row)
    (commands,) = blocks("your_own_objective.md", "bash")
    scores = follow(commands, checkout)
    assert float(scores["random_accuracy"]) > 0.8  # by guessing, 0.5
