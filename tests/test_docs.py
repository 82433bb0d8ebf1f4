"""What the front page, the guides and the help texts say exists."""

import dataclasses
import importlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import tests

ROOT = tests.ROOT
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BENCHMARKS = ROOT / "benchmarks" / "README.md"
_HEADING = re.compile(r"^#+ (.*)$", re.M)


def anchors(page):
    """What links to parts of a page may name."""
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(page.read_text())
    }


@pytest.mark.parametrize("page", [*PAGES, BENCHMARKS], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        other = page.parent / path if path else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


def test_files_that_are_named_exist():
    pages = [*PAGES, BENCHMARKS, ROOT / "CONTRIBUTING.md"]
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir())
    name = re.compile(rf"`((?:{folders})/(?:[\w/]*/|[\w./]+\.(?:py|md|txt)))`")
    seen = set()
    for page in pages:
        for path in name.findall(page.read_text()):
            assert (ROOT / path).exists(), (page.name, path)
            seen.add(path)
    assert len(seen) > 20


def test_every_guide_is_on_the_front_page():
    front = PAGES[0].read_text()
    assert len(front.encode()) <= 9000
    for page in PAGES[1:]:
        assert f"(docs/{page.name})" in front, page


def commands(page):
    """The scripts that a page runs, each with the flags it gives."""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.S):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.partition("| python")[2] or line, comments=True)
            if "python" in words[:1]:
                words = words[1:]
            if words and re.fullmatch(r"\w+\.py", words[0]):
                flags = [word for word in words if word.startswith("--")]
                yield words[0], [flag[2:].partition("=")[0] for flag in flags]


def test_commands_give_flags_that_there_are():
    seen = set()
    for page in PAGES:
        for script, flags in commands(page):
            if f"Save it as `{script}`" in page.read_text():
                continue
            seen.add(script)
            module = importlib.import_module(script.removesuffix(".py"))
            known = {field.name for field in dataclasses.fields(module.Options)}
            required = {
                field.name
                for field in dataclasses.fields(module.Options)
                if field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            }
            assert set(flags) <= known, f"{page.name}: {script}"
            assert required <= set(flags), f"{page.name}: {script}"
    assert len(seen) >= 9


# The flags of --help are sorted by name, not as they are declared.
_BY_ORDER = re.compile(
    r"\bnext (?:ones?|two|three|flags?|options?)\b|\bsame way\b"
    r"|\b(?:flags?|options?|ones?|see|described|listed|as) (?:above|below)\b"
)


def flags_of_scripts():
    """The flags of each script, with their help."""
    modules = {p.name: importlib.import_module(p.stem) for p in ROOT.glob("*.py")}
    return {
        name: {f.name: f.metadata["help"] for f in dataclasses.fields(module.Options)}
        for name, module in modules.items()
        if hasattr(module, "Options")
    }


def unknown_flags(text, script, scripts):
    """Flags in a help text that neither its script has nor one that its sentence names."""
    text = re.sub("='[^']*'", "", text)  # a value may be flags of something else
    for sentence in re.split(r"(?<=\.)\s+", text):
        named = [script, *re.findall(r"\w+\.py\b", sentence)]
        known = {flag for name in named for flag in scripts.get(name, ())}
        yield from set(re.findall(r"--(\w+)", sentence)) - known


def test_help_names_flags_that_there_are():
    scripts = flags_of_scripts()
    assert len(scripts) >= 15
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


@pytest.mark.slow
def test_the_sample_of_a_task_runs_as_its_page_says(checkout):
    (code,) = blocks("your_own_task.md", "python")
    assert code == (ROOT / "tests" / "programs" / "parity.py").read_text()
    (checkout / "run_parity.py").write_text(code)
    (commands,) = blocks("your_own_task.md", "bash")
    assert 0 < float(follow(commands, checkout)["eval_accuracy"]) <= 1
    answers = (checkout / "parity" / "output" / "parity.txt").read_text().splitlines()
    assert len(answers) == 500 and set(answers) <= {"0", "1"}


@pytest.mark.slow
def test_the_sample_of_an_objective_learns_as_its_page_says(checkout):
    code, row = blocks("your_own_objective.md", "python")
    (checkout / "modeling" / "objectives" / "random_tokens.py").write_text(code)
    with open(checkout / "modeling" / "objectives" / "table.py", "a") as file:
        file.write(row)
    (commands,) = blocks("your_own_objective.md", "bash")
    scores = follow(commands, checkout)
    assert float(scores["random_accuracy"]) > 0.8  # by guessing, 0.5
