"""The names in an output_dir, and what may happen to them.

The folder may also hold the user's files. So a small hidden file in each folder, its
record, lists what this program makes there, each name before the file itself appears. Only
what is listed is ever replaced or removed. Any other file in the way is renamed, with a
message.
"""

import contextlib
import json
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from text.errors import UserError
from text.files import anywhere, local

# What early stopping leaves: what it knows, and a folder of the best weights.
EVALUATIONS = "evaluations.json"
BEST = "best"
METRICS = "metrics.jsonl"
RECORD = ".made~bert~record"
# The files of a checkpoint, in the order in which they appear: with an .index all is there.
PARTS = (".data-00000-of-00001", ".index")

_CHECKPOINT = "model.ckpt-"
_STATE = "checkpoint"
_SETTINGS = "run.json"
_OF_EVERY_RUN = "max_seq_length"  # a setting that all runs note, and no other program
_LEASE = ".run~bert~lease"
_leases = []  # those that this process holds
# What earlier versions wrote into the folder of a run, under names of their own.
_EARLIER = {
    _STATE,
    _SETTINGS,
    METRICS,
    EVALUATIONS,
    "curves.png",
    "eval_results.json",
    "eval_results.txt",
    "mistakes.html",
    "outcome.json",
    "search.json",
    "task.json",
    *(f"{name}.tf_record.json" for name in ("train", "eval", "predict")),
}


# --- Checkpoints by name -------------------------------------------------------------


def steps(directory: str) -> list[int]:
    """The steps of which a directory holds a whole checkpoint, ascending."""
    return _steps(_names(directory), r"\.index")


def _steps(names, ending=""):
    pattern = re.compile(re.escape(_CHECKPOINT) + r"(\d+)" + ending)
    return sorted(int(m[1]) for m in map(pattern.fullmatch, names) if m)


def _names(directory):
    with anywhere.access(directory):
        # On gs:// a folder is listed with a slash.
        names = tf.io.gfile.listdir(directory) if tf.io.gfile.exists(directory) else []
        return [name.rstrip("/") for name in names]


def prefix_of(directory: str, step: int) -> str:
    return os.path.join(directory, f"{_CHECKPOINT}{step}")


def best_of(directory: str) -> str | None:
    """The folder of the weights that early stopping kept of a run, if it did."""
    best = os.path.join(directory, BEST)
    return best if evaluations(directory) and steps(best) else None


def evaluations(directory: str) -> list[dict]:
    """What early stopping noted of a run: `step` and `score` of each evaluation.

    Nothing where the file is absent or somebody else's.
    """
    noted = anywhere.read_json(os.path.join(directory, EVALUATIONS))
    is_ours = isinstance(noted, list) and all(
        isinstance(entry, dict) and entry.keys() == {"step", "score"} for entry in noted
    )
    return noted if is_ours else []


def holds_weights(directory: str) -> bool:
    """Whether a run has left some."""
    return bool(steps(directory) or best_of(directory))


def newest_of(directory: str) -> str | None:
    """The name of the checkpoint that a directory's state file calls the newest."""
    match = re.search(r'^model_checkpoint_path: "(.*)"', _state(directory), re.M)
    # Absolute paths in a state file go stale when the directory is moved.
    return os.path.basename(match[1]) if match else None


def _state(directory):
    path = os.path.join(directory, _STATE)
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        return ""
    with anywhere.access(path), tf.io.gfile.GFile(path, "rb") as file:
        return file.read().decode(errors="replace")


# --- What this program made ----------------------------------------------------------


def made(directory: str) -> set[str]:
    """The names of the files and checkpoints that this program made in a directory.

    A checkpoint's name is that of its prefix. On gs://, which has no locks, two processes
    that add to the record at once may lose an entry: what it was of then counts as the
    user's.
    """
    record = anywhere.read_json(os.path.join(directory, RECORD))
    if isinstance(record, list):
        return set(map(str, record))
    # Else it may be of an earlier version, which kept no record.
    if _is_best(directory):
        run = os.path.dirname(directory)
        if not (evaluations(run) and EVALUATIONS in made(run)):
            return set()
    else:
        settings = anywhere.read_json(os.path.join(directory, _SETTINGS))
        if not isinstance(settings, dict) or _OF_EVERY_RUN not in settings:
            return set()
    checkpoints = re.findall(
        r'^all_model_checkpoint_paths: "(.*)"', _state(directory), re.M
    )
    names = {os.path.basename(path) for path in checkpoints}
    return names | ({_STATE} if _is_best(directory) else _EARLIER)


