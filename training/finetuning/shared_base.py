"""LoRA runs in one export: their adapters and heads, on one copy of their base."""

import contextlib
import functools
import os
import re
from collections.abc import Iterator

from training.backend import tf
from training.run import checks, implied_flags
from training.storage import adapters, checkpoint
from training.storage.folder import Folder
from errors import UserError
from modeling.objectives import low_rank
from training.finetuning.experiment import Experiment
from training.finetuning.options import flags_of_run

_FLAG = "--export_adapters"
_TAKEN = ("serving_default", "tensors", "examples")  # an export's other signatures


def experiments(own: Experiment) -> dict[str, Experiment]:
    """The runs of --export_adapters by name, and first the command's own; {} without any.

    Raises:
        UserError: one of them has no adapters, other text, or another base or script.
    """
    flags, runs = own.flags, {}
    if not flags.export_adapters:
        return runs
    if flags.do_train:
        if not flags.lora_rank:
            raise UserError(f"{_FLAG} is for runs with --lora_rank; pass it, too")
        note = own.adapter_note
    else:
        note = _note(own.folder)
    runs[_name(flags.output_dir, runs)] = own
    for path in flags.export_adapters:
        with _named(path):
            name, folder = _name(path, runs), Folder.open(path)
            _check_base(note, _note(folder), flags.output_dir)
            runs[name] = _experiment(own, folder, name)
    return runs


def _name(folder, others):
    """What the signature of a run is called."""
    name = os.path.basename(adapters.place_of(folder).rstrip("/"))
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII) or name in _TAKEN:
        raise UserError(
            f"{folder}: the name of the folder becomes that of a signature, which has "
            f"only letters, digits and -._, and is not {', '.join(_TAKEN)}; rename it"
        )
    if name in others:
        raise UserError(
            f"{folder}: another run has the name {name}, too, and names become those of "
            "signatures; rename one of the folders"
        )
    return name


def _note(folder):
    if not folder.holds_weights or adapters.NAME not in folder.names:
        raise UserError(
            f"{folder.path}: contains no checkpoint of a run with --lora_rank"
        )
    return adapters.read_note(folder.path)


def _check_base(note, other, output_dir):
    if note.base_sha256 != other.base_sha256:
        raise UserError(
            f"its base is {other.base} (SHA-256 {other.base_sha256[:12]}), and that of "
            f"{output_dir} is {note.base} ({note.base_sha256[:12]}); an export has one base"
        )


def _experiment(own, folder, name):
    script = own.script["script"]
    _, state = folder.text
    if state.get("script") != script:
        raise UserError(
            f"it is a run of {state.get('script')}, not of {script}; runs of different "
            "scripts need an export each"
        )
    flags = flags_of_run(
        type(own.flags), folder.path, state, export_dtype=own.flags.export_dtype
    )
    flags = implied_flags.completed(flags, folder)
    task = type(own.task)(flags, checks.make_tokenizer(flags, folder))
    settings, needed = task.tokenizer.settings, own.task.tokenizer.settings
    names = (needed | settings).keys()
    if differing := [n for n in names if settings.get(n) != needed.get(n)]:
        setting = differing[0]
        raise UserError(
            f"it reads text otherwise than {own.flags.output_dir}: {setting} is "
            f"{settings.get(setting)}, not {needed.get(setting)}; an export has one "
            "tokenizer"
        )
    return Experiment(task, flags, folder, own.strategy, name)


@contextlib.contextmanager
def _named(path) -> Iterator[None]:
    """Says of errors which run they are about."""
    try:
        yield
    except UserError as error:
        message = str(error).removeprefix(f"{path}: ")
        raise UserError(f"{_FLAG}={path}: {message}") from error


class SharedBase:
    """The base of LoRA runs, as variables for all of their networks.

    Args:
        folder: of one of the runs.
    Raises:
        UserError: the base is not the one with which the run was trained.
    """

    def __init__(self, folder: str):
        note = adapters.read_note(folder)
        base = checkpoint.base_weights(note.base, tuple(note.scope))
        adapters.check_base(note, checkpoint.digest(base), folder)
        with tf.device("CPU"):
            self._variables = low_rank.shared(base)

    def model(self, run: Experiment) -> tuple[low_rank.OnSharedBase, int]:
        """The network of a run on this base, and the step of its weights."""
        folder = run.flags.output_dir
        own = checkpoint.read_stored(checkpoint.resolve(folder))
        alpha = adapters.read_note(folder).alpha
        objective = run.flags.with_lstm(run.task.objective()).evaluated_as
        make = functools.partial(
            objective.network, run.config, dtype=run.flags.export_dtype
        )
        with tf.device("CPU"):
            model = low_rank.OnSharedBase(make, self._variables, own, alpha)
        return model, int(own["global_step"])
