"""Finds what is added to the core: BERT's relatives in family/, and packages of others.

An extension is a package with an `EXTENSION`, which has rows for the tables of the core. It
is known by a line in family/__init__.py or, if it is installed, by an entry point of the
group "bert_extensions" whose value is the package. A line whose package is missing adds
nothing: family/, or any folder in it, may be left out.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
from collections.abc import Collection, Mapping
from typing import NamedTuple

ENTRY_POINTS = "bert_extensions"


class Extension(NamedTuple):
    """The rows of a package, by table; classes are named "module:Class".

    Attributes:
        architectures: key of config files -> its `EncoderConfig`, its `Encoder`.
        adapters: that key -> its `Adapter`, if Hugging Face has the architecture.
        objectives: name -> its `Objective`, and the group of its flags or None.
        instances: name -> its `Instances`.
        inspectors: that name -> its `Inspector`.
        row_options: groups of the flags that its instances have.
        tokenizers: name -> its `Kind`.
        formats: each `Format` of weights on disk.
        forms: name of a form of answers -> "module:NAME" of its `Form`.
        model_files: patterns of the names of files next to weights, which no command
            replaces.
        tokenizer_classes: what Hugging Face calls a tokenizer -> the name of its `Kind`.
        span_heads: name -> "module:NAME" of a `SpanHead` for questions.
        config_files: what releases and others call the file of a config.
        piece_models: name -> "module:NAME" of a `Family` of SentencePiece models.
        optimizers: name -> the values of its `Preset`.
        help: name of a flag of the core -> what its help says of these rows.
    """

    architectures: Mapping[str, tuple[str, str]] = {}
    adapters: Mapping[str, str] = {}
    objectives: Mapping[str, tuple[str, str | None]] = {}
    instances: Mapping[str, str] = {}
    inspectors: Mapping[str, str] = {}
    row_options: tuple[str, ...] = ()
    tokenizers: Mapping[str, str] = {}
    formats: tuple[str, ...] = ()
    forms: Mapping[str, str] = {}
    model_files: tuple[str, ...] = ()
    tokenizer_classes: Mapping[str, str] = {}
    piece_models: Mapping[str, str] = {}
    span_heads: Mapping[str, str] = {}
    config_files: tuple[str, ...] = ()
    optimizers: Mapping[str, tuple] = {}
    help: Mapping[str, str] = {}


def rows(table: str, core: Collection[str]) -> dict:
    """The rows of a table in all extensions, by their keys.

    Args:
        core: the keys of the core's own rows.
    Raises:
        SystemExit: two have the same key, and one would silently be lost. Scripts read
            tables before they can catch an error, so this is its message.
    """
    found = {}
    for extension in _extensions():
        own = getattr(extension, table)
        for others, who in (
            (core, "an extension and the core"),
            (found, "two extensions"),
        ):
            if both := own.keys() & set(others):
                sys.exit(
                    f"{sys.argv[0]}: {who} have rows of {table} for "
                    f"{', '.join(sorted(both))}; rename the extension's, or remove its "
                    "line from family/__init__.py (if it is installed, its package)"
                )
        found |= own
    return found


def load_rows(table: str, core: Collection[str]) -> dict:
    """Like `rows`, of a table whose rows name one object, which it imports."""
    return {key: pkgutil.resolve_name(name) for key, name in rows(table, core).items()}


def entries(table: str) -> tuple[str, ...]:
    """The names in all extensions, of a table that is a list of them."""
    return tuple(name for each in _extensions() for name in getattr(each, table))


def classes(table: str) -> tuple[type, ...]:
    """The classes in all extensions, of a table that is a list of them."""
    return tuple(map(pkgutil.resolve_name, entries(table)))


def help_of(flag: str) -> str:
    """What the rows of all extensions add to the help of a flag; begins with a space."""
    texts = (each.help[flag] for each in _extensions() if flag in each.help)
    return "".join(f" {text}" for text in texts)


def require(package: str) -> None:
    """Ends a script that is made for a package, in one line, if that is not there."""
    if not _is_there(package):
        sys.exit(
            f"{sys.argv[0]}: needs {package}, which is not here; get the folder "
            f"{package.replace('.', '/')}"
        )


def hint() -> str:
    """What ends an error about a name that no table has: which extensions are missing."""
    if names := _missing():
        return f"; missing, though family/__init__.py lists it: {', '.join(names)}"
    return "" if _is_there("family") else "; the folder family/ is missing"


def _missing() -> list[str]:
    return [name for name in _own_packages() if not _is_there(name)]


def _is_there(package: str) -> bool:
    # `find_spec` imports what a package is in, and fails where that is missing.
    outer, _, _ = package.rpartition(".")
    return (not outer or _is_there(outer)) and bool(importlib.util.find_spec(package))


@functools.cache
def _extensions() -> tuple[Extension, ...]:
    absent = _missing()
    names = [name for name in _own_packages() if name not in absent]
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    names += [point.value for point in points]
    modules = map(importlib.import_module, dict.fromkeys(names))
    return tuple(module.EXTENSION for module in modules)


def _own_packages() -> tuple[str, ...]:
    return importlib.import_module("family").PACKAGES if _is_there("family") else ()
