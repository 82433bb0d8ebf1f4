"""Lists the formats of weights, and knows the project's own: TensorFlow's checkpoints.

A new format is a `Format` and a row in OTHERS, or of an extension.
"""

import pkgutil
import re
from collections.abc import Collection, Iterable

import numpy as np

import extensions
from training.backend import tf
from training.storage import loading
from training.storage.folder import Folder
from errors import UserError
from files import anywhere, hub, local
from training.interchange import hugging_face, table
from training.interchange.format import Format

# "module:class" of the formats of other libraries, in the order in which they are looked
# for in a folder.
OTHERS = [
    "training.interchange.sentence_folder:SentenceFolder",
    "training.interchange.hugging_face:HuggingFace",
    "training.storage.adapters:Peft",
]
_ADAPTED = "training.storage.adapters:AdaptedBundle"

# What TensorFlow raises for a bundle that is missing, truncated or altered.
_DAMAGE = (tf.errors.OpError, IndexError, RuntimeError, ValueError)


def others() -> list[type[Format]]:
    """The classes of OTHERS, and those of extensions."""
    return [*map(pkgutil.resolve_name, OTHERS), *extensions.classes("formats")]


def find(folder: Folder) -> Format:
    """The weights in a folder.

    Raises:
        UserError: there are none, or several.
    """
    if prefix := _bundle_in(folder):
        return Bundle(prefix)
    for kind in others():
        if path := kind.find(folder.path, folder.names):
            return kind(path)
    raise _ambiguous(folder.path, f"nothing, and there is no {table.WEIGHTS}")


def _bundle_in(folder: Folder) -> str | None:
    """The newest checkpoint in the state file, or the only one."""
    if folder.newest and f"{folder.newest}.index" in folder.names:
        return folder.file(folder.newest)
    index_files = [
        name
        for name in sorted(folder.names)
        if name.endswith(".index") and not local.is_own(name)
    ]
    if len(index_files) > 1:
        raise _ambiguous(folder.path, ", ".join(index_files))
    return folder.file(index_files[0].removesuffix(".index")) if index_files else None


def _ambiguous(folder, names):
    return UserError(
        f"{folder}: no state file names a checkpoint, and *.index matches {names}; pass "
        "the prefix of a checkpoint"
    )


def of_path(path: str) -> Format:
    """The weights that a path names, which is not a folder.

    Raises:
        UserError: there are none.
    """
    for kind in others():
        if kind.is_weights(path):
            if not anywhere.exists(path):
                raise UserError(f"{path}: no such file")
            return kind(path)
    if path.endswith((".bin", ".pt", ".pth")) and anywhere.exists(path):
        raise UserError(f"{path}: {hugging_face.NOT_READ}")
    prefix = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path)
    if not Bundle.is_weights(prefix):
        hint = f"; a model on Hugging Face's hub is {hub.PREFIX}{path}"
        hint = hint if hub.is_name(path) else ""
        raise UserError(
            f"{prefix}: no such checkpoint: there is neither such a directory nor "
            f"{prefix}.index; pass a directory, or the name before .index{hint}"
        )
    return Bundle(prefix)


class Bundle(Format):
    """A checkpoint of TensorFlow: `<path>.index` and its data files.

    The checksum of each tensor is verified. Fine-tuned heads whose names in their release
    are others have ours. Adapters are listed and read as they are; see `whole`.
    """

    def __init__(self, path: str):
        super().__init__(path)
        self._whole = self._reader = self._names = None

    @classmethod
    def find(cls, folder: str, names: Collection[str]) -> str | None:
        return _bundle_in(Folder.open(folder))

    @classmethod
    def is_weights(cls, path: str) -> bool:
        return anywhere.exists(f"{path}.index")

    @property
    def whole(self) -> Format:
        if self._whole is None:
            self._whole = self
            if any(map(loading.is_adapter, self.shapes())):
                self._whole = pkgutil.resolve_name(_ADAPTED)(self)
        return self._whole

    def shapes(self) -> dict[str, tuple[int, ...]]:
        try:
            shapes = self._open().get_variable_to_shape_map()
        except _DAMAGE as error:
            raise self._damage_error(error) from error
        return {
            own: tuple(shapes[name][:: -1 if transposed else 1])
            for own, (name, transposed) in self._names.items()
        }

    def read(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        try:
            self._open()
            names = sorted(self._names) if names is None else names
            return {
                name: self._value(*self._names.get(name, (name, False)))
                for name in names
            }
        except _DAMAGE as error:
            raise self._damage_error(error) from error

    def _open(self):
        if self._reader is None:
            # Not tf.train.load_checkpoint, which takes a prefix for a folder where the
            # file system has none: it lists what begins with the name.
            reader = tf.compat.v1.train.NewCheckpointReader(self.path)
            self._names = table.released_names(reader.get_variable_to_shape_map())
            self._reader = reader
        return self._reader

    def _value(self, name, transposed):
        value = self._reader.get_tensor(name)
        return np.ascontiguousarray(value.T) if transposed else value

    def _damage_error(self, error: Exception) -> UserError:
        reason = " ".join(str(getattr(error, "message", None) or error).split())
        return UserError(
            f"{self.path}: the checkpoint is damaged or incomplete ({reason}); copy or "
            "download all its files again, or use another one"
        )
