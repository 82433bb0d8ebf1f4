"""What queries of a checkpoint begin with: the model that flags name."""

from typing import Protocol

from training.run import checks, implied_flags
from training.storage import checkpoint
from errors import UserError
from modeling.architectures.config import EncoderConfig
from text.tokenizers.tokenizer import Tokenizer
from training.run.implied_flags import ModelFlags


class RowFlags(Protocol):
    """The flags of a script that lays texts out as rows."""

    max_seq_length: int


def read_model(flags: ModelFlags) -> tuple[Tokenizer, EncoderConfig, str]:
    """The tokenizer, the architecture and the prefix of the weights; they fit each other.

    Args:
        flags: `QueryOptions` with init_checkpoint.
    """
    flags = implied_flags.completed(flags)
    tokenizer = checks.make_tokenizer(flags)
    prefix = checkpoint.resolve(flags.init_checkpoint)
    config = checks.read_config_of(flags, checkpoint.folder_of(prefix) or ".")
    where = flags.bert_config_file or prefix
    checks.check_vocabulary(tokenizer.vocabulary, config, where)
    return tokenizer, config, prefix


def check_length(flags: RowFlags, config: EncoderConfig) -> None:
    """Refuses rows for which the model has too few positions."""
    if flags.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={flags.max_seq_length}: the model has only "
            f"max_position_embeddings={config.max_position_embeddings}; pass "
            f"--max_seq_length={config.max_position_embeddings} or less"
        )
