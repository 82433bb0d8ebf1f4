"""Gives scripts flags and files that nobody should, and judges what a command then does.

A command is to end with 0, or with one line on stderr; it must not change a file that it
did not make, nor take more than a few GB.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import itertools
import math
import os
import pathlib
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing import connection
from typing import ClassVar

from absl import flags as absl_flags

import command_line
import options
import tests
from training.storage import checkpoint
from errors import UserError
from modeling.objectives import masked_lm
from tests import forked, given, samples, tiny

MUCH = str(10**16)
NUMBERS = ["0", "-1", str(2**31), MUCH, str(2**63), "1e308", "nan", "inf"]
NAMES = ["", "given", "a\nb", "\n", "a\0b", "na\udcefve", "gone/x", "x@1e3"]
NAMES += ["/dev/null", "/dev/full", "/dev/zero"]
# Of file systems that nobody has, or that nothing is reached on.
ADDRESSES = ["gs://no/where", "x://y", "hf://a", "hf://a/b", "http://127.0.0.1:9/x"]

_ENVIRONMENT = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9"}
# What a command may say besides the line about what is wrong.
_SAID = re.compile(
    r"warning: |\S+: features of|[^\r]*\r|.*took |learning pieces|"
    r".* variables matched|  unused in the checkpoint|$"
)


# --- Commands that work ------------------------------------------------------------------


def _of_masks(folder):
    return given.RELEASED | {"text": "the [MASK]"}


def _of_continuation(folder):
    config = tiny.config(attention_direction="left_to_right")
    tiny.write(folder, "abc", config)
    (folder / "config.json").rename(folder / "bert_config.json")
    network = masked_lm.MaskedLM().network(config)
    tensors = {v.path: v.numpy() for v in network.weights}
    checkpoint.write_bundle(str(folder / "model.ckpt"), tensors)
    names = {"vocab_file": "vocab.txt", "init_checkpoint": "model.ckpt"}
    return {"text": "a b"} | {k: str(folder / v) for k, v in names.items()}


def _of_conversion(folder):
    vocab_file = given.RELEASED["vocab_file"]
    return {"input": [given.RELEASED["init_checkpoint"]], "vocab_file": vocab_file}


_TRAIN = {"output_dir": "out", "do_train": True, "do_eval": True}
_OUT = {"output_file": "out"}
# Script -> what makes its files and returns their flags, and the other flags.
SCRIPTS = {
    "run_classifier": (given.of_classifier, _TRAIN | {"do_predict": True}),
    "run_squad": (given.of_squad, _TRAIN),
    "run_swag": (given.of_swag, _TRAIN),
    "run_ner": (given.of_ner, _TRAIN),
    "run_retrieval": (given.of_retrieval, _TRAIN | {"do_predict": True}),
    "run_pretraining": (given.of_pretraining, _TRAIN),
    "create_pretraining_data": (
        given.of_records,
        {"output_file": ["out"], "dupe_factor": 2},
    ),
    "build_vocab": (given.of_vocabulary, {"output_file": "out.txt"}),
    "inspect_records": (given.of_inspection, {"report_file": "out.html"}),
    "extract_features": (given.of_features, _OUT),
    "predict": (given.of_questions, _OUT),
    "fill_mask": (_of_masks, {}),
    "continue_text": (_of_continuation, {"num_tokens": 2}),
    "convert_checkpoint": (_of_conversion, {"output_dir": "out"}),
    **samples.collect("SCRIPTS", "scripts"),
}
ONLY_READ = samples.collect("ONLY_READ", "scripts")  # script -> why it is not run
READ_NO_TEXT = {"inspect_records": "reads records"}
READ_NO_TEXT |= samples.collect("READ_NO_TEXT", "scripts")


def make_files(script: str, folder: pathlib.Path) -> dict:
    """Makes the files of a script in a folder; returns flags that work there."""
    place = folder / "given"
    place.mkdir(parents=True)
    make, more = SCRIPTS[script]
    return {
        name: [_near(each, place) for each in value]
        if isinstance(value, list)
        else _near(value, place)
        for name, value in (make(place) | more).items()
    }


def _near(value, place):
    """A path from the parent of `place`, to which a file of the repository is copied."""
    if not isinstance(value, str):
        return value
    if value.startswith(str(tests.GOLDEN)):
        folder, name = os.path.split(value)
        for path in pathlib.Path(folder).glob("[bpv]*"):  # and what is next to it
            shutil.copy(path, place)
        return f"given/{name}"
    return value.replace(f"{place.parent}/", "")


# --- Cases -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Case:
    """A command all of whose flags but one are as they should be."""

    script: str
    flag: str
    value: str
    words: tuple[str, ...]

    limits: ClassVar[Mapping[int, int]] = {  # of resources
        resource.RLIMIT_AS: 12 << 30,
        resource.RLIMIT_FSIZE: 1 << 30,
        resource.RLIMIT_CORE: 0,
    }

    def __str__(self):
        return f"{self.script} --{self.flag}={self.value!r}"

    def prepare(self, folder: pathlib.Path) -> None:
        """Changes the command's copy of the files."""


