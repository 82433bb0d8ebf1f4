"""Names the files in an output_dir, and replaces or removes only this program's own.

The folder may also contain the user's files. So a small hidden file in each folder, its
record, lists what this program makes there; each name is added before the file appears.
Only listed files are ever replaced or removed. Any other file in the way is renamed, with
a message.
"""

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from training import backend  # noqa: F401  TensorFlow, without its log messages
from errors import UserError
from files import anywhere, json_files, local, protected, sources
from text.tokenizers import recorded_settings
from text.tokenizers.tokenizer import Tokenizer

# What early stopping leaves: its history, and a folder with the best weights.
EVALUATIONS = "evaluations.json"
BEST = "best"
METRICS = "metrics.jsonl"
CURVES = "curves.png"
CONFIG = "bert_config.json"
TASK, TEXT = recorded_settings.TASK, recorded_settings.TEXT
RESULTS = "eval_results.txt"  # as in the release; the same as JSON:
RESULTS_JSON = "eval_results.json"
MISTAKES = "mistakes.html"
OUTCOME, SEARCH = "outcome.json", "search.json"  # of one run of a search, of all
# Folders of a run: held-out values for TensorBoard, the runs of a search, and what a
# student learns from.
EVAL, RUNS, TEACHER = "eval", "runs", "teacher"
SKIPPED_BATCH = "skipped_batch.npz"
RECORD = protected.RUN_RECORD
# The files of a checkpoint, in the order in which they appear: .index completes it.
PARTS = (".data-00000-of-00001", ".index")

_CHECKPOINT = "model.ckpt-"
_STATE = "checkpoint"
SETTINGS = "run.json"
LEASE = ".run~bert~lease"  # on file systems without locks
_LONGEST_VALUE = 80  # of a list in an error

# --- Checkpoints by name -------------------------------------------------------------


def steps(directory: str) -> list[int]:
    """The steps of the complete checkpoints in a directory, ascending."""
    return _steps(_names(directory), r"\.index")


def _steps(names, ending=""):
    pattern = re.compile(re.escape(_CHECKPOINT) + r"(\d+)" + ending)
    return sorted(int(m[1]) for m in map(pattern.fullmatch, names) if m)


def _names(directory):
    # On gs:// a folder is listed with a slash.
    names = anywhere.listdir(directory) if anywhere.exists(directory) else []
    return [name.rstrip("/") for name in names]


def prefix_of(directory: str, step: int) -> str:
    return os.path.join(directory, f"{_CHECKPOINT}{step}")


def step_of(prefix: str) -> int | None:
    """The step of a checkpoint of a run; None for one of another name."""
    return next(iter(_steps([os.path.basename(prefix)])), None)


def best_of(directory: str) -> str | None:
    """The folder of the weights that early stopping kept for a run, if any."""
    best = os.path.join(directory, BEST)
    return best if evaluations(directory) and steps(best) else None


def evaluations(directory: str) -> list[dict]:
    """What early stopping noted about a run: `step` and `score` of each evaluation.

    Empty if the file is absent or somebody else's.
    """
    entries = json_files.read_own(os.path.join(directory, EVALUATIONS), list)
    is_ours = all(
        isinstance(entry, dict) and entry.keys() == {"step", "score"}
        for entry in entries
    )
    return entries if is_ours else []


def holds_weights(directory: str) -> bool:
    """Whether a run has left weights."""
    return bool(steps(directory) or best_of(directory))


def text_settings(directory: str) -> tuple[str, dict]:
    """See `recorded_settings.noted_by_run`."""
    with anywhere.access(directory):
        return recorded_settings.noted_by_run(directory)


def newest_of(directory: str) -> str | None:
    """The name of the checkpoint that a directory's state file calls the newest."""
    match = re.search(r'^model_checkpoint_path: "(.*)"', _state(directory), re.M)
    # Absolute paths in a state file go stale when the directory is moved.
    return os.path.basename(match[1]) if match else None


def _state(directory):
    path = os.path.join(directory, _STATE)
    if not anywhere.exists(path) or anywhere.isdir(path):
        return ""
    with anywhere.access(path):
        return sources.content(path).decode(errors="replace")


