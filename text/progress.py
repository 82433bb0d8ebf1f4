"""Reports a long job's progress on stderr; time, bytes and counts in words."""

import os
import sys
import time
import unicodedata

from errors import duration

TERMINAL_SECONDS = 0.2  # between two states of the live line
_LOG_SECONDS = 10.0

_is_shown = False  # whether the live line is on the terminal


def is_live() -> bool:
    """Whether there is a live line: whether stderr is a terminal."""
    return sys.stderr.isatty()


def show(line: str) -> None:
    """Makes this the live line of the terminal, cut to its width; see `is_live`."""
    global _is_shown
    if is_live():
        _is_shown = True
        print(f"\r\x1b[K{_cut(line)}", end="", file=sys.stderr, flush=True)


def clear() -> None:
    """Removes the live line, if there is one. Call it before anything else is printed."""
    global _is_shown
    if _is_shown:
        _is_shown = False
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _cut(line):
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        columns = 0
    room = (columns or 80) - 1  # in the last column, some terminals begin a new line
    for i, letter in enumerate(line):
        room -= 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if room < 0:
            return line[:i]
    return line


class Progress:
    """The live line on a terminal; a line every ten seconds in a log.

        with Progress("tokenizing", total_bytes, "MB", scale=1e6) as progress:
            progress.advance(count)

    If `total` is None, only the amount done is shown. Work done before this start counts
    towards the share, not towards the speed. The time left is not judged by the first work
    of a job that `starts_slowly`, because its function is traced then. A `brief` job prints
    no line if it ends before the first is due.
    """

    def __init__(
        self,
        what: str,
        total: float | None,
        unit: str,
        scale: float = 1.0,
        *,
        brief: bool = False,
        starts_slowly: bool = False,
    ):
        self.is_silent = brief
        self.starts_slowly = starts_slowly
        if unit == "MB" and total is not None and total < scale:
            unit, scale = "KB", scale / 1000
        self.what, self.total, self.unit, self.scale = what, total, unit, scale
        self.done = self.already_done = self.done_slowly = 0.0
        self.begun = self.timed_from = time.monotonic()
        self.shown = self.begun

    def __enter__(self):
        return self

    def __exit__(self, exception_type, *_):
        clear()
        if exception_type is None and not self.is_silent:
            self._show(finished=True)

    def advance(self, count: float, already_done: bool = False) -> None:
        """Adds to the work done, in the unit of `total`."""
        if self.starts_slowly and not already_done:
            self.starts_slowly, self.timed_from = False, time.monotonic()
            self.done_slowly = count
        self.done += count
        self.already_done += count * already_done
        wait = TERMINAL_SECONDS if is_live() else _LOG_SECONDS
        if time.monotonic() - self.shown >= wait:
            self._show(finished=False)

    def _show(self, finished):
        self.is_silent = False
        self.shown = time.monotonic()
        done, begun = self.done - self.already_done, self.begun
        if not finished:
            done, begun = done - self.done_slowly, self.timed_from
        speed = done / max(self.shown - begun, 1e-9)
        line = f"{self.what}: {self._amount(self.done)}"
        if self.total is not None:
            line += f" ({self.done / self.total if self.total else 1.0:.0%})"
        if speed:
            line += f", {self._amount(speed)}/s"
        if finished:
            line += f", took {duration(self.shown - self.begun)}"
        elif speed and self.total is not None:
            line += f", {duration((self.total - self.done) / speed)} left"
        if is_live() and not finished:
            show(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def _amount(self, number):
        """ "1 row", "2 rows"."""
        shown = f"{number / self.scale:,.0f}"
        return f"{shown} {self.unit.removesuffix('s') if shown == '1' else self.unit}"