# What a file may be replaced by, by the end of its name.
_LINE = {"a line of 200 MB": lambda: bytes(2 * 10**8)}
_CELL = {"a cell of 200 MB": lambda: b'"' + (b"a" * 999 + b"\n") * 2 * 10**5}
CONTENTS = {
    ".txt": _LINE,
    ".tsv": _LINE | {"many cells": lambda: b"a\t" * 3 * 10**7},
    ".csv": _LINE | _CELL | {"many cells": lambda: b"a," * 3 * 10**7},
    ".json": _LINE
    | _CELL
    | {
        "many values": lambda: b"[" + b"[]," * 10**6 + b"[]]",
        "a deep list": lambda: b"[" * 10**6,
        "a deep object": lambda: b'{"a": ' * 10**6,
    },
}


@dataclasses.dataclass(frozen=True)
class FileCase(Case):
    """A command that finds one of CONTENTS in the file `flag`, in two GB of memory."""

    limits = Case.limits | {resource.RLIMIT_DATA: 2 << 30}

    def prepare(self, folder):
        """See `Case`."""
        path = folder / self.flag
        path.write_bytes(CONTENTS[path.suffix][self.value]())


def file_cases(script: str, flags: dict, folder: pathlib.Path) -> list[FileCase]:
    """The files of text that a script is given, with each of CONTENTS.

    Those that all scripts read alike, and further sets, are those of run_classifier alone.
    """
    words = tuple(options.words(**flags))
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    if script != "run_classifier":
        others = re.compile(r".*\b(\w*config|vocab|dev|test|val)\.\w+")
        files = {name for name in files if not others.fullmatch(name)}
    return [
        FileCase(script, name, content, words)
        for name in sorted(files)
        for content in CONTENTS.get(os.path.splitext(name)[1], ())
    ]


def cases(script: str, flags: dict) -> list[Case]:
    """Every flag of a script with every value; the first is the command as it should be."""
    found = [Case(script, "", "", tuple(options.words(**flags)))]
    for item in dataclasses.fields(importlib.import_module(script).Options):
        is_number = any(kind in str(item.type) for kind in ("int", "float"))
        names = NAMES[:2] if is_number else [*NAMES, *ADDRESSES]
        for value in [*NUMBERS, *names]:
            words = options.words(**flags | {item.name: value})
            found.append(Case(script, item.name, value, tuple(words)))
    return found


class Reader:
    """Reads the command lines of a script in this process, as the script does."""

    def __init__(self, script: str):
        self._options = importlib.import_module(script).Options
        self._flags = absl_flags.FlagValues()
        command_line.define(self._options, self._flags)

    def refuses(self, case: Case) -> str | None:
        """The line with which a command is refused before it starts, if it is.

        Any other exception is a mistake of ours.
        """
        for name in self._flags:
            self._flags[name].unparse()
        try:
            command_line.read(self._options, [case.script, *case.words], self._flags)
        except (absl_flags.Error, UserError) as error:
            return str(error)


