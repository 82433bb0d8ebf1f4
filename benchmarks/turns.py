"""Measures systems that take turns, so that a busy machine affects all of them alike.

A system is either a process that waits to be asked for one turn after another (`Waiting`,
which runs `answer`), or a command that is run anew for each (`Command`). Needs only the
standard library, because processes of other environments import it, too.
"""

import contextlib
import dataclasses
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import options
from errors import UserError

# === A system's own process ==========================================================


def answer(work: Callable[[object], dict | None]) -> None:
    """Does a turn for each line of standard input, and replies with what it took.

    Args:
        work: is called with what was asked; what it returns is part of the reply.
    """
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(measured(work, json.loads(line))), flush=True)


def measured(work: Callable[[object], dict | None], request=None) -> dict:
    """The figures of one turn, and what `work` returned."""
    began, worked = time.perf_counter(), time.process_time()
    more = work(request)
    figures = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - worked,
        "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    return figures | (more or {})


def one_by_one(answer_to: Callable[[str], tuple], texts: list[str]) -> dict:
    """Answers one text after another; the milliseconds that each took, and the answers."""
    answers, taken = [], []
    for text in texts:
        began = time.perf_counter()
        answers.append(answer_to(text))
        taken.append(1000 * (time.perf_counter() - began))
    return {"answers": answers, "milliseconds": taken} | percentiles(taken)


def percentiles(milliseconds: list[float]) -> dict[str, float]:
    """The 50th and the 99th; of fewer than 100, the longest is the last."""
    ordered = sorted(milliseconds)
    last = len(ordered) - 1
    return {f"p{n}": ordered[round(last * n / 100)] for n in (50, 99)}


# === The process that asks ===========================================================


class Waiting:
    """A process that is ready to take turns.

    Args:
        settings: the first line that it reads, before it is ready; None sends none.
        seconds: after these it is killed, whatever it does, with all that it started; None
            lets it run.
    Raises:
        UserError: it ended before it was ready.
    """

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str] = os.environ,
        settings: dict | None = None,
        seconds: float | None = None,
    ):
        self._messages = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
            env=environment,
            start_new_session=seconds is not None,
        )
        self._seconds, self._timer = seconds, None
        if seconds is not None:
            kill = (self._process.pid, signal.SIGKILL)
            self._timer = threading.Timer(max(0, seconds), os.killpg, kill)
            self._timer.daemon = True
            self._timer.start()
        began = time.perf_counter()
        if settings is not None:
            self._say(settings)
        self._reply()
        self.ready_after = time.perf_counter() - began  # seconds

    def turn(self, request=None) -> dict:
        """What `answer` replies.

        Raises:
            UserError: the process ended.
        """
        self._say(request)
        return self._reply()

    def _say(self, value):
        with contextlib.suppress(BrokenPipeError):  # `_reply` says why it ended
            print(json.dumps(value), file=self._process.stdin, flush=True)

    def _reply(self):
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # libraries may print lines, too
                reply = json.loads(line)
                if reply == "ready" or isinstance(reply, dict):
                    return reply
        self._messages.seek(0)
        lines = self._messages.read().strip().splitlines()
        last = lines[-1] if lines else "without a message"
        killed = self._process.wait() == -signal.SIGKILL
        self.end()
        if killed and self._seconds is not None:
            raise UserError(f"a system was killed after {self._seconds:.0f} s")
        raise UserError(f"a system ended: {last}")

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        if self._timer:
            self._timer.cancel()
        self._messages.close()


class Command:
    """A command that each turn runs from start to end.

    Args:
        figures_of: called after each turn with what the command printed; returns more
            figures.
    """

    def __init__(
        self,
        command: list[str],
        figures_of: Callable[[str], dict],
        environment: Mapping[str, str] = os.environ,
    ):
        self._command, self._figures_of = command, figures_of
        self._environment = environment

    def turn(self, request=None) -> dict:
        """Raises:
        UserError: the command failed.
        """
        del request
        began, before = time.perf_counter(), _children()
        done = subprocess.run(
            self._command, capture_output=True, text=True, env=self._environment
        )
        seconds, after = time.perf_counter() - began, _children()
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["without a message"]
            raise UserError(f"{' '.join(self._command)} failed: {lines[-1]}")
        worked = after - before
        return {"seconds": seconds, "cpu_seconds": worked} | self._figures_of(
            done.stdout
        )

    def end(self) -> None:
        pass


