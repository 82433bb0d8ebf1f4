"""Handles files on any file system TensorFlow supports: local, gs:// and others."""

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping

import tensorflow as tf

from errors import UserError
from files import local, sources


@contextlib.contextmanager
def access(path: str) -> Iterator[None]:
    """Turns errors of file access inside into one line that names the path."""
    sources.check_address(path, tf.io.gfile.get_registered_schemes())
    try:
        yield
    except tf.errors.OpError as error:
        reason = sources.reason(error)
        if sources.is_remote(path):
            reason += "; check the address and the network, or pass a local path"
        raise UserError(f"{path}: cannot be read or written: {reason}") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{path}: cannot be read or written: {reason}") from error


def _door(name):
    """A function of tf.io.gfile whose errors are those of `access`."""

    @functools.wraps(getattr(tf.io.gfile, name))
    def call(path, *more, **options):
        with access(path):
            return getattr(tf.io.gfile, name)(path, *more, **options)

    return call


exists, isdir, listdir, glob = map(_door, ("exists", "isdir", "listdir", "glob"))
stat, makedirs, rename, rmtree = map(_door, ("stat", "makedirs", "rename", "rmtree"))


def remove(path: str) -> None:
    """Removes a file, if there is one."""
    with access(path), contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.remove(path)


def names(folder: str) -> set[str]:
    """The names in a folder, without the slashes of gs://; empty if there is no folder."""
    with access(folder), contextlib.suppress(tf.errors.NotFoundError):
        return {name.rstrip("/") for name in tf.io.gfile.listdir(folder or ".")}
    if exists(folder):
        raise UserError(f"{folder}: cannot be read or written: it is not a folder")
    return set()


def walk(folder: str) -> list[tuple[str, list[str], list[str]]]:
    """The folders in a folder, and it, with the folders and files in each."""
    with access(folder):
        return list(tf.io.gfile.walk(folder))


@contextlib.contextmanager
def open_file(path: str, mode: str = "rb") -> Iterator[tf.io.gfile.GFile]:
    """The file, to read or write; also errors inside become one line."""
    with access(path), tf.io.gfile.GFile(path, mode) as file:
        yield file


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


def write_files(folder: str, contents: Mapping[str, str | bytes]) -> None:
    """Writes files of a folder in this order, each as `replacing` does, by their names."""
    for name, content in contents.items():
        content = content.encode() if isinstance(content, str) else content
        with replacing(os.path.join(folder, name)) as file:
            file.write(content)


def sync(path: str) -> None:
    """Waits until what was written to a file is on disk.

    Call it before writing a name that means "complete": a power cut must not leave the name
    without the data. A remote file is complete once it is closed.
    """
    if not sources.is_remote(path):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
