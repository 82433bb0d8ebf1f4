"""Decides whether records may be written under their names, or already exist.

The settings are those of text/generation/settings.py; an origin is what
text/generation/work.py compares.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import resource
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from errors import UserError
from files import local, protected, sources
from text.corpus.formats import TextOptions
from text.instances.table import RowOptions
from text.records.descriptions import Description

_NO_BYTES = {"input_files", "max_line_mb"}  # on which no byte of records depends
_DEFAULTS = {
    field.name: field.default
    for group in (RowOptions, TextOptions)
    for field in dataclasses.fields(group)
    if field.default is not dataclasses.MISSING and field.name not in _NO_BYTES
}
ENGINE = "engine"  # the key of an origin that says what made the records, if not run.py
_OTHER_FILES = 256  # that a process has open in addition to the locks


def refuse_overlaps(settings) -> None:
    """Keeps a run's outputs apart from its inputs and from its other files."""
    work_folder = os.path.realpath(settings.work_folder)
    description = os.path.realpath(settings.description_file)
    for path in settings.output_files:
        place = os.path.realpath(path)
        if place == description:
            raise UserError(
                f"{path}: the description of the records is written here; choose another "
                "--output_file"
            )
        if place == work_folder or place.startswith(work_folder + os.sep):
            raise UserError(
                f"{path}: {settings.work_folder} is the folder for unfinished work; choose "
                "another --output_file"
            )
    local.refuse_inputs(_paths(settings), settings.input_files)
    protected.refuse(_paths(settings), [settings.vocab_file], replaces_records=True)


def refuse_folders(settings) -> None:
    """Raises UserError if an output is a folder."""
    for path in _local(settings.output_files):
        if os.path.isdir(path):
            raise UserError(
                f"{path}: is a folder; name a file in it, such as "
                f"{os.path.join(path, 'part.tfrecord')!r}"
            )


@contextlib.contextmanager
def _folders(settings):
    refuse_folders(settings)
    with contextlib.ExitStack() as stack:
        for path in _local(settings.output_files):
            for folder in _missing(os.path.dirname(path)):
                stack.callback(_remove_if_empty, folder)
            _make_folder(path)
        yield


def _missing(folder):
    """The folders above and at a path that do not exist, the highest first."""
    if not folder or os.path.lexists(folder):
        return []
    return [*_missing(os.path.dirname(folder)), folder]


def _remove_if_empty(folder):
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _make_folder(path):
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(
            f"{error.filename}: is not a folder, so {path} cannot be written; choose "
            "another --output_file"
        ) from error


@contextlib.contextmanager
def lock_outputs(settings) -> Iterator[None]:
    """Keeps other processes from writing any of the outputs, except remote ones.

    Creates the folders of the outputs, and removes those that stay empty.
    """
    paths = sorted(set(map(os.path.realpath, _local(_paths(settings)))))
    _allow_open_files(len(paths) + _OTHER_FILES)
    with _folders(settings), contextlib.ExitStack() as stack:
        for path in paths:
            stack.enter_context(local.hold_lock(path))
        yield


