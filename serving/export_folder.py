"""Replaces the folder of an export atomically, and removes nothing else."""

import contextlib
import os
from collections.abc import Collection, Iterator

from errors import UserError
from files import anywhere, hub, json_files, local, sources
from serving import checksums, predictor

CARD = "card"  # in the description: the checksum of the card, as it was written
_REPLACED = ".replaced"
# Folders that TensorFlow makes, and leaves empty if a model has no files of its own.
_MODELS = (predictor.TEXT, predictor.TENSORS, predictor.PROCESSING)
_OF_TENSORFLOW = {f"{model}/assets" for model in _MODELS}


def check_place(output_dir: str) -> None:
    """Refuses a place where something else is than an export alone."""
    _check(os.path.join(output_dir, predictor.FOLDER))


def _check(final: str) -> None:
    if os.path.islink(final):
        raise _in_the_way(final, "is a link")
    if not anywhere.exists(final):
        return
    if not anywhere.isdir(final):
        raise _in_the_way(final, "is a file")
    strangers = _strangers(final)
    if strangers:
        raise _in_the_way(os.path.join(final, strangers[0]), "is not part of an export")


def _in_the_way(path: str, what: str) -> UserError:
    return UserError(
        f"{path}: {what}, and an export would replace it; move it away, or choose another "
        "--output_dir"
    )


def recover(output_dir: str, names: Collection[str]) -> None:
    """Gives its final name to an export that was complete when its process was killed.

    Args:
        names: of what is in output_dir.
    """
    final = os.path.join(output_dir, predictor.FOLDER)
    if predictor.FOLDER in names:
        return
    if whole := predictor.find_interrupted(final, names):
        # Its process may be about to do the same.
        with contextlib.suppress(UserError), _lock(final):
            anywhere.rename(whole, final)


@contextlib.contextmanager
def replacing(final: str) -> Iterator[str]:
    """Yields a new folder that replaces `final` if the block succeeds."""
    new, old = local.temporary_name(final), local.temporary_name(f"{final}{_REPLACED}")
    output_dir = os.path.dirname(final)
    recover(output_dir, anywhere.names(output_dir))
    with _lock(final):
        _clear(final)
        try:
            anywhere.makedirs(new)
            yield new
            _check(final)
            if anywhere.exists(final):
                anywhere.rename(final, old)
            anywhere.rename(new, final)
        finally:
            if anywhere.exists(old) and not anywhere.exists(final):
                anywhere.rename(old, final)
            _remove(new)
            _remove(old)


def write_card(new: str, final: str, content: str) -> str:
    """Writes the model card of a new export, unless a user changed that of the last one.

    Args:
        new: the folder that replaces `final`; it gets the user's card in that case.
        content: of our card.
    Returns:
        the checksum of our card, by which the next export knows a changed one.
    """
    card = content.encode()
    checksum = checksums.of_bytes(card)
    last = os.path.join(final, hub.CARD)
    if anywhere.exists(last) and not anywhere.isdir(last):
        with anywhere.open_file(last) as file:
            there = file.read()
        description = json_files.read_own(os.path.join(final, predictor.DESCRIPTION))
        is_ours = checksums.of_bytes(there) == description.get(CARD)
        card = card if is_ours else there
    with anywhere.replacing(os.path.join(new, hub.CARD)) as file:
        file.write(card)
    return checksum


@contextlib.contextmanager
def _lock(final: str) -> Iterator[None]:
    """Keeps other exports out, if the file system has locks."""
    with contextlib.ExitStack() as stack:
        with anywhere.access(final):
            anywhere.makedirs(os.path.dirname(final))
            if not sources.is_remote(final):
                stack.enter_context(local.hold_lock(final))
        yield


def _clear(final: str) -> None:
    """Removes what killed processes left of an export; call it only with the lock."""
    parent, name = os.path.split(final)
    for entry in anywhere.listdir(parent):
        parts = local.temporary_parts(entry.rstrip("/"))
        if not parts or parts[0] not in (name, name + _REPLACED):
            continue
        elsewhere = parts[1] != local.host() and not sources.is_remote(final)
        if elsewhere or local.is_left_over(parts):
            _remove(os.path.join(parent, entry.rstrip("/")))


def _strangers(final: str) -> list[str]:
    """What is in the folder of an export, and not of it: files and empty folders."""
    made = json_files.read_own(os.path.join(final, predictor.DESCRIPTION)).get("files")
    made = set(map(str, made)) if isinstance(made, list) else set()
    others = {*files(final)} - made | _empty_folders(final) - _OF_TENSORFLOW - {"."}
    return sorted(others)


def files(directory: str) -> list[str]:
    """The files in a folder and below, by their relative paths."""
    return [
        os.path.relpath(os.path.join(folder, name), directory)
        for folder, _, names in anywhere.walk(directory)
        for name in names
    ]


def _empty_folders(directory):
    return {
        os.path.relpath(folder, directory)
        for folder, folders, names in anywhere.walk(directory)
        if not folders and not names
    }


def _remove(directory):
    if anywhere.isdir(directory):
        anywhere.rmtree(directory)
