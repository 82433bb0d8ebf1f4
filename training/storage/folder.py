"""The output_dir of a command: what is in it, and how files there are written and removed.

A training takes a folder that is new, empty of what trainings write, or its own. Before
this program first writes into a folder, it notes in a hidden file the names that are there:
these are the user's, and are never replaced or removed. Everything that comes later under
a name that this program writes is its own.
"""

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import extensions
from training import backend  # noqa: F401  TensorFlow, without its log messages
from training.storage import lease
from errors import UserError
from files import anywhere, json_files, local, protected, sources
from text.tokenizers import recorded_settings
from training.interchange import peft

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
SETTINGS = "run.json"
FOUND = protected.FOUND
# What Hugging Face and the releases call the config of a model.
CONFIGS = (
    *(CONFIG, "config.json", *extensions.entries("config_files")),
    peft.CONFIG,
)
# The files of a checkpoint, in the order in which they appear: .index completes it.
PARTS = (".data-00000-of-00001", ".index")

_CHECKPOINT = "model.ckpt-"
_STATE = "checkpoint"
_OF_EVALUATION = {RESULTS, RESULTS_JSON, MISTAKES}
_OF_TRAINING = {*protected.RUN_FILES, BEST, EVAL, RUNS, TEACHER}
_LONGEST_VALUE = 80  # of a list in an error

# --- Names ---------------------------------------------------------------------------


def prefix_of(directory: str, step: int) -> str:
    """The prefix of a run's checkpoint."""
    return os.path.join(directory, f"{_CHECKPOINT}{step}")


def step_of(prefix: str) -> int | None:
    """The step of a checkpoint of a run; None for one of another name."""
    return next(iter(_steps([os.path.basename(prefix)])), None)


def _steps(names, ending=""):
    pattern = re.compile(re.escape(_CHECKPOINT) + r"(\d+)" + ending)
    return sorted(int(m[1]) for m in map(pattern.fullmatch, names) if m)


