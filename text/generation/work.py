"""Divides a long job into tasks, each done once, by several processes.

A task's counts are noted in the job's folder when its files are complete. Noted tasks are
not done again, so a killed job continues where it stopped.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import resource_tracker
from typing import Any

from errors import UserError, duration
from files import json_files, local
from files.local import write_json
from text.progress import Progress

_ORIGIN = "origin.json"
_ENDED = "ended~bert~.json"  # the origin of a job whose files are being removed
_FAILED = "failed.json"  # why a run that shares the job has given up
_SHARDS = "shards.json"  # among how many runs the job is shared
_SHARD_LOCK = re.compile(rf"\.(?P<shard>shard-\d+){local.LOCK}")
_POLL_SECONDS = 0.2
_NEWS_SECONDS = 60.0


class WorkFolder:
    """Where a job keeps its finished work.

    Only one process may use it at a time, while holding a lock on the job's output.

    Args:
        path: the folder, which `begin` creates.
        origin: what the job is made of, as read from JSON.
        made: matches the names of the files that the job makes in the folder.
    """

    def __init__(self, path: str, origin: dict, made: re.Pattern):
        self.path = path
        self.origin = origin
        self._made = made

    def unfinished_origin(self) -> dict | None:
        """The origin of an unfinished job, if there is one."""
        origin = json_files.read_own(self._file(_ORIGIN))
        return origin if origin.keys() >= self.origin.keys() else None

    def strangers(self) -> list[str]:
        """Names of files in the folder, or in its place, if it is not a job's folder."""
        if not os.path.lexists(self.path):
            return []
        if not os.path.isdir(self.path):
            return [self.path]
        if self.unfinished_origin() or os.path.exists(self._file(_ENDED)):
            return []
        return sorted(name for name in os.listdir(self.path) if not local.is_own(name))

    def refuse_strangers(self) -> None:
        """Refuses a folder, or a file in its place, that does not belong to a job."""
        if names := self.strangers():
            raise UserError(
                f"{self.path}: this folder is for unfinished work but contains something "
                f"else ({_some(names)}); move it, or choose another output"
            )

    def fail(self, message: str) -> None:
        """Lets the other runs of the job know that it cannot be finished."""
        write_json(self._file(_FAILED), {"message": message})

    def failure(self) -> str | None:
        """What a run of this job said when it gave up; a new one starts over."""
        if not self.unfinished_origin():
            return None
        return json_files.read_own(self._file(_FAILED)).get("message")

    def share_among(self, number: int) -> None:
        """Lets the other runs of the job know how many they must be."""
        write_json(self._file(_SHARDS), {"number": number})

    def number_of_shards(self) -> int | None:
        """What the leading run noted; an earlier one may have noted another number."""
        return json_files.read_own(self._file(_SHARDS)).get("number")

    def refuse_shards(self) -> None:
        """Refuses to begin while a run that shares the job is at work.

        What it writes would be taken for that of the next job.
        """
        names = os.listdir(self.path) if os.path.isdir(self.path) else ()
        for name in names:
            if lock := _SHARD_LOCK.fullmatch(name):
                with local.hold_lock(self._file(lock["shard"])):
                    pass

    def begin(self) -> None:
        """Starts the job over, removing what an earlier one left in the folder."""
        os.makedirs(self.path, exist_ok=True)
        self._clear()
        write_json(self._file(_ORIGIN), self.origin)
        self._remove_file(_ENDED)

    def remove(self) -> None:
        """Removes the job's files, and the folder unless it contains others."""
        if not os.path.isdir(self.path):
            return
        self._clear()
        self._remove_file(_ENDED)
        if others := os.listdir(self.path):
            print(
                f"{self.path}: not removed, because it contains other files "
                f"({_some(others)})",
                file=sys.stderr,
            )
        else:
            os.rmdir(self.path)

    def _clear(self):
        # The origin is renamed first: without it, nothing counts as done, and its new name
        # marks the folder as a job's as long as it contains a file.
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._file(_ORIGIN), self._file(_ENDED))
        for name in os.listdir(self.path):
            is_made = name in (_FAILED, _SHARDS) or self._made.fullmatch(name)
            if is_made or local.is_own(name):
                self._remove_file(name)

    def _remove_file(self, name):
        path = self._file(name)
        if os.path.isfile(path):
            os.remove(path)

    def _file(self, name):
        return os.path.join(self.path, name)


