"""Low-rank adapters on disk: what a run notes of its base, and how both become one.

The checkpoints of a run with --lora_rank contain its adapters, its head and their slots,
and not the encoder that they change. `adapter.json` in the run's folder says which that is.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping

import numpy as np

from training.backend import tf
from training.storage import run_folder
from errors import UserError
from text.files import anywhere

NAME = "adapter.json"
_A, _B, _KERNEL = "lora_kernel_a", "lora_kernel_b", "kernel"


@dataclasses.dataclass(frozen=True)
class Note:
    """What adapters change.

    Attributes:
        base: the checkpoint of the encoder.
        base_sha256: of the encoder's weights there; see `checkpoint.digest`.
        scope: what the names of the encoder's weights begin with.
        alpha: the factor of the products, times their rank.
    """

    base: str
    base_sha256: str
    scope: list[str]
    alpha: float


def are_in(names: Iterable[str]) -> bool:
    """Whether a checkpoint with these names contains adapters."""
    return any(name.endswith((f"/{_A}", f"/{_B}")) for name in names)


def is_noted(folder: str) -> bool:
    """Whether the checkpoints in the folder of a run contain adapters."""
    return tf.io.gfile.exists(os.path.join(folder, NAME))


def read_note(folder: str) -> Note:
    """The note in the folder of a run.

    Raises:
        UserError: there is none.
    """
    path = os.path.join(folder, NAME)
    known = anywhere.read_json(path)
    names = {field.name for field in dataclasses.fields(Note)}
    if not isinstance(known, dict) or known.keys() != names:
        raise UserError(
            f"{path}: does not say to which checkpoint the adapters of {folder} belong; "
            "copy the file from where the adapters were trained"
        )
    return Note(**known)


def write_note(folder: str, note: Note) -> None:
    """Writes the note, or refuses one that differs from that of the run.

    Raises:
        UserError: the run began with another base.
    """
    path = os.path.join(folder, NAME)
    known = anywhere.read_json(path)
    if isinstance(known, dict) and run_folder.steps(folder):
        check_base(read_note(folder), note.base_sha256, folder)
    content = json.dumps(dataclasses.asdict(note), indent=2) + "\n"
    run_folder.write_file(path, content)


def check_base(note: Note, found: str, folder: str) -> None:
    """Raises:
    UserError: the base is not the one with which the adapters were trained.
    """
    if note.base_sha256 != found:
        raise UserError(
            f"{note.base}: not the weights with which the adapters of {folder} were "
            f"trained (SHA-256 {found[:12]} instead of {note.base_sha256[:12]}); put those "
            f"there or, if they are elsewhere, change `base` in {NAME}"
        )


def place_of(base: str) -> str:
    """A path that means the same in every folder."""
    return base if "://" in base else os.path.abspath(base)


def merged(
    base: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray], alpha: float
) -> dict[str, np.ndarray]:
    """One checkpoint: the base, its kernels changed by adapters, and what else there is.

    Args:
        base: the encoder's weights.
        tensors: adapters, and others, which stay as they are.
    """
    found = dict(base)
    for name, value in tensors.items():
        folder, _, last = name.rpartition("/")
        if last == _A:
            kernel = f"{folder}/{_KERNEL}"
            change = value.astype(np.float64) @ tensors[f"{folder}/{_B}"]
            scaled = alpha / value.shape[1] * change
            found[kernel] = (base[kernel] + scaled).astype(base[kernel].dtype)
        elif last != _B:
            found[name] = value
    return {
        name: value
        for name, value in found.items()
        if f"/{_A}/" not in name and f"/{_B}/" not in name  # slots
    }


def without(weights: Mapping[str, object], alpha: float) -> Mapping[str, object]:
    """The weights of a network, its adapters merged; without adapters, as they are.

    Args:
        weights: keras.Variables by path.
    """
    own = {k: v.numpy() for k, v in weights.items() if are_in([k])}
    if not own:
        return weights
    base = {k: v.numpy() for k, v in weights.items() if k not in own}
    return merged(base, own, alpha)
