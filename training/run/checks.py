"""What all training scripts check before they compute anything."""

import dataclasses
import os

from training.run import capacity, implied_flags
from training.storage import checkpoint
from training.storage.folder import CONFIG, TEXT, Folder, text_settings
from errors import UserError, setting
from files import anywhere, sources
from modeling.architectures.config import EncoderConfig
from modeling.objectives.objective import Objective
from text.tokenizers import tokenizer_json
from text.tokenizers.table import find_vocabulary, kind_of, kind_of_tokenizer
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import Vocabulary
from training.interchange import hugging_face_tokenizers
from training.run.implied_flags import ModelFlags
from training.run.options import RunOptions


def check_division(
    flag: str, batch_size: int, replicas: int, micro_batches: int = 1
) -> None:
    """Raises:
    UserError: replicas and micro-batches cannot share the batch evenly.
    """
    if batch_size % (replicas * micro_batches):
        raise UserError(
            f"--{flag}={batch_size} is not divisible by {replicas} replicas x "
            f"{micro_batches} micro-batches"
        )


def check_objective(objective: Objective, config: EncoderConfig, source: str) -> None:
    """Refuses an encoder that cannot learn this.

    Args:
        source: of the encoder, or of its teacher: what the message begins with.
    Raises:
        UserError: says why.
    """
    try:
        objective.check(config)
    except UserError as error:
        raise UserError(f"{source}: {error}") from error


def read_config(flags: RunOptions, folder: Folder | None = None) -> EncoderConfig:
    """Reads the architecture, which must have a position for every token of a row.

    Args:
        folder: output_dir, if it is open already.
    Raises:
        UserError: the file cannot be read, is not a config, has too few positions, or
            describes more than fits into memory.
    """
    folder = folder or Folder.open(flags.output_dir)
    flags = implied_flags.with_config(flags, folder)
    implied_flags.check(flags, folder, "bert_config_file")
    path = flags.bert_config_file
    config = checkpoint.read_config(path)
    try:
        config = dataclasses.replace(config, **flags.network_changes(config))
    except TypeError as error:
        raise UserError(
            f"{path}: an encoder of this kind has no choice of --pooling"
        ) from error
    if flags.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={flags.max_seq_length} is more than "
            f"max_position_embeddings={config.max_position_embeddings}, the tokens of the "
            f"longest row in {path}; pass that or less"
        )
    _check_same_network(config, flags, folder)
    if not flags.uses_tpu:
        numbers = 2 if flags.do_train else 1
        capacity.check_network(config, path, numbers_per_weight=numbers)
    return config


def _check_same_network(config, flags: RunOptions, folder):
    """Compares the config with the one next to the weights to use, if there are any."""
    if folder.holds_weights:
        if flags.do_train and folder.settings:
            return  # a run that goes on is compared with all that it began with
        path, remedy = folder.file(CONFIG), "use that file"
    elif flags.init_checkpoint and not flags.change_network:
        source = checkpoint.resolve(flags.init_checkpoint)
        path = checkpoint.folder_of(source) or "."
        remedy = "use the config there, or pass --change_network"
    else:
        return
    _compare(config, flags.bert_config_file, path, remedy)


def read_config_of(flags: ModelFlags, folder: str) -> EncoderConfig:
    """The config of the weights in a folder: --bert_config_file, or the one next to them.

    Raises:
        UserError: there is none, or both are there and describe different networks.
    """
    config = checkpoint.read_config(flags.bert_config_file or folder)
    if flags.bert_config_file:
        remedy = "use that file, or move it away if it does not belong to the weights"
        _compare(config, flags.bert_config_file, folder or ".", remedy)
    capacity.check_network(config, flags.bert_config_file or folder or ".")
    return config


def _compare(config, config_file, path, remedy):
    """Compares a config with that of the weights, in whatever loading would not refuse."""
    try:
        learned = checkpoint.read_config(path)
    except UserError:
        return  # there is none, or it is of another kind of model
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


def make_tokenizer(flags: ModelFlags, folder: Folder | None = None) -> Tokenizer:
    """Makes the tokenizer that the flags describe; checks it against --init_checkpoint.

    What the flags leave out is as `implied_flags` says.

    Args:
        folder: output_dir, if there is one and it is open already.
    Raises:
        UserError: the vocabulary cannot be read or is not known, or init_checkpoint needs
            another one or other flags.
    """
    folder = folder or implied_flags.folder_of(flags)
    flags = implied_flags.completed(flags, folder)
    implied_flags.check(flags, folder, "vocab_file")
    tokenizer = flags.load_tokenizer(flags.vocab_file)
    tokenizer.check_release(flags.init_checkpoint)
    if flags.init_checkpoint and not implied_flags.continues_run(folder):
        source = checkpoint.resolve(flags.init_checkpoint)
        beside = checkpoint.folder_of(source)
        kind = kind_of_tokenizer(tokenizer)
        hugging_face_tokenizers.check(source, tokenizer.settings, kind)
        _check_ids(tokenizer, beside)
        check_text(tokenizer, beside)
    return tokenizer


