"""Handles files on any file system TensorFlow supports: local, gs:// and others."""

import contextlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator

import tensorflow as tf

from errors import UserError
from text.files import local, sources


@contextlib.contextmanager
def access(path: str) -> Iterator[None]:
    """Turns errors of file access inside into one line that names the path."""
    try:
        yield
    except tf.errors.OpError as error:
        # Most messages repeat the path: "path; Permission denied".
        reason = " ".join(error.message.rpartition("; ")[2].split())
        raise UserError(f"{path}: cannot be read or written: {reason}") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{path}: cannot be read or written: {reason}") from error


@contextlib.contextmanager
def replacing(path: str, mode: str = "wb"):
    """Like `local.replacing`, on any file system; creates the folder."""
    with access(path):
        tf.io.gfile.makedirs(os.path.dirname(path) or ".")
        if not sources.is_remote(path):
            with local.replacing(path, mode) as file:
                yield file
            return
        temporary = local.temporary_name(path)
        with tf.io.gfile.GFile(temporary, mode) as file:
            yield file
        tf.io.gfile.rename(temporary, path, overwrite=True)


def sync(path: str) -> None:
    """Waits until what was written to a file is on disk.

    Call it before writing a name that means "complete": a power cut must not leave the name
    without the data. A remote file is complete once it is closed.
    """
    if not sources.is_remote(path):
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def set_aside(path: str, endings: Iterable[str] = ("",)) -> None:
    """Renames files that this program did not make to `<path>.kept-<n>`, with a warning."""
    kept = next(
        free
        for free in (f"{path}.kept-{number}" for number in itertools.count(1))
        if not any(tf.io.gfile.exists(free + ending) for ending in endings)
    )
    for ending in endings:
        tf.io.gfile.rename(path + ending, kept + ending)
    print(
        f"warning: {path} was not made by this program alone; renamed to {kept}",
        file=sys.stderr,
    )