def _children():
    """Processor seconds of the processes that have ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def command(module: str, chosen: options.Group, **changes) -> list[str]:
    """The command of a module of ours with these flags, some of them changed."""
    flags = dataclasses.asdict(chosen) | changes
    given = {name: value for name, value in flags.items() if value is not None}
    return [sys.executable, "-m", module, *options.words(**given)]


def last_json(printed: str):
    """What the last line of a command's output says."""
    return json.loads(printed.strip().splitlines()[-1])


def with_threads(number: int) -> dict[str, str]:
    """An environment in which TensorFlow and PyTorch compute with this many threads; 0
    leaves that to them, which is one per core.

    On a busy machine, PyTorch's threads wait for each other where TensorFlow's do not, so
    only systems with one thread compare fairly there.
    """
    names = (
        "OMP_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
    )
    return os.environ | (dict.fromkeys(names, str(number)) if number else {})


def started(commands: Mapping[str, tuple]) -> dict[str, Waiting]:
    """Starts systems one at a time, because they compile; names others that do not run.

    Args:
        commands: name -> arguments of `Waiting`.
    Raises:
        UserError: the first one does not run.
    """
    systems = {}
    for name, arguments in commands.items():
        try:
            systems[name] = Waiting(*arguments)
        except UserError as error:
            if not systems:  # ours, with which the others are compared
                raise
            print(f"{name} does not run: {error}", file=sys.stderr)
    return systems


def take(systems: Mapping[str, Waiting | Command], rounds: int, request=None) -> dict:
    """Name -> the figures of each of its turns."""
    figures = {name: [] for name in systems}
    for number in range(rounds):
        for name, system in systems.items():
            figures[name].append(system.turn(request))
            seconds = figures[name][-1]["seconds"]
            print(f"round {number + 1}: {name} {seconds:.2f} s", file=sys.stderr)
    return figures


# === The table =======================================================================


def compare(figures: Mapping[str, list[dict]], key: str = "seconds") -> list[dict]:
    """A row for each system; the first one is ours.

    A ratio is the median of the rounds' ratios, each between turns that followed each
    other.

    Args:
        figures: what `take` returned.
        key: of what is compared.
    """
    [ours, *_] = figures.values()
    rows = []
    for name, turns in figures.items():
        values = [turn[key] for turn in turns]
        pairs = zip(turns, ours, strict=True)
        ratios = [turn[key] / our[key] for turn, our in pairs]
        rows.append(
            {
                "system": name,
                key: statistics.median(values),
                "lowest": min(values),
                "highest": max(values),
                "times_ours": statistics.median(ratios),
                "lowest_ratio": min(ratios),
                "highest_ratio": max(ratios),
            }
        )
    return rows


def table(figures: Mapping[str, list[dict]], more: Mapping[str, Callable] = {}) -> str:
    """Wall-clock and processor time of each system, and how many times ours they are.

    Args:
        figures: what `take` returned.
        more: heading -> maps the figures of one system to the text of a further column.
    """
    columns = (
        "ms",
        "lowest to highest",
        "times ours",
        "spread",
        "CPU ms",
        "times ours",
    )
    widths = (8, 19, 10, 14, 8, 10)
    heading = zip((*columns, *more), (*widths, *[12] * len(more)), strict=True)
    lines = [" " * 28 + " ".join(f"{text:>{width}}" for text, width in heading)]
    worked = compare(figures, "cpu_seconds")
    for row, cpu in zip(compare(figures), worked, strict=True):
        cells = (
            f"{row['seconds'] * 1000:.0f}",
            f"{row['lowest'] * 1000:.0f} to {row['highest'] * 1000:.0f}",
            f"{row['times_ours']:.2f}",
            f"{row['lowest_ratio']:.2f} to {row['highest_ratio']:.2f}",
            f"{cpu['cpu_seconds'] * 1000:.0f}",
            f"{cpu['times_ours']:.2f}",
        )
        line = " ".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True))
        added = (f"{show(figures[row['system']]):>12}" for show in more.values())
        lines.append(" ".join([f"{row['system']:28}{line}", *added]))
    return "\n".join(lines)


def peak(turns: list[dict]) -> str:
    """The peak memory of a system; a column for `table`."""
    return f"{max(turn['bytes'] for turn in turns) / 1e9:.2f}"


def mean_and_deviation(values: Sequence[float], form: str = ".1f") -> str:
    """Of the values of several runs; empty if there are none."""
    if not values:
        return ""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):{form}} ± {deviation:{form}}"


def write(path: str | None, settings: Mapping, figures: Mapping) -> None:
    """Writes a measurement as JSON, with every turn; nothing without a path."""
    if path:
        content = {"settings": settings, "rows": compare(figures), "turns": figures}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
