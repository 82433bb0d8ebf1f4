"""Decides whether records may be written under their names, or are there already.

The settings are those of text/generation/stages.py, an origin is what
text/generation/work.py compares.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import resource
import unicodedata
from collections.abc import Iterable, Iterator

import numpy as np

from text.errors import UserError
from text.files import local
from text.instances.kinds import RowOptions
from text.records.descriptions import Description

_DEFAULTS = {
    field.name: field.default
    for field in dataclasses.fields(RowOptions)
    if field.default is not dataclasses.MISSING
}
_OTHER_FILES = 256  # that a process has open beside the locks


def refuse_overlaps(settings) -> None:
    """Keeps what a run writes from what it reads, and from what else it writes.

    Raises:
        UserError: an output is an input, the vocabulary, the description, or lies in the
            folder of the unfinished work.
    """
    work_folder = os.path.realpath(settings.work_folder)
    description = os.path.realpath(settings.description_file)
    for path in settings.output_files:
        place = os.path.realpath(path)
        if place == description:
            raise UserError(
                f"{path}: this is where the description of the records goes; choose "
                "another --output_file"
            )
        if place == work_folder or place.startswith(work_folder + os.sep):
            raise UserError(
                f"{path}: {settings.work_folder} is the folder for the unfinished work; "
                "choose another --output_file"
            )
    there = {}
    for path in _paths(settings):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            there[_identity(os.stat(path))] = path
    if there:  # else none of them can be an input, of which there may be millions
        for path in (settings.vocab_file, *settings.input_files):
            if output := there.get(_identity(os.stat(path))):
                raise UserError(
                    f"{output}: is an input too; choose another --output_file"
                )


def _identity(status):
    return status.st_dev, status.st_ino


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


@contextlib.contextmanager
def locked(settings) -> Iterator[None]:
    """Keeps other processes from writing any of the outputs.

    Raises:
        UserError: another process writes one, or there are more than may be open.
    """
    paths = sorted(set(map(os.path.realpath, _paths(settings))))
    _allow_open_files(len(paths) + _OTHER_FILES)
    with contextlib.ExitStack() as stack:
        for path in paths:
            stack.enter_context(local.locked(path))
        yield


def _allow_open_files(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or count <= soft:
        return
    if hard != resource.RLIM_INFINITY and count > hard:
        raise UserError(
            f"--output_file: {count - _OTHER_FILES - 1} files; a process may have {hard} "
            f"files open here, which allows {max(hard - _OTHER_FILES - 1, 0)} outputs; "
            "name fewer, or raise the limit (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def origin(settings, vocabulary) -> dict:
    """What the records are made of; a run goes on only with the same."""
    flags = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.name != "input_files"
    }
    made_of = {
        "flags": flags,
        "inputs": _summary(_with_status(settings.input_files)),
        "vocab_sha256": vocabulary.digest,
        "unicode_version": unicodedata.unidata_version,
        "numpy_version": np.__version__,
    }
    return json.loads(json.dumps(made_of))


def _with_status(paths):
    for path in paths:
        status = os.stat(path)
        yield path, status.st_size, status.st_mtime_ns


def _summary(listed: Iterable[tuple[str, int, int]]) -> dict:
    """What tells files from others: path, bytes and time of change (ns) of each."""
    digest, count, total = hashlib.sha256(), 0, 0
    for path, size, changed in listed:
        digest.update(b"%s\0%d %d\n" % (os.fsencode(path), size, changed))
        count += 1
        total += size
    return {"files": count, "bytes": total, "sha256": digest.hexdigest()}


def summarized(origin: dict | None) -> dict | None:
    """An origin as it is noted now.

    Earlier versions listed all input files. A flag that they did not have counts as its
    default.
    """
    if not origin:
        return origin
    inputs = origin["inputs"]
    return {
        **origin,
        "flags": _DEFAULTS | origin["flags"],
        "inputs": _summary(inputs) if isinstance(inputs, list) else inputs,
    }


def finished(settings, origin) -> Description | None:
    """The description of these very records, if they are all there."""
    with contextlib.suppress(
        FileNotFoundError, UserError, ValueError, KeyError, TypeError
    ):
        description = Description.read(settings.description_file)
        made_of = summarized(description.origin)
        same = ("flags", "inputs", "vocab_sha256")
        if all(made_of[key] == origin[key] for key in same) and all(
            os.path.getsize(path) == output["bytes"]
            for path, output in zip(
                settings.output_files, description.outputs, strict=True
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
        OSError, UserError, ValueError, LookupError, TypeError, AttributeError
    ):
        other = Description.read(settings.description_file).origin
        if differences := _differences(folder.origin, other):
            different = f" (different: {differences})"
    raise UserError(
        f"{found[-1]}: exists already{different}; --overwrite replaces it, or choose "
        "another --output_file"
    )


def _differences(origin, other):
    other = summarized(other)
    flags = other["flags"]
    differing = [
        f"--{name}={flags.get(name)} there, {value} here"
        for name, value in origin["flags"].items()
        if flags.get(name) != value
    ]
    if origin["vocab_sha256"] != other.get("vocab_sha256"):
        differing.append("another vocabulary")
    if origin["inputs"] != other.get("inputs"):
        there, here = (
            f"{inputs['files']:,} of {inputs['bytes']:,} bytes"
            for inputs in (other["inputs"], origin["inputs"])
        )
        differing.append(
            f"other input files, or changed since ({there} there, {here} here)"
        )
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
        local.remove_temporaries(path)
