"""Knows files on whatever TensorFlow reaches: this machine, gs:// and the like."""

import contextlib
import os
from collections.abc import Iterator

import tensorflow as tf

from text import files
from text.errors import UserError


@contextlib.contextmanager
def access(path: str) -> Iterator[None]:
    """Makes what TensorFlow or Python raises of a file one line for the user.

    Only file access belongs inside: everything that fails there is laid to the path.

    Raises:
        UserError: names the path and the reason.
    """
    try:
        yield
    except tf.errors.OpError as error:
        # Most messages repeat the path: "path; Permission denied".
        reason = " ".join(error.message.rpartition("; ")[2].split())
        raise UserError(f"{path}: cannot be read or written: {reason}") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{path}: cannot be read or written: {reason}") from error


def is_remote(path: str) -> bool:
    """Whether it is on a file system that only TensorFlow reaches, as gs:// is."""
    return "://" in path


@contextlib.contextmanager
def replacing(path: str, mode: str = "wb"):
    """As `files.replacing`, wherever the path is; makes its folder.

    Raises:
        UserError: the disk is full or not writable.
    """
    with access(path):
        tf.io.gfile.makedirs(os.path.dirname(path) or ".")
        if not is_remote(path):
            with files.replacing(path, mode) as file:
                yield file
            return
        temporary = files.temporary_name(path)
        with tf.io.gfile.GFile(temporary, mode) as file:
            yield file
        tf.io.gfile.rename(temporary, path, overwrite=True)


def sync(path: str) -> None:
    """Waits until what was written to a file is on the disk.

    Before a name that means "whole" is given: a power cut must not leave the name without
    the data. A remote file is there when it is closed.
    """
    if not is_remote(path):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
