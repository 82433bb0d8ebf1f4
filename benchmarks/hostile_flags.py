"""Gives every flag of every script values that nobody should, and looks at what happens.

python -m benchmarks.hostile_flags --minutes=30 [--scripts=predict,run_ner]

First every value of every flag goes through the command line alone. A random sample of
what that accepts is then run, on small data, as long as there is time. A command is to end
with 0, or with one line on stderr; it must not change a file that it did not make. Anything
else is printed. Commands are forks of a process that has loaded TensorFlow, with a limit on
their memory.
"""

import collections
import dataclasses
import functools
import hashlib
import importlib
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import re
import resource
import runpy
import shutil
import sys
import tempfile
import time
from multiprocessing import connection

import command_line
import options
from tests import given

ROOT = pathlib.Path(__file__).parent.parent
VALUES = ["nan", "inf", "-1", "0", "1000000000", str(2**31), str(2**63), "1e308"]
VALUES += ["", "given", "/dev/null", "/dev/full", "/dev/zero", "na\udcefve"]
_NUMBERS = VALUES[:8]
_MEMORY, _FILE = 12 << 30, 1 << 30  # bytes that a command may use
_SECONDS = 60
# What a command may say besides the line about what is wrong.
_SAID = re.compile(r"warning: |\S+: features of|[^\r]*\r|.*took |learning pieces|$")


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    minutes: float = options.field(30.0, help="Run accepted commands for so long.")
    scripts: list[str] = options.field([], help="Which scripts; by default, all.")
    jobs: int = options.field(2, help="Commands at a time.")
    seed: int = options.field(0, help="Of the sample.")
    report_file: str | None = options.field(
        None, help="Write every outcome here as JSON lines."
    )


# --- Commands that work ----------------------------------------------------------------


def of_masks(folder):
    return {"text": "the [MASK]"} | _copied(folder)


def of_continuation(folder):
    from training.storage import checkpoint
    from modeling.objectives import masked_lm
    from tests import tiny

    config = tiny.config(attention_direction="left_to_right")
    tiny.write(folder, "abc", config)
    os.rename(folder / "config.json", folder / "bert_config.json")
    network = masked_lm.MaskedLM().network(config)
    tensors = {v.path: v.numpy() for v in network.weights}
    checkpoint.write_bundle(str(folder / "model.ckpt"), tensors)
    names = {"vocab_file": "vocab.txt", "init_checkpoint": "model.ckpt"}
    return {"text": "a b"} | {k: str(folder / v) for k, v in names.items()}


def of_conversion(folder):
    copied = _copied(folder)
    return {
        "input": [copied["init_checkpoint"]],
        "vocab_file": copied["vocab_file"],
        "output_dir": "out",
    }


def of_pretraining(folder):
    records = shutil.copy(given.pretraining.RECORDS, folder / "records")
    flags = given.of_pretraining(folder) | _copied(folder, only="vocab_file")
    return flags | {"input_file": [records], "eval_input_file": [records]}


def of_ablations(folder):
    (folder / "text.txt").write_text("One is here. Two are not.\n\nAnother one.\n" * 9)
    return {"table": ["5"], "input_file": [str(folder / "text.txt")]}


def of_suite(folder):
    tasks = [f"SST-2:{given.of_classifier(folder)['data_dir']}"]
    return {"init_checkpoint": [_copied(folder)["init_checkpoint"]], "tasks": tasks}


def _copied(folder, only=""):
    """The released files, which a hostile command may find next to it."""
    for path in (given.GOLDEN / "checkpoint").glob("[bv]*"):
        shutil.copy(path, folder)
    return {
        name: str(folder / os.path.basename(path))
        for name, path in given.RELEASED.items()
        if only in name
    }


def released(make):
    """A maker whose flags name copies of the released files."""

    def made(folder):
        flags = make(folder)
        return flags | {k: v for k, v in _copied(folder).items() if k in flags}

    return made


