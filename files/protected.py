"""Knows which files a command must not replace: what it reads, and parts of our folders."""

import contextlib
import fnmatch
import functools
import os
from collections.abc import Iterable

import extensions
from errors import UserError
from files import json_files, local, sources

FOUND = ".found~bert~names"  # in an output_dir: what was there before
EXPORT_DESCRIPTION = "export.json"
DESCRIPTION_SUFFIX = ".description.json"  # of what records are
NOTES_SUFFIX = ".text.json"  # of what a vocabulary was learned with
DIGEST = "vocab_sha256"  # in those notes
_SAVED_MODEL = "saved_model.pb"
_OF_EXPORT = {EXPORT_DESCRIPTION, "model.onnx", "model.tflite"}
_WEIGHTS = (
    "*.index",
    "*.data-?????-of-?????",
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*.bin",
)
# What a training writes, and its evaluation; there are answers and rows, too.
RUN_FILES = frozenset(
    """
    adapter.json bert_config.json checkpoint curves.png eval_results.json eval_results.txt
    evaluations.json metrics.jsonl mistakes.html outcome.json run.json search.json
    skipped_batch.npz task.json text.json
    """.split()
)
# What scripts look for next to weights, and what other programs do.
_WITH_WEIGHTS = (  # and what extensions list
    "*.meta",
    "*config*.json",
    "added_tokens.json",
    "checkpoint",
    "merges.txt",
    "*.model",
    "run.json",
    "special_tokens_map.json",
    "task.json",
    "text.json",
    "tokenizer*.json",
    "vocab.json",
    "vocab.txt",
)


def refuse(
    outputs: Iterable[str],
    read: Iterable[str | None],
    *,
    replaces_records: bool = False,
    replaces_vocabulary: bool = False,
) -> None:
    """Prevents outputs from replacing what a command reads, or a part of what others read:
    a model, a run, an export, a set of records, or a vocabulary that has notes.

    A file is known by its identity, however it is spelled or linked to.

    Args:
        outputs: local files to write.
        read: files, folders and prefixes of checkpoints that flags name.
    """
    outputs, read = list(outputs), [path for path in read if path]
    local.refuse_inputs(outputs, read)
    there = [p for p in outputs if os.path.isfile(p) and not local.is_stream(p)]
    models = _models(read) if there else set()
    folders = {}
    for path in there:
        where, name = os.path.split(os.path.realpath(path))
        folder = folders.setdefault(where, _Folder(where))
        names = folder.names(name)
        whole = folder.owner_of(names, models)
        if not whole and not replaces_records:
            whole = folder.records_of(names)
        if not whole and not replaces_vocabulary:
            whole = folder.vocabulary_of(names)
        if whole:
            raise UserError(f"{path}: is a part of {whole}; choose another output")


def check_output(path: str, read: Iterable[str | None]) -> None:
    """Refuses now a file to write that would fail at the end, or replace what is read."""
    sources.refuse_remote(path)
    if os.path.isdir(path):
        raise UserError(f"{path}: is a folder; name a file in it")
    refuse([path], read)
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise UserError(
            f"{path}: there is no folder {folder}; create it, or name a file in another"
        )


def is_weights(name: str) -> bool:
    """Whether a file has the name of weights, or of TensorFlow's note of the newest."""
    return name == "checkpoint" or _match([name], _WEIGHTS)


def _models(read):
    """The folders of the models that a command reads."""
    parts = _WEIGHTS + _with_weights()
    folders = {path for path in read if os.path.isdir(path)}
    folders |= {
        os.path.dirname(p) for p in read if _match([os.path.basename(p)], parts)
    }
    return set(map(os.path.realpath, folders))


def _with_weights():
    return _WITH_WEIGHTS + extensions.entries("model_files")


class _Folder:
    """What a folder contains."""

    def __init__(self, path: str):
        self._path = path

    @functools.cached_property
    def _numbers(self):
        return {entry.name: entry.inode() for entry in os.scandir(self._path)}

    def names(self, name: str) -> set[str]:
        """All names of a file: where case does not matter, it may be spelled otherwise."""
        number = os.stat(os.path.join(self._path, name)).st_ino
        return {name, *(n for n, inode in self._numbers.items() if inode == number)}

    def owner_of(self, names: set[str], models: set[str]) -> str | None:
        """What a file is a part of, records apart; all of a folder in `models` is."""
        is_run = "run.json" in self._numbers
        is_output_dir = is_run or FOUND in self._numbers
        if is_output_dir and names & {FOUND, *RUN_FILES}:
            return f"the run in {self._path}"
        # In a SavedModel are folders: variables, assets.
        places = self._path, os.path.dirname(self._path)
        in_model = any(os.path.exists(os.path.join(p, _SAVED_MODEL)) for p in places)
        is_export = EXPORT_DESCRIPTION in self._numbers
        if in_model or (is_export and names & _OF_EXPORT):
            return f"the export in {self._path}"
        is_model = is_run or self._path in models or _match(self._numbers, _WEIGHTS)
        if _match(names, _WEIGHTS) or (is_model and _match(names, _with_weights())):
            return f"the model in {self._path}"
        return None

    def records_of(self, names: set[str]) -> str | None:
        """The records that a file is a part of."""
        for name in self._numbers:
            if name.endswith(DESCRIPTION_SUFFIX):
                path = os.path.join(self._path, name)
                if names & {name, *_files(_read_note(path))}:
                    return f"the records of {path}"
        return None

    def vocabulary_of(self, names: set[str]) -> str | None:
        """The vocabulary that a file is, or whose notes it is."""
        for name in names:
            stem = name.removesuffix(NOTES_SUFFIX)
            notes = _read_note(os.path.join(self._path, stem + NOTES_SUFFIX))
            if stem in self._numbers and DIGEST in notes:
                return f"the vocabulary {os.path.join(self._path, stem)}"
        return None


def _files(description):
    outputs = description.get("outputs")
    outputs = outputs if isinstance(outputs, list) else []
    return {str(each.get("file")) for each in outputs if isinstance(each, dict)}


def _match(names, patterns):
    return any(
        fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns
    )


def _read_note(path):
    with contextlib.suppress(UserError):  # whoever may not read it did not make it
        return json_files.read_own(path)
    return {}
