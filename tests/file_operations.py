"""Records what a program does with the files in a folder, as Python sees it.

It stands between the program and `open`, `os`, `fcntl`, TensorFlow and safetensors. What
one of these calls in turn is part of its operation: `os.path.isfile` is one, not a `stat`
as well. Rows of TFRecord files are data, not asked for here.
"""

import builtins
import collections
import contextlib
import fcntl
import functools
import glob
import io
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

_LOCK = re.compile(r"\.(.*)~bert~lock")
QUESTIONS = ("exists", "is a file", "is a folder", "stat", "link", "list", "read")

_OF_OS = {
    "stat": ("stat", "lstat", "access"),
    "link": ("readlink",),
    "list": ("listdir", "scandir"),
    "make": ("mkdir", "makedirs", "link", "symlink"),
    "rename": ("rename", "replace"),
    "remove": ("remove", "unlink", "rmdir", "removedirs"),
    "change": ("chmod", "utime", "truncate"),
}
_OF_PATHS = {
    "exists": ("exists", "lexists"),
    "is a file": ("isfile",),
    "is a folder": ("isdir",),
    "stat": ("getsize", "getmtime", "getctime", "samefile"),
    "link": ("realpath", "islink"),
}
_OF_GFILE = {
    "exists": ("exists",),
    "is a folder": ("isdir",),
    "stat": ("stat",),
    "list": ("listdir", "glob", "walk"),
    "make": ("makedirs", "mkdir"),
    "rename": ("rename",),
    "remove": ("remove", "rmtree"),
}
_OWN = re.compile(rf"~(lock|{os.getpid()})(\.\w+)?$")
_WRITER = re.compile(r"(text/)?files/\w+\.py:\d+ _?replacing$")


class Operation(NamedTuple):
    """One operation.

    Attributes:
        kind: one of QUESTIONS, or what it changes: write, make, rename, remove, lock.
        path: within the folder.
        callers: those who asked, as file:line function, the innermost first.
    """

    kind: str
    path: str
    callers: tuple[str, ...]

    @property
    def is_question(self) -> bool:
        """Whether the program asks what somebody else has written.

        Not of the locks and temporary files that are its own, nor of the place of a file
        that it is about to write (is it a pipe, where does a link lead?): that is how a
        file is written.
        """
        if self.kind not in QUESTIONS or _OWN.search(self.path):
            return False
        return not any(_WRITER.match(caller) for caller in self.callers)

    def __str__(self):
        return f"{self.kind} {self.path or '.'}"


def asked_again(
    operations: Iterable[Operation], data: Collection[str] = ()
) -> dict[str, list[Operation]]:
    """The questions that were asked more than once, each with all who asked it.

    Whoever has locked a folder may ask once more what is in it: another process may have
    written there until then. That holds for the first lock alone.

    Args:
        operations: in their order.
        data: paths that may be read again.
    """
    asked, locked = collections.defaultdict(list), None
    for operation in operations:
        if operation.kind == "lock" and operation.path.endswith("~lock"):
            folder, name = os.path.split(operation.path)
            locked = locked or folder or _LOCK.fullmatch(name)[1]  # or that itself
        elif operation.is_question and operation.path not in data:
            is_inside = locked and f"{operation.path}/".startswith(f"{locked}/")
            asked[str(operation), bool(is_inside)].append(operation)
    again = collections.defaultdict(list)
    for (question, _), several in asked.items():
        if len(several) > 1:
            again[question] += several
    return dict(sorted(again.items(), key=lambda item: -len(item[1])))


def described(again: dict[str, list[Operation]], callers: int = 4) -> str:
    """Lines that say who asks what again."""
    lines = []
    for question, several in again.items():
        lines.append(f"{len(several)} x {question}")
        chains = collections.Counter(each.callers[:callers] for each in several)
        for chain, number in chains.most_common():
            lines.append(f"    {number} x {' < '.join(chain)}")
    return "\n".join(lines)


