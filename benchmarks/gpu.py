"""Measures what a GPU gives, in one command of at most --minutes.

    python -m benchmarks.gpu
    python -m benchmarks.gpu --only='Large,4 layers' --minutes=15

Updates of BERT by this project and by its peers, runs from records, killed runs and the
tests. Every step is a process of its own, one after the other, the most important first;
gpu.json and gpu.md are written after every figure, so that a run that is cut still shows
what it had. A system that is not installed or fails is a line that says so.

Compiled programs are kept in a folder of the run, which is empty at first: "cold" is the
first start with it, "with its cache" the second. --small does the same at tiny sizes, to
try this program where there is no GPU.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import command_line
import options
from training.run import program_cache
from benchmarks import flop, gpu_report, kills, peers, random_records, turns
from errors import UserError
from text.instances.table import RowOptions

_ROUNDS = 9
_SECONDS_PER_TURN = 0.3  # as many updates as take this long
_LEAST_SECONDS = 15  # with less left, no step is begun
_PACKAGES = ("tensorflow", "keras", "jax", "torch", "transformers")
_VERSIONS = f"""
import importlib.metadata as m, json
found = {{d.metadata["name"].lower(): d.version for d in m.distributions()}}
print(json.dumps({{name: found.get(name) for name in {_PACKAGES}}}))
"""


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    output_dir: str = options.field(
        "gpu_report", help="Folder for gpu.json, gpu.md and logs."
    )
    minutes: float = options.field(8.0, help="After these, nothing is begun.", above=0)
    only: list[str] = options.field(
        [], help="Only steps whose names contain one of these."
    )
    peers_python: str = options.field(
        sys.executable, help="Python with PyTorch and transformers."
    )
    small: bool = options.field(False, help="Tiny sizes, also for a CPU.")


class Size(NamedTuple):
    """Of a model and of its batches."""

    num_hidden_layers: int
    hidden_size: int
    batch_size: int
    max_seq_length: int
    vocab_size: int = 30522


BASE, LONG, LARGE, FOUR = (
    "Base, 128 x 128",
    "Base, 32 x 512",
    "Large, 64 x 128",
    "4 layers of 256, 256 x 128",
)
SETTINGS = {
    BASE: Size(12, 768, 128, 128),
    LONG: Size(12, 768, 32, 512),
    LARGE: Size(24, 1024, 64, 128),
    FOUR: Size(4, 256, 256, 128),
}
TINY = "1 layer of 64, 8 x 32"
SMALL_SETTINGS = {TINY: Size(1, 64, 8, 32, 2000)}
# Name -> a backend or a system of benchmarks/peers.py, and whether it is started again,
# with the programs that it compiled.
SYSTEMS = {
    gpu_report.OURS: ("xla", True),
    "ours": ("tensorflow", False),
    "ours, JAX": ("jax", True),
    "transformers SDPA": ("transformers SDPA", False),
    "transformers compiled": ("transformers compiled", False),
}


class Step(NamedTuple):
    """One of the measurements.

    Attributes:
        seconds: its time; what it has not reached by then is left out.
        work: called with the bench, those seconds and a function that notes figures.
        known: figures that it has at once.
    """

    name: str
    seconds: float
    work: Callable[["Bench", float, Callable], None]
    known: dict = {}


@dataclasses.dataclass(frozen=True)
class Bench:
    """What all steps share: flags, folders and the report."""

    chosen: Options
    settings: dict[str, Size]
    scratch: pathlib.Path
    report: gpu_report.Report

    @property
    def variables(self) -> dict[str, str]:
        """Of the environment of all that is run: takes memory as needed, and keeps
        compiled programs in our folder.
        """
        folders = {
            "XDG_CACHE_HOME": "programs",  # of the scripts
            "JAX_COMPILATION_CACHE_DIR": "jax",
            "TORCHINDUCTOR_CACHE_DIR": "torch",
            "TRITON_CACHE_DIR": "triton",
            "TMPDIR": "tmp",
        }
        found = {name: str(self.scratch / path) for name, path in folders.items()}
        found["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
        found["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        found["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        if self.chosen.small:  # as in the tests
            found["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
        return found

    def run(self, command: list[str], seconds: float, name: str) -> str:
        """What a command prints, which is also kept as a log.

        Raises:
            UserError: it failed, or was killed after these seconds.
        """
        log = pathlib.Path(self.chosen.output_dir, f"{name}.log")
        with open(log, "w") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | self.variables,
                start_new_session=True,
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said = log.read_text(errors="replace")
        last = (said.strip().splitlines() or ["without a message"])[-1]
        if status is None:
            raise UserError(f"cut after {seconds:.0f} s: {last}")
        if status:
            raise UserError(f"failed: {last}")
        return said


# --- Updates -------------------------------------------------------------------------


def _update_step(settings, setting, system, seconds):
    size = settings[setting]
    known = {
        "setting": setting,
        "system": system,
        "flop": sum(product.flop for product in flop.of_update(size)),
    }

    def work(bench, seconds, note):
        ends = time.monotonic() + seconds
        _time_updates(bench, size, system, seconds, note)
        left = ends - time.monotonic()
        if SYSTEMS[system][1] and left > _LEAST_SECONDS:
            with _started(bench, size, system, left) as process:
                note(first_update_cached=process.ready_after)

    return Step(gpu_report.update_name(setting, system), seconds, work, known)


@contextlib.contextmanager
def _started(bench, size, system, seconds):
    """The process of a system, after its first update."""
    kind, _ = SYSTEMS[system]
    is_ours = kind in peers.OURS
    chosen = peers.Options(
        **size._asdict(),
        dtype="mixed_bfloat16",
        warm_up=1,
        device="cuda" if program_cache.gpus() else "cpu",
        backends=[kind] if is_ours else ["jax"],
        peers_python=None if is_ours else bench.chosen.peers_python,
        systems=[] if is_ours else [kind],
        xla_cache_dir=str(bench.scratch / "xla"),
    )
    [*_, (command, environment)] = peers.commands(chosen).values()
    process = turns.Waiting(command, environment | bench.variables, None, seconds)
    try:
        yield process
    finally:
        process.end()


def _time_updates(bench, size, system, seconds, note):
    with _started(bench, size, system, seconds) as process:
        note(first_update=process.ready_after)
        process.turn(1)
        count = max(1, round(_SECONDS_PER_TURN / process.turn(1)["seconds"]))
        taken, most = [], 0
        for _ in range(2 if bench.chosen.small else _ROUNDS):
            reply = process.turn(count)
            taken.append(1000 * reply["seconds"] / count)
            most = max(most, reply["bytes"])
            figures = gpu_report.spread(taken)
            speed = 1000 * size.batch_size / figures["ms"]
            note(**figures, examples_per_second=speed, bytes=most)


def _product(bench, seconds, note):
    command = [sys.executable, "-m", "benchmarks.products"]
    command += options.words(size=1024 if bench.chosen.small else 8192)
    said = bench.run(command, seconds, "product")
    note(**turns.last_json(said))


# --- Runs ----------------------------------------------------------------------------


def _records_step(setting, masking, seconds):
    def work(bench, seconds, note):
        _pretrain(bench, setting, masking, seconds, note)

    masks = "masks in the records" if masking == "static" else "masks drawn in training"
    name = f"{setting}, run_pretraining.py, {masks}"
    return Step(name, seconds, work, {"records_setting": setting})


def _pretrain(bench, setting, masking, seconds, note):
    size = bench.settings[setting]
    name = f"pretraining-{list(bench.settings).index(setting)}-{masking}"
    folder = bench.scratch / name
    folder.mkdir()
    rows = RowOptions(
        max_seq_length=size.max_seq_length,
        max_predictions_per_seq=flop.NUM_PREDICTIONS,
        masking=masking,
    )
    count = 2_000 if bench.chosen.small else 60_000
    pattern = random_records.write(str(folder), count, rows, size.vocab_size)
    bare = bench.report.bare(setting)
    updates = 24 if bench.chosen.small else 600
    if bare and not bench.chosen.small:  # about fifteen seconds
        updates = max(40, min(4000, round(15 * bare / size.batch_size)))
    output = folder / "output"
    command = [sys.executable, "run_pretraining.py", "--do_train", "--xla"]
    command += options.words(
        input_file=pattern,
        bert_config_file=_config(folder, size),
        output_dir=output,
        num_train_steps=updates,
        num_warmup_steps=10,
        train_batch_size=size.batch_size,
        max_seq_length=size.max_seq_length,
        max_predictions_per_seq=flop.NUM_PREDICTIONS,
        dtype="mixed_bfloat16",
        log_every_steps=max(1, updates // 8),
    )
    began = time.monotonic()
    try:
        bench.run(command, seconds, name)
        note(seconds=time.monotonic() - began)
    finally:
        note(**_speed(output))


def _config(folder, size):
    config = {
        "vocab_size": size.vocab_size,
        "hidden_size": size.hidden_size,
        "num_hidden_layers": size.num_hidden_layers,
        "num_attention_heads": size.hidden_size // flop.HEAD_SIZE,
        "intermediate_size": 4 * size.hidden_size,
        "type_vocab_size": 2,
        "max_position_embeddings": 512,
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def _speed(output):
    """Of the intervals but the first, in which updates are compiled."""
    path = output / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    speeds = [row["examples_per_second"] for row in rows if row["kind"] == "train"][1:]
    if not speeds:
        return {}
    return {
        "examples_per_second": statistics.median(speeds),
        "slowest": min(speeds),
        "fastest": max(speeds),
    }


def _fine_tune(bench, seconds, note):
    folder, small = bench.scratch / "fine_tuning", bench.chosen.small
    folder.mkdir()
    kills.write_inputs(folder, 0.1 if small else 4.0)
    size = Size(1, 64, 8, 32) if small else SETTINGS[FOUR]
    output = folder / "output"
    command = [sys.executable, "run_classifier.py", "--do_train", "--do_eval", "--xla"]
    command += options.words(
        task_name="custom",
        data_dir=folder,
        train_file="train.tsv",
        dev_file="dev.tsv",
        vocab_file=folder / "vocab.txt",
        bert_config_file=_config(folder, size),
        output_dir=output,
        num_train_epochs=1,
        max_seq_length=16 if small else 128,
        train_batch_size=32,
        dtype="mixed_bfloat16",
        log_every_steps=1 if small else 20,
    )
    began = time.monotonic()
    try:
        bench.run(command, seconds, "fine_tuning")
        note(seconds=time.monotonic() - began)
    finally:
        note(**_speed(output))


def _kill_step(xla, seconds):
    def work(bench, seconds, note):
        command = [sys.executable, "-m", "benchmarks.kills"]
        size, number = (0.05, 1) if bench.chosen.small else (0.2, 2)
        command += options.words(kills=number, size=size, jobs="pretraining", xla=xla)
        began = time.monotonic()
        said = bench.run(command, seconds, f"kills{'-xla' * xla}")
        note(result=said.strip().splitlines()[-1], seconds=time.monotonic() - began)

    name = f"Killed and resumed with --deterministic{' --xla' * xla}"
    return Step(name, seconds, work)


def _tests_step(folder, seconds):
    def work(bench, seconds, note):
        path = f"{folder}/test_row_random.py" if bench.chosen.small else folder
        command = [sys.executable, "-m", "pytest", path, "-p", "no:benchmark"]
        if importlib.util.find_spec("xdist"):
            processes = max(1, min(8, (os.cpu_count() or 1) // 2))
            command += ["-n", "0" if bench.chosen.small else str(processes)]
            command += ["--dist=loadfile"]  # as in test.sh
        began = time.monotonic()
        said = bench.run(command, seconds, "tests-" + folder.replace("/", "-"))
        note(result=said.strip().splitlines()[-1], seconds=time.monotonic() - began)

    return Step(f"pytest {folder}", seconds, work)


# --- All of it -----------------------------------------------------------------------


def steps(settings: dict[str, Size]) -> list[Step]:
    """The most important first."""

    def updates(setting, *systems, seconds=120):
        return [_update_step(settings, setting, name, seconds) for name in systems]

    theirs = ("transformers compiled", "transformers SDPA")
    first, *others = settings
    found = [
        *updates(first, gpu_report.OURS, seconds=240),
        Step(gpu_report.PRODUCT, 60, _product),
        *updates(first, *theirs),
        _records_step(first, "static", 240),
        *updates(first, "ours, JAX"),
        _kill_step(True, 180),
        _tests_step("tests/modeling", 150),
    ]
    if others:  # small, one folder is enough
        found.append(_tests_step("tests/training/run", 150))
    for setting in sorted(others, key=lambda name: name != FOUR):
        found += updates(setting, gpu_report.OURS, *theirs, seconds=240)
    found += [
        # The last is the fastest, so it needs the most of its input.
        _records_step(others[-1] if others else first, "dynamic", 120),
        Step("run_classifier.py with length buckets", 180, _fine_tune),
        *updates(first, "ours"),
    ]
    if others:
        found.append(_kill_step(False, 120))
    for setting in others:
        found += updates(setting, "ours, JAX", "ours", seconds=180)
    return found


def _machine(chosen):
    ask = [chosen.peers_python, "-c", _VERSIONS]
    theirs = json.loads(subprocess.run(ask, capture_output=True).stdout or "{}")
    ask[0] = sys.executable
    ours = json.loads(subprocess.run(ask, capture_output=True).stdout or "{}")
    return {
        "GPU": "; ".join(program_cache.gpus().splitlines()) or "none",
        "cores": os.cpu_count(),
        "Python": platform.python_version(),
        **{name: ours.get(name) or theirs.get(name) for name in _PACKAGES},
    }


def run_step(bench, step, left):
    """Runs a step and notes why it ended, if it did not reach its end."""

    def note(**figures):
        bench.report.note(step.name, **figures)

    note(**step.known)
    if left < _LEAST_SECONDS:
        note(reason="not run: no time was left")
        return
    print(f"{time.strftime('%H:%M:%S')} {step.name}", file=sys.stderr)
    try:
        step.work(bench, min(step.seconds, left), note)
    except UserError as error:
        reason = str(error).removeprefix("a system ended: ")
        is_measured = "ms" in bench.report.steps[step.name]
        note(reason=reason if is_measured else f"does not run: {reason}")
    except Exception as error:  # whatever it is, the other figures are wanted
        note(reason=f"does not run: {error!r}")


def main(chosen: Options) -> None:
    """Runs the steps that fit, and prints the page."""
    ends = time.monotonic() + 60 * chosen.minutes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if not (program_cache.gpus() or chosen.small):
        raise UserError("nvidia-smi lists no GPU; --small tries the program without")
    os.makedirs(chosen.output_dir, exist_ok=True)
    settings = SMALL_SETTINGS if chosen.small else SETTINGS
    content = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": _machine(chosen),
        "settings": {name: size._asdict() for name, size in settings.items()},
    }
    report = gpu_report.Report(chosen.output_dir, content)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(chosen, settings, pathlib.Path(scratch), report)
        (bench.scratch / "tmp").mkdir()
        for step in steps(settings):
            if not chosen.only or any(word in step.name for word in chosen.only):
                run_step(bench, step, ends - time.monotonic())
    print(report.page(), end="")


if __name__ == "__main__":
    command_line.run(main, Options)
