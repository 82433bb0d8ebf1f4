"""Writes local files atomically, with one writer at a time."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Iterable, Iterator

from errors import UserError
from files import sources

# The files this program makes next to another have a mark in their names that no one else
# uses, and a leading dot, so that a glob for the file does not find them.
_MARK = "~bert~"
_TEMPORARY = re.compile(
    rf"\.(?P<name>.+){_MARK}(?P<host>[^~]+)~(?P<process>\d+)(\..*)?", re.DOTALL
)
LOCK = f"{_MARK}lock"  # how the name of a lock ends
_LONGEST_NAME = 100  # bytes; a file system allows 255, including all additions
_HOLDER = re.compile(r"process (\d+) on ([^,]+),")  # a line of a lock
# What writing raises if the disk, a quota or the limit of a file's size is reached.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What flock raises if the file system has no locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


@contextlib.contextmanager
def replacing(path: str, mode: str = "wb"):
    """Opens a temporary file next to `path` that takes its name when the block succeeds.

    A block that fails leaves `path` unchanged. Two processes may write the same path: each
    has its own temporary name, and the last one to finish wins. A link stays a link. A path
    that is not a file, such as a pipe or /dev/stdout, is written to directly.
    """
    with _add_path_where_full(path):
        yield from _replacing(path, mode)


@contextlib.contextmanager
def _add_path_where_full(path):
    """Adds the path to an error of writing, which has none."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = path
        raise


def _replacing(path, mode):
    encoding = None if "b" in mode else "utf-8"
    if is_stream(path):
        with open(path, mode.replace("w", "a"), encoding=encoding) as file:
            yield file
        return
    path = os.path.realpath(path)
    temporary = temporary_name(path)
    try:
        with open(temporary, mode, encoding=encoding) as file:
            try_lock(file, fcntl.LOCK_EX)  # see remove_temporaries
            yield file
            file.flush()
            os.fsync(file.fileno())  # a power cut must not leave a name without data
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


def is_stream(path: str) -> bool:
    """Whether a path is not a file: a pipe, a device, a folder, a process's open file."""
    if not os.path.exists(path):
        return False
    of_system = os.path.abspath(path).startswith(("/dev/", "/proc/"))
    return not os.path.isfile(path) or (of_system and os.path.islink(path))


def write_json(path: str, value) -> None:
    with replacing(path, "w") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def refuse_inputs(outputs: Iterable[str], read: Iterable[str]) -> None:
    """Prevents outputs from replacing inputs, however these are spelled or linked."""
    there = {identity: path for path in outputs if (identity := _identity(path))}
    # Mostly there is none, and there may be millions of inputs.
    for path in read if there else ():
        if same := there.get(_identity(path)):
            raise UserError(f"{same}: is also an input; choose another output")


def _identity(path):
    """What a file that exists shares with no other file; the path of a remote one."""
    if sources.is_remote(path):
        return path
    with contextlib.suppress(OSError):
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return None


def take_folder(folder: str, mark: str) -> None:
    """Creates an empty folder with a file named `mark`, or takes one that has this file."""
    sources.refuse_remote(folder)
    path = os.path.join(folder, mark)
    if os.path.isdir(folder) and os.listdir(folder) and not os.path.exists(path):
        raise UserError(
            f"{folder}: contains files that this program did not make; choose another "
            "--output_dir"
        )
    os.makedirs(folder, exist_ok=True)
    with open(path, "ab"):
        pass


# --- Temporary files -----------------------------------------------------------------


def host() -> str:
    """The name of this machine, in a form that fits in file names."""
    return re.sub(r"[^\w.-]", "_", socket.gethostname())[:32] or "unknown"


def temporary_name(path: str) -> str:
    """Where this process writes what will appear at `path`; a name that only it uses.

    Writers may append endings that begin with a dot.
    """
    folder, name = os.path.split(path)
    name = f".{_shorten(name)}{_MARK}{host()}~{os.getpid()}"
    return os.path.join(folder, name)


def _shorten(name):
    return os.fsencode(name)[:_LONGEST_NAME].decode(errors="ignore")


def is_own(name: str) -> bool:
    """Whether it is the name of any process's temporary file or lock."""
    return temporary_parts(name) is not None or bool(
        re.fullmatch(rf"\..+{LOCK}", name, re.DOTALL)
    )