def _is_best(directory):
    return os.path.basename(directory) == BEST


def made_steps(directory: str) -> list[int]:
    """The steps of the checkpoints in a directory that this program made, ascending."""
    return sorted(set(steps(directory)) & set(_steps(made(directory))))


def claim(path: str) -> None:
    """Notes that what is about to appear is made by this program.

    Args:
        path: of a file, or the prefix of a checkpoint.
    """
    directory, name = os.path.split(path)
    with _changing(directory) as names:
        names.add(name)


def release(path: str) -> None:
    """Gives a file or checkpoint to the user: it is not replaced or removed any more."""
    directory, name = os.path.split(path)
    with _changing(directory) as names:
        names.discard(name)


@contextlib.contextmanager
def _changing(directory) -> Iterator[set[str]]:
    """The names in a directory's record, to be changed; one process at a time."""
    path = os.path.join(directory, RECORD)
    with contextlib.ExitStack() as stack:
        if not anywhere.is_remote(path):
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

    To be called before a file is written by other means than `write_file`.
    """
    with anywhere.access(path):
        directory, name = os.path.split(path)
        # This program makes no links. Through one it would write to another file.
        if name not in made(directory) or os.path.islink(path):
            if tf.io.gfile.exists(path):
                anywhere.set_aside(path)
            claim(path)


def make_room_for_checkpoint(prefix: str) -> None:
    """As `make_room`, for all files of a checkpoint."""
    with anywhere.access(prefix):
        directory, name = os.path.split(prefix)
        if name not in made(directory):
            pattern = re.compile(re.escape(name) + r"(\.(index|meta|data-[\w-]+))")
            found = filter(None, map(pattern.fullmatch, _names(directory)))
            # The .index first: no half of it is taken for whole.
            endings = sorted((m[1] for m in found), key=lambda end: end != ".index")
            if endings:
                anywhere.set_aside(prefix, endings)
            claim(prefix)


def write_file(path: str, content: str | bytes) -> None:
    """Writes a file that appears under its name as a whole; makes its directory.

    A file of the user under that name is renamed first; where it has this very content,
    it stays and nothing is written.

    Raises:
        UserError: the disk is full or not writable.
    """
    content = content.encode() if isinstance(content, str) else content
    directory, name = os.path.split(path)
    with anywhere.access(path):
        if name not in made(directory) and _holds(path, content):
            return
    make_room(path)
    with anywhere.replacing(path) as file:
        file.write(content)


def _holds(path, content):
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        return False
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read() == content


# --- Removing ------------------------------------------------------------------------


def keep(directory: str, kept: Sequence[int], until: float = math.inf) -> None:
    """Names checkpoints in the state file, the last as the one to load; drops the others.

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
    with anywhere.access(directory):
        for name in sorted(dropped):
            # The .index first: no half of it is taken for whole.
            for part in reversed(PARTS):
                with contextlib.suppress(tf.errors.NotFoundError):
                    tf.io.gfile.remove(os.path.join(directory, name + part))
    if dropped:
        with _changing(directory) as names:
            names -= dropped


def drop_all(directory: str) -> None:
    """Removes all checkpoints that this program made, and the state file of them."""
    _drop(directory, _steps(made(directory)))
    _forget(os.path.join(directory, _STATE))


def forget_best(directory: str) -> None:
    """Removes what early stopping left of a run; renames what is the user's."""
    drop_all(os.path.join(directory, BEST))
    path = os.path.join(directory, EVALUATIONS)
    _forget(path)
    if evaluations(directory):  # copied from another run: `best_of` goes by it
        with anywhere.access(path):
            anywhere.set_aside(path)


def _forget(path):
    """Removes a file that this program made."""
    directory, name = os.path.split(path)
    if name in made(directory):
        with anywhere.access(path), contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(path)
        release(path)


def clear(directory: str) -> None:
    """Removes what ended processes left half written in a run's directory.

    Only who holds the directory may call it: nobody else writes checkpoints then, on
    whatever host.
    """
    with anywhere.access(directory):
        for name in _names(directory):
            parts = local.temporary_parts(name)
            path = os.path.join(directory, name)
            if not parts or tf.io.gfile.isdir(path):
                continue
            written, host, _ = parts
            if not written.startswith(_CHECKPOINT):
                # Another process may be writing it. On gs:// it would be whole at once.
                if not anywhere.is_remote(path):
                    local.remove_temporaries(os.path.join(directory, written))
            elif host != local.host() or local.is_left_over(parts):
                tf.io.gfile.remove(path)


# --- One training at a time ----------------------------------------------------------