TRAIN = {"output_dir": "out", "do_train": True, "do_eval": True}
OUT = {"output_file": "out"}
# Script -> what makes its files and returns their flags, and the other flags.
SCRIPTS = {
    "run_classifier": (given.of_classifier, TRAIN | {"do_predict": True}),
    "run_squad": (given.of_squad, TRAIN),
    "run_swag": (given.of_swag, TRAIN),
    "run_text_to_text": (given.of_text_to_text, TRAIN),
    "run_ner": (given.of_ner, TRAIN),
    "run_pretraining": (of_pretraining, TRAIN),
    "create_pretraining_data": (
        released(given.of_records),
        {"output_file": ["out"], "dupe_factor": 2},
    ),
    "build_vocab": (given.of_vocabulary, {"output_file": "out.txt"}),
    "inspect_records": (released(given.of_inspection), {"report_file": "out.html"}),
    "extract_features": (released(given.of_features), OUT),
    "predict": (given.of_questions, OUT),
    "augment_text": (released(given.of_augmentation), OUT),
    "fill_mask": (of_masks, {}),
    "continue_text": (of_continuation, {"num_tokens": 2}),
    "convert_checkpoint": (of_conversion, {}),
    "demo.collect_documentation": (given.of_nothing, OUT | {"max_modules": 20}),
    "demo.demo": (given.of_nothing, {"short": True, "output_dir": "out"}),
    "run_ablations": (of_ablations, {"output_dir": "out"}),
    "run_suite": (of_suite, {"output_dir": "out"}),
}
ONLY_CHECKED = {"demo.demo", "run_ablations", "run_suite"}  # they take minutes


# --- Processes -------------------------------------------------------------------------


def _run(script, words, folder):
    """In a fork: becomes a command."""
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"../{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE, _FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.argv = [str(ROOT / f"{script.replace('.', '/')}.py"), *words]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        sys.stdout.flush()


class Command:
    """A command in a folder of its own, with a copy of what it is given."""

    def __init__(self, forks, base, script, flag, value, words):
        self.case = {"script": script, "flag": flag, "value": value}
        self._place = tempfile.TemporaryDirectory(dir=base, ignore_cleanup_errors=True)
        self._folder = pathlib.Path(self._place.name, "work")
        shutil.copytree(base / script, self._folder, symlinks=True)
        self._before = contents(self._folder)
        arguments = (script, words, str(self._folder))
        self.process = forks.Process(target=_run, args=arguments)
        self.process.start()
        self.end = time.monotonic() + _SECONDS

    def outcome(self) -> dict | None:
        """What came of it; None while it runs."""
        late = time.monotonic() > self.end
        if self.process.is_alive() and not late:
            return None
        if late:
            os.killpg(self.process.pid, 9)
        self.process.join()
        after = contents(self._folder)
        changed = [p for p, was in self._before.items() if after.get(p) != was]
        path = self._folder.parent / "stderr"
        log = path.read_text(errors="replace") if path.exists() else ""
        lines = [line for line in log.split("\n") if not _SAID.match(line)]
        code = self.process.exitcode
        kind = "0" if code == 0 else "one line" if code in (1, 2) else "crash"
        if code == 1 and not lines and self.case["script"] == "inspect_records":
            kind = "problems"  # which it printed
        elif kind == "one line" and len(lines) != 1:
            kind = "traceback" if "Traceback" in log else "lines"
        kind = "hang" if late else "changed files" if changed else kind
        self._place.cleanup()
        return self.case | {
            "kind": kind,
            "exit": code,
            "changed": changed,
            "log": log[-3000:],
            "seconds": round(_SECONDS + time.monotonic() - self.end, 1),
        }


