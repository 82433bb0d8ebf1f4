"""What all training scripts check before they compute anything."""

from training import backend  # noqa: F401  TensorFlow, without its log messages
from errors import UserError, setting
from modeling.architectures.config import EncoderConfig
from modeling.objectives.objective import Objective
from text.tokenizers.vocabulary import Vocabulary


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
