"""The flags of all scripts that query a checkpoint; each adds its --init_checkpoint.

Declaring them loads neither TensorFlow nor Keras, so that --help answers at once.
"""

import dataclasses

import options
from errors import UserError, setting
from files.inputs import LineOptions
from text.tokenizers.table import TokenizerOptions


@dataclasses.dataclass(frozen=True)
class QueryOptions(TokenizerOptions, LineOptions):
    """Files. What belongs to the weights."""

    vocab_file: str | None = options.field(
        None, help="The vocabulary; by default, the one next to the weights."
    )
    bert_config_file: str | None = options.field(
        None,
        help="The architecture; by default, bert_config.json next to the weights, or the "
        "config.json of a Hugging Face model.",
    )


def check_windows(max_seq_length: int, doc_stride: int) -> None:
    """Refuses windows between which tokens would be skipped."""
    if not doc_stride <= max_seq_length - 2:
        raise UserError(
            f"{setting('doc_stride', doc_stride)}: must be from 1 to {max_seq_length - 2}, "
            f"the tokens of a window ({setting('max_seq_length')} minus [CLS] and [SEP]), "
            "so that none is skipped, or 0 for no windows"
        )
