"""Writes the log of a server on stderr, as lines for people or as JSON; never a text."""

import datetime
import json
import logging
import sys
import traceback


class Log:
    """A line for each event."""

    def __init__(self, as_json: bool = False):
        self._as_json = as_json

    def say(self, message: str, **facts: object) -> None:
        """Writes an event.

        Args:
            facts: what JSON has besides the message, which says it to people.
        """
        line = _line("info", message, facts) if self._as_json else message
        print(line, file=sys.stderr, flush=True)

    @property
    def of_errors(self) -> dict | None:
        """For the `log_config` of uvicorn, which logs exceptions; None for its own."""
        if not self._as_json:
            return None
        handler = {"class": "logging.StreamHandler", "formatter": "json"}
        return {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": _Formatter}},
            "handlers": {"stderr": handler},
            "loggers": {"uvicorn": {"handlers": ["stderr"], "propagate": False}},
        }


class _Formatter(logging.Formatter):
    def format(self, record):
        facts = {}
        if record.exc_info:
            facts["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return _line(record.levelname.lower(), record.getMessage(), facts)


def _line(level, message, facts):
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    now = now.replace("+00:00", "Z")
    return json.dumps({"time": now, "level": level, "message": message, **facts})