@contextlib.contextmanager
def recorded(folder: str, root: str, delay: float = 0.0):
    """Yields a list that grows by an `Operation` for each one in a folder.

    Args:
        folder: all others, such as those of packages, are left out.
        root: of the sources; callers outside, or in tests/, are not listed.
        delay: seconds that each operation takes longer, as on a network disk.
    """
    recorder = _Recorder(folder, root, delay)
    with contextlib.ExitStack() as stack:
        for owner, name, wrapped in recorder.wrappers():
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, wrapped)
        yield recorder.operations


class _Recorder:
    def __init__(self, folder, root, delay):
        self.operations: list[Operation] = []
        self._folder = os.path.realpath(folder)
        self._root = os.path.join(root, "")
        self._delay = delay
        self._inside = threading.local()

    def wrappers(self) -> Iterable[tuple]:
        """(module, name, what to put there)"""
        for module, names in ((os, _OF_OS), (os.path, _OF_PATHS)):
            yield from self._all(module, names)
        yield glob, "glob", self._wrapped(glob.glob, "list")
        yield shutil, "rmtree", self._wrapped(shutil.rmtree, "remove")
        yield fcntl, "flock", self._wrapped(fcntl.flock, "lock")
        yield os, "open", self._wrapped(os.open, _kind_of_flags)
        opened = self._wrapped(builtins.open, _kind_of_mode)
        yield builtins, "open", opened
        yield io, "open", opened
        if "safetensors" in sys.modules:
            module = sys.modules["safetensors"]
            yield module, "safe_open", self._wrapped(module.safe_open, "read")
        if "tensorflow" in sys.modules:
            yield from self._of_tensorflow(sys.modules["tensorflow"])

    def _of_tensorflow(self, tf):
        yield from self._all(tf.io.gfile, _OF_GFILE)
        yield tf.io.gfile, "GFile", self._wrapped(tf.io.gfile.GFile, _kind_of_mode)
        train = tf.compat.v1.train
        reader = self._wrapped(train.NewCheckpointReader, "read")
        yield train, "NewCheckpointReader", reader
        yield tf.raw_ops, "SaveV2", self._wrapped(tf.raw_ops.SaveV2, "write", "prefix")

    def _all(self, module, names):
        for kind, several in names.items():
            for name in several:
                yield module, name, self._wrapped(getattr(module, name), kind)

    def _wrapped(self, function: Callable, kind, first: str | None = None) -> Callable:
        @functools.wraps(function, updated=())
        def wrapped(*args, **kwargs):
            if getattr(self._inside, "one", False):
                return function(*args, **kwargs)
            self._inside.one = True
            try:
                path = args[0] if args else kwargs.get(first or next(iter(kwargs)))
                self._note(kind(*args, **kwargs) if callable(kind) else kind, path)
                return function(*args, **kwargs)
            finally:
                self._inside.one = False

        return wrapped

    def _note(self, kind, path):
        path = self._within(path)
        if path is not None:
            self.operations.append(Operation(kind, path, self._callers()))
            time.sleep(self._delay)

    def _within(self, path):
        """A path from the folder on; None for all others."""
        if hasattr(path, "fileno"):
            path = getattr(path, "name", None)
            if isinstance(path, int):
                path = os.readlink(f"/proc/self/fd/{path}")
        if hasattr(path, "numpy"):
            path = path.numpy()
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        path = os.path.abspath(os.fsdecode(path))
        if path != self._folder and not path.startswith(self._folder + os.sep):
            return None
        return path[len(self._folder) + 1 :]

    def _callers(self):
        found, frame = [], sys._getframe(3)
        while frame:
            name = frame.f_code.co_filename.removeprefix(self._root)
            if not name.startswith(("/", "<", ".venv", "tests")):
                found.append(f"{name}:{frame.f_lineno} {frame.f_code.co_name}")
            frame = frame.f_back
        return tuple(found)


def _kind_of_mode(file, mode="r", *more, **options):
    return "write" if set(mode) & set("wax+") else "read"


def _kind_of_flags(path, flags, *more, **options):
    return "write" if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) else "read"
