"""What queries of a checkpoint begin with: the model that flags name."""

from typing import Protocol

from training.run import checks, settle
from training.storage.source import Source
from errors import UserError
from modeling.architectures.config import EncoderConfig


class RowFlags(Protocol):
    """The flags of a script that lays texts out as rows."""

    max_seq_length: int


def read_model(flags: settle.ModelFlags, source: Source | None = None) -> settle.Model:
    """The model that flags name, whose tokenizer and architecture fit each other.

    Args:
        flags: `QueryOptions` with init_checkpoint.
        source: its weights, if they are open.
    """
    model = settle.Model(flags, source=source)
    tokenizer, config = model.tokenizer, model.config
    where = flags.bert_config_file or model.source.prefix
    checks.check_vocabulary(tokenizer.vocabulary, config, where)
    return model


def check_length(flags: RowFlags, config: EncoderConfig) -> None:
    """Refuses rows for which the model has too few positions."""
    if flags.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={flags.max_seq_length}: the model has only "
            f"max_position_embeddings={config.max_position_embeddings}; pass "
            f"--max_seq_length={config.max_position_embeddings} or less"
        )
