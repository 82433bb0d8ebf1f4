"""Divides a long job into tasks that several processes do, each once.

A task's counts are noted in the job's folder when its files are whole. What is noted is not
done again, so a job that was killed continues where it was.
"""

import collections
import concurrent.futures
import contextlib
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from text.errors import UserError
from text.files import local
from text.files.local import read_json, write_json
from text.progress import Progress

_ORIGIN = "origin.json"
_ENDED = "ended~bert~.json"  # the origin of a job whose files are being removed
_EARLIER_LOCK = "lock"  # of earlier versions, an empty file


class Folder:
    """Where a job keeps what it has done.

    Only one process may use it at a time; whoever does holds a lock on the job's output.
    """

    def __init__(self, path: str, origin: dict, made: re.Pattern):
        """Args:
        path: of the folder, which `begin` makes.
        origin: what the job is made of, as JSON holds it.
        made: matches the names of the files that the job makes in it.
        """
        self.path = path
        self.origin = origin
        self._made = made

    def unfinished_origin(self) -> dict | None:
        """The origin of a job that has not come to its end, if there is one."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
            origin = read_json(self._file(_ORIGIN))
            if isinstance(origin, dict) and origin.keys() >= self.origin.keys():
                return origin

    def strangers(self) -> list[str]:
        """What is in the folder, or in its place, if that is not the folder of a job."""
        if not os.path.lexists(self.path):
            return []
        if not os.path.isdir(self.path):
            return [self.path]
        if self.unfinished_origin() or os.path.exists(self._file(_ENDED)):
            return []
        names = [name for name in os.listdir(self.path) if not local.is_own(name)]
        if any(map(self._is_earlier_lock, names)):  # killed while it removed the rest
            names = [name for name in names if not self._is_made(name)]
        return sorted(names)

    def refuse_strangers(self) -> None:
        """Raises:
        UserError: the folder, or what is in its place, is not of a job.
        """
        if names := self.strangers():
            raise UserError(
                f"{self.path}: the unfinished work goes into this folder, and here is "
                f"something else ({_some(names)}); move it, or choose another output"
            )

    def begin(self) -> None:
        """Starts the job anew; what an earlier one left in the folder is removed."""
        os.makedirs(self.path, exist_ok=True)
        self._clear()
        write_json(self._file(_ORIGIN), self.origin)
        self._remove_file(_ENDED)

    def remove(self) -> None:
        """Removes the job's files, and the folder unless it holds other ones."""
        if not os.path.isdir(self.path):
            return
        self._clear()
        self._remove_file(_ENDED)
        if others := os.listdir(self.path):
            print(
                f"{self.path}: not removed, because it holds files of something else "
                f"({_some(others)})",
                file=sys.stderr,
            )
        else:
            os.rmdir(self.path)

    def _clear(self):
        # First of all the origin gets another name: without it nothing counts as done, and
        # by that name the folder is known as a job's as long as there is a file in it.
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._file(_ORIGIN), self._file(_ENDED))
        for name in os.listdir(self.path):
            if self._is_made(name) or local.is_own(name):
                self._remove_file(name)

    def _is_made(self, name):
        return self._is_earlier_lock(name) or self._made.fullmatch(name) is not None

    def _is_earlier_lock(self, name):
        path = self._file(name)
        return (
            name == _EARLIER_LOCK and os.path.isfile(path) and not os.path.getsize(path)
        )

    def _remove_file(self, name):
        path = self._file(name)
        if os.path.isfile(path):
            os.remove(path)

    def _file(self, name):
        return os.path.join(self.path, name)


def _some(names):
    return ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")


def noted(path: str) -> dict | None:
    """What a task has noted, or None if it is not done; `path` as for `do`."""
    with contextlib.suppress(FileNotFoundError):
        return read_json(f"{path}.json")


def do(path: str, function: Callable[..., dict], *arguments) -> dict:
    """Does a task unless it is noted.

    Args:
        path: of the note, without its suffix; also the first argument of `function`, for
            the names of its files.
        function: returns what to note, a dict as JSON holds it.
    Returns:
        what is noted.
    """
    outcome = noted(path)
    if outcome is None:
        outcome = function(path, *arguments)
        write_json(f"{path}.json", outcome)
    return outcome


class Workers:
    """Does tasks in this process, or in several others.

    To be used in a `with` block. The others are spawned, never forked, end with this
    process however it ends, and leave Ctrl-C to it. A block that fails ends them at once:
    what they were at is lost, what they have noted is not.
    """

    def __init__(self, count: int):
        self._executor = None
        # Each process has a task, and the next one waits: what tasks carry takes memory.
        self._most_unfinished = count + 1
        if count > 1:
            self._executor = concurrent.futures.ProcessPoolExecutor(
                count,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_follow_parent,
                initargs=(os.getpid(),),
            )

    def __enter__(self):
        return self

    def __exit__(self, exception_type, *_):
        if self._executor:
            if exception_type:
                for process in multiprocessing.active_children():
                    process.terminate()
            self._executor.shutdown(cancel_futures=True)

    def do_all(
        self,
        tasks: Iterable[tuple[float, tuple]],
        total: float,
        what: str,
        unit: str,
        scale: float = 1.0,
    ) -> list[dict]:
        """Does tasks and shows how far they are.

        Args:
            tasks: the size of each and its arguments of `do`; taken only as processes get
                free, so a generator's tasks are never all in memory.
            total: the sum of the sizes, in `unit` times `scale`.
        Returns:
            what each noted, in the order given.
        Raises:
            UserError: a task raised it.
            OSError: a process was killed from outside.
        """
        outcomes = []
        with Progress(what, total, unit, scale) as progress:
            try:
                for size, outcome, was_noted in self._outcomes(tasks):
                    outcomes.append(outcome)
                    progress.advance(size, was_noted)
            except concurrent.futures.BrokenExecutor as error:
                raise OSError(
                    "a worker process was killed from outside (out of memory?); give the "
                    "same command again, with fewer --num_workers if memory is short"
                ) from error
        return outcomes

    def _outcomes(self, tasks) -> Iterator[tuple[float, dict, bool]]:
        """Yields the size of each task, what it noted, and whether it had already."""
        ahead = collections.deque()
        unfinished = set()
        for size, task in tasks:
            outcome = noted(task[0])
            was_noted = outcome is not None
            future = _known(outcome) if was_noted else self._submit(task)
            ahead.append((size, future, was_noted))
            unfinished.add(future)
            if len(unfinished) > self._most_unfinished:
                _, unfinished = concurrent.futures.wait(
                    unfinished, return_when=concurrent.futures.FIRST_COMPLETED
                )
            while ahead and ahead[0][1].done():
                size, future, was_noted = ahead.popleft()
                yield size, future.result(), was_noted
        for size, future, was_noted in ahead:
            yield size, future.result(), was_noted

    def _submit(self, task):
        if self._executor is None:
            return _known(do(*task))
        # Processes start when tasks come, and inherit that Ctrl-C is held back; here it
        # takes effect behind the block.
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._executor.submit(do, *task)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held_back)


def _known(outcome):
    future = concurrent.futures.Future()
    future.set_result(outcome)
    return future


def _follow_parent(parent):
    """Makes a worker process end when its parent is gone, even if that was killed."""

    def watch():
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
