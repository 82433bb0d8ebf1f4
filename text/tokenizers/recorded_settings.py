"""Finds out how text became ids from the files next to a vocabulary or to weights.

Flags of text that a user leaves out get their values from here, so that nobody is asked for
what a file knows.
"""

import os
from collections.abc import Mapping

from errors import UserError, setting
from files import json_files, local, protected, sources
from text.tokenizers import tokenizer_json
from text.tokenizers.kind import Kind
from text.tokenizers.tokenizer import Tokenizer

TASK = "task.json"  # what a fine-tuned model was trained to do, and on which text
TEXT = "text.json"  # how the text of a pre-trained model became ids
TOKENIZER_CONFIG = "tokenizer_config.json"  # Hugging Face's
SUFFIX = protected.NOTES_SUFFIX  # of what build_vocab.py writes next to a vocabulary
DIGEST = protected.DIGEST  # of `Tokenizer.settings`


def of_folder(folder: str, kind: Kind) -> dict:
    """The `text_flags` of a kind that the files in the folder of a model know, by name."""
    _, settings = noted_by_run(folder)
    return _text_flags(kind, hugging_face(folder, kind) | settings)


def of_vocabulary(path: str, kind: Kind) -> dict:
    """The same of a vocabulary file: what it was learned, or used, with.

    What a run in its folder noted of another vocabulary is ignored.
    """
    if not sources.is_file(path):
        return {}
    folder = os.path.dirname(path)
    of_file = _notes(path, kind)
    _, of_run = noted_by_run(folder)
    settings = {}
    if kind.find(folder) == path:
        settings = hugging_face(folder, kind)
        _check_agreement(path + SUFFIX, of_file, folder, settings)
    if DIGEST in of_run and of_run[DIGEST] == kind.load_vocabulary(path).digest:
        settings |= of_run
    return _text_flags(kind, settings | of_file)


def _notes(vocab_file: str, kind: Kind) -> dict:
    """What `write` noted next to a vocabulary; an empty dict if there are no notes."""
    path = vocab_file + SUFFIX
    if not sources.is_file(path):
        return {}
    notes = json_files.read_own(path)
    flags = [notes[name] for name in kind.text_flags if name in notes]
    if DIGEST not in notes or not all(isinstance(flag, bool) for flag in flags):
        raise UserError(
            f"{path}: damaged, because it does not note how {vocab_file} was learned; "
            "restore it, or delete it and pass the flags of text that the vocabulary was "
            f"learned with ({_flags(kind)})"
        )
    if notes[DIGEST] != kind.load_vocabulary(vocab_file).digest:
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


def noted_by_run(folder: str) -> tuple[str, dict]:
    """How the text of a run became ids: the file that says so, and its content.

    That has `Tokenizer.settings` and more, or is empty if the run noted nothing.
    """
    for name in (TASK, TEXT):
        path = os.path.join(folder, name)
        if settings := json_files.read_own(path):
            return path, settings
    return path, {}


# --- Hugging Face's ------------------------------------------------------------------


def hugging_face(folder: str, kind: Kind) -> dict:
    """What a Hugging Face folder says of the flags; those that it leaves open are absent.

    If its two files contradict each other, it depends on the version of transformers which
    of them counts, so they are refused.
    """
    config = tokenizer_config(folder)
    settings = {} if config is None else kind.hugging_face_settings(config)
    settings = {name: value for name, value in settings.items() if value is not None}
    path, of_json = tokenizer_json.path_in(folder), {}
    if tokenizer_json.is_path(path):
        content = tokenizer_json.read(path)
        of_json = kind.json_settings(content) if kind.reads_json(content) else {}
    _check_agreement(path, of_json, folder, settings)
    return settings | of_json


def _check_agreement(path: str, own: Mapping, folder: str, settings: Mapping) -> None:
    """Refuses flags of a file that those of Hugging Face's files contradict."""
    for name, value in own.items():
        if settings.get(name, value) != value:
            raise UserError(
                f"{path}: says {setting(name, value)}, but Hugging Face's files in "
                f"{folder or '.'} say {str(settings[name]).lower()}; move away the file "
                "that does not belong to the model"
            )


def tokenizer_config(folder: str) -> Mapping | None:
    """The tokenizer_config.json in a folder; None without one."""
    path = os.path.join(folder, TOKENIZER_CONFIG)
    if not sources.is_file(path):
        return None
    return json_files.read_object(path, "copy it again from where the model is from")
