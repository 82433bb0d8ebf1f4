"""Settles which model a command is about: what flags leave out, files know.

The run in --output_dir, the weights of --init_checkpoint, and the records of a pre-training
know the vocabulary, the config, and how text became ids. The first that knows fills in what
a user leaves out; of what a user does pass, a contradiction is refused.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, Self

from training.run import capacity
from training.storage.folder import CONFIG, TEXT, Folder
from training.storage.source import ModelFolder, Source, read_config
from errors import UserError, setting
from files import anywhere, hub, sources
from modeling.architectures.config import EncoderConfig
from text.tokenizers import recorded_settings
from text.tokenizers.recorded_settings import FolderText
from text.tokenizers.table import OpenVocabulary, find_vocabulary, kind_of_tokenizer
from text.tokenizers.tokenizer import Tokenizer
from training.run.options import RunOptions


class ModelFlags(Protocol):
    """The flags of any script that name a model; `TokenizerOptions` and its files.

    Scripts that train have output_dir, too, where a run may be.
    """

    vocab_file: str | None
    bert_config_file: str | None
    init_checkpoint: str | None

    def or_else(self, settings: Mapping) -> Self: ...


class KnownRecords(NamedTuple):
    """What the records of a pre-training know.

    Attributes:
        text: the `Tokenizer.settings` on which their descriptions agree.
        vocab_files: where their vocabulary was.
        need_vocabulary: whether to take that of --init_checkpoint if nothing says which
            one they were made with.
    """

    text: Mapping
    vocab_files: Sequence[str] = ()
    need_vocabulary: bool = False


class Model:
    """The model that flags name. Everything is found out once, when it is asked for.

    Args:
        flags: any script's.
        records: finds out what the records of a pre-training know.
        source: the weights of --init_checkpoint, if they are open.
        folder: output_dir, if it is open.
    """

    def __init__(
        self,
        flags: ModelFlags,
        records: Callable[[], KnownRecords] | None = None,
        source: Source | None = None,
        folder: Folder | None = None,
    ):
        self._flags, self._find_records = flags, records
        if source:
            self.source = source
        if folder:
            self.folder = folder

    @functools.cached_property
    def source(self) -> Source | None:
        """The weights of --init_checkpoint.

        Raises:
            UserError: there is no such checkpoint.
        """
        path = self._flags.init_checkpoint
        return Source.open(path) if path else None

    @functools.cached_property
    def folder(self) -> Folder | None:
        """The output_dir of a script that trains."""
        directory = getattr(self._flags, "output_dir", None)
        return Folder.open(directory) if directory else None

    @functools.cached_property
    def earlier_run(self) -> ModelFolder | None:
        """output_dir, if a run has left weights there."""
        has_weights = self.folder and self.folder.holds_weights
        return ModelFolder(self.folder) if has_weights else None

    @functools.cached_property
    def continues_run(self) -> bool:
        """Whether a run in --output_dir needs no --init_checkpoint any more."""
        return bool(self.earlier_run and self.earlier_run.settings)

    @functools.cached_property
    def known_folders(self) -> list[ModelFolder]:
        """The folders of the weights to use, the most decisive first."""
        source = self.source_in_use
        folders = (self.earlier_run, source, source and source.base)
        return [folder for folder in folders if folder]

    @property
    def source_in_use(self) -> Source | None:
        """The weights of --init_checkpoint, unless a run goes on from its own."""
        return None if self.continues_run else self.source

    @functools.cached_property
    def _records(self) -> KnownRecords | None:
        return self._find_records() if self._find_records else None

    # --- Flags -----------------------------------------------------------------------

    @functools.cached_property
    def flags(self) -> ModelFlags:
        """The flags, with what the files know; what they do not know stays None."""
        flags = dataclasses.replace(self.flags_with_config, vocab_file=self.vocab_file)
        if not self.vocabulary:
            return flags
        kind = self.vocabulary.kind
        absent = [name for name in kind.text_flags if getattr(flags, name) is None]
        if self._records:
            settings = self._records.text
            flags = flags.or_else({name: settings.get(name) for name in absent})
        for known in self.known_folders if absent else ():
            flags = flags.or_else(known.text.flags(kind))
        return flags

    @property
    def flags_with_config(self) -> ModelFlags:
        """The flags; only the config is filled in."""
        return dataclasses.replace(self._flags, bert_config_file=self.config_file)

    @functools.cached_property
    def config_file(self) -> str | None:
        """--bert_config_file, or what is known of it."""
        if self._flags.bert_config_file is not None:
            return self._flags.bert_config_file
        return next(
            filter(None, (known.config_file for known in self.known_folders)), None
        )

    @property
    def vocab_file(self) -> str | None:
        """--vocab_file, or what is known of it."""
        if self._flags.vocab_file is not None:
            return self._flags.vocab_file
        return self.vocabulary and self.vocabulary.path

    @functools.cached_property
    def vocabulary(self) -> OpenVocabulary | None:
        """That of --vocab_file, or what is known of it."""
        if self._flags.vocab_file is not None:
            return self._open(self._flags.vocab_file)
        return next(self._vocabularies(), None)

    def _open(self, vocab_file):
        folders = [known.text for known in self.known_folders]
        return OpenVocabulary.open(vocab_file, folders)

    def _vocabularies(self) -> Iterator[OpenVocabulary]:
        """Yields those that the model may have."""
        known = filter(None, (known.vocabulary for known in self.known_folders))
        if not self._records:
            yield from known
        elif digest := self._records.text.get(recorded_settings.DIGEST):
            noted = filter(None, map(self._open_noted, self._records.vocab_files))
            for vocabulary in itertools.chain(known, noted):
                if _digest(vocabulary) == digest:
                    yield vocabulary
        elif self._records.need_vocabulary:
            yield from known

    def _open_noted(self, path):
        """None if the folder has no vocabulary any more."""
        try:
            return self._open(path)
        except (UserError, OSError):
            return None

    def _unknown(self, name: str) -> UserError:
        """What to say of a flag that is not given, and whose value no file knows."""
        for known in self.known_folders:
            if name == "bert_config_file":
                _ = known.config  # says what is there instead
            return UserError(
                f"{known.folder}: contains no vocabulary; pass {setting(name)}"
            )
        return UserError(
            f"--{name} is required if neither --init_checkpoint nor a run in --output_dir "
            "supplies it"
        )

    # --- The config ------------------------------------------------------------------

    @functools.cached_property
    def config(self) -> EncoderConfig:
        """The architecture.

        Raises:
            UserError: there is none, it cannot be read, it describes another network than
                the file next to the weights, or one that does not fit into memory.
        """
        source, path = self.source, self._flags.bert_config_file
        config = read_config(path) if path else source.config
        if path and path != source.config_file:
            remedy = (
                "use that file, or move it away if it does not belong to the weights"
            )
            _compare(config, path, _read_config(source), source.folder, remedy)
        capacity.check_network(config, path or source.config_file)
        return config

    @functools.cached_property
    def _stored_config(self) -> EncoderConfig:
        path = self.config_file
        if path is None:
            raise self._unknown("bert_config_file")
        for known in self.known_folders:
            if known.config_file == path:
                return known.config
        return read_config(path)

    # --- The tokenizer ---------------------------------------------------------------

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """What turns text into ids, compared with what was noted of the weights.

        Raises:
            UserError: the vocabulary cannot be read or is not known, or the weights of
                --init_checkpoint need another one or other flags.
        """
        path = self.flags.vocab_file
        if path is None:
            raise self._unknown("vocab_file")
        is_given = self._flags.vocab_file and not hub.is_address(path)
        if is_given and not sources.exists(path):
            raise UserError(
                f"{path}: no such file; pass the model's {setting('vocab_file')}"
            )
        tokenizer = self.vocabulary.load(self.flags)
        tokenizer.check_release(self._flags.init_checkpoint)
        if source := self.source_in_use:
            source.text.check(tokenizer.settings, kind_of_tokenizer(tokenizer))
            check_ids(tokenizer, source.text)
            check_text(tokenizer, source.text)
        return tokenizer


class TrainableModel(Model):
    """The model of a script that trains.

    Args:
        flags: `RunOptions`.
    """

    _flags: RunOptions

    @functools.cached_property
    def config(self) -> EncoderConfig:
        """The architecture, which must have a position for every token of a row.

        Raises:
            UserError: the file cannot be read, is not a config, has too few positions, or
                describes more than fits into memory.
        """
        flags, path, config = self._flags, self.config_file, self._stored_config
        try:
            config = dataclasses.replace(config, **flags.network_changes(config))
        except TypeError as error:
            raise UserError(
                f"{path}: an encoder of this kind has no choice of --pooling"
            ) from error
        if flags.max_seq_length > config.max_position_embeddings:
            raise UserError(
                f"--max_seq_length={flags.max_seq_length} is more than "
                f"max_position_embeddings={config.max_position_embeddings}, the tokens of "
                f"the longest row in {path}; pass that or less"
            )
        self._check_same_network(config)
        if not flags.uses_tpu:
            numbers = 2 if flags.do_train else 1
            capacity.check_network(config, path, numbers_per_weight=numbers)
        return config

    def _check_same_network(self, config):
        """Compares the config with the one next to the weights to use, if there are any."""
        flags, run = self._flags, self.earlier_run
        if run:
            if flags.do_train and self.continues_run:
                return  # a run that goes on is compared with all that it began with
            path = self.folder.file(CONFIG)
            learned = run.config if run.config_file == path else None
            remedy = "use that file"
        elif self.source and not flags.change_network:
            path, learned = self.source.folder, _read_config(self.source)
            remedy = "use the config there, or pass --change_network"
        else:
            return
        _compare(config, self.config_file, learned, path, remedy)


def _digest(vocabulary):
    """Identifies a vocabulary; None if it is not there, or not a vocabulary."""
    try:
        return vocabulary.vocabulary.digest
    except (UserError, OSError):
        return None


def check_teacher(source: Source, flags: RunOptions) -> None:
    """Refuses a teacher in the student's own folder, or without a config.

    Args:
        flags: of the student.
    Raises:
        UserError: does not name the teacher.
    """
    if os.path.realpath(source.folder) == os.path.realpath(flags.output_dir):
        raise UserError("is also --output_dir; a student needs its own folder")
    if not source.config_file:
        raise UserError(
            f"there is no {CONFIG} or config.json in {source.folder}; a teacher "
            "needs the one that it was trained with next to its weights"
        )


# --- Comparisons ---------------------------------------------------------------------


def _read_config(source: Source) -> EncoderConfig | None:
    """The config next to weights; None if there is none, or it is of another kind."""
    try:
        return source.config
    except UserError:
        return None


def _compare(config, config_file, learned, path, remedy):
    """Compares a config with that of the weights, in whatever loading would not refuse."""
    if learned is None:
        return
    kind, was = config.architecture, learned.architecture
    if kind != was:
        raise UserError(
            f"{config_file}: describes a network of the architecture {kind!r}, "
            f"but the weights are those of one of {was!r}; use the config in {path}"
        )
    # With fewer layers, those above would be left out.
    for name in dict.fromkeys((*config.keys_without_shape, "num_hidden_layers")):
        value, was = getattr(config, name), getattr(learned, name, None)
        if was not in (None, value):
            raise UserError(
                f"{config_file}: {name} is {value!r}, but {was!r} in {path}, "
                f"with which the weights were trained; {remedy}"
            )


def check_text(tokenizer: Tokenizer, run: FolderText) -> None:
    """Checks a tokenizer against the settings that a run noted in its folder.

    Raises:
        UserError: flags or vocabulary differ.
    """
    path, state = run.record
    for name, value in tokenizer.settings.items():
        if state.get(name, value) == value:
            continue
        if name == "vocab_sha256":
            noted_by_pretraining = os.path.basename(path) == TEXT
            if noted_by_pretraining and kind_of_tokenizer(tokenizer).find(run):
                check_ids(tokenizer, run)  # some may be renamed
                continue
            raise UserError(
                f"{path}: the model was trained with another vocabulary; pass the same "
                f"{setting('vocab_file')}"
            )
        raise UserError(
            f"{path}: the model was trained with another {setting(name)}; pass "
            f"{setting(name, state[name])}"
        )


def check_ids(tokenizer: Tokenizer, folder: FolderText) -> None:
    """Allows new tokens only in rows that training never reached, named [unused...].

    Args:
        folder: of the weights.
    """
    vocabulary = tokenizer.vocabulary
    kind = kind_of_tokenizer(tokenizer)
    file = kind.find(folder)
    if not file:
        _refuse_other_kind(tokenizer, folder)
        return
    path = file.path
    if path == vocabulary.path:
        return
    files = _files_of(tokenizer, kind, file)
    try:
        tokens = kind.parse(files.pop(kind.vocabulary_file))
    except ValueError:  # a compressed file, for example
        return
    for id, (token, learned) in enumerate(zip(vocabulary.tokens, tokens, strict=False)):
        if token != learned and not learned.startswith("[unused"):
            raise UserError(
                f"{vocabulary.path}: token {id} is {token!r}, but {learned!r} in {path}, "
                "next to the checkpoint; use that file, or move it away if it does not "
                "belong to the checkpoint"
            )
    for name, content in files.items():
        if not kind.is_same_file(name, content, tokenizer.files[name]):
            raise UserError(
                f"{vocabulary.path}: has another {name} than {path}, next to the "
                "checkpoint; use those files, or move them away if they do not belong to "
                "the checkpoint"
            )


def _files_of(tokenizer, kind, file):
    """The files of another vocabulary, as far as they are there, by name."""
    if file.json is not None:
        return kind.read_files(file)
    others = [name for name in tokenizer.files if file.folder.has(name)]
    with anywhere.access(file.path):
        files = {name: file.folder.content(name) for name in others}
        return files | {kind.vocabulary_file: file.content}


def _refuse_other_kind(tokenizer, folder):
    file = find_vocabulary(folder)
    if not file:
        return
    kind = OpenVocabulary(folder, file.name).kind
    if not isinstance(tokenizer, kind.tokenizer):
        raise UserError(
            f"{tokenizer.vocabulary.path}: another kind of vocabulary than {file.path}, "
            "next to the checkpoint; use that file, or move it away if it does not belong "
            "to the checkpoint"
        )