def check_subfolders(directory: str) -> None:
    """Refuses a file, or a link to nothing, that has the name of a folder of a run."""
    for name in (EVAL, BEST, RUNS, TEACHER):
        path = os.path.join(directory, name)
        is_there = anywhere.exists(path) or os.path.islink(path)
        if is_there and not anywhere.isdir(path):
            raise UserError(
                f"{path}: is not a folder, but runs make one of this name; move it, or "
                "choose another --output_dir"
            )


# --- What this program made ----------------------------------------------------------


def made(directory: str) -> set[str]:
    """The names of the files and checkpoints that this program made in a directory.

    A checkpoint's name is that of its prefix. On gs://, which has no locks, two processes
    that add to the record at once may lose an entry: its file then counts as the user's.
    """
    return set(map(str, json_files.read_own(os.path.join(directory, RECORD), list)))


def made_steps(directory: str) -> list[int]:
    """The steps of the checkpoints in a directory that this program made, ascending."""
    return sorted(set(steps(directory)) & set(_steps(made(directory))))


def claim(path: str) -> None:
    """Notes that this program is about to make a file or checkpoint.

    Args:
        path: of a file, or the prefix of a checkpoint.
    """
    directory, name = os.path.split(path)
    with _changing(directory) as names:
        names.add(name)


def release(path: str) -> None:
    """Hands a file or checkpoint to the user: it is no longer replaced or removed."""
    directory, name = os.path.split(path)
    with _changing(directory) as names:
        names.discard(name)


@contextlib.contextmanager
def _changing(directory) -> Iterator[set[str]]:
    """The names in a directory's record, to be changed; one process at a time."""
    path = os.path.join(directory, RECORD)
    with contextlib.ExitStack() as stack:
        if not sources.is_remote(path):
            os.makedirs(directory or ".", exist_ok=True)
            stack.enter_context(local.locked(path, wait=True))
        names = made(directory)
        before = set(names)
        yield names
        if names != before:
            with anywhere.replacing(path, "w") as file:
                file.write(json.dumps(sorted(names)) + "\n")


def make_room(path: str) -> None:
    """Renames a file that this program did not make, and claims its name.

    Call it before writing a file by any means other than `write_file`.
    """
    with anywhere.access(path):
        directory, name = os.path.split(path)
        # This program makes no links. Writing through one would change another file, or
        # make one where it points.
        is_link = os.path.islink(path)
        if name not in made(directory) or is_link:
            if is_link or anywhere.exists(path):
                anywhere.set_aside(path)
            claim(path)


def make_room_for_checkpoint(prefix: str) -> None:
    """Like `make_room`, for all files of a checkpoint."""
    with anywhere.access(prefix):
        directory, name = os.path.split(prefix)
        if name not in made(directory):
            pattern = re.compile(re.escape(name) + r"(\.(index|meta|data-[\w-]+))")
            matches = filter(None, map(pattern.fullmatch, _names(directory)))
            # The .index first, so that no part of it seems complete.
            endings = sorted((m[1] for m in matches), key=lambda end: end != ".index")
            if endings:
                anywhere.set_aside(prefix, endings)
            claim(prefix)


def write_vocabulary(directory: str, tokenizer: Tokenizer) -> None:
    """Writes the files of a tokenizer's vocabulary; see `write_file`."""
    for name, content in tokenizer.files.items():
        write_file(os.path.join(directory, name), content)


def write_file(path: str, content: str | bytes) -> None:
    """Writes a file atomically; makes its directory.

    A user's file of that name is renamed first; if it already has this content, it stays
    and nothing is written.
    """
    content = content.encode() if isinstance(content, str) else content
    directory, name = os.path.split(path)
    if name not in made(directory) and _holds(path, content):
        return
    make_room(path)
    with anywhere.replacing(path) as file:
        file.write(content)


def _holds(path, content):
    if not anywhere.exists(path) or anywhere.isdir(path):
        return False
    with anywhere.opened(path) as file:
        return file.read() == content


# --- Removing ------------------------------------------------------------------------


def keep(directory: str, kept: Sequence[int], until: float = math.inf) -> None:
    """Lists checkpoints in the state file, the last as the one to load; drops the others.

    Args:
        until: later steps are not dropped.
    """
    lines = [f'model_checkpoint_path: "{_CHECKPOINT}{kept[-1]}"\n']
    lines += [
        f'all_model_checkpoint_paths: "{_CHECKPOINT}{step}"\n' for step in sorted(kept)
    ]
    write_file(os.path.join(directory, _STATE), "".join(lines))
    claimed = _steps(made(directory))
    _drop(directory, [s for s in claimed if s <= until and s not in kept])


