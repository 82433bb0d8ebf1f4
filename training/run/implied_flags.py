"""Gives flags that a user left out the values that files know.

The run in --output_dir, the folder of --init_checkpoint, and the records of a pre-training
know the vocabulary, the config, and how text became ids. What a user does pass is compared
with them elsewhere: only a contradiction is refused.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping

from training.storage import checkpoint, run_folder
from errors import UserError
from text.files import sources
from text.tokenizers import gpt_words, kinds, recorded_settings


def completed(given):
    """The flags, with what the run in --output_dir or --init_checkpoint knows.

    What they do not know stays None. A second call changes nothing.

    Args:
        given: `TokenizerOptions` with vocab_file, bert_config_file, init_checkpoint, and
            output_dir if a run may be there.
    Raises:
        UserError: there is no such checkpoint.
    """
    given = with_config(given)
    if given.vocab_file is None:
        found = next(_vocabularies(given), None)
        given = dataclasses.replace(given, vocab_file=found)
    return _with_text(given)


def with_config(given):
    """The flags, with the config that these know."""
    if given.bert_config_file is not None:
        return given
    found = next(filter(None, map(checkpoint.find_config, _folders(given))), None)
    return dataclasses.replace(given, bert_config_file=found)


def with_records(given, text: Mapping, paths: Iterable[str], needs_vocabulary: bool):
    """The flags of a pre-training, with what its records know, then as `completed`.

    Args:
        text: the `Tokenizer.settings` on which the records' descriptions agree.
        paths: where the vocabulary of the records was.
        needs_vocabulary: whether to take that of --init_checkpoint if nothing says which
            one the records were made with.
    """
    if given.vocab_file is None:
        found = next(_of_records(given, text, paths, needs_vocabulary), None)
        given = dataclasses.replace(given, vocab_file=found)
    return _with_text(given, text)


def _of_records(given, text, paths, needs_vocabulary) -> Iterator[str]:
    """Yields the vocabularies that the records may have been made with."""
    has_words = text.get("gpt_words") != "openai" or gpt_words.are_installed()
    if not needs_vocabulary and not has_words:
        return  # training does not need its tokenizer, which cannot be made here
    if digest := text.get(recorded_settings.DIGEST):
        found = itertools.chain(_vocabularies(given), paths)
        yield from (path for path in found if _digest(path) == digest)
    elif needs_vocabulary:
        yield from _vocabularies(given)


def _digest(vocab_file):
    """Identifies a vocabulary; None if it is not there, or not a vocabulary."""
    try:
        return kinds.load_vocabulary(vocab_file).digest
    except (UserError, OSError):
        return None


def check(given, name: str) -> None:
    """Refuses a flag that names nothing, or that is not given and that nothing knows.

    Args:
        name: vocab_file or bert_config_file.
    Raises:
        UserError: says where it was looked for.
    """
    if (path := getattr(given, name)) is not None:
        if not sources.exists(path):
            raise UserError(f"{path}: no such file; pass the model's --{name}")
        return
    for folder in _folders(given):
        if name == "bert_config_file":
            checkpoint.read_config(folder)  # says what is there instead
        raise UserError(f"{folder or '.'}: contains no vocabulary; pass --{name}")
    raise UserError(
        f"--{name} is required if neither --init_checkpoint nor a run in --output_dir "
        "supplies it"
    )


def _with_text(given, known: Mapping = {}):
    """The flags, with those of text that are known, first as `known`."""
    if given.vocab_file is None:
        return given
    kind = kinds.kind_of(given.vocab_file)
    absent = [name for name in kind.text_flags if getattr(given, name) is None]
    given = given.or_else({name: known.get(name) for name in absent})
    for folder in _folders(given) if absent else ():
        given = given.or_else(recorded_settings.of_folder(folder, kind))
    return given


def _vocabularies(given) -> Iterator[str]:
    return filter(None, map(kinds.find_vocabulary, _folders(given)))


def _folders(given) -> Iterator[str]:
    """The folders whose files describe the weights to use."""
    directory = getattr(given, "output_dir", None)
    if directory and run_folder.holds_weights(directory):
        yield directory
        if run_folder.noted_settings(directory):
            return  # a run continues without --init_checkpoint
    if given.init_checkpoint:
        yield checkpoint.folder_of(checkpoint.resolve(given.init_checkpoint))