def origin(path: str) -> dict:
    """That of the job in a folder."""
    return json_files.read(os.path.join(path, _ORIGIN))


def _some(names):
    return ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")


def outcome_of(path: str) -> dict | None:
    """What a task has noted, or None if it is not done; `path` is that of `do`."""
    with contextlib.suppress(FileNotFoundError):
        return json_files.read(f"{path}.json")


def do(path: str, function: Callable[..., dict], *arguments) -> dict:
    """Does a task unless it is noted, and returns what is noted.

    Args:
        path: the note's path without its suffix; also the first argument of `function`,
            for the names of its files.
        function: returns what to note, a dict of JSON values.
    """
    outcome = outcome_of(path)
    if outcome is None:
        outcome = function(path, *arguments)
        write_json(f"{path}.json", outcome)
    return outcome


@dataclasses.dataclass(frozen=True)
class Share:
    """One of several runs, on one machine or many, that do a job's tasks together.

    Run `index` of `count` does every count-th task, and takes the results of the others
    from their notes. What is to be done once is for run 0. `check` is called again and
    again while it waits for another run, and raises what ends this one.
    """

    index: int = 0
    count: int = 1
    check: Callable[[], None] = lambda: None

    def has(self, number: int) -> bool:
        """Whether the task of this number is for this run."""
        return number % self.count == self.index

    def do_once(self, path: str, function: Callable[..., dict], *arguments) -> dict:
        """Like `do`, for a task that only one run does."""
        if self.index == 0:
            return do(path, function, *arguments)
        return self.wait_until(lambda: outcome_of(path), "shard 0")

    def wait_until(self, ready: Callable[[], Any], whom: str) -> Any:
        """Waits until a value is neither None nor False, with a line every minute."""
        begun = told = time.monotonic()
        while (value := ready()) is None or value is False:
            self.check()
            time.sleep(_POLL_SECONDS)
            now = time.monotonic()
            if now - told >= _NEWS_SECONDS:
                told = now
                waited = duration(now - begun)
                print(f"waiting for {whom} since {waited}", file=sys.stderr, flush=True)
        return value


class _Elsewhere:
    """Stands for a task of another run, where a future does for one of our own."""

    def __init__(self, path: str, number: int, share: Share):
        self._path, self._share = path, share
        self._whom = f"shard {number % share.count}"

    def done(self) -> bool:
        return outcome_of(self._path) is not None

    def result(self) -> dict:
        return self._share.wait_until(lambda: outcome_of(self._path), self._whom)


