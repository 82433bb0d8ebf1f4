"""Keeps the results of many runs as JSON lines, so that a stopped measurement continues."""

import contextlib
import json
import os
import sys
import types
from collections.abc import Callable, Mapping

from training.backend import keras
from files import local


class Results:
    """The lines of a file, each of which has what identifies a run, and its numbers.

    Args:
        path: of the file; it may be that of other measurements, too.
    """

    def __init__(self, path: str):
        self._path = path
        self.lines: list[dict] = []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.lines = [json.loads(line) for line in file]

    def measure(self, run: Callable[..., Mapping], **key) -> None:
        """Adds a line with what `run` returns of the key, unless the file has it."""
        if self.of(**key):
            return
        self.lines.append(key | dict(run(**key)))
        with local.replacing(self._path, "w") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in self.lines)
        shown = self.lines[-1].items()
        shown = {k: v for k, v in shown if isinstance(v, str | int | float)}
        print(shown, file=sys.stderr, flush=True)

    def of(self, **key) -> list[dict]:
        """The lines with these values."""
        return [line for line in self.lines if key.items() <= line.items()]


def run(script: types.ModuleType, **flags) -> None:
    """Runs a script in this process; what it prints goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        script.main(script.Options(**flags))
    keras.backend.clear_session()  # a next run's network would be added to this one's