def check_text(tokenizer: Tokenizer, folder: str) -> dict:
    """Checks a tokenizer against the settings that a run noted.

    Returns:
        all that it noted; empty if it noted nothing.
    Raises:
        UserError: flags or vocabulary differ.
    """
    path, state = text_settings(folder)
    for name, value in tokenizer.settings.items():
        if state.get(name, value) == value:
            continue
        if name == "vocab_sha256":
            noted_by_pretraining = os.path.basename(path) == TEXT
            if noted_by_pretraining and kind_of_tokenizer(tokenizer).find(folder):
                _check_ids(tokenizer, folder)  # some may be renamed
                continue
            raise UserError(
                f"{path}: the model was trained with another vocabulary; pass the same "
                f"{setting('vocab_file')}"
            )
        raise UserError(
            f"{path}: the model was trained with another {setting(name)}; pass "
            f"{setting(name, state[name])}"
        )
    return state


def _check_ids(tokenizer, folder):
    """Allows new tokens only in rows that training never reached, named [unused...]."""
    vocabulary = tokenizer.vocabulary
    kind = kind_of_tokenizer(tokenizer)
    path = kind.find(folder)
    if not path:
        _refuse_other_kind(tokenizer, folder)
        return
    if anywhere.isdir(path):
        return
    files = _files_at(tokenizer, kind, path)
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


def _files_at(tokenizer, kind, path):
    """The files of the vocabulary at a path, as far as they are there, by name."""
    if tokenizer_json.is_path(path):
        return kind.read_files(path)
    paths = {
        name: os.path.join(os.path.dirname(path), name) for name in tokenizer.files
    }
    paths[kind.vocabulary_file] = path
    contents = {}
    for name, other in paths.items():
        if anywhere.exists(other):
            with anywhere.access(other):
                contents[name] = sources.content(other)
    return contents


def _refuse_other_kind(tokenizer, folder):
    path = find_vocabulary(folder)
    if path and not isinstance(tokenizer, kind_of(path).tokenizer):
        raise UserError(
            f"{tokenizer.vocabulary.path}: another kind of vocabulary than {path}, next to "
            "the checkpoint; use that file, or move it away if it does not belong to the "
            "checkpoint"
        )


def check_vocabulary(
    vocabulary: Vocabulary, config: EncoderConfig, config_file: str
) -> None:
    """Raises:
    UserError: the network has no row for some token or segment, or expects other padding
        or another end of texts.
    """
    if len(vocabulary) > config.vocab_size:
        raise UserError(
            f"{vocabulary.path}: {len(vocabulary)} tokens, more than "
            f"vocab_size={config.vocab_size} of {config_file}; check "
            f"{setting('vocab_file')}, or raise vocab_size, which counts the special "
            "tokens, too (of trained weights, with convert_checkpoint.py --vocab_size)"
        )
    last = vocabulary.last_segment
    if last is not None and config.has_segments and config.type_vocab_size <= last:
        raise UserError(
            f"{vocabulary.path}: the last token of its rows has the segment {last}, but "
            f"{config_file} has type_vocab_size={config.type_vocab_size}; use a model with "
            f"at least {last + 1}"
        )
    check_padding(vocabulary.path, vocabulary.pad_id, config, config_file)
    if config.eos_token_id not in (None, vocabulary.end_id):
        raise UserError(
            f"{vocabulary.path}: texts end with token {vocabulary.end_id}, but "
            f"eos_token_id is {config.eos_token_id} in {config_file}; use the model's own "
            f'vocabulary or, for a new model, set "eos_token_id": {vocabulary.end_id}'
        )


def check_padding(
    path: str, pad_id: int | None, config: EncoderConfig, config_file: str
) -> None:
    """Checks the id of padding, by which other programs number the positions of a row.

    Args:
        path: of a vocabulary, or of records made with it.
        pad_id: None if it is not known.
    Raises:
        UserError: the config says otherwise.
    """
    if None not in (pad_id, config.pad_token_id) and pad_id != config.pad_token_id:
        raise UserError(
            f"{path}: the id of padding is {pad_id}, but pad_token_id is "
            f"{config.pad_token_id} in {config_file}; use the model's own vocabulary or, "
            f'for a new model, set "pad_token_id": {pad_id}'
        )