def contents(folder: pathlib.Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def run_all(forks, base, commands, jobs, until=float("inf")):
    """Yields the outcomes of commands, started as others end, as long as there is time."""
    waiting, running = iter(commands), []
    while True:
        free = jobs - len(running) if time.monotonic() < until else 0
        running += [
            Command(forks, base, *each) for each in itertools.islice(waiting, free)
        ]
        if not running:
            return
        connection.wait([c.process.sentinel for c in running], timeout=1)
        outcomes = [(command, command.outcome()) for command in running]
        running = [command for command, outcome in outcomes if outcome is None]
        yield from (outcome for _, outcome in outcomes if outcome)


# --- Cases -----------------------------------------------------------------------------


def _make(script, folder):
    """In a fork: makes the files of a script, and notes its flags."""
    os.makedirs(f"{folder}/given")
    make, more = SCRIPTS[script]
    flags = {"given": make(pathlib.Path(folder, "given")) | more}
    text = json.dumps(flags, default=str).replace(f"{folder}/", "")
    pathlib.Path(f"{folder}/flags.json").write_text(text)


def cases(base, script):
    """Yields (script, flag, value, command line) for every flag and value."""
    path = base / script / "flags.json"
    flags = json.loads(path.read_text())["given"]
    path.unlink()
    yield script, "", "", options.words(**flags)
    options_class = importlib.import_module(script).Options
    for item in dataclasses.fields(options_class):
        is_number = any(kind in str(item.type) for kind in ("int", "float"))
        for value in VALUES if not is_number else [*_NUMBERS, "", "given"]:
            words = options.words(**flags | {item.name: value})
            yield script, item.name, value, words


def main(chosen: Options) -> None:
    forks = multiprocessing.get_context("forkserver")
    scripts = chosen.scripts or list(SCRIPTS)
    forks.set_forkserver_preload(
        ["training.backend", "benchmarks.hostile_flags", *scripts]
    )
    with tempfile.TemporaryDirectory() as temporary:
        base = pathlib.Path(temporary)
        for script in scripts:
            process = forks.Process(target=_make, args=(script, f"{base}/{script}"))
            process.start()
            process.join()
        every = [case for script in scripts for case in cases(base, script)]
        report = functools.partial(_report, chosen.report_file)
        checked = [(*each, words + ["--only_check_args"]) for *each, words in every]
        accepted = set()
        outcomes = run_all(forks, base, checked, chosen.jobs)
        counts = collections.Counter()
        for outcome in outcomes:
            if outcome["kind"] == "0":
                accepted.add(tuple(outcome[k] for k in ("script", "flag", "value")))
            counts[outcome["kind"]] += 1
            report(outcome, "checked")
        print(f"{len(checked)} commands checked: {dict(counts)}", flush=True)
        run = [c for c in every if c[:3] in accepted and c[0] not in ONLY_CHECKED]
        untouched = [c for c in run if not c[1]]
        random.Random(chosen.seed).shuffle(run)
        until = time.monotonic() + 60 * chosen.minutes
        counts = collections.Counter()
        for outcome in run_all(forks, base, untouched + run, chosen.jobs, until):
            counts[outcome["kind"]] += 1
            report(outcome, "run")
        print(f"{counts.total()} of {len(run)} accepted commands run: {dict(counts)}")


def _report(path, outcome, how):
    if path:
        with open(path, "a") as file:
            file.write(json.dumps(outcome | {"how": how}) + "\n")
    if outcome["kind"] not in ("0", "one line", "problems"):
        last = outcome["log"].strip().rpartition("\n")[2]
        print(
            f"{how}: {outcome['script']} --{outcome['flag']}={outcome['value']!r}: "
            f"{outcome['kind']} ({outcome['exit']}) {outcome['changed']} {last}",
            flush=True,
        )


if __name__ == "__main__":
    from benchmarks import hostile_flags

    # Otherwise each fork would run this file again.
    sys.modules["__main__"].__spec__ = None
    del sys.modules["__main__"].__file__
    command_line.run(hostile_flags.main, hostile_flags.Options)
