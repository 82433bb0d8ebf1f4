"""Runs the cells of a plan: each a command in a process and a folder of its own.

A folder has the command's output, log.txt and, once the command has succeeded, cell.json
with the command, its time and its results. Finished cells are not run again; an
interrupted one continues as its script does.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import itertools
import math
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from training.storage.folder import BEST, METRICS, RUNS, Folder
from errors import UserError, duration
from files import json_files, local

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_DONE, _LOG, _LOCK = "cell.json", "log.txt", ".cell~bert~lock"
OUTPUT = "output"
# Results of every cell: bytes of its process; of a training, as metrics.jsonl has it.
PEAK_MEMORY, SPEED = "peak_memory", "examples_per_second"
_SECONDS_BETWEEN_LOOKS = 0.5


@dataclasses.dataclass(frozen=True)
class Cell:
    """One command.

    Attributes:
        name: its folder, within that of the plan.
        script: at the root of the repository.
        words: its flags; "{root}" is the plan's folder.
        kind: cells of a kind take about the same time.
        needs: names of the cells that must have finished.
        results_file: within its output; "" if it has none.
        metric: a result that it must have.
        keeps_weights: False if only the results are needed later.
        passed: names of the flags of recipes.ablations that contain some of its words.
    """

    name: str
    script: str
    words: tuple[str, ...]
    kind: str
    needs: tuple[str, ...] = ()
    results_file: str = ""
    metric: str = ""
    keeps_weights: bool = True
    passed: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        return output_of(self.name)

    def command(self, root: str) -> list[str]:
        words = (word.replace("{root}", os.path.abspath(root)) for word in self.words)
        return [sys.executable, os.path.join(_ROOT, self.script), *words]


def output_of(name: str) -> str:
    """The folder for the output of a cell, as its flags name it."""
    return f"{{root}}/{name}/{OUTPUT}"


def result_of(root: str, cell: Cell) -> dict | None:
    """What cell.json says; None if the cell has not finished."""
    path = os.path.join(root, cell.name, _DONE)
    if not os.path.exists(path):
        return None
    try:
        done = json_files.read_object(path, "delete it")
        before = last_values(done["words"])
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{path}: damaged ({error!r}); delete it") from error
    if before.items() ^ last_values(cell.words).items():
        differ = sorted(set(done["words"]) ^ set(cell.words))
        raise UserError(
            f"{os.path.dirname(path)}: was run with other flags ({', '.join(differ)}); "
            "use the flags of its run, or choose another --output_dir"
        )
    return done


def all_finished(root: str, cells: Sequence[Cell]) -> dict[str, dict]:
    """What `result_of` says of the cells that have finished, by name."""
    by_name = {cell.name: result_of(root, cell) for cell in cells}
    return {name: done for name, done in by_name.items() if done}


def time_left(
    left: Sequence[Cell],
    cells: Sequence[Cell],
    done_by_name: Mapping[str, dict],
    jobs: int,
) -> tuple[float, int]:
    """Seconds, from finished cells of the same kind or of a similar one.

    Args:
        done_by_name: what `result_of` says of cells, by name.
    Returns:
        the seconds, and of how many more cells the time is not known.
    """
    seconds = collections.defaultdict(list)
    for cell in cells:
        if cell.name in done_by_name:
            for kind in (cell.kind, cell.kind.split()[0]):
                seconds[kind].append(done_by_name[cell.name]["seconds"])
    estimates = [seconds.get(c.kind) or seconds.get(c.kind.split()[0]) for c in left]
    medians = [statistics.median(some) for some in estimates if some]
    return sum(medians) / jobs, len(left) - len(medians)


def last_values(words: Sequence[str]) -> dict[str, str]:
    """Flags, such as --seed, and values; of a repeated flag, the value that counts."""
    return dict(word.partition("=")[::2] for word in words)


def check_flags(root: str, cells: Sequence[Cell]) -> None:
    """Has each script check the flags of the first cell with the same `passed`."""
    first = {(cell.script, cell.passed): cell for cell in reversed(cells)}
    processes = [
        subprocess.Popen(
            [*cell.command(root), "--only_check_args"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for cell in first.values()
    ]
    errors = [process.communicate()[1] for process in processes]
    for cell, process, error in zip(first.values(), processes, errors, strict=True):
        if process.returncode:
            # It begins with the script's name.
            last = (error.splitlines() or [f"status {process.returncode}"])[-1]
            blamed = " or ".join(f"--{name}" for name in cell.passed)
            raise UserError(f"{blamed or 'bad flags'}: {last}")


class Runner:
    """Runs cells, several at a time, each after those that it needs.

    Args:
        root: the plan's folder.
        jobs: number of processes; with more than one, each has an equal share of the
            cores.
        on_finish: called with a cell and the content of its cell.json.
    """

    def __init__(self, root: str, jobs: int, on_finish: Callable[[Cell, dict], None]):
        self._root, self._jobs, self._on_finish = root, jobs, on_finish
        self._environment = dict(os.environ)
        if jobs > 1:
            threads = str(max((os.cpu_count() or 1) // jobs, 1))
            for name in ("INTRAOP", "INTEROP"):
                self._environment.setdefault(f"TF_NUM_{name}_THREADS", threads)
        self._processes: set[subprocess.Popen] = set()
        self._stopping = threading.Event()

    def run(self, cells: Sequence[Cell], done_by_name: Mapping[str, dict]) -> list[str]:
        """Runs what has not finished; prints a line for each start and end.

        Args:
            done_by_name: what `result_of` says, by name.
        Returns:
            A line for each cell that failed. Cells that need it are not run.
        """
        left = {cell.name: cell for cell in cells if cell.name not in done_by_name}
        for cell in cells:
            if cell.name in done_by_name:
                self._clear(cell)  # unless it was killed just before that
        if done_by_name:
            _say(f"{len(done_by_name)} of {len(cells)} cells have finished earlier")
        done_by_name, failures, running = dict(done_by_name), {}, {}
        with concurrent.futures.ThreadPoolExecutor(self._jobs) as pool, self._ending():
            while left or running:
                for cell in self._ready(left, running, failures):
                    del left[cell.name]
                    running[pool.submit(self._one, cell)] = cell
                if not running:
                    break
                ended, _ = concurrent.futures.wait(
                    running, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in ended:
                    cell = running.pop(future)
                    number = len(cells) - len(left) - len(running)
                    try:
                        done = future.result()
                        done_by_name[cell.name] = done
                        self._on_finish(cell, done)
                        outcome = f"took {duration(done['seconds'])}"
                    except (_Failed, UserError, OSError, ValueError) as error:
                        failures[cell.name] = f"{cell.name}: {error}"
                        outcome = f"failed: {error}"
                    waiting = [*left.values(), *running.values()]
                    seconds, unknown = time_left(
                        waiting, cells, done_by_name, self._jobs
                    )
                    is_known = waiting and not unknown
                    rest = f", about {duration(seconds)} left" if is_known else ""
                    _say(f"[{number}/{len(cells)}{rest}] {cell.name}: {outcome}")
        return [*failures.values(), *(f"{name}: not run" for name in left)]

    @contextlib.contextmanager
    def _ending(self):
        """Ends the processes if this one is interrupted or asked to end."""
        before = signal.signal(
            signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
        )
        try:
            yield
        except BaseException:
            self._stopping.set()
            for process in list(self._processes):
                process.terminate()
            raise
        finally:
            signal.signal(signal.SIGTERM, before)

    def _ready(self, left, running, failures) -> list[Cell]:
        """The next cells to start, as many as may run."""
        unfinished = {*left, *failures, *(cell.name for cell in running.values())}
        ready = (c for c in left.values() if unfinished.isdisjoint(c.needs))
        return list(itertools.islice(ready, self._jobs - len(running)))

    def _one(self, cell: Cell) -> dict:
        """Runs a cell to its end; returns the content of cell.json."""
        folder = os.path.join(self._root, cell.name)
        os.makedirs(os.path.join(folder, OUTPUT), exist_ok=True)
        log = os.path.join(folder, _LOG)
        with open(log, "ab") as file, self._lock(folder) as lock:
            if self._stopping.is_set():
                raise _Failed("interrupted")
            _say(f"{cell.name}: started; see {log}")
            begun = time.monotonic()
            process = subprocess.Popen(
                cell.command(self._root),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self._environment,
                pass_fds=[lock],
            )
            self._processes.add(process)
            if self._stopping.is_set():
                process.terminate()
            status, peak_memory = _wait(process)
            self._processes.discard(process)
        if status:
            raise _Failed(f"exited with status {status}; {_last_line(log)} (see {log})")
        results = _results(os.path.join(folder, OUTPUT, cell.results_file))
        if cell.metric and not math.isfinite(results.get(cell.metric, math.nan)):
            raise _Failed(
                f"{cell.results_file} has no finite {cell.metric} (see {log})"
            )
        done = {
            "words": list(cell.words),
            "seconds": time.monotonic() - begun,
            "results": results | _costs(os.path.join(folder, OUTPUT), peak_memory),
        }
        local.write_json(os.path.join(folder, _DONE), done)
        self._clear(cell)
        return done

    def _clear(self, cell):
        output = os.path.join(self._root, cell.name, OUTPUT)
        if not cell.keeps_weights:
            folder = Folder.open(output)
            runs = folder.child(RUNS)
            for each in (folder, *map(runs.child, sorted(runs.names))):
                each.drop_all()
                each.child(BEST).drop_all()

    @contextlib.contextmanager
    def _lock(self, folder):
        """A lock that the cell's process inherits, so it outlives this one with it."""
        with open(os.path.join(folder, _LOCK), "ab") as file:
            if not local.try_lock(file, fcntl.LOCK_EX):
                _say(
                    f"{folder}: its process still runs since an earlier start; waiting"
                )
                while not self._stopping.is_set():
                    if local.try_lock(file, fcntl.LOCK_EX):
                        break
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
            yield file.fileno()


