"""Low-rank adapters on disk: what a run notes of its base, and how both become one.

The checkpoints of a run with --lora_rank contain its adapters, its head and their slots,
and not the encoder that they change. `adapter.json` in the run's folder says which that is.
"""

import dataclasses
import json
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from training.storage.folder import Folder
from errors import UserError, setting
from files import json_files

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


def read_note(folder: str) -> Note:
    """The note in the folder of a run.

    Raises:
        UserError: there is none, or it is not as it was written.
    """
    path = os.path.join(folder, NAME)
    values = json_files.read_own(path)
    names = {field.name for field in dataclasses.fields(Note)}
    if values.keys() != names:
        raise UserError(
            f"{path}: does not say to which checkpoint the adapters of {folder} belong; "
            "copy the file from where the adapters were trained"
        )
    scope, alpha = values["scope"], values["alpha"]
    is_sound = {
        "base": isinstance(values["base"], str) and values["base"],
        "base_sha256": isinstance(values["base_sha256"], str),
        "scope": isinstance(scope, list) and all(isinstance(x, str) for x in scope),
        "alpha": type(alpha) in (int, float) and 0 < alpha < math.inf,
    }
    for name, sound in is_sound.items():
        if not sound:
            raise UserError(
                f"{path}: {name} is {values[name]!r:.40}; copy the file from where the "
                "adapters were trained"
            )
    return Note(**values)


def write_note(folder: Folder, note: Note) -> None:
    """Writes the note, or refuses one that differs from that of the run.

    Raises:
        UserError: the run began with another base.
    """
    if folder.read(NAME) and folder.steps:
        check_base(read_note(folder.path), note.base_sha256, folder.path)
    folder.write(NAME, json.dumps(dataclasses.asdict(note), indent=2) + "\n")


def check_base(note: Note, digest: str, folder: str) -> None:
    """Raises:
    UserError: the base is not the one with which the adapters were trained.
    """
    if note.base_sha256 != digest:
        raise UserError(
            f"{note.base}: not the weights with which the adapters of {folder} were "
            f"trained (SHA-256 {digest[:12]} instead of {note.base_sha256[:12]}); put "
            f"those there or, if they are elsewhere, change `base` in {NAME}"
        )


def place_of(base: str) -> str:
    """A path that means the same in every folder."""
    return base if "://" in base else os.path.abspath(base)


def check_fits(
    base: Mapping[str, Sequence[int]], own: Mapping[str, Sequence[int]], path: str
) -> None:
    """Refuses adapters that are not whole, or whose kernels the base lacks.

    Args:
        base: shapes of the encoder's weights.
        own: shapes of adapters and others.
        path: of the adapters.
    Raises:
        UserError: see above.
    """
    folders = {name.rpartition("/")[0] for name in own if are_in([name])}
    if not folders:
        raise UserError(f"{path}: contains no adapters, only {len(own)} other tensors")
    for folder in sorted(folders):
        a, b = (tuple(own.get(f"{folder}/{side}", ())) for side in (_A, _B))
        for side, shape in ((_A, a), (_B, b)):
            if not shape:
                raise UserError(
                    f"{path}: {folder} has no {side}, only the other matrix of its "
                    "product; copy or download the file again"
                )
        kernel = tuple(base.get(kernel_of(folder, base), ()))
        # All axes but the first are one of the matrix.
        sizes = (kernel[0], math.prod(kernel[1:])) if kernel else ()
        if not 0 < a[-1] == b[0] or (a[0], b[-1]) != sizes or len(a + b) != 4:
            size = f"of the shape {list(kernel)}" if kernel else "missing"
            raise UserError(
                f"{path}: {folder} has adapters of the shapes {list(a)} and {list(b)}, and "
                f"in the base its kernel is {size}; use the base with which they were "
                "trained"
            )


def check_head(
    note: Note, own: Iterable[str], variables: Collection[str], path: str
) -> None:
    """Refuses a model that has only a part of the head that was trained with adapters.

    Args:
        note: what they change.
        own: names of adapters and others.
        variables: names of the model's.
        path: of the adapters.
    Raises:
        UserError: see above.
    """
    whole = set(others(own))
    head = {name for name in whole if not name.startswith(tuple(note.scope))}
    # One bias for all choices has no effect, so a network that ranks them has none.
    unused = sorted(whole.difference(variables, {"output_bias"}))
    if unused and not head.isdisjoint(variables):
        raise UserError(
            f"{path}: the adapter's head also consists of {', '.join(unused[:4])}, which "
            f"the model lacks; leave out {setting('bert_config_file')}, or pass the "
            "adapter's folder "
            'there (in a bert_config.json, an ELECTRA needs "pooler_act": "gelu_erf")'
        )


def merged(
    base: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray], alpha: float
) -> dict[str, np.ndarray]:
    """One checkpoint: the base, its kernels changed by adapters, and what else there is.

    Args:
        base: the encoder's weights.
        tensors: adapters, and others, which stay as they are.
    """
    weights = dict(base)
    for name in others(tensors):
        weights[name] = tensors[name]
    for name, value in tensors.items():
        folder, _, last = name.rpartition("/")
        if last == _A:
            kernel = kernel_of(folder, base)
            change = value.astype(np.float64) @ tensors[f"{folder}/{_B}"]
            scaled = alpha / value.shape[1] * change.reshape(base[kernel].shape)
            weights[kernel] = (base[kernel] + scaled).astype(base[kernel].dtype)
    return weights


def kernel_of(layer: str, names: Collection[str]) -> str:
    """The name of the kernel that adapters below the name of a dense layer change.

    Some releases give kernels the names of their layers.

    Args:
        names: of the base's weights.
    """
    return layer if layer in names else f"{layer}/{_KERNEL}"


def others(names: Iterable[str]) -> list[str]:
    """The names that are neither of adapters nor of their slots."""
    return [n for n in names if not {_A, _B}.intersection(n.split("/"))]


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