@contextlib.contextmanager
def held(directory: str, say: Callable[[str], None]) -> Iterator[None]:
    """Keeps other trainings out of a directory, which is made.

    On gs://, which has no locks, the last training to come takes the directory over: a
    TPU that was preempted must be able to restart at once. The one before it ends at its
    next checkpoint; see `check_held`.

    Args:
        say: told whose place is taken.
    Raises:
        UserError: another training has it; names the process and its host.
    """
    with contextlib.ExitStack() as stack:
        with anywhere.access(directory):
            tf.io.gfile.makedirs(directory)
            if anywhere.is_remote(directory):
                stack.enter_context(_leased(directory, say))
            else:
                path = os.path.join(directory, _SETTINGS)
                stack.enter_context(local.locked(path))
        yield


@contextlib.contextmanager
def _leased(directory, say):
    lease = _Lease(directory)
    if before := lease.read():
        say(
            f"{directory}: taken over from {before.get('holder')}, which last wrote at "
            f"{before.get('written')}"
        )
    lease.write()
    _leases.append(lease)
    try:
        yield
    finally:
        _leases.remove(lease)
        if lease.is_ours():
            tf.io.gfile.remove(lease.path)


class _Lease:
    """A file that names who trains."""

    def __init__(self, directory):
        self.directory = directory
        self.path = os.path.join(directory, _LEASE)
        self._token = secrets.token_hex(8)

    def write(self):
        lease = {
            "holder": f"process {os.getpid()} on {local.host()}",
            "token": self._token,
            "written": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        with anywhere.replacing(self.path, "w") as file:
            file.write(json.dumps(lease) + "\n")

    def read(self):
        lease = anywhere.read_json(self.path)
        return lease if isinstance(lease, dict) else {}

    def is_ours(self):
        return self.read().get("token") == self._token


def check_held() -> None:
    """To be called before a checkpoint is written; renews what `held` noted.

    Raises:
        UserError: another training has taken over the directory.
    """
    for lease in _leases:
        # Whoever took it over and gave it up, because it was refused, left no lease.
        if (found := lease.read()) and not lease.is_ours():
            raise UserError(
                f"{lease.directory}: {found.get('holder', 'another process')} has taken "
                "over this training; this process ends without another checkpoint"
            )
        lease.write()


# --- A run's settings ----------------------------------------------------------------


def note_settings(
    directory: str, settings: Mapping, defaults: Mapping | None = None
) -> None:
    """Writes down the settings with which a run begins, or holds it to them.

    A run that goes on is from then on also held to what it did not note.

    Raises:
        UserError: see `check_settings`.
    """
    check_settings(directory, settings, defaults)
    began = noted_settings(directory)
    if not began.keys() >= settings.keys():
        content = json.dumps({**settings, **began}, indent=2, sort_keys=True)
        write_file(os.path.join(directory, _SETTINGS), content + "\n")


def noted_settings(directory: str) -> dict:
    """What a run that has begun noted of its settings."""
    if not steps(directory):
        return {}
    noted = anywhere.read_json(os.path.join(directory, _SETTINGS))
    return noted if isinstance(noted, dict) else {}


def check_settings(
    directory: str, settings: Mapping, defaults: Mapping | None = None
) -> None:
    """Holds a run to the settings it began with, if it began.

    Args:
        defaults: what a setting counts as that the run did not note.
    Raises:
        UserError: a setting differs (all are listed), or what is there are not settings.
    """
    began = noted_settings(directory)
    path = os.path.join(directory, _SETTINGS)
    if not began and steps(directory) and tf.io.gfile.exists(path):
        raise UserError(
            f"{path}: is not what a run wrote, and there are checkpoints beside it; move "
            "it away to go on from them, or choose another output_dir"
        )
    if began and (changed := changes(began, settings, defaults)):
        raise UserError(
            f"{directory} holds a run that began with other settings: "
            f"{'; '.join(changed)}; choose another output_dir (--init_checkpoint="
            f"{directory} goes on from these weights), or remove {path} to go on "
            "regardless"
        )


def changes(
    began: Mapping, settings: Mapping, defaults: Mapping | None = None
) -> list[str]:
    """What to say of each setting that differs; see `check_settings`."""
    was = {**(defaults or {}), **began}
    return [
        _change(name, was.get(name), value)
        for name, value in sorted(settings.items())
        if was.get(name) != value
    ]


def _change(name, was, now):
    if _is_digest(was) or _is_digest(now):  # says nothing to a person
        return f"{name.removesuffix('_sha256')} has changed"
    return f"{name} was {was!r} and is {now!r}"


def _is_digest(value):
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