class Folder:
    """An output_dir as it was when opened, and what this process has written there since.

    One listing answers what is there; a file is read once, when first asked for. What
    another process does there meanwhile is seen after `reopen` alone.

    Attributes:
        path: of the folder, which need not exist.
        names: of the files and folders in it.
        theirs: which of these are the user's, links aside.
    """

    def __init__(self, path: str, parent: "Folder | None" = None):
        self.path, self._parent = path, parent
        self._lease = None
        self._look(parent is None or os.path.basename(path) in parent.names)

    @classmethod
    def open(cls, path: str) -> "Folder":
        """Lists a folder.

        Raises:
            UserError: it is a file, or cannot be read.
        """
        return cls(path)

    def reopen(self) -> None:
        """Looks again at what is there."""
        self._look(True)

    def _look(self, may_exist):
        self._contents, self._children, self._own = {}, {}, set()
        self.names = anywhere.names(self.path) if may_exist else set()
        self.theirs, self._is_noted = set(), False
        parent = self._parent
        if parent and os.path.basename(self.path) not in parent.theirs:
            self._is_noted = True  # all in it is ours
            return
        found = self.read(FOUND).get("found")
        if isinstance(found, list):
            self.theirs = self.names.intersection(map(str, found))
            # If the user has moved one away, its name is to be noted no more.
            self._is_noted = len(self.theirs) == len(found)
        elif "max_seq_length" not in self.read(SETTINGS):  # else a copy of a run
            self.theirs = {name for name in self.names if not name.startswith(".")}

    def child(self, name: str) -> "Folder":
        """A folder in it; always the same object."""
        if name not in self._children:
            self._children[name] = Folder(self.file(name), self)
        return self._children[name]

    def file(self, name: str) -> str:
        """The path of a file in it."""
        return os.path.join(self.path, name)

    # --- What is there ---------------------------------------------------------------

    @property
    def steps(self) -> list[int]:
        """The steps of the complete checkpoints, ascending."""
        return _steps(self.names, r"\.index")

    def prefix(self, step: int) -> str:
        """The prefix of the checkpoint of a step."""
        return prefix_of(self.path, step)

    @property
    def newest(self) -> str | None:
        """The name of the checkpoint that the state file calls the newest."""
        if _STATE not in self._contents:
            content, path = b"", self.file(_STATE)
            if _STATE in self.names and not anywhere.isdir(path):
                with anywhere.access(path):
                    content = sources.content(path)
            self._contents[_STATE] = content.decode(errors="replace")
        pattern = r'^model_checkpoint_path: "(.*)"'
        match = re.search(pattern, self._contents[_STATE], re.M)
        # Absolute paths in a state file go stale when the directory is moved.
        return os.path.basename(match[1]) if match else None

    @property
    def best(self) -> "Folder | None":
        """The folder of the weights that early stopping kept, if any."""
        return self.child(BEST) if self.evaluations and self.child(BEST).steps else None

    @property
    def evaluations(self) -> list[dict]:
        """What early stopping noted: `step` and `score` of each evaluation.

        Empty if the file is absent or somebody else's.
        """
        entries = self.read(EVALUATIONS, list)
        is_ours = all(
            isinstance(entry, dict) and entry.keys() == {"step", "score"}
            for entry in entries
        )
        return entries if is_ours else []

    @property
    def holds_weights(self) -> bool:
        """Whether a run has left weights."""
        return bool(self.steps or self.best)

    @property
    def settings(self) -> dict:
        """The settings that a run noted, if it has begun."""
        return self.read(SETTINGS) if self.steps else {}

    @property
    def text(self) -> tuple[str, dict]:
        """How text became ids; see `recorded_settings.settings_of_run`."""
        name = TASK if self.read(TASK) else TEXT
        return self.file(name), self.read(name)

    @property
    def config_file(self) -> str | None:
        """The path of the model's config, if there is one."""
        return next((self.file(name) for name in CONFIGS if name in self.names), None)

    def read(self, name: str, kind: type = dict):
        """What this program noted in a file; see `json_files.read_own`."""
        if name not in self._contents:
            there = name in self.names
            self._contents[name] = (
                json_files.read_own(self.file(name), kind) if there else kind()
            )
        return self._contents[name]

    # --- Whose it is -----------------------------------------------------------------

    def check_place(self, trains: bool = True, evaluates: bool = True) -> None:
        """Refuses a folder where somebody else's files are in the way.

        Raises:
            UserError: names the file, or the weights that no run wrote here.
        """
        for name in sorted(self.theirs) if trains else ():
            if protected.is_weights(name):
                raise UserError(
                    f"{self.file(name)}: these weights are not of a run in this folder; "
                    "choose another --output_dir (--init_checkpoint="
                    f"{self.path} starts from these weights)"
                )
        names = _OF_TRAINING if trains else _OF_EVALUATION if evaluates else set()
        for name in sorted(self.theirs & names):
            raise self._not_ours(name)

    def _not_ours(self, name):
        return UserError(
            f"{self.file(name)}: this program did not write it, and would replace it; "
            "move it away, or choose another --output_dir"
        )

    def claim(self) -> None:
        """Notes which files are the user's, before the first of ours; makes the folder."""
        if self._parent:
            self._parent.claim()
        if not self.names:
            anywhere.makedirs(self.path)
        if not self._is_noted:
            with anywhere.replacing(self.file(FOUND), "w") as file:
                file.write(json.dumps({"found": sorted(self.theirs)}) + "\n")
            self._is_noted = True

    @contextlib.contextmanager
    def hold(self, say: Callable[[str], None]) -> Iterator[None]:
        """Keeps other trainings out of the folder, which it makes, and opens it anew.

        On gs://, which has no locks, the latest training takes over; see `lease.Lease`.

        Args:
            say: called with a message if it takes over from another training.
        Raises:
            UserError: another training has it; names the process and its host.
        """
        with contextlib.ExitStack() as stack:
            with anywhere.access(self.path):
                anywhere.makedirs(self.path)
                if sources.is_remote(self.path):
                    self._lease = stack.enter_context(lease.take(self.path, say))
                else:
                    stack.enter_context(local.hold_lock(self.file(SETTINGS)))
            self.reopen()
            yield

    def check_empty(self) -> None:
        """Refuses a folder that contains something, for the files of another model."""
        if self.names:
            raise UserError(f"{self.path}: is not empty; choose another --output_dir")

    @contextlib.contextmanager
    def hold_empty(self) -> Iterator[None]:
        """Keeps other processes from filling an empty folder, if it can be locked."""
        with contextlib.ExitStack() as stack:
            if not sources.is_remote(self.path):
                with anywhere.access(self.path):
                    parent = os.path.dirname(os.path.abspath(self.path))
                    os.makedirs(parent, exist_ok=True)
                    stack.enter_context(local.hold_lock(self.path))
            self.reopen()
            self.check_empty()
            yield

    def check_held(self) -> None:
        """Call it before writing a checkpoint: another training may have taken over."""
        if self._parent:
            self._parent.check_held()
        elif self._lease:
            self._lease.renew()

    # --- Writing ---------------------------------------------------------------------

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator:
        """Opens a file to write in binary, which appears when the block succeeds.

        Raises:
            UserError: a file of this name is the user's.
        """
        self.check_own(name)
        self.claim()
        with anywhere.replacing(self.file(name)) as file:
            yield file
        self._has(name)

    def write(self, name: str, content: str | bytes) -> str:
        """Writes a file atomically, and returns its path.

        One of the user's that has this content stays as it is.

        Raises:
            UserError: a file of this name is the user's.
        """
        content = content.encode() if isinstance(content, str) else content
        path = self.file(name)
        if not (self._is_theirs(name) and _holds(path, content)):
            with self.replacing(name) as file:
                file.write(content)
        return path

    def write_files(self, files: Mapping[str, str | bytes]) -> list[str]:
        """Writes several files, or none; returns their paths. See `write`."""
        self.check_files(files)
        return [self.write(name, content) for name, content in files.items()]

    def check_files(self, files: Mapping[str, str | bytes]) -> None:
        """Refuses to write files if one of these names is the user's; see `write`."""
        for name, content in files.items():
            content = content.encode() if isinstance(content, str) else content
            if self._is_theirs(name) and not _holds(self.file(name), content):
                raise self._not_ours(name)

    def check_own(self, name: str) -> None:
        """Refuses to write a file of this name if it is the user's."""
        if self._is_theirs(name):
            raise self._not_ours(name)

    def _is_theirs(self, name):
        # This program makes no links. To write through one would change another file, or
        # make one where it points.
        if name in self.names - self.theirs - self._own:
            (self.theirs if os.path.islink(self.file(name)) else self._own).add(name)
        return name in self.theirs

    def _has(self, *names):
        self.names.update(names)
        self._own.update(names)
        for name in names:
            self._contents.pop(name, None)
        if self._parent:
            self._parent._has(os.path.basename(self.path))

    def _remove(self, names):
        for name in names:
            anywhere.remove(self.file(name))
            self.names.discard(name)
            self._contents.pop(name, None)

    # --- Checkpoints -----------------------------------------------------------------

    def keep_newest(self, step: int, keep: int, always: Iterable[int] = ()) -> None:
        """Puts a checkpoint that was just written into the state file; drops the oldest.

        Args: see `checkpoint.save`.
        """
        self._has(*(f"{_CHECKPOINT}{step}{part}" for part in PARTS))
        until = [there for there in self.steps if there <= step]
        newest = until[-keep:] if keep else until
        kept = [there for there in until if there in newest or there in always]
        self.keep(kept, until=step)

    def keep(self, kept: Sequence[int], until: float = math.inf) -> None:
        """Lists checkpoints in the state file, the last as the one to load; drops others.

        Args:
            until: later steps are not dropped.
        """
        lines = [f'model_checkpoint_path: "{_CHECKPOINT}{kept[-1]}"\n']
        lines += [
            f'all_model_checkpoint_paths: "{_CHECKPOINT}{step}"\n'
            for step in sorted(kept)
        ]
        self.write(_STATE, "".join(lines))
        self._drop(step for step in self.steps if step <= until and step not in kept)

    def drop_all(self) -> None:
        """Removes all checkpoints of runs, and their state file."""
        self._drop(self.steps)
        self._remove({_STATE} & self.names - self.theirs)

    def _drop(self, steps):
        for step in list(steps):
            # The .index first, so that no part of it seems complete.
            parts = [f"{_CHECKPOINT}{step}{part}" for part in reversed(PARTS)]
            if self.theirs.isdisjoint(parts):
                self._remove(parts)

    def forget_best(self) -> None:
        """Removes what early stopping left."""
        self.child(BEST).drop_all()
        self._remove({EVALUATIONS} & self.names - self.theirs)

    def clear(self) -> None:
        """Removes what ended processes left half written or half removed.

        Only the process that holds the folder may call it, so that no other, on any host,
        is writing checkpoints.
        """
        with anywhere.access(self.path):
            for name in sorted(self.names):
                parts = local.temporary_parts(name)
                path = self.file(name)
                if not parts or anywhere.isdir(path):
                    continue
                written, host, _ = parts
                if not written.startswith(_CHECKPOINT):
                    # Another process may be writing it. On gs:// files appear complete.
                    if not sources.is_remote(path):
                        local.remove_temporaries(self.file(written))
                elif host != local.host() or local.is_left_over(parts):
                    self._remove([name])
        data, _ = PARTS
        self._drop(set(_steps(self.names, re.escape(data))) - set(self.steps))

    # --- The settings of a run -------------------------------------------------------

    def note_settings(self, settings: Mapping, defaults: Mapping | None = None) -> None:
        """Notes the settings with which a run begins, or checks it against them.

        A resumed run is from then on also checked against settings that it had not noted.
        """
        self.check_settings(settings, defaults)
        began = self.settings
        if not began.keys() >= settings.keys():
            content = json.dumps({**settings, **began}, indent=2, sort_keys=True)
            self.write(SETTINGS, content + "\n")

    def check_settings(
        self, settings: Mapping, defaults: Mapping | None = None
    ) -> None:
        """Checks a run against the settings it began with, if it has begun.

        Args:
            defaults: values for settings that the run did not note.
        Raises:
            UserError: the run is another script's, settings differ (all are listed), or
                the folder is not for a training.
        """
        self.check_place()
        self.check_script(settings)
        began = self.settings
        if began and (changed := changes(began, settings, defaults)):
            raise UserError(
                f"{self.path} contains a run that began with other settings: "
                f"{'; '.join(changed)}; choose another output_dir (--init_checkpoint="
                f"{self.path} starts from these weights), or remove "
                f"{self.file(SETTINGS)} to continue anyway"
            )

    def check_script(self, settings: Mapping) -> None:
        """Refuses a folder with a run of another script than that of these settings."""
        was, now = _script(self.settings), _script(settings)
        if was and now and was != now:
            raise UserError(
                f"{self.path}: contains a run of {was}; choose another --output_dir"
            )


def _holds(path, content):
    if not anywhere.exists(path) or anywhere.isdir(path):
        return False
    with anywhere.open_file(path) as file:
        return file.read() == content


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
    """Describes each setting that differs; see `Folder.check_settings`."""
    was = {**(defaults or {}), **began}
    return [
        _change(name, was.get(name), value)
        for name, value in sorted(settings.items())
        if was.get(name) != value
    ]


def _change(name, was, now):
    if _is_digest(was) or _is_digest(now):  # meaningless to a person
        return f"{name.removesuffix('_sha256')} has changed"
    was, now = (_show(name, value) for value in (was, now))
    return f"{name} was {was} and is now {now}" if was != now else f"{name} has changed"


def _show(name, value):
    if isinstance(value, list) and len(repr(value)) > _LONGEST_VALUE:
        return f"{len(value)} {'files' if name == 'input_file' else 'values'}"
    return repr(value)


def _is_digest(value):
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
