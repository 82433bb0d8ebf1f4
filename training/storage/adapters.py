"""Low-rank adapters on disk: what a run notes of its base, and how both become one.

The checkpoints of a run with --lora_rank contain its adapters, its head and their slots,
and not the encoder that they change. `adapter.json` in the run's folder says which that is;
Hugging Face's peft has a file of its own for that.
"""

import contextlib
import dataclasses
import functools
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from training.storage import checkpoint_contents, loading
from training.storage.folder import Folder
from training.storage.source import Source, describing_folder
from errors import UserError, setting
from files import json_files
from training.interchange import peft
from training.interchange.format import Format

NAME = "adapter.json"
_A, _B, _KERNEL = "lora_kernel_a", "lora_kernel_b", "kernel"


@dataclasses.dataclass(frozen=True)
class Note:
    """What adapters change.

    Attributes:
        base: the checkpoint of the encoder.
        base_sha256: of the encoder's weights there; see `checkpoint_contents.digest`.
        scope: what the names of the encoder's weights begin with.
        alpha: the factor of the products, times their rank.
    """

    base: str
    base_sha256: str
    scope: list[str]
    alpha: float


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
    folders = {name.rpartition("/")[0] for name in own if loading.is_adapter(name)}
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


def merge(
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


def base_shapes(source: Source, scope: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights of a checkpoint whose names begin so."""
    shapes, scope = source.shapes().items(), tuple(scope)
    return {
        name: shape
        for name, shape in shapes
        if name.startswith(scope) and not loading.is_slot(name)
    }


def base_weights(source: Source, scope: Iterable[str]) -> dict[str, np.ndarray]:
    """The same weights."""
    return source.read(base_shapes(source, scope))


def without(weights: Mapping[str, object], alpha: float) -> Mapping[str, object]:
    """The weights of a network, its adapters merged; without adapters, as they are.

    Args:
        weights: keras.Variables by path.
    """
    own = {k: v.numpy() for k, v in weights.items() if loading.is_adapter(k)}
    if not own:
        return weights
    base = {k: v.numpy() for k, v in weights.items() if k not in own}
    return merge(base, own, alpha)


# --- Formats -------------------------------------------------------------------------


class Adapted(Format):
    """Adapters, as the whole model that they make with their base.

    Attributes:
        is_alone: see `peft.Stored`.
        note: what they change; `base_sha256` is empty if it is not known.
        place: where the files say which base it is, for a message.
    """

    is_adapted = True
    is_alone = False
    place: str
    note: Note

    def stored_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of what is stored, without the base."""
        raise NotImplementedError

    def read_stored(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """What is stored; see `Format.read`."""
        raise NotImplementedError

    @classmethod
    def find(cls, folder: str, names: Collection[str]) -> str | None:
        return None

    @classmethod
    def is_weights(cls, path: str) -> bool:
        return False

    def __init__(self, path: str):
        super().__init__(path)
        self._base = None

    @property
    def base(self) -> Source:
        return self._open_base(self.note.base)

    def _open_base(self, path: str) -> Source:
        if self._base is None:
            with self._reading_base():
                base = Source.open(path)
                self._check_kind(base, path)
            self._base = base
        return self._base

    def _check_kind(self, base: Source, path: str) -> None:
        """Refuses a base of another kind than these adapters have."""

    @contextlib.contextmanager
    def _reading_base(self) -> Iterator[None]:
        """Errors say that they are of the base."""
        try:
            yield
        except UserError as error:
            raise UserError(
                f"{self.path}: cannot read the base of these adapters: {error}; if it is "
                f"elsewhere, change {self.place}"
            ) from error

    def shapes(self) -> dict[str, tuple[int, ...]]:
        # Without the values of the base, which whoever loads them reads, too.
        base, stored = self.base, self.stored_shapes()
        with self._reading_base():
            encoder = base_shapes(base, self.note.scope)
        check_fits(encoder, stored, self.path)
        return encoder | {name: stored[name] for name in others(stored)}

    def read(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        names = None if names is None else list(names)
        if names is not None and self.stored_shapes().keys() >= set(names):
            return self.read_stored(names)
        base = self.base
        with self._reading_base():
            encoder = base_weights(base, self.note.scope)
        if self.note.base_sha256:
            digest = checkpoint_contents.digest(encoder)
            check_base(self.note, digest, os.path.dirname(self.path))
        check_fits(_shapes(encoder), self.stored_shapes(), self.path)
        model = merge(encoder, self.read_stored(), self.note.alpha)
        return {n: model[n] for n in (sorted(model) if names is None else names)}


def _shapes(tensors):
    return {name: value.shape for name, value in tensors.items()}


class AdaptedBundle(Adapted):
    """A checkpoint of a run with --lora_rank."""

    place = f"`base` in {NAME}"

    def __init__(self, bundle: Format):
        super().__init__(bundle.path)
        self._bundle = bundle

    @functools.cached_property
    def note(self) -> Note:
        return read_note(describing_folder(self.path).path)

    def stored_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self._bundle.shapes()

    def read_stored(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        return self._bundle.read(names)


class Peft(Adapted):
    """An adapter of Hugging Face's peft, which does not identify its base."""

    place = f"{peft.BASE} in {peft.CONFIG}"

    @classmethod
    def find(cls, folder: str, names: Collection[str]) -> str | None:
        return os.path.join(folder, peft.WEIGHTS) if peft.WEIGHTS in names else None

    @classmethod
    def is_weights(cls, path: str) -> bool:
        return peft.is_weights(path)

    @functools.cached_property
    def _files(self) -> peft.Stored:
        return peft.read(self.path, self._architecture_of)

    def _architecture_of(self, path: str) -> str | None:
        base = self._open_base(path)
        return base.config.architecture if base.config_file else None

    @functools.cached_property
    def note(self) -> Note:
        files = self._files
        return Note(files.base, "", list(files.scope), files.alpha)

    def stored_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return _shapes(self._files.tensors)

    def read_stored(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        tensors = self._files.tensors
        return {name: tensors[name] for name in (tensors if names is None else names)}

    def _check_kind(self, base: Source, path: str) -> None:
        if isinstance(base.format, Peft):
            raise UserError(f"{path}: is an adapter, too; merge it with its own base")

    @property
    def is_alone(self) -> bool:
        return self._files.is_alone

    @property
    def head_class(self) -> str | None:
        return self._files.their_class

    def check_head(self, variables: Collection[str]) -> None:
        whole, scope = set(others(self._files.tensors)), self._files.scope
        head = {name for name in whole if not name.startswith(scope)}
        # One bias for all choices has no effect, so a network that ranks them has none.
        unused = sorted(whole.difference(variables, {"output_bias"}))
        if unused and not head.isdisjoint(variables):
            raise UserError(
                f"{self.path}: the adapter's head also consists of "
                f"{', '.join(unused[:4])}, which the model lacks; leave out "
                f"{setting('bert_config_file')}, or pass the adapter's folder there"
            )

    def task(self) -> dict:
        return {"head": self._files.head} if self._files.head else {}
