"""Gives flags that a user left out the values that files know.

The run in --output_dir, the folder of --init_checkpoint, and the records of a pre-training
know the vocabulary, the config, and how text became ids. What a user does pass is compared
with them elsewhere: only a contradiction is refused.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, Self

from training.storage import checkpoint
from training.storage.folder import Folder
from errors import UserError, setting
from files import hub, sources
from text.tokenizers import recorded_settings
from text.tokenizers.table import find_vocabulary, kind_of, load_vocabulary
from text.tokenizers.tokenizer import Tokenizer


class ModelFlags(Protocol):
    """The flags of any script that name a model; `TokenizerOptions` and its files.

    Scripts that train have output_dir, too, where a run may be.
    """

    vocab_file: str | None
    bert_config_file: str | None
    init_checkpoint: str | None

    def load_tokenizer(self, vocab_file: str) -> Tokenizer: ...

    def or_else(self, settings: Mapping) -> Self: ...


def folder_of(flags: ModelFlags) -> Folder | None:
    """The output_dir of a script that trains; None of one that does not."""
    directory = getattr(flags, "output_dir", None)
    return Folder.open(directory) if directory else None


def completed(flags: ModelFlags, folder: Folder | None = None) -> ModelFlags:
    """The flags, with what the run in --output_dir or --init_checkpoint knows.

    What they do not know stays None. A second call changes nothing.

    Args:
        flags: any script's.
        folder: what `folder_of` returned, if it was asked before.
    Raises:
        UserError: there is no such checkpoint.
    """
    folder = folder or folder_of(flags)
    flags = with_config(flags, folder)
    if flags.vocab_file is None:
        vocab_file = next(_vocabularies(flags, folder), None)
        flags = dataclasses.replace(flags, vocab_file=vocab_file)
    return _with_text(flags, folder)


def with_config(flags: ModelFlags, folder: Folder | None) -> ModelFlags:
    """The flags, with the config that these know."""
    if flags.bert_config_file is not None:
        return flags
    paths = (
        folder.config_file
        if folder and place == folder.path
        else checkpoint.find_config(place)
        for place in _folders(flags, folder)
    )
    return dataclasses.replace(flags, bert_config_file=next(filter(None, paths), None))


def with_records(
    flags: ModelFlags,
    folder: Folder,
    text: Mapping,
    paths: Iterable[str],
    needs_vocabulary: bool,
):
    """The flags of a pre-training, with what its records know, then as `completed`.

    Args:
        text: the `Tokenizer.settings` on which the records' descriptions agree.
        paths: where the vocabulary of the records was.
        needs_vocabulary: whether to take that of --init_checkpoint if nothing says which
            one the records were made with.
    """
    if flags.vocab_file is None:
        own = _vocabularies(flags, folder)
        vocab_file = next(_of_records(own, text, paths, needs_vocabulary), None)
        flags = dataclasses.replace(flags, vocab_file=vocab_file)
    return _with_text(flags, folder, text)


def _of_records(own, text, paths, needs_vocabulary) -> Iterator[str]:
    """Yields the vocabularies that the records may have been made with."""
    if digest := text.get(recorded_settings.DIGEST):
        candidates = itertools.chain(own, paths)
        yield from (path for path in candidates if _digest(path) == digest)
    elif needs_vocabulary:
        yield from own


def _digest(vocab_file):
    """Identifies a vocabulary; None if it is not there, or not a vocabulary."""
    try:
        return load_vocabulary(vocab_file).digest
    except (UserError, OSError):
        return None


def check(flags: ModelFlags, folder: Folder | None, name: str) -> None:
    """Refuses a flag that names nothing, or that is not given and that nothing knows.

    Args:
        name: vocab_file or bert_config_file.
    Raises:
        UserError: says where it was looked for.
    """
    if (path := getattr(flags, name)) is not None:
        if not hub.is_address(path) and not sources.exists(path):
            raise UserError(f"{path}: no such file; pass the model's {setting(name)}")
        return
    for place in _folders(flags, folder):
        if name == "bert_config_file":
            checkpoint.read_config(place)  # says what is there instead
        raise UserError(f"{place or '.'}: contains no vocabulary; pass {setting(name)}")
    raise UserError(
        f"--{name} is required if neither --init_checkpoint nor a run in --output_dir "
        "supplies it"
    )


def _with_text(flags: ModelFlags, folder: Folder | None, settings: Mapping = {}):
    """The flags, with those of text that are known, first as `settings`."""
    if flags.vocab_file is None:
        return flags
    kind = kind_of(flags.vocab_file)
    absent = [name for name in kind.text_flags if getattr(flags, name) is None]
    flags = flags.or_else({name: settings.get(name) for name in absent})
    for place in _folders(flags, folder) if absent else ():
        flags = flags.or_else(recorded_settings.of_folder(place, kind))
    return flags


def _vocabularies(flags: ModelFlags, folder) -> Iterator[str]:
    return filter(None, map(find_vocabulary, _folders(flags, folder)))


def continues_run(folder: Folder | None) -> bool:
    """Whether a run in --output_dir has weights; it needs no --init_checkpoint any more."""
    return bool(folder and folder.settings)


def _folders(flags: ModelFlags, folder: Folder | None) -> Iterator[str]:
    """The folders whose files describe the weights to use."""
    if folder and folder.holds_weights:
        yield folder.path
    if flags.init_checkpoint and not continues_run(folder):
        source = checkpoint.resolve(flags.init_checkpoint)
        yield checkpoint.folder_of(source)
        if base := checkpoint.folder_of_base(source):
            yield base
