"""Checksums of an export's files, so that a damaged copy is refused instead of used."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping

import google_crc32c

from errors import UserError
from files import anywhere

_NAME = "checksum"  # of the description, in itself
_FILES = "checksums"  # in the description
_LOADED = ("saved_model.pb", "variables", "assets")
# In the paths of files; processing/1 has no weights.
_WEIGHTS = re.compile("(text|tensors)/1/variables/")
# What differs between two exports of one model.
_OF_ONE_EXPORT = (
    *(_NAME, _FILES, "files", "card", "dev_set", "versions"),
    "global_step",  # 0 in another run, whatever the checkpoint's
)
_CHUNK = 16 << 20  # bytes


def of_files(folder: str, names: Iterable[str]) -> dict[str, str]:
    """The checksums of files by their names, which are paths within the folder."""
    return {name: _of_file(os.path.join(folder, name)) for name in names}


def of_bytes(content: bytes) -> str:
    """The checksum of a file with this content."""
    return google_crc32c.Checksum(content).hexdigest().decode()


def check_model(folder: str, description: Mapping, model: str) -> None:
    """Checks what loading reads of a SavedModel.

    A user may change the requests in assets.extra.

    Args:
        folder: that of the SavedModel.
        description: the content of export.json.
        model: the folder's path in the export, as text/1.
    """
    for name, checksum in description[_FILES].items():
        within = name.removeprefix(f"{model}/")
        if within == name or within.split("/")[0] not in _LOADED:
            continue
        _check_file(os.path.join(folder, within), checksum)


def check_file(path: str, description: Mapping) -> None:
    """Checks a file next to the description."""
    checksum = description[_FILES].get(os.path.basename(path))
    if checksum is None:
        raise UserError(
            f"{path}: is not a part of the export that export.json describes; copy the "
            "whole export again"
        )
    _check_file(path, checksum)


def _check_file(path, checksum):
    if not anywhere.exists(path):
        raise UserError(f"{path}: is missing; copy the whole export again")
    if anywhere.isdir(path):
        raise UserError(f"{path}: is not a file; copy the whole export again")
    if _of_file(path) != checksum:
        raise UserError(
            f"{path}: is damaged or was changed (its checksum is not the one in "
            "export.json); copy or export the model again"
        )


def seal(description: Mapping) -> dict:
    """A description of an export, which has `checksums`, with its own checksum."""
    return {**description, _NAME: _of_description(description)}


def is_intact(description: Mapping) -> bool:
    """Whether a description is as `seal` made it, and has the checksums of files."""
    is_sealed = description.get(_NAME) == _of_description(description)
    return is_sealed and isinstance(description.get(_FILES), Mapping)


def digest_of_model(description: Mapping) -> str:
    """What no model with other weights or settings has: that of an export made again is
    the same.

    Args:
        description: the content of export.json.
    """
    content = {k: v for k, v in description.items() if k not in _OF_ONE_EXPORT}
    weights = {k: v for k, v in description[_FILES].items() if _WEIGHTS.match(k)}
    text = json.dumps([content, weights], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _of_description(description):
    content = {k: value for k, value in description.items() if k != _NAME}
    checksum = google_crc32c.value(json.dumps(content, sort_keys=True).encode())
    return f"{checksum:08x}"


def _of_file(path):
    checksum = google_crc32c.Checksum()
    with anywhere.open_file(path) as file:
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
    return checksum.hexdigest().decode()
