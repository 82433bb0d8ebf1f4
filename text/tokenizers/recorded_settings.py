"""Finds out how text became ids from the files next to a vocabulary or to weights.

Flags of text that a user leaves out get their values from here, so that nobody is asked for
what a file knows.
"""

import json
import os
from collections.abc import Mapping

from errors import UserError
from text.files import local, sources
from text.tokenizers import tokenizer_json
from text.tokenizers.tokenizer import Tokenizer

TASK = "task.json"  # what a fine-tuned model was trained to do, and on which text
TEXT = "text.json"  # how the text of a pre-trained model became ids
TOKENIZER_CONFIG = "tokenizer_config.json"  # Hugging Face's
SUFFIX = ".text.json"  # of what build_vocab.py writes next to a vocabulary
DIGEST = "vocab_sha256"  # of `Tokenizer.settings`


def of_folder(folder: str, kind: type[Tokenizer]) -> dict:
    """The `text_flags` that the files in the folder of a model know, by name.

    Args:
        kind: of its tokenizer.
    Raises:
        UserError: the tokenizer_config.json is damaged.
    """
    _, noted = noted_by_run(folder)
    return _known(kind, hugging_face(folder, kind.hugging_face_settings) | noted)


def of_vocabulary(path: str, kind: type[Tokenizer]) -> dict:
    """The same of a vocabulary file: what it was learned, or used, with.

    What names another vocabulary is ignored.
    """
    if not sources.is_file(path):
        return {}
    folder = os.path.dirname(path)
    own = _json_object(path + SUFFIX)
    _, noted = noted_by_run(folder)
    theirs = {}
    if kind.find(folder) == path:
        theirs = hugging_face(folder, kind.hugging_face_settings)
    recorded = [said for said in (noted, own) if DIGEST in said]
    digest = kind.load_vocabulary(path).digest if recorded else None
    for said in recorded:
        if said[DIGEST] == digest:
            theirs |= said
    return _known(kind, theirs)


def check_place(vocab_file: str) -> None:
    """Raises:
    UserError: where `write` would write is a file that it did not.
    """
    path = vocab_file + SUFFIX
    if os.path.exists(path) and DIGEST not in _json_object(path):
        raise UserError(
            f"{path}: exists and does not note how a vocabulary was learned; move it, or "
            "choose another --output_file"
        )


def write(vocab_file: str, tokenizer: Tokenizer) -> None:
    """Notes the flags of text that a vocabulary was learned with, if its kind has any."""
    if tokenizer.text_flags:
        local.write_json(vocab_file + SUFFIX, dict(tokenizer.settings))


def _known(kind, said):
    return {name: said[name] for name in kind.text_flags if said.get(name) is not None}


def noted_by_run(folder: str) -> tuple[str, dict]:
    """How the text that a run was trained on became ids.

    Returns:
        the file that says so, and `Tokenizer.settings` with whatever else it contains;
        an empty dict if the run noted nothing.
    """
    for name in (TASK, TEXT):
        path = os.path.join(folder, name)
        if noted := _json_object(path):  # else absent, or somebody else's
            return path, noted
    return path, {}


def _json_object(path) -> dict:
    if not sources.is_file(path):
        return {}
    with sources.opened(path) as file:
        try:
            content = json.load(file)
        except (ValueError, RecursionError):
            return {}
    return content if isinstance(content, dict) else {}


# --- Hugging Face's ------------------------------------------------------------------


def hugging_face(folder: str, read) -> dict:
    """What a Hugging Face folder says of the flags; those that it leaves open are absent.

    Args:
        read: `Tokenizer.hugging_face_settings` of the kind of its tokenizer.
    Raises:
        UserError: see `tokenizer_config`.
    """
    said = tokenizer_config(folder)
    known = {} if said is None else read(said)
    known = {name: value for name, value in known.items() if value is not None}
    path = tokenizer_json.path_in(folder)  # which decides there, if it says anything
    decided = tokenizer_json.is_path(path) and tokenizer_json.read(path)
    return known | (tokenizer_json.settings(decided) if decided else {})


def tokenizer_config(folder: str) -> Mapping | None:
    """The tokenizer_config.json in a folder; None without one.

    Raises:
        UserError: it is damaged.
    """
    path = os.path.join(folder, TOKENIZER_CONFIG)
    if not sources.is_file(path):
        return None
    try:
        with sources.opened(path) as file:
            return dict(json.load(file))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: not a tokenizer's JSON ({error})") from error
