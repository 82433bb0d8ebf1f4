"""Writes the checkpoints of a run, and reads them again to resume it.

A checkpoint has TensorFlow 1's format: `model.ckpt-<step>.index` and its data files, next
to the `checkpoint` state file. Weights are saved under the released names, Adam's slots as
`<variable>/adam_m` and `<variable>/adam_v`, and the number of updates as `global_step`.

A bundle is written under a temporary name and renamed, its `.index` last: a bundle whose
`.index` has its final name is complete, whenever the process was killed.
"""

import os
import sys
from collections.abc import Collection, Mapping

import numpy as np

from training.backend import tf
from training.storage import adapters, loading, weight_formats
from training.storage.folder import PARTS, Folder
from errors import UserError
from files import anywhere, local


def save(
    folder: Folder,
    step: int,
    tensors: Mapping[str, object],
    keep: int,
    always: Collection[int] = (),
) -> str:
    """Writes `model.ckpt-<step>` and names it in the state file; drops the oldest.

    Equal tensors give equal bytes.

    Args:
        tensors: names to arrays or tensors.
        keep: how many checkpoints to keep; 0 keeps all. Those later than `step`, which
            exist only after a checkpoint was damaged, are neither counted nor dropped.
        always: steps whose checkpoints are kept besides.
    Returns:
        The checkpoint's prefix.
    Raises:
        UserError: the disk is full or not writable, or another process has taken over
            the training.
    """
    folder.check_held()
    folder.claim()
    prefix = folder.prefix(step)
    write_bundle(prefix, tensors)
    folder.keep_newest(step, keep, always)
    return prefix


def write_bundle(prefix: str, tensors: Mapping[str, object]) -> None:
    """Writes one bundle atomically; see `save`."""
    temporary = local.temporary_name(prefix)
    names = sorted(tensors)
    with anywhere.access(prefix):
        tf.raw_ops.SaveV2(
            prefix=temporary,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
        )
        for part in PARTS:
            anywhere.sync(temporary + part)
        for part in PARTS:
            anywhere.rename(temporary + part, prefix + part, overwrite=True)


def newest(folder: Folder) -> tuple[str, dict[str, np.ndarray]] | None:
    """Reads the newest undamaged checkpoint of a run; warns of those it skipped.

    Going back to an older one is safe: the run repeats the updates in between exactly.

    Returns:
        Its prefix and all its tensors; None if there is no checkpoint.
    Raises:
        UserError: there are checkpoints, but all are damaged.
    """
    damaged = []
    for step in reversed(folder.steps):
        prefix = folder.prefix(step)
        try:
            tensors = weight_formats.Bundle(prefix).read()
        except UserError as error:
            folder.reopen()
            if step not in folder.steps:
                return newest(folder)  # a running training has just dropped it
            damaged.append(str(error))
            continue
        for line in damaged:
            print(f"warning: {line}; continuing from {prefix}", file=sys.stderr)
        return prefix, tensors
    if damaged:
        raise UserError("no checkpoint of the run is intact: " + "; ".join(damaged))
    return None


def check_complete(
    prefix: str, variables: Mapping[str, object], tensors: Mapping[str, np.ndarray]
) -> None:
    """Refuses to resume from a checkpoint that is not from exactly this model."""
    needed = variables.keys() | {"global_step"}
    problems = [f"{name} is missing" for name in sorted(needed - tensors.keys())]
    shapes = {name: value.shape for name, value in tensors.items()}
    problems += loading.differing(variables, shapes).values()
    if problems:
        if any(map(loading.is_adapter, tensors)):
            adapters.read_note(os.path.dirname(prefix))  # says if that is missing
        raise UserError(
            f"{prefix}: not a checkpoint of this run; choose another output_dir, or pass "
            f"it as --init_checkpoint: {loading.first(problems, 5)}"
        )
