"""Compares the settings of a run with those that it began with."""

import re
from collections.abc import Mapping

_LONGEST_VALUE = 80  # of a list in an error


def script(settings: Mapping) -> str | None:
    """The script or the task that noted these settings; None if they do not tell."""
    if "input_file" in settings:
        return "run_pretraining.py"
    if "max_target_length" in settings:
        return "run_text_to_text.py"
    task = settings.get("task")
    return f"the task {task}" if isinstance(task, str) else None


def changes(
    began: Mapping, settings: Mapping, defaults: Mapping | None = None
) -> list[str]:
    """Describes each setting that differs; see `run_folder.check_settings`."""
    was = {**(defaults or {}), **began}
    return [
        _change(name, was.get(name), value)
        for name, value in sorted(settings.items())
        if was.get(name) != value
    ]


def _change(name, was, now):
    if _is_digest(was) or _is_digest(now):  # meaningless to a person
        return f"{name.removesuffix('_sha256')} has changed"
    was, now = (_shown(name, value) for value in (was, now))
    return f"{name} was {was} and is now {now}" if was != now else f"{name} has changed"


def _shown(name, value):
    if isinstance(value, list) and len(repr(value)) > _LONGEST_VALUE:
        return f"{len(value)} {'files' if name == 'input_file' else 'values'}"
    return repr(value)


def _is_digest(value):
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
