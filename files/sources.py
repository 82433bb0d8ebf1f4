"""Looks for and reads files: local ones, and remote ones such as those on gs://.

TensorFlow reaches remote files, unless `reach_with` names something else. It is loaded for
them alone: importing it takes a process seconds and 450 MB.
"""

import contextlib
import errno
import glob
import io
import os
import re
import stat
from collections.abc import Collection, Iterator
from typing import NamedTuple, Protocol

from errors import UserError

MAX_CONTENT_MB = 64  # many times the largest vocabulary or config
# For a server that does not answer, TensorFlow's own settings make 11 tries of up to two
# minutes each, with pauses of three minutes in all. It reads these when it is loaded.
_WAITING = {
    "GCS_REQUEST_CONNECTION_TIMEOUT_SECS": "10",
    "GCS_RETRY_CONFIG_MAX_RETRIES": "5",
}
_SCHEME = re.compile(r"([a-zA-Z][\w.+-]*)://")
# TensorFlow would try again and again to open any other address.
_BUCKET = re.compile(r"gs://[\w.-]+(/|$)", re.ASCII)


class Status(NamedTuple):
    """What shows that a file has changed: bytes, and nanoseconds of the last change.

    `identity` is which file has the name, on this machine; 0 if unknown, as of remote ones.
    """

    size: int
    changed: int
    identity: int = 0


class ChangedFileError(UserError):
    """A file has changed while it was read."""


class RemoteFiles(Protocol):
    """Reaches files that are not local; the methods are those of this module."""

    def exists(self, path: str) -> bool: ...
    def is_folder(self, path: str) -> bool: ...
    def matching(self, pattern: str) -> list[str]: ...
    def status(self, path: str) -> Status: ...
    def open(self, path: str) -> io.BufferedIOBase: ...


def reach_with(files: RemoteFiles) -> None:
    """Reaches the remote files of this process some other way than with TensorFlow."""
    global _remote
    _remote = files


def is_remote(path: str) -> bool:
    """Whether it is on a file system that Python cannot open, such as gs://."""
    return "://" in path


def refuse_remote(path: str) -> None:
    """Refuses what can only be written to a local folder."""
    if is_remote(path):
        raise UserError(
            f"{path}: this can only be written to a local folder; write it there, and "
            "copy it"
        )


def exists(path: str) -> bool:
    return _remote.exists(path) if is_remote(path) else os.path.exists(path)


def is_folder(path: str) -> bool:
    return _remote.is_folder(path) if is_remote(path) else os.path.isdir(path)


def is_file(path: str) -> bool:
    if is_remote(path):
        return exists(path) and not is_folder(path)
    return os.path.isfile(path)


def matching(pattern: str) -> list[str]:
    """The paths that a glob matches, sorted; locally, `**` crosses folders."""
    if is_remote(pattern):
        return _remote.matching(pattern)
    return sorted(glob.glob(pattern, recursive=True))


def size(path: str) -> int:
    """In bytes."""
    return status(path)[0]


def status(path: str) -> Status:
    if is_remote(path):
        return _remote.status(path)
    attributes = os.stat(path)
    identity = hash((attributes.st_dev, attributes.st_ino))
    return Status(attributes.st_size, attributes.st_mtime_ns, identity)


def refuse_change(path: str, before: Status) -> Status:
    """Returns the status of a file that must be as it was.

    Raises ChangedFileError if it is not.
    """
    now = status(path)
    compared = len(now) if now.identity and before.identity else len(now) - 1
    if now[:compared] == before[:compared]:
        return now
    how = "it was written to or replaced"
    if now.size != before.size:
        how = f"it had {before.size:,} bytes and now has {now.size:,}"
    raise ChangedFileError(
        f"{path}: has changed while it was read ({how}); when nothing changes it any more, "
        "run the same command again"
    )


def open_file(path: str) -> io.BufferedIOBase:
    """The file, to read bytes from."""
    if is_remote(path):
        return _remote.open(path)
    if stat.S_ISCHR(os.stat(path).st_mode):
        raise UserError(f"{path}: is a device; name a file")
    return open(path, "rb")


def content(path: str) -> bytes:
    """The bytes of a file that is small if it is what it should be."""
    most = MAX_CONTENT_MB * 10**6
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UserError(
            f"{path}: is larger than {MAX_CONTENT_MB} MB, and no vocabulary, config or "
            "description is; name another file"
        )
    return content


class _TensorFlowFiles:
    """What TensorFlow's file systems reach."""

    def exists(self, path):
        with _gfile(path) as gfile:
            return gfile.exists(path)

    def is_folder(self, path):
        with _gfile(path) as gfile:
            return gfile.isdir(path)

    def matching(self, pattern):
        with _gfile(pattern) as gfile:
            return sorted(gfile.glob(pattern))

    def status(self, path):
        with _gfile(path) as gfile:
            attributes = gfile.stat(path)
            return Status(attributes.length, attributes.mtime_nsec)

    def open(self, path):
        return io.BufferedReader(_RemoteFile(path), buffer_size=1 << 20)


_remote: RemoteFiles = _TensorFlowFiles()


class _RemoteFile(io.RawIOBase):
    def __init__(self, path):
        self._path = path
        with _gfile(path) as gfile:
            self._file = gfile.GFile(path, "rb")
            self._size = self._file.size()

    def readable(self):
        return True

    def seekable(self):
        return True

    def readinto(self, buffer):
        with _gfile(self._path):
            content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset, whence=io.SEEK_SET):
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}
        with _gfile(self._path):
            self._file.seek(begin[whence] + offset)
        return self.tell()

    def tell(self):
        return self._file.tell()

    def close(self):
        if not self.closed:
            self._file.close()
        super().close()


@contextlib.contextmanager
def _gfile(path) -> Iterator:
    """TensorFlow's functions for files; its errors become those of local files."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # not what a user came to read
    limit_waiting()
    import tensorflow as tf

    check_address(path, tf.io.gfile.get_registered_schemes())
    try:
        yield tf.io.gfile
    except tf.errors.OpError as error:
        # TensorFlow has numbers of its own, which mean other things to OSError.
        number = errno.EIO
        if isinstance(error, tf.errors.NotFoundError):
            number = errno.ENOENT
        elif isinstance(error, tf.errors.PermissionDeniedError):
            number = errno.EACCES
        raise OSError(number, reason(error) or os.strerror(number), path) from error


def limit_waiting() -> None:
    """Makes TensorFlow give up on a server that does not answer; call it before loading.

    What the environment says already stays.
    """
    for name, value in _WAITING.items():
        os.environ.setdefault(name, value)


def check_address(path: str, schemes: Collection[str]) -> None:
    """Refuses an address that TensorFlow cannot open; any local path passes.

    Args:
        schemes: those that TensorFlow knows.
    """
    scheme = _SCHEME.match(path)
    if scheme and scheme[1] == "hf":
        raise UserError(
            f"{path}: a name on Hugging Face's hub is allowed only for a model to load or "
            "its files; pass a local path"
        )
    if scheme and scheme[1] not in schemes:
        raise UserError(
            f"{path}: files at {scheme[0]} cannot be opened; pass a local path, or an "
            "address gs://bucket/name"
        )
    if path.startswith("gs://") and not _BUCKET.match(path):
        raise UserError(f"{path}: names no bucket; pass gs://bucket/name")


def reason(error: Exception) -> str:
    """What TensorFlow says about a file, in one line, without its path."""
    # Most messages repeat the path: "path; Permission denied".
    return " ".join(error.message.rpartition("; ")[2].split())
