"""A model on disk: its weights, and what the files next to them say of it."""

import functools
import os
from collections.abc import Iterable, Mapping

import numpy as np

from training.storage import loading, weight_formats
from training.storage.folder import BEST, CONFIG, TASK, Folder
from errors import UserError, setting
from files import anywhere, hub, json_files
from modeling.architectures.config import EncoderConfig
from text.tokenizers.recorded_settings import FolderText
from text.tokenizers.table import OpenVocabulary, find_vocabulary
from training.interchange import peft, table
from training.interchange.format import Format, read_values


class ModelFolder:
    """What the files in the folder of a model say of it.

    Every file is read when it is first asked for, and then never again: make another one
    for files that may have changed.
    """

    def __init__(self, opened: Folder, has_tokenizer_config: bool = False):
        """Args:
        opened: the folder.
        has_tokenizer_config: whether Hugging Face's files there decide how the text of the
            weights becomes ids.
        """
        self.open, self.folder = opened, opened.path
        self._has_tokenizer_config = has_tokenizer_config

    @property
    def config_file(self) -> str | None:
        """The config, if there is one."""
        return self.open.config_file

    @functools.cached_property
    def config(self) -> EncoderConfig:
        """The architecture.

        Raises:
            UserError: there is no config, or it cannot be read.
        """
        if not self.config_file:
            raise _missing_config(self.open)
        return self._read_config()

    def _read_config(self):
        return _read_file(self.config_file)

    @functools.cached_property
    def vocabulary(self) -> OpenVocabulary | None:
        """The vocabulary, if there is one."""
        file = find_vocabulary(self.text)
        return OpenVocabulary(self.text, file.name) if file else None

    @property
    def vocab_file(self) -> str | None:
        """Its path."""
        return self.vocabulary and self.vocabulary.path

    @functools.cached_property
    def text(self) -> FolderText:
        """How text becomes ids."""
        return FolderText(
            self.folder,
            self.open.names,
            self._has_tokenizer_config,
            lambda: self.open.text,
        )

    @property
    def settings(self) -> dict:
        """The settings that a run noted, if there is one."""
        return self.open.settings


