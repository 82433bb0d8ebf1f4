"""Finds the English prose in a Python installation: its docstrings.

Every fresh machine has megabytes of it, in the standard library and the packages installed
for this project. Files are parsed, never imported.
"""

import ast
import importlib.metadata
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator

from text.corpus.sentences import split_sentences

_DISTRIBUTIONS = (
    "absl-py",
    "google-crc32c",
    "keras",
    "matplotlib",
    "numpy",
    "tensorflow",
    "tensorflow-text",
    "tokenizers",
)
# Not prose for readers: tests, copies of other packages, generated names.
_SKIPPED_FOLDERS = {"test", "tests", "testing", "_vendor", "site-packages", "idlelib"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# An empty line, or the next argument in a list.
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*[\w*, ]+:(?:\s|$))")
_RULE = re.compile(r"\W*$")
_DOCTEST = re.compile(r"(>>>|\.\.\. ?)")
_MARKUP = re.compile(r":[a-z:]+:(?=`)|[`*]+|\{[a-z_]+\}")


def source_files() -> list[tuple[str, str]]:
    """(package, path) of Python files, sorted; "python" is the standard library."""
    files = [("python", path) for path in _python_files(sysconfig.get_path("stdlib"))]
    for distribution in _find_distributions(_DISTRIBUTIONS):
        for file in distribution.files or ():
            if file.suffix == ".py" and not _SKIPPED_FOLDERS & set(file.parts[:-1]):
                files.append((file.parts[0], str(file.locate())))
    return sorted(files)


def _python_files(folder):
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
        yield from (os.path.join(path, name) for name in files if name.endswith(".py"))


def _find_distributions(names):
    """These distributions and their dependencies, without extras."""
    waiting, distributions = list(names), {}
    while waiting:
        name = re.match(r"[\w.-]+", waiting.pop()).group().lower().replace("_", "-")
        if name in distributions:
            continue
        try:
            distributions[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # needed on another platform
        needs = distributions[name].requires or ()
        waiting += [need for need in needs if "extra ==" not in need]
    return [distributions[name] for name in sorted(distributions)]


def strings(path: str) -> Iterator[str]:
    """Yields the docstrings of a file: the module's, its classes' and its functions'."""
    with open(path, "rb") as file:
        source = file.read()
    try:
        with warnings.catch_warnings():
            # About odd escapes in other people's strings.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return  # a template, or for another version of Python
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield text


def sentences(text: str) -> list[str]:
    """The sentences of a docstring, without code, rules and headings."""
    kept, in_fence = [], False
    for block in _BLOCK.split(text):
        lines = []
        for line in map(str.strip, block.splitlines()):
            if line.startswith("```"):
                in_fence = not in_fence
            elif not in_fence and not _RULE.match(line):
                lines.append(line)
        if not any(_DOCTEST.match(line) for line in lines):
            prose = _MARKUP.sub("", " ".join(lines))
            kept += [s for s in split_sentences(prose) if len(s.split()) > 2]
    return kept