def temporary_parts(name: str) -> tuple[str, str, int] | None:
    """The parts of a name made by `temporary_name`: the name it is for (the beginning of a
    long one), the host and the process; None for any other name.
    """
    match = _TEMPORARY.fullmatch(name)
    return match and (match["name"], match["host"], int(match["process"]))


def remove_temporaries(path: str) -> None:
    """Removes the files that killed processes of this host left next to `path`."""
    folder, name = os.path.split(path)
    beginning = f".{_shorten(name)}{_MARK}"
    for temporary in glob.glob(
        f"{glob.escape(os.path.join(folder, beginning))}*", include_hidden=True
    ):
        parts = temporary_parts(os.path.basename(temporary))
        if parts and is_left_over(parts) and os.path.isfile(temporary):
            # The id of a process in a container means nothing here, so the lock decides.
            # NFS locks need the file open for writing.
            with contextlib.suppress(PermissionError), open(temporary, "r+b") as file:
                if try_lock(file, fcntl.LOCK_EX):
                    os.remove(temporary)


def is_left_over(parts: tuple[str, str, int]) -> bool:
    """Whether the process in a temporary name was one of this host and has ended."""
    _, of, process = parts
    return of == host() and not _runs(process)


def _runs(process):
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    if process == os.getpid():  # an earlier process had our id
        return False
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat", "rb") as file:
        # Of one that has ended, the id stays until somebody asks for its exit status.
        return not re.search(rb"\) [ZX] [^)]*$", file.read())
    return True


# --- Locks ---------------------------------------------------------------------------


@contextlib.contextmanager
def hold_lock(path: str, *, shared: bool = False, wait: bool = False) -> Iterator[None]:
    """Keeps other processes from holding `path`, a file or folder, at the same time.

    The lock is a file next to it, `.<name>~bert~lock`, which names the holder. It ends with
    the process, however that ends, and the file is removed on release. It works across
    hosts if the file system's locks do (NFS); without any, a warning says so.

    Args:
        shared: for readers: any number of them may hold it together, but not at the same
            time as a writer.
        wait: wait until it is free, however long that takes; for brief uses.
    """
    folder, name = os.path.split(os.path.abspath(path))
    if len(os.fsencode(name)) > _LONGEST_NAME:  # others may begin the same way
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    place = os.path.join(folder, f".{name}{LOCK}")
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with contextlib.ExitStack() as stack:
        while True:
            file = stack.enter_context(_open_lock(place))
            if not try_lock(file, kind, place, wait):
                file.seek(0)
                raise UserError(
                    f"{path}: in use by {_holder(file.read())}; wait until it ends, or "
                    "choose another output"
                )
            if _is_at(file, place):
                file.seek(0)
                if not all(map(_HOLDER.match, file)):
                    raise _not_a_lock(place)
                break
            # The holder removed it between our opening and our locking.
            stack.close()
        if not shared:
            file.truncate(0)
        file.write(
            f"process {os.getpid()} on {host()}, "
            f"since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        )
        file.flush()
        try:
            yield
        finally:
            # Others who share it still need it.
            if _is_at(file, place) and (not shared or try_lock(file, fcntl.LOCK_EX)):
                with contextlib.suppress(OSError):
                    os.remove(place)


def _open_lock(place):
    """The file of a lock, made if need be; never the file that a link leads to."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        number = os.open(place, flags, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _not_a_lock(place) from error
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise _not_a_lock(place)
    return open(number, "a+", encoding="utf-8", errors="replace")


def _not_a_lock(place):
    return UserError(
        f"{place}: this name is for a lock, but what is there is not one; move it away"
    )


def _holder(holders):
    """The last noted process that is still running, as far as this host can tell."""
    for line in reversed(holders.splitlines()):
        match = _HOLDER.match(line)
        if match and (match[2], int(match[1])) == (host(), os.getpid()):
            return line
        if match and not is_left_over(("", match[2], int(match[1]))):
            return line
    return "another process"


def try_lock(file, kind, place=None, wait=False):
    """Locks an open file; returns False if another process holds it.

    Where there are no locks, it returns True, with a warning if `place`, its name, is
    given.
    """
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno not in _NO_LOCKS:
            raise
        if place:
            print(
                f"warning: {place}: this file system has no locks; make sure that no "
                "other process writes here",
                file=sys.stderr,
            )
    return True


def _is_at(file, place):
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(place))
    except FileNotFoundError:
        return False
