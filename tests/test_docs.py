"""What the front page, the guides and the help texts say exists."""

import dataclasses
import importlib
import re
import shlex

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