def accepted(folder: pathlib.Path, cases: Iterable[Case]) -> list[Case]:
    """The commands that are not refused before they start.

    Args:
        folder: has, for each script, a folder with its files.
    """
    reader_of = functools.cache(Reader)
    found = []
    for case in cases:
        with contextlib.chdir(folder / case.script):
            if reader_of(case.script).refuses(case) is None:
                found.append(case)
    return found


def sample(cases: Iterable[Case], number: int) -> list[Case]:
    """Some of the commands, nearly the same ones even if there are new flags."""
    return sorted(cases, key=lambda c: hashlib.sha256(repr(c).encode()).digest())[
        :number
    ]


# --- Commands ----------------------------------------------------------------------------


class _Command:
    """A command in a folder of its own, with a copy of what it is given."""

    def __init__(self, files: pathlib.Path, case: Case, seconds: float, untraced: bool):
        self.case = case
        self._place = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._folder = pathlib.Path(self._place.name, "work")
        shutil.copytree(files, self._folder)
        case.prepare(self._folder)
        self._before = _contents(self._folder)
        self._log = self._folder.parent / "stderr"
        program = tests.ROOT / f"{case.script.replace('.', '/')}.py"
        with open(self._log, "wb") as log, open(os.devnull, "wb") as nothing:
            self.process = forked.Process(
                [sys.executable, str(program), *case.words],
                stdout=nothing,
                stderr=log,
                cwd=self._folder,
                env=_ENVIRONMENT,
                limits=case.limits,
                untraced=untraced,
            )
        self._began, self._seconds = time.monotonic(), seconds

    def outcome(self) -> dict | None:
        """What came of it; None while it runs."""
        seconds = time.monotonic() - self._began
        is_late = seconds > self._seconds
        if self.process.poll() is None and not is_late:
            return None
        if is_late:
            os.killpg(self.process.pid, 9)
        code = self.process.wait()
        after = _contents(self._folder)
        changed = [p for p, was in self._before.items() if after.get(p) != was]
        log = self._log.read_text(errors="replace")
        self._place.cleanup()
        kind = "hang" if is_late else "changed files" if changed else None
        return dataclasses.asdict(self.case) | {
            "kind": kind or _kind(self.case, code, log),
            "exit": code,
            "changed": changed,
            "log": log[-3000:],
            "seconds": round(seconds, 1),
        }


def _kind(case, code, log):
    lines = [line for line in log.split("\n") if not _SAID.match(line)]
    if code == 0:
        return "0"
    if code not in (1, 2):
        return "crash"
    if not lines and case.script == "inspect_records":
        return "problems"  # which it printed
    if len(lines) == 1:
        return "one line"
    return "traceback" if "Traceback" in log else "lines"


def _contents(folder: pathlib.Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def run(
    folder: pathlib.Path,
    cases: Iterable[Case],
    *,
    jobs: int = 2,
    until: float = math.inf,
    seconds: float = 60,
    untraced: bool = False,
) -> Iterator[dict]:
    """Yields the outcomes of commands, started as others end, as long as there is time.

    Args:
        folder: has, for each script, a folder with its files.
        seconds: that a command may take.
        untraced: see `forked.Process`.
    """
    waiting, running = iter(cases), []
    while True:
        free = jobs - len(running) if time.monotonic() < until else 0
        running += [
            _Command(folder / case.script, case, seconds, untraced)
            for case in itertools.islice(waiting, free)
        ]
        if not running:
            return
        connection.wait([c.process.sentinel for c in running], timeout=1)
        outcomes = [(command, command.outcome()) for command in running]
        running = [command for command, outcome in outcomes if outcome is None]
        yield from (outcome for _, outcome in outcomes if outcome)


def is_good(outcome: dict) -> bool:
    return outcome["kind"] in ("0", "one line", "problems")


def described(outcome: dict) -> str:
    last = outcome["log"].strip().rpartition("\n")[2]
    return (
        f"{outcome['script']} --{outcome['flag']}={outcome['value']!r}: "
        f"{outcome['kind']} ({outcome['exit']}) {outcome['changed']} {last}"
    )