def _allow_open_files(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or count <= soft:
        return
    if hard != resource.RLIM_INFINITY and count > hard:
        raise UserError(
            f"--output_file: {count - _OTHER_FILES - 1} files; a process may have {hard} "
            f"files open here, which allows {max(hard - _OTHER_FILES - 1, 0)} outputs; "
            "use fewer, or raise the limit (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def origin(settings, vocabulary) -> dict:
    """What the records are made of; only a run with the same origin can be continued."""
    flags = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.name not in _NO_BYTES
    }
    made_of = {
        "flags": flags,
        "inputs": summary(settings.input_files),
        "vocab_sha256": vocabulary.digest,
        "unicode_version": unicodedata.unidata_version,
        "numpy_version": np.__version__,
    }
    return json.loads(json.dumps(made_of))


def summary(
    paths: Iterable[str], statuses: Iterable[sources.Status] | None = None
) -> dict:
    """Identifies input files by the path, size and modification time of each.

    Their statuses may be given if they are known.
    """
    statuses = map(sources.status, paths) if statuses is None else statuses
    digest, count, total = hashlib.sha256(), 0, 0
    for path, (size, changed, _) in zip(paths, statuses, strict=True):
        digest.update(b"%s\0%d %d\n" % (os.fsencode(path), size, changed))
        count += 1
        total += size
    return {"files": count, "bytes": total, "sha256": digest.hexdigest()}


def statuses(paths: Sequence[str], origin: dict) -> np.ndarray:
    """int64 [files, 3]: the `sources.Status` of each input file.

    Raises ChangedFileError if they are not those of the origin.
    """
    kind = np.dtype((np.int64, len(sources.Status._fields)))
    columns = np.fromiter(map(sources.status, paths), kind, len(paths))
    if summary(paths, columns.tolist()) != origin["inputs"]:
        raise sources.ChangedFileError(
            f"{', '.join(paths[:3])}: input files have changed while they were read; when "
            "nothing changes them any more, run the same command again"
        )
    return columns


def fill_in_defaults(origin: dict | None) -> dict | None:
    """An origin in which flags that were not noted have their defaults."""
    return origin and {**origin, "flags": _DEFAULTS | origin["flags"]}


def find_finished(settings, origin) -> Description | None:
    """The description of exactly these records, if all of them exist."""
    with contextlib.suppress(
        FileNotFoundError, UserError, ValueError, KeyError, TypeError
    ):
        description = Description.read(settings.description_file)
        made_of = fill_in_defaults(description.origin)
        same = ("flags", "inputs", "vocab_sha256", ENGINE)
        if all(made_of.get(key) == origin.get(key) for key in same) and all(
            sources.size(path) == output["bytes"]
            for path, output in zip(
                settings.output_files, description.outputs, strict=True
            )
        ):
            return description


def refuse_what_is_there(settings, folder) -> None:
    """Protects the files of another run."""
    other = folder.unfinished_origin()
    if other and not folder.failure():
        raise UserError(
            f"{folder.path}: contains an unfinished run with other settings; different: "
            f"{_differences(folder.origin, other)}; run its command to continue it, add "
            "--overwrite to start over, or choose another --output_file"
        )
    refuse_outputs(settings, folder.origin)


def refuse_outputs(settings, origin) -> None:
    """Raises UserError if an output exists."""
    existing = [path for path in _paths(settings) if sources.exists(path)]
    if not existing:
        return
    different = ""
    with contextlib.suppress(
        OSError, UserError, ValueError, LookupError, TypeError, AttributeError
    ):
        other = Description.read(settings.description_file).origin
        if differences := _differences(origin, other):
            different = f" (different: {differences})"
    raise UserError(
        f"{existing[-1]}: already exists{different}; add --overwrite to replace it, or "
        "choose another --output_file"
    )


def _differences(origin, other):
    other = fill_in_defaults(other)
    flags = other["flags"]
    differing = [
        f"--{name}={flags.get(name)} there, {value} here"
        for name, value in origin["flags"].items()
        if flags.get(name) != value
    ]
    if origin["vocab_sha256"] != other.get("vocab_sha256"):
        differing.append("a different vocabulary")
    if origin["inputs"] != other.get("inputs"):
        there, here = (
            f"{inputs['files']:,} with {inputs['bytes']:,} bytes"
            for inputs in (other["inputs"], origin["inputs"])
        )
        differing.append(f"other or changed input files ({there} there, {here} here)")
    if origin.get(ENGINE) != other.get(ENGINE):
        here = "with" if origin.get(ENGINE) else "without"
        differing.append(f"made {here} --runner here, not so there")
    for name in ("unicode_version", "numpy_version"):
        if origin[name] != other.get(name):
            differing.append(f"{name} {other.get(name)} there, {origin[name]} here")
    return ", ".join(differing)


def _paths(settings):
    return settings.description_file, *settings.output_files


def _local(paths):
    return itertools.filterfalse(sources.is_remote, paths)


def remove(settings) -> None:
    """Removes the outputs of another run, which are kept until then."""
    for path in _paths(settings):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def remove_temporaries(settings) -> None:
    """Removes the files that killed processes left next to the outputs."""
    for path in _paths(settings):
        local.remove_temporaries(path)
