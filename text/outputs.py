"""Knows when records may be written under their names, and when they are there already.

The settings are those of text/generation.py, an origin is what text/work.py compares.
"""

import contextlib
import dataclasses
import json
import os
import unicodedata

import numpy as np

from text import files
from text.errors import UserError
from text.files import read_json


def make_folders(settings) -> None:
    """Makes the folders of the outputs.

    Raises:
        UserError: an output is a folder, or its folder is a file.
    """
    for path in settings.output_files:
        if os.path.isdir(path):
            raise UserError(
                f"{path}: is a folder; name a file in it, as in "
                f"{os.path.join(path, 'part.tfrecord')!r}"
            )
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UserError(
                f"{error.filename}: is no folder, so {path} cannot be written; choose "
                "another --output_file"
            ) from error


def origin(settings, vocabulary) -> dict:
    """What the records are made of; a run goes on only with the same."""
    flags = dataclasses.asdict(settings)
    inputs = []
    for path in flags.pop("input_files"):
        status = os.stat(path)
        inputs.append([path, status.st_size, status.st_mtime_ns])
    made_of = {
        "flags": flags,
        "inputs": inputs,
        "vocab_sha256": vocabulary.digest,
        "unicode_version": unicodedata.unidata_version,
        "numpy_version": np.__version__,
    }
    return json.loads(json.dumps(made_of))


def finished(settings, origin) -> dict | None:
    """The description of these very records, if they are all there."""
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        description = read_json(settings.description_file)
        same = ("flags", "inputs", "vocab_sha256")
        if all(description["origin"][key] == origin[key] for key in same) and all(
            os.path.getsize(path) == output["bytes"]
            for path, output in zip(
                settings.output_files, description["outputs"], strict=True
            )
        ):
            return description


def refuse_what_is_there(settings, folder) -> None:
    """Keeps what another run has made.

    Raises:
        UserError: an output exists, or an unfinished run of other settings.
    """
    if other := folder.unfinished_origin():
        raise UserError(
            f"{folder.path}: an unfinished run of other settings is here; different: "
            f"{_differences(folder.origin, other)}; give its command to go on with it, "
            "--overwrite to start anew, or another --output_file"
        )
    found = [path for path in _paths(settings) if os.path.exists(path)]
    if not found:
        return
    different = ""
    with contextlib.suppress(
        OSError, ValueError, LookupError, TypeError, AttributeError
    ):
        other = read_json(settings.description_file)["origin"]
        if differences := _differences(folder.origin, other):
            different = f" (different: {differences})"
    raise UserError(
        f"{found[-1]}: exists already{different}; --overwrite replaces it, or choose "
        "another --output_file"
    )


def _differences(origin, other):
    flags = other.get("flags", {})
    differing = [
        f"--{name}={flags.get(name)} there, {value} here"
        for name, value in origin["flags"].items()
        if flags.get(name) != value
    ]
    if origin["vocab_sha256"] != other.get("vocab_sha256"):
        differing.append("another vocabulary")
    if origin["inputs"] != other.get("inputs"):
        differing.append("other input files, or changed since")
    for name in ("unicode_version", "numpy_version"):
        if origin[name] != other.get(name):
            differing.append(f"{name} {other.get(name)} there, {origin[name]} here")
    return ", ".join(differing)


def _paths(settings):
    return settings.description_file, *settings.output_files


def remove(settings) -> None:
    """Makes room; until then, what another run has written is kept."""
    for path in _paths(settings):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def remove_temporaries(settings) -> None:
    """Removes what processes that were killed left beside the outputs."""
    for path in _paths(settings):
        files.remove_temporaries(path)
