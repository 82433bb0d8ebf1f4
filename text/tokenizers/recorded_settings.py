"""Finds out how text became ids from the files next to a vocabulary or to weights.

Flags of text that a user leaves out get their values from here, so that nobody is asked for
what a file knows.
"""

import functools
import os
from collections.abc import Callable, Collection, Mapping

from errors import UserError, setting
from files import json_files, local, protected
from files.folder_files import FolderFiles
from text.tokenizers import tokenizer_json
from text.tokenizers.kind import Kind, VocabularyFile
from text.tokenizers.tokenizer import Tokenizer

TASK = "task.json"  # what a fine-tuned model was trained to do, and on which text
TEXT = "text.json"  # how the text of a pre-trained model became ids
TOKENIZER_CONFIG = "tokenizer_config.json"  # Hugging Face's
SUFFIX = protected.NOTES_SUFFIX  # of what build_vocab.py writes next to a vocabulary
DIGEST = protected.DIGEST  # of `Tokenizer.settings`


class FolderText(FolderFiles):
    """The files of a folder, and what they say of text.

    Args:
        path, names: see `FolderFiles`.
        is_hugging_face: whether the weights there are in Hugging Face's layout.
        noted: returns what `settings_of_run` does; by default, that.
    """

    def __init__(
        self,
        path: str,
        names: Collection[str] | None = None,
        is_hugging_face: bool = False,
        noted: Callable[[], tuple[str, dict]] | None = None,
    ):
        super().__init__(path, names)
        self._is_hugging_face = is_hugging_face
        self._noted = noted or (lambda: settings_of_run(path))

    @functools.cached_property
    def record(self) -> tuple[str, dict]:
        """See `settings_of_run`."""
        return self._noted()

    def flags(self, kind: Kind) -> dict:
        """The `text_flags` of a kind that the files know, by name."""
        return _text_flags(kind, self.hugging_face(kind) | self.record[1])

    def hugging_face(self, kind: Kind) -> dict:
        """What Hugging Face's files say of the flags, without those that they leave open.

        If the two contradict each other, it depends on the version of transformers which of
        them counts, so they are refused.
        """
        config = self._tokenizer_config
        settings = {} if config is None else kind.hugging_face_settings(config)
        settings = {
            name: value for name, value in settings.items() if value is not None
        }
        content, of_json = tokenizer_json.find(self), {}
        if content is not None and kind.reads_json(content):
            of_json = kind.json_settings(content)
        _check_agreement(self.file(tokenizer_json.NAME), of_json, self.path, settings)
        return settings | of_json

    @functools.cached_property
    def _tokenizer_config(self) -> Mapping | None:
        if not self.has(TOKENIZER_CONFIG):
            return None
        return json_files.read_object(
            self.file(TOKENIZER_CONFIG), "copy it again from where the model is from"
        )

    def of_weights(self, kind: Kind) -> dict:
        """Like `hugging_face`; nothing next to weights of another layout."""
        return self.hugging_face(kind) if self._is_hugging_face else {}

    def check(self, settings: Mapping[str, object], kind: Kind) -> None:
        """Refuses settings that contradict Hugging Face's files next to its weights.

        Args:
            settings: those of the `Tokenizer` to be used.
            kind: its kind.
        """
        if not self._is_hugging_face:
            return
        path, config = self.file(tokenizer_json.NAME), self._tokenizer_config
        if config is not None:
            path = self.file(TOKENIZER_CONFIG)
            classes, name = kind.hugging_face_classes, config.get("tokenizer_class")
            if name not in classes:
                raise UserError(
                    f"{path}: tokenizer_class is {name!r}, which does not split text as "
                    f"{' or '.join(filter(None, classes))} does; pass the "
                    f"{setting('vocab_file')} next to it, or use another model"
                )
        flags = [
            setting(name, value)
            for name, value in self.hugging_face(kind).items()
            if value != settings.get(name, value)
        ]
        if flags:
            raise UserError(
                f"{path}: the model was trained on text split differently; pass "
                f"{' '.join(flags)}"
            )


def of_vocabulary(file: VocabularyFile, kind: Kind, text: FolderText) -> dict:
    """The same of a vocabulary file: what it was learned, or used, with.

    What a run in its folder noted of another vocabulary is ignored.

    Args:
        text: of its folder.
    """
    if not file.exists:
        return {}
    settings = {}
    of_file, (_, of_run) = _notes(file, kind), text.record
    found = kind.find(text)
    if found and found.name == file.name:
        settings = text.hugging_face(kind)
        _check_agreement(file.path + SUFFIX, of_file, text.path, settings)
    if DIGEST in of_run and of_run[DIGEST] == kind.load_vocabulary(file).digest:
        settings |= of_run
    return _text_flags(kind, settings | of_file)


def _notes(file: VocabularyFile, kind: Kind) -> dict:
    """What `write` noted next to a vocabulary; an empty dict if there are no notes."""
    vocab_file, path = file.path, file.path + SUFFIX
    if not file.folder.has(file.name + SUFFIX):
        return {}
    notes = json_files.read_own(path)
    flags = [notes[name] for name in kind.text_flags if name in notes]
    if DIGEST not in notes or not all(isinstance(flag, bool) for flag in flags):
        raise UserError(
            f"{path}: damaged, because it does not note how {vocab_file} was learned; "
            "restore it, or delete it and pass the flags of text that the vocabulary was "
            f"learned with ({_flags(kind)})"
        )
    if notes[DIGEST] != kind.load_vocabulary(file).digest:
        raise UserError(
            f"{path}: notes how another vocabulary was learned than the one that is now in "
            f"{vocab_file}; restore the vocabulary that it belongs to or, if that was "
            "replaced on purpose, delete these notes and pass the flags of text of the new "
            f"one ({_flags(kind)})"
        )
    return notes


def _flags(kind):
    return ", ".join(map(setting, kind.text_flags))


def check_place(vocab_file: str) -> None:
    """Raises UserError if there is a file that `write` did not write."""
    path = vocab_file + SUFFIX
    if os.path.exists(path) and DIGEST not in json_files.read_own(path):
        raise UserError(
            f"{path}: exists and does not note how a vocabulary was learned; move it, or "
            "choose another --output_file"
        )


def write(vocab_file: str, kind: Kind, tokenizer: Tokenizer) -> None:
    """Notes the flags of text that a vocabulary was learned with, if its kind has any."""
    if kind.text_flags:
        local.write_json(vocab_file + SUFFIX, dict(tokenizer.settings))


def _text_flags(kind, settings):
    values = {name: settings.get(name) for name in kind.text_flags}
    return {name: value for name, value in values.items() if value is not None}


def settings_of_run(folder: str) -> tuple[str, dict]:
    """How the text of a run became ids: the file that says so, and its content.

    That has `Tokenizer.settings` and more, or is empty if the run noted nothing.
    """
    for name in (TASK, TEXT):
        path = os.path.join(folder, name)
        if settings := json_files.read_own(path):
            return path, settings
    return path, {}


def _check_agreement(path: str, own: Mapping, folder: str, settings: Mapping) -> None:
    """Refuses flags of a file that those of Hugging Face's files contradict."""
    for name, value in own.items():
        if settings.get(name, value) != value:
            raise UserError(
                f"{path}: says {setting(name, value)}, but Hugging Face's files in "
                f"{folder or '.'} say {str(settings[name]).lower()}; move away the file "
                "that does not belong to the model"
            )