class _Failed(Exception):
    """A command failed."""


def _wait(process: subprocess.Popen) -> tuple[int, int]:
    """Waits for the end; returns the status, and the most memory that was seen, in bytes.

    The latter is 0 where there is no /proc, or if it was too soon over.
    """
    peak = 0
    while True:
        try:
            return process.wait(_SECONDS_BETWEEN_LOOKS), peak
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                with open(f"/proc/{process.pid}/status") as file:
                    match = re.search(r"^VmHWM:\s*(\d+) kB$", file.read(), re.M)
                    peak = int(match[1]) * 1024 if match else peak


def _costs(output: str, peak_memory: int) -> dict[str, float]:
    """What a cell took, as far as it is known."""
    costs = {PEAK_MEMORY: peak_memory} if peak_memory else {}
    with contextlib.suppress(
        OSError, ValueError, LookupError, statistics.StatisticsError
    ):
        with open(os.path.join(output, METRICS), encoding="utf-8") as file:
            rows = [json_files.parse(line) for line in file]
        speeds = [row[SPEED] for row in rows if row["kind"] == "train"]
        costs[SPEED] = statistics.median(speeds)
    return costs


def _results(path: str) -> dict[str, float]:
    """The results of an evaluation; none if `path` is a folder."""
    if path.endswith(".json"):
        return json_files.read(path)
    if os.path.isdir(path):
        return {}
    with open(path, encoding="utf-8") as file:  # the release's "name = value"
        pairs = (line.split(" = ") for line in file)
        return {name: float(value) for name, value in pairs}


def _last_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return f"its last line: {lines[-1]}" if lines else "it printed nothing"


def _say(line: str) -> None:
    # In one write, because several threads print.
    print(f"{time.strftime('%H:%M:%S')} {line}\n", end="", flush=True)
