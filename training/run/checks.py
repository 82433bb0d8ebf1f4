"""What all training scripts share: checks, and starting, resuming or interrupting a run."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator

import numpy as np

from training.backend import tf
from training.run import capacity, distribution, implied_flags, loop, report, run_flags
from training.storage import checkpoint, lease, load_report, run_folder
from errors import UserError
from modeling.architectures.config import EncoderConfig
from text.files import anywhere
from text.tokenizers import bpe_files, kinds, tokenizer_json
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import Vocabulary
from training.interchange import hugging_face_tokenizers


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


def read_config(given: run_flags.RunOptions) -> EncoderConfig:
    """Reads the architecture, which must have a position for every token of a row.

    Raises:
        UserError: the file cannot be read, is not a config, has too few positions, or
            describes more than fits into memory.
    """
    given = implied_flags.with_config(given)
    implied_flags.check(given, "bert_config_file")
    path = given.bert_config_file
    config = checkpoint.read_config(path)
    try:
        config = dataclasses.replace(config, **given.network_changes(config))
    except TypeError as error:
        raise UserError(
            f"{path}: an encoder of this kind has no choice of --pooling"
        ) from error
    if given.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={given.max_seq_length} is more than "
            f"max_position_embeddings={config.max_position_embeddings}, the tokens of the "
            f"longest row in {path}; pass that or less"
        )
    _check_same_network(config, given)
    if not given.uses_tpu:
        numbers = 2 if given.do_train else 1
        capacity.check_network(config, path, numbers_per_weight=numbers)
    return config


def _check_same_network(config, given):
    """Compares the config with the one next to the weights to use, if there are any."""
    if run_folder.holds_weights(given.output_dir):
        if given.do_train and run_folder.noted_settings(given.output_dir):
            return  # a run that goes on is compared with all that it began with
        path = os.path.join(given.output_dir, run_folder.CONFIG)
        remedy = "use that file"
    elif given.init_checkpoint and not given.change_network:
        source = checkpoint.resolve(given.init_checkpoint)
        path = checkpoint.folder_of(source) or "."
        remedy = "use the config there, or pass --change_network"
    else:
        return
    _compare(config, given.bert_config_file, path, remedy)


def read_config_of(given, folder: str) -> EncoderConfig:
    """The config of the weights in a folder: --bert_config_file, or the one next to them.

    Raises:
        UserError: there is none, or both are there and describe different networks.
    """
    config = checkpoint.read_config(given.bert_config_file or folder)
    if given.bert_config_file:
        remedy = "use that file, or move it away if it does not belong to the weights"
        _compare(config, given.bert_config_file, folder or ".", remedy)
    capacity.check_network(config, given.bert_config_file or folder or ".")
    return config


def _compare(config, said, path, remedy):
    """Compares a config with that of the weights, in whatever loading would not refuse."""
    try:
        learned = checkpoint.read_config(path)
    except UserError:
        return  # there is none, or it is of another kind of model
    kind, was = config.architecture, learned.architecture
    if kind != was:
        raise UserError(
            f"{said}: describes a network of the architecture {kind!r}, "
            f"but the weights are those of one of {was!r}; use the config in {path}"
        )
    # With fewer layers, those above would be left out.
    for name in dict.fromkeys((*config.keys_without_shape, "num_hidden_layers")):
        value, was = getattr(config, name), getattr(learned, name, None)
        if was not in (None, value):
            raise UserError(
                f"{said}: {name} is {value!r}, but {was!r} in {path}, "
                f"with which the weights were trained; {remedy}"
            )


def make_tokenizer(given) -> Tokenizer:
    """Makes the tokenizer that the flags describe; checks it against --init_checkpoint.

    What the flags leave out is as `implied_flags` says.

    Raises:
        UserError: the vocabulary cannot be read or is not known, or init_checkpoint needs
            another one or other flags.
    """
    given = implied_flags.completed(given)
    implied_flags.check(given, "vocab_file")
    tokenizer = given.load_tokenizer(given.vocab_file)
    tokenizer.check_release(given.init_checkpoint)
    if given.init_checkpoint:
        source = checkpoint.resolve(given.init_checkpoint)
        folder = checkpoint.folder_of(source)
        hugging_face_tokenizers.check(
            source,
            tokenizer.settings,
            tokenizer.hugging_face_classes,
            tokenizer.hugging_face_settings,
        )
        _check_ids(tokenizer, folder)
        check_text(tokenizer, folder)
    return tokenizer


def check_text(tokenizer: Tokenizer, folder: str) -> dict:
    """Checks a tokenizer against the settings that a run noted.

    Returns:
        all that it noted; empty if it noted nothing.
    Raises:
        UserError: flags or vocabulary differ.
    """
    path, state = run_folder.text_settings(folder)
    for name, value in tokenizer.settings.items():
        if state.get(name, value) == value:
            continue
        if name == "vocab_sha256":
            noted_by_pretraining = os.path.basename(path) == run_folder.TEXT
            if noted_by_pretraining and tokenizer.find(folder):
                _check_ids(tokenizer, folder)  # some may be renamed
                continue
            raise UserError(
                f"{path}: the model was trained with another vocabulary; pass the same "
                "--vocab_file"
            )
        raise UserError(
            f"{path}: the model was trained with another --{name}; pass "
            f"--{name}={str(state[name]).lower()}"
        )
    return state


def _check_ids(tokenizer, folder):
    """Allows new tokens only in rows that training never reached, named [unused...]."""
    vocabulary = tokenizer.vocabulary
    path = tokenizer.find(folder)
    if not path:
        _refuse_other_kind(tokenizer, folder)
        return
    if tf.io.gfile.isdir(path):
        return
    files = _files_at(tokenizer, path)
    try:
        known = tokenizer.parse(files.pop(tokenizer.vocabulary_file))
    except ValueError:  # a compressed file, for example
        return
    for id, (token, learned) in enumerate(zip(vocabulary.tokens, known, strict=False)):
        if token != learned and not learned.startswith("[unused"):
            raise UserError(
                f"{vocabulary.path}: token {id} is {token!r}, but {learned!r} in {path}, "
                "next to the checkpoint; use that file, or move it away if it does not "
                "belong to the checkpoint"
            )
    for name, content in files.items():
        if not bpe_files.same_merges(content, tokenizer.files[name]):
            raise UserError(
                f"{vocabulary.path}: has other merges than the {name} of {path}, next to "
                "the checkpoint; use those files, or move them away if they do not belong "
                "to the checkpoint"
            )


def _files_at(tokenizer, path):
    """The files of the vocabulary at a path, as far as they are there, by name."""
    if tokenizer_json.is_path(path):
        return tokenizer.read_files(path)
    paths = {
        name: os.path.join(os.path.dirname(path), name) for name in tokenizer.files
    }
    paths[tokenizer.vocabulary_file] = path
    contents = {}
    for name, other in paths.items():
        if tf.io.gfile.exists(other):
            with anywhere.access(other), tf.io.gfile.GFile(other, "rb") as file:
                contents[name] = file.read()
    return contents


def _refuse_other_kind(tokenizer, folder):
    path = kinds.find_vocabulary(folder)
    if path and not isinstance(tokenizer, kinds.kind_of(path)):
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
            f"vocab_size={config.vocab_size} of {config_file}; check --vocab_file, or "
            "raise vocab_size, which counts the special tokens, too (of trained weights, "
            "with convert_checkpoint.py --vocab_size)"
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


@contextlib.contextmanager
def held(strategy, directory: str, log: report.Report) -> Iterator[None]:
    """Keeps other trainings out of a directory; see `lease.held`.

    Raises:
        UserError: another training has it; raised on every host.
    """
    with contextlib.ExitStack() as stack:
        hold = lease.held(directory, log.say)
        distribution.on_chief(strategy, lambda: stack.enter_context(hold))
        yield


def defaults(given: run_flags.RunOptions, config: EncoderConfig) -> dict:
    """Values for flags and config keys that a run did not note.

    They let a run of an earlier version, which did not have them, continue.
    """
    return {
        field.name: field.default
        for of in (given, config)
        for field in dataclasses.fields(of)
        if field.default is not dataclasses.MISSING
    }


def prepare(
    directory: str,
    identity: dict,
    config: EncoderConfig,
    init_checkpoint: str | None,
    *,
    defaults: dict | None = None,
    trainer: loop.Trainer | None = None,
) -> None:
    """Prepares the directory of a training that `start` began or resumed.

    Only the chief may call it, and only once nothing is left that could be refused.

    Args:
        identity, defaults: see `run_folder.check_settings`.
        trainer: of the training, unless that is a search.
    """
    source = None
    if init_checkpoint and not (trainer and run_folder.steps(directory)):
        source = checkpoint.resolve(init_checkpoint)
    for folder in (directory, os.path.join(directory, run_folder.BEST)):
        run_folder.clear(folder)
    run_folder.note_settings(directory, identity, defaults)
    path = os.path.join(directory, run_folder.CONFIG)
    run_folder.write_file(path, config.to_json_string())
    if source and _is_inside(source, directory):
        # The run writes into the folder of the weights it starts from. They stay; and
        # because init_checkpoint may soon mean others, a resume must not need it.
        run_folder.release(source)
        if trainer:
            trainer.save(directory)


def _is_inside(path, directory):
    return os.path.realpath(path).startswith(
        os.path.join(os.path.realpath(directory), "")
    )


def start(
    trainer: loop.Trainer,
    directory: str,
    init_checkpoint: str | None,
    log: report.Report,
    *,
    required: str | tuple[str, ...],
    trains: bool,
    encoder_only: bool = False,
) -> None:
    """Resumes the run in a directory, or loads the weights of another checkpoint.

    Args:
        required: variables whose names begin with this must be in init_checkpoint.
        trains: whether random weights are a valid start.
        encoder_only: take the encoder of init_checkpoint without its head.
    Raises:
        UserError: there is nothing to evaluate, or a checkpoint does not fit.
    """
    step = trainer.restore(directory)
    if step is not None:
        log.say(f"continuing from step {step} in {directory}")
    elif init_checkpoint:
        log.say(str(load_start(trainer, init_checkpoint, required, encoder_only)))
    elif not trains:
        raise no_checkpoint(directory)
    else:
        log.say("no --init_checkpoint: training starts from random weights")
    distribution.check_same(
        trainer.strategy,
        trainer.progress.step,
        "the newest checkpoint in output_dir is not the same on all hosts; they must "
        "share output_dir",
    )


def load_start(
    trainer: loop.Trainer,
    init_checkpoint: str,
    required: str | tuple[str, ...],
    encoder_only: bool,
) -> load_report.LoadReport:
    """Loads the weights to start from; see `start`."""
    weights, scope = trainer.weights, trainer.model.encoder.scope
    if encoder_only:
        weights = {k: v for k, v in weights.items() if k.startswith(scope)}
    return checkpoint.load(weights, init_checkpoint, required, scope)


def no_checkpoint(directory: str) -> UserError:
    """The error to raise if there is nothing to evaluate."""
    return UserError(
        f"{directory}: contains no checkpoint to evaluate; pass --do_train or "
        "--init_checkpoint"
    )


@contextlib.contextmanager
def interruptible(directory: str) -> Iterator[None]:
    """Makes Ctrl-C say how to continue the run."""
    try:
        yield
    except KeyboardInterrupt:
        done = run_folder.steps(directory)
        where = f"continues from step {done[-1]}" if done else "starts this run over"
        raise KeyboardInterrupt(f"interrupted; the same command {where}") from None


def results_lines(values: dict[str, float | int]) -> str:
    """`key = value` lines, sorted, as the release writes eval_results.txt."""
    return "".join(
        f"{name} = {value if isinstance(value, int) else str(np.float32(value))}\n"
        for name, value in sorted(values.items())
    )
