"""The one exception whose message is written for the user, and words of messages."""

import contextlib
import contextvars
from collections.abc import Collection, Iterator

# Those of the function of bert.py that is being called.
_arguments: contextvars.ContextVar[Collection[str]] = contextvars.ContextVar(
    "arguments", default=()
)


class UserError(Exception):
    """Something in the user's input, files or flags is wrong.

    The message is one line: what was found, where (file:line), what is allowed, what to
    do. `command_line.run` prints it without a traceback. All that reads what a user gave
    may raise it, so docstrings seldom repeat that.
    """


def setting(name: str, value: object = None) -> str:
    """An option, or its value, as the reader of a message writes it.

    A flag, --do_lower_case=false, or an argument of bert.py, do_lower_case=False. Messages
    that both readers may see name options by this; those of scripts write flags out.
    """
    if name in _arguments.get():
        return name if value is None else f"{name}={value}"
    if isinstance(value, bool):
        value = str(value).lower()
    return f"--{name}" if value is None else f"--{name}={value}"


@contextlib.contextmanager
def write_as_arguments(names: Collection[str]) -> Iterator[None]:
    """While in here, `setting` writes these as arguments; others are flags."""
    token = _arguments.set(names)
    try:
        yield
    finally:
        _arguments.reset(token)


def duration(seconds: float) -> str:
    """93 -> "1m 33s"; the two largest units."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    while len(units) > 1 and not units[0][0]:
        units.pop(0)
    return " ".join(f"{count}{unit}" for count, unit in units[:2])


def count(number: float, what: str) -> str:
    """1, "row" -> "1 row"; 2000, "row" -> "2,000 rows"; 1.5, "epoch" -> "1.5 epochs"."""
    figures = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{figures} {what}{'s' * (number != 1)}"


def size(number: float) -> str:
    """Bytes in words: 1234567 -> "1.23 MB"."""
    return f"{number / 1e9:.3g} GB" if number >= 1e9 else f"{number / 1e6:.3g} MB"
