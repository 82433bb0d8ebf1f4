"""Reports a long job's progress and remaining time on stderr; time and bytes in words."""

import sys
import time

_TERMINAL_SECONDS = 0.2
_LOG_SECONDS = 10.0


class Progress:
    """One line on a terminal, redrawn; a line every ten seconds in a log.

        with Progress("tokenizing", total_bytes, "MB", scale=1e6) as progress:
            progress.advance(count)

    If `total` is None, only the amount done is shown. Work done before this start counts
    towards the share, not towards the speed. A `brief` job prints no line if it ends before
    the first is due.
    """

    def __init__(
        self,
        what: str,
        total: float | None,
        unit: str,
        scale: float = 1.0,
        *,
        brief: bool = False,
    ):
        self.is_silent = brief
        if unit == "MB" and total is not None and total < scale:
            unit, scale = "KB", scale / 1000
        self.what, self.total, self.unit, self.scale = what, total, unit, scale
        self.done = self.already_done = 0.0
        self.begun = time.monotonic()
        self.shown = self.begun
        self.is_terminal = sys.stderr.isatty()

    def __enter__(self):
        return self

    def __exit__(self, exception_type, *_):
        if exception_type is None and not self.is_silent:
            self._show(finished=True)
        elif self.is_terminal and not self.is_silent:
            print(file=sys.stderr)

    def advance(self, count: float, already_done: bool = False) -> None:
        """Adds to the work done, in the unit of `total`."""
        self.done += count
        self.already_done += count * already_done
        wait = _TERMINAL_SECONDS if self.is_terminal else _LOG_SECONDS
        if time.monotonic() - self.shown >= wait:
            self._show(finished=False)

    def _show(self, finished):
        self.is_silent = False
        self.shown = time.monotonic()
        seconds = max(self.shown - self.begun, 1e-9)
        speed = (self.done - self.already_done) / seconds
        line = f"{self.what}: {self.done / self.scale:,.0f} {self.unit}"
        if self.total is not None:
            line += f" ({self.done / self.total if self.total else 1.0:.0%})"
        line += f", {speed / self.scale:,.0f} {self.unit}/s"
        if finished:
            line += f", took {duration(seconds)}"
        elif speed and self.total is not None:
            line += f", {duration((self.total - self.done) / speed)} left"
        if self.is_terminal:
            line = f"\r\x1b[K{line}"
        end = "\n" if finished or not self.is_terminal else ""
        print(line, end=end, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """93 -> "1m 33s"; the two largest units."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    while len(units) > 1 and not units[0][0]:
        units.pop(0)
    return " ".join(f"{count}{unit}" for count, unit in units[:2])


def size(number: float) -> str:
    """Bytes in words: 1234567 -> "1.23 MB"."""
    return f"{number / 1e9:.3g} GB" if number >= 1e9 else f"{number / 1e6:.3g} MB"
