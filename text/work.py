"""Knows how a long job is cut into tasks that several processes do, each once.

A task's counts are noted in the job's folder when its files are whole; what is noted is not
done again, so a job that was killed goes on where it was.
"""

import concurrent.futures
import contextlib
import fcntl
import itertools
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from text.errors import UserError
from text.files import read_json, write_json
from text.progress import Progress


class Folder:
    """Where a job keeps what it has done; one process at a time may work with it."""

    def __init__(self, path: str, origin: dict):
        """Args:
        path: of the folder, which is made when `open` needs it.
        origin: what the job is made of, as JSON holds it.
        """
        self.path = path
        self.origin = origin

    def unfinished_origin(self) -> dict | None:
        """The origin of a job that has not come to its end, if there is one."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return read_json(os.path.join(self.path, "origin.json"))

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Holds the folder, new or as an earlier start left it.

        Raises:
            UserError: another process holds it.
        """
        os.makedirs(self.path, exist_ok=True)
        with open(os.path.join(self.path, "lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"{self.path}: another process is at work on the same output; wait "
                    "for it, or choose another output"
                ) from error
            try:
                yield
            finally:
                if self.unfinished_origin() is None:
                    self.remove()

    def begin(self) -> None:
        """Starts the job anew; what an earlier one left in the folder is removed."""
        self._forget()
        for name in os.listdir(self.path):
            if name != "lock":
                os.remove(os.path.join(self.path, name))
        write_json(os.path.join(self.path, "origin.json"), self.origin)

    def remove(self) -> None:
        self._forget()
        shutil.rmtree(self.path, ignore_errors=True)

    def _forget(self):
        # Removed before all else: without it nothing in the folder counts as done.
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self.path, "origin.json"))


def do(path: str, function: Callable[..., dict], *arguments) -> tuple[dict, bool]:
    """Does a task unless it is noted.

    Args:
        path: of the note, without its suffix; also the first argument of `function`, for
            the names of its files.
        function: returns what to note, a dict as JSON holds it.
    Returns:
        what is noted, and whether it was already.
    """
    note = f"{path}.json"
    if os.path.exists(note):
        return read_json(note), True
    outcome = function(path, *arguments)
    write_json(note, outcome)
    return outcome, False


class Workers:
    """Does tasks in this process, or in several others.

    To be used in a `with` block. The others are spawned, never forked, end with this
    process however it ends, and leave Ctrl-C to it. A block that fails ends them at once:
    what they were at is lost, what they have noted is not.
    """

    def __init__(self, count: int):
        self._executor = None
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
        tasks: Sequence[tuple],
        sizes: Sequence[float],
        what: str,
        unit: str,
        scale: float = 1.0,
    ) -> list[dict]:
        """Does tasks and shows how far they are.

        Args:
            tasks: the arguments of `do` for each.
            sizes: how much each adds to what is done, in `unit` times `scale`.
        Returns:
            what each noted, in the order given.
        Raises:
            UserError: a process was killed from outside, or a task raised it.
        """
        outcomes = []
        with Progress(what, sum(sizes), unit, scale) as progress:
            try:
                for size, (outcome, was_noted) in zip(
                    sizes, self._map(tasks), strict=True
                ):
                    outcomes.append(outcome)
                    progress.advance(size, was_noted)
            except concurrent.futures.BrokenExecutor as error:
                raise OSError(
                    "a worker process was killed from outside (out of memory?); give the "
                    "same command again, with fewer --num_workers if memory is short"
                ) from error
        return outcomes

    def _map(self, tasks):
        if self._executor is None or not tasks:
            return itertools.starmap(do, tasks)
        # Processes start when tasks come, and inherit that Ctrl-C is held back; here it
        # takes effect behind the block.
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._executor.map(do, *zip(*tasks, strict=True))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held_back)


def _follow_parent(parent):
    """Makes a worker process end when its parent is gone, even if that was killed."""

    def watch():
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