class Workers:
    """Does tasks in this process, or in several others.

    Use it in a `with` block. The other processes are spawned, never forked, end with this
    process however it ends, and leave Ctrl-C to it. If the block fails, they end at once:
    unfinished tasks are lost, noted ones are not.
    """

    def __init__(self, count: int, share: Share | None = None):
        self.share = share or Share()
        self._executor = None
        # One task per process and one waiting, because a task's arguments take memory.
        self._most_unfinished = count + 1
        if count > 1:
            self._executor = _Processes(count)

    def __enter__(self):
        return self

    def __exit__(self, exception_type, *_):
        if self._executor:
            self._executor.end(at_once=bool(exception_type))

    def do_all(
        self,
        tasks: Iterable[tuple[float, tuple]],
        total: float,
        what: str,
        unit: str,
        scale: float = 1.0,
    ) -> list[dict]:
        """Does tasks and shows their progress; returns what each noted, in the given order.

        Args:
            tasks: the size of each task and its arguments to `do`; consumed only as
                processes become free, so a generator's tasks are never all in memory.
            total: the sum of the sizes; divided by `scale`, it is in `unit`.
        """
        outcomes = []
        with Progress(what, total, unit, scale) as progress:
            for size, outcome, was_noted in self._outcomes(tasks):
                outcomes.append(outcome)
                progress.advance(size, was_noted)
        return outcomes

    def results(self, function: Callable, tasks: Iterable[tuple]) -> Iterator:
        """Yields what a function returns for each tuple of arguments, in their order.

        Nothing is noted. Few tasks and results are in memory.
        """
        ahead = collections.deque()
        for arguments in tasks:
            ahead.append(self._start(function, *arguments))
            if self._executor is None or len(ahead) > self._most_unfinished:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()

    def _outcomes(self, tasks) -> Iterator[tuple[float, dict, bool]]:
        """Yields each task's size, its note, and whether it was noted before this run."""
        ahead = collections.deque()
        unfinished = set()
        for number, (size, task) in enumerate(tasks):
            outcome = outcome_of(task[0])
            was_noted = outcome is not None
            if was_noted:
                future = _finished_future(outcome)
            elif self.share.has(number):
                future = self._submit(task)
                unfinished.add(future)
            else:
                future = _Elsewhere(task[0], number, self.share)
            ahead.append((size, future, was_noted))
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
        return self._start(do, *task)

    def _start(self, function, *arguments):
        if self._executor is None:
            return _finished_future(function(*arguments))
        # Processes start as tasks are submitted and inherit the blocked Ctrl-C; here it
        # takes effect after the block.
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._executor.submit(function, *arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held_back)


def _finished_future(outcome):
    future = concurrent.futures.Future()
    future.set_result(outcome)
    return future


class _Processes:
    """Calls functions in other processes; for each of these a thread here waits.

    It needs only pipes. `ProcessPoolExecutor` makes semaphores that have names, which stay
    in shared memory if this process and Python's resource tracker are killed together.
    """

    def __init__(self, count: int):
        # Before Python 3.12, the first process that is started starts it, and then has
        # Ctrl-C again, which is blocked where processes are started.
        resource_tracker.ensure_running()
        self._threads = concurrent.futures.ThreadPoolExecutor(count)
        self._of_thread = threading.local()
        self._processes = []  # each with its connection
        self._is_over = False

    def submit(self, function, *arguments) -> concurrent.futures.Future:
        return self._threads.submit(self._call, function, arguments)

    def end(self, at_once: bool) -> None:
        """Waits for the calls, or for the processes alone."""
        self._is_over = at_once
        for process, _ in self._processes if at_once else ():
            process.terminate()
        self._threads.shutdown(cancel_futures=True)
        for process, connection in self._processes:
            connection.close()
            process.join()

    def _call(self, function, arguments):
        if not hasattr(self._of_thread, "connection"):
            self._of_thread.connection = self._begin()
        try:
            self._of_thread.connection.send((function, arguments))
            result, error = self._of_thread.connection.recv()
        except (EOFError, ConnectionError) as ended:
            raise OSError(
                "a worker process was killed from outside (out of memory?); run the same "
                "command again, with fewer --num_workers if memory is short"
            ) from ended
        if error:
            raise error
        return result

    def _begin(self):
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_answer_calls, args=(theirs, os.getpid()))
        process.start()
        theirs.close()
        self._processes.append((process, ours))
        if self._is_over:  # meanwhile
            process.terminate()
        return ours


def _answer_calls(connection, parent):
    """What the other processes do, until nobody is left who calls."""
    _follow_parent(parent)
    # Whoever calls may end before it has read an answer.
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            function, arguments = connection.recv()
            try:
                answer = function(*arguments), None
            except Exception as error:
                error.add_note(f"In another process:\n{traceback.format_exc()}")
                answer = None, error
            connection.send(answer)


def _follow_parent(parent):
    """Makes a worker process end when its parent does, even if the parent is killed."""

    def watch():
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