class Source(ModelFolder):
    """A model's weights and what lies next to them, opened once.

    Attributes:
        prefix: of a checkpoint, or the path of a file of another format.
        folder: whose files describe the model.
        format: the weights as they are stored.
    """

    def __init__(self, format: Format, opened: Folder):
        self.format, self.prefix = format, format.path
        super().__init__(opened, format.has_tokenizer_config)

    @classmethod
    def open(cls, path: str) -> "Source":
        """The model that a user means.

        Args:
            path: a prefix, the path of one of a bundle's files, a directory, or an address
                (see files/hub.py). A directory means, in this order, the best checkpoint
                that early stopping kept there, the newest in its state file, its only
                bundle, or weights in another format.
        Raises:
            UserError: there is no such checkpoint, or the directory is ambiguous.
        """
        path = hub.local(path, "weights")
        if anywhere.isdir(path):
            return cls.of(Folder.open(path))
        format = weight_formats.of_path(path)
        return cls(format, describing_folder(format.path))

    @classmethod
    def of(cls, folder: Folder) -> "Source":
        """The model in a folder that is open; see `open`."""
        format = weight_formats.find(folder.best or folder)
        if os.path.basename(os.path.normpath(folder.path)) == BEST:
            folder = describing_folder(format.path)
        return cls(format, folder)

    # --- The weights -----------------------------------------------------------------

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the tensors, by released names; see `read`."""
        return self._shapes

    @functools.cached_property
    def _shapes(self):
        return self.format.whole.shapes()

    def read(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Reads tensors by released names. Adapters are read as the model that they make
        with their base.

        Args:
            names: which to read; all by default.
        Raises:
            UserError: a file is incomplete, truncated or altered. (Files of other formats
                than TensorFlow's have no checksums, so only the first two are detected.)
        """
        return self.format.whole.read(names)

    def load(
        self,
        variables: Mapping[str, object],
        required: str | tuple[str, ...] | None = None,
        scope: str = "",
    ) -> loading.LoadReport:
        """Sets variables from the entries of the same names.

        Nothing is set unless everything fits. Entries without a variable (another head,
        optimizer slots, global_step) are ignored and reported.

        Args: see `match`.
        """
        report = self.match(variables, required, scope)
        for name, value in self.read(report.matched).items():
            variables[name].assign(value)
        return report

    def match(
        self,
        variables: Mapping[str, object],
        required: str | tuple[str, ...] | None = None,
        scope: str = "",
    ) -> loading.LoadReport:
        """Compares variables with the entries of the same names; sets nothing.

        Args:
            variables: names to Keras or TensorFlow variables.
            required: variables whose names begin with this must be there; "" means all.
            scope: what the names of the encoder's variables begin with; errors in others
                are attributed to the head.
        Raises:
            UserError: shapes differ, required names are missing, nothing matches, or a file
                is damaged.
        """
        report = loading.compare(self.prefix, self.shapes(), variables, scope)
        self.format.check_head(variables)
        loading.check_required(report, self.shapes(), required, scope)
        return report

    # --- What lies next to them ------------------------------------------------------

    @property
    def base(self) -> "Source | None":
        """The model whose files describe this one, too, where its own do not."""
        return self.format.base

    @property
    def adapters(self):
        """The `Adapted` format, if only adapters are stored, without their base."""
        whole = self.format.whole
        return whole if whole.is_adapted else None

    @functools.cached_property
    def task(self) -> dict:
        """What the head is for, if a file says so: what a run noted, or Hugging Face's."""
        if TASK in self.open.names:
            advice = "remove it, or restore what a run wrote"
            return json_files.read_object(self.open.file(TASK), advice)
        return self.format.task()

    def _read_config(self):
        return _read_file(self.config_file, self)


def describing_folder(prefix: str) -> Folder:
    """The folder whose files describe a checkpoint; for the best one, its run's."""
    folder = os.path.dirname(prefix)
    if os.path.basename(folder) == BEST:
        run = Folder.open(os.path.dirname(folder) or ".")
        if run.best:
            return run
    return Folder.open(folder or ".")


# --- Configs -------------------------------------------------------------------------


def read_config(path: str) -> EncoderConfig:
    """Reads the architecture of a model that may have no weights yet.

    Args:
        path: a bert_config.json, a Hugging Face config.json, a directory with one, or an
            address. An adapter_config.json of peft means the config of its base, with the
            adapter's head.
    """
    path = hub.local(path, "config")
    if anywhere.isdir(path):
        return ModelFolder(Folder.open(path)).config
    if not anywhere.exists(path):
        raise _no_file(path)
    return _read_file(path)


def _missing_config(folder: Folder) -> UserError:
    for kind in weight_formats.others():
        if kind.find(folder.path, folder.names):
            if error := kind.missing_config(folder.path):
                return error
    return _no_file(folder.file(CONFIG))


def _no_file(path) -> UserError:
    return UserError(f"{path}: no such file; pass {setting('bert_config_file')}")


def _read_file(path: str, source: Source | None = None) -> EncoderConfig:
    """The config in a file.

    Args:
        source: what the file is next to, if that is open.
    """
    head_class = None
    if os.path.basename(path) == peft.CONFIG:
        weights = os.path.join(os.path.dirname(path), peft.WEIGHTS)
        adapter = source or Source.open(weights)
        head_class, source = adapter.format.head_class, adapter.base
        if not (path := source.config_file):
            raise UserError(
                f"{source.folder}: contains no config; copy that of the model there"
            )
    values = source.format.read_config(path) if source else read_values(path)
    if head_class and "model_type" in values:
        values["architectures"] = [head_class]
    try:
        return table.config_from_json(values)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
