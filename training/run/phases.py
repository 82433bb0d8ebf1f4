"""What may change while weights are trained: a run's schedule; in the next run, all else.

A run may get another schedule if its updates so far would have had the same rates with it,
such as in the stable part of `wsd`. Another run may continue a checkpoint of it with
optimizer and step, but with another rate, batch size or other records: a branch of it, or
its next phase.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from training.run import loop
from training.storage import loading
from training.storage.source import Source
from errors import UserError
from modeling.optimizers.table import OptimizerSettings
from text.records.mixture import SourceOrder, counts_in
from training.run.position import STEP, Position, is_entry

_OF_SCHEDULE = (
    "learning_rate",
    "lr_decay_power",
    "lr_schedule",
    "min_lr_ratio",
    "num_decay_steps",
    "num_train_steps",
    "num_warmup_steps",
)
_STEPS_AT_ONCE = 1 << 20
_RECORDS = ("input_file", "input_file_sha256", "mixture", "sources_sha256")


def free_settings(began: Mapping, settings: Mapping, step: int) -> tuple[str, ...]:
    """The settings in which a run may differ from those that it began with.

    Args:
        began, settings: see `Folder.check_settings`.
        step: of its newest checkpoint.
    Returns:
        Those of its schedule, if the updates so far have the same rates with both.
    """
    if not settings.keys() >= set(_OF_SCHEDULE):
        return ()  # a fine-tuning
    if all(began.get(name) == settings[name] for name in _OF_SCHEDULE):
        return ()
    try:
        for first in range(0, step, _STEPS_AT_ONCE):
            steps = np.arange(first, min(first + _STEPS_AT_ONCE, step))
            if np.any(_rates(began, steps) != _rates(settings, steps)):
                return ()
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return ()  # what the run began with was edited
    return _OF_SCHEDULE


def _rates(settings, steps):
    names = {field.name for field in dataclasses.fields(OptimizerSettings)}
    optimizer = OptimizerSettings(**{k: settings[k] for k in names & settings.keys()})
    sizes = ("learning_rate", "num_train_steps", "num_warmup_steps")
    rates = optimizer.learning_rate(steps, *(settings[name] for name in sizes))
    return np.asarray(rates)


def check_continued(source: Source, num_train_steps: int, num_decay_steps: int) -> None:
    """Refuses to continue a checkpoint behind the end of a run, or in its decay.

    Args:
        source: the checkpoint.
        num_train_steps, num_decay_steps: of the run that would continue it.
    Raises:
        UserError: see above; or it has no step.
    """
    if STEP not in source.shapes():
        raise UserError(
            f"--keep_optimizer: {source.prefix} has no {STEP}, so it is not the checkpoint "
            "of a run that could continue; leave the flag out to start from its weights"
        )
    step = int(source.read([STEP])[STEP])
    if step >= num_train_steps:
        raise UserError(
            f"--num_train_steps={num_train_steps}: with --keep_optimizer, this counts the "
            f"{step} updates of {source.prefix}, too; pass more"
        )
    if step > num_train_steps - num_decay_steps:
        raise UserError(
            f"--num_decay_steps={num_decay_steps}: the decay would begin before step "
            f"{step}, that of {source.prefix}; pass at most {num_train_steps - step}"
        )


def continue_checkpoint(
    trainer: loop.Trainer,
    source: Source,
    required: str | tuple[str, ...],
    settings: Mapping,
) -> None:
    """Sets weights, slots and position as they are in a checkpoint of another run.

    Args:
        required: see `Source.match`.
        settings: of this run, with what identifies its records.
    Raises:
        UserError: something is missing, or does not fit.
    """
    source.match(trainer.weights, required, trainer.model.encoder.scope)
    shapes = source.shapes()
    problems = [f"no {name}" for name in sorted(trainer.variables.keys() - shapes)]
    problems += loading.differing(trainer.variables, shapes).values()
    if problems:
        raise UserError(
            f"--keep_optimizer: {source.prefix} does not fit: "
            f"{loading.first(problems, 3)}; pass the --optimizer, --objective and config "
            "of its run, or leave the flag out to start from its weights"
        )
    tensors = source.read()
    trainer.set_state(tensors, trainer.variables)
    _find_place(trainer.progress, source.settings, settings)


def place_after(source: Source, settings: Mapping) -> Position:
    """Where a run begins that continues a checkpoint; see `continue_checkpoint`."""
    names = [name for name in source.shapes() if is_entry(name)]
    position = Position.of(source.read(names))
    _find_place(position, source.settings, settings)
    return position


def _find_place(position: Position, began: Mapping, settings: Mapping) -> None:
    """Where to read on: behind what was read of the same records; other ones from 0.

    So does each source of a mixture, in whatever shares and with whichever others, also if
    runs between left it out.
    """
    if not began:
        position.rows_read = {}
        return  # nothing says what was read
    size, before = settings["train_batch_size"], began.get("train_batch_size")
    if any(began.get(name) != settings.get(name) for name in _RECORDS):
        position.rows_read = {**position.rows_read, **_rows_read(position, began)}
        position.batch_offset = -position.step
    elif size != before:
        rows = position.next_batch * before
        position.batch_offset = -(-rows // size) - position.step


def _rows_read(position, began):
    """How many rows of each source have been read at the end of a mixture; else empty."""
    if not began.get("mixture"):
        return {}
    schedule = SourceOrder(counts_in(began["mixture"]), began["seed"])
    read = schedule.before(position.next_batch * began["train_batch_size"])
    return {
        source: position.rows_read.get(source, 0) + rows
        for source, rows in zip(began["sources_sha256"], read.tolist(), strict=True)
    }