def _drop(directory, unwanted):
    """Removes the checkpoints of these steps, all of which this program made."""
    dropped = {f"{_CHECKPOINT}{step}" for step in unwanted}
    for name in sorted(dropped):
        # The .index first, so that no part of it seems complete.
        for part in reversed(PARTS):
            anywhere.remove(os.path.join(directory, name + part))
    if dropped:
        with _changing(directory) as names:
            names -= dropped


def drop_all(directory: str) -> None:
    """Removes all checkpoints that this program made, and their state file."""
    _drop(directory, _steps(made(directory)))
    _forget(os.path.join(directory, _STATE))


def forget_best(directory: str) -> None:
    """Removes what early stopping left for a run; renames what is the user's."""
    drop_all(os.path.join(directory, BEST))
    path = os.path.join(directory, EVALUATIONS)
    _forget(path)
    if evaluations(directory):  # copied from another run, and `best_of` relies on it
        with anywhere.access(path):
            anywhere.set_aside(path)


def _forget(path):
    """Removes a file that this program made."""
    directory, name = os.path.split(path)
    if name in made(directory):
        anywhere.remove(path)
        release(path)


def clear(directory: str) -> None:
    """Removes what ended processes left half written or half removed in a run's directory.

    Only the process that holds the directory may call it, so that no other, on any host,
    is writing checkpoints.
    """
    with anywhere.access(directory):
        for name in _names(directory):
            parts = local.temporary_parts(name)
            path = os.path.join(directory, name)
            if not parts or anywhere.isdir(path):
                continue
            written, host, _ = parts
            if not written.startswith(_CHECKPOINT):
                # Another process may be writing it. On gs:// files appear complete.
                if not sources.is_remote(path):
                    local.remove_temporaries(os.path.join(directory, written))
            elif host != local.host() or local.is_left_over(parts):
                anywhere.remove(path)
    _drop(directory, set(_steps(made(directory))) - set(steps(directory)))


# --- A run's settings ----------------------------------------------------------------


def note_settings(
    directory: str, settings: Mapping, defaults: Mapping | None = None
) -> None:
    """Notes the settings with which a run begins, or checks it against them.

    A resumed run is from then on also checked against settings that it had not noted.
    """
    check_settings(directory, settings, defaults)
    began = noted_settings(directory)
    if not began.keys() >= settings.keys():
        content = json.dumps({**settings, **began}, indent=2, sort_keys=True)
        write_file(os.path.join(directory, SETTINGS), content + "\n")


def noted_settings(directory: str) -> dict:
    """The settings that a run noted, if it has begun."""
    if not steps(directory):
        return {}
    return json_files.read_own(os.path.join(directory, SETTINGS))


def check_settings(
    directory: str, settings: Mapping, defaults: Mapping | None = None
) -> None:
    """Checks a run against the settings it began with, if it has begun.

    Args:
        defaults: values for settings that the run did not note.
    Raises:
        UserError: the run is another script's, settings differ (all are listed), or the
            file is not a run's settings.
    """
    began = noted_settings(directory)
    path = os.path.join(directory, SETTINGS)
    if not began and steps(directory) and anywhere.exists(path):
        raise UserError(
            f"{path}: was not written by a run, but there are checkpoints next to it; move "
            "it away to continue from them, or choose another output_dir"
        )
    check_script(directory, settings)
    if began and (changed := changes(began, settings, defaults)):
        raise UserError(
            f"{directory} contains a run that began with other settings: "
            f"{'; '.join(changed)}; choose another output_dir (--init_checkpoint="
            f"{directory} starts from these weights), or remove {path} to continue "
            "anyway"
        )


def check_script(directory: str, settings: Mapping) -> None:
    """Refuses a folder with a run of another script than that of these settings."""
    began = noted_settings(directory)
    was, now = _script(began), _script(settings)
    if was and now and was != now:
        raise UserError(
            f"{directory}: contains a run of {was}; choose another --output_dir"
        )


def _script(settings: Mapping) -> str | None:
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
    """Describes each setting that differs; see `check_settings`."""
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
