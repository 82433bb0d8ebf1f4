"""Knows how a file appears under its name: whole, or not at all."""

import contextlib
import glob
import json
import os
from collections.abc import Iterable

from text.errors import UserError


@contextlib.contextmanager
def replacing(path: str, mode: str = "wb"):
    """Opens a temporary file beside `path` that takes its name when the block succeeds.

    A block that fails leaves `path` as it was. Two processes may write the same path: each
    has a temporary name of its own, and the last one stays. A link stays a link. What is
    no file of its own, as a pipe or /dev/stdout, is written to as it stands.
    """
    encoding = None if "b" in mode else "utf-8"
    if is_stream(path):
        with open(path, mode.replace("w", "a"), encoding=encoding) as file:
            yield file
        return
    path = os.path.realpath(path)
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(temporary, mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(
                file.fileno()
            )  # else a power cut could leave the name without data
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


def is_stream(path: str) -> bool:
    """Whether a path is no file: a pipe, a device, a folder, what a process has open."""
    if not os.path.exists(path):
        return False
    of_system = os.path.abspath(path).startswith(("/dev/", "/proc/"))
    return not os.path.isfile(path) or (of_system and os.path.islink(path))


def write_json(path: str, value) -> None:
    with replacing(path, "w") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def read_json(path: str):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def refuse_inputs(outputs: Iterable[str], read: Iterable[str]) -> None:
    """Keeps what is read from being replaced by what is written.

    Raises:
        UserError: an output is an input too.
    """
    inputs = {os.path.realpath(path) for path in read}
    for path in outputs:
        if os.path.realpath(path) in inputs:
            raise UserError(f"{path}: is an input too; choose another output")


def remove_temporaries(path: str) -> None:
    """Removes what processes that were killed left beside `path`."""
    for name in glob.glob(f"{glob.escape(path)}.tmp-*"):
        process = name.rpartition("-")[2]
        if process.isdecimal() and not _runs(int(process)):
            os.remove(name)


def _runs(process):
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return process != os.getpid()  # an earlier process may have had our number
