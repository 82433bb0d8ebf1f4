"""The config of an ELMo: LSTMs in both directions over a table of tokens."""

import dataclasses
import math

from modeling.architectures.config import EncoderConfig


@dataclasses.dataclass(frozen=True)
class ElmoConfig(EncoderConfig):
    """Sizes, limits and rates of two stacks of LSTMs.

    The defaults are the released model's sizes; it reads characters, where this one has a
    table with a vector for each token.

    `hidden_size` is the width of the outputs of both directions: each has half of it, and
    so has the table. `lstm_size` is the number of cells of each LSTM.

    `cell_clip` and `projection_clip` limit the absolute values of cells and outputs; null
    is no limit. With `use_skip_connections`, all layers but the first add their inputs to
    their outputs. `share_embedding_softmax` predicts tokens with the table itself; false
    adds another one, as in the release.

    The table's first values have the deviation `initializer_range`. The LSTMs' are
    Glorot's, as in the release.

    Source: allenai/bilm-tf@7cffee2 bilm/training.py, LanguageModel; arXiv:1802.05365.
    """

    architecture = "elmo"
    keys_without_shape = ("cell_clip", "projection_clip", "use_skip_connections")
    has_segments = False
    separates_directions = True

    vocab_size: int
    hidden_size: int = 1024
    num_hidden_layers: int = 2
    lstm_size: int = 4096
    cell_clip: float | None = 3.0
    projection_clip: float | None = 3.0
    use_skip_connections: bool = True
    share_embedding_softmax: bool = True
    hidden_dropout_prob: float = 0.1
    initializer_range: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        if self.hidden_size % 2:
            raise ValueError(
                f"hidden_size is {self.hidden_size}, which two directions cannot share "
                "equally; make it even"
            )

    @property
    def embedding_size(self) -> int:
        return self.hidden_size // 2

    @property
    def max_position_embeddings(self) -> float:
        """Rows may have any length."""
        return math.inf

    @property
    def hidden_act(self) -> str:
        """Of a masked-LM head."""
        return "gelu"

    @property
    def row_pooling(self) -> str:
        return "ends"

    def multiplications(self, seq_length: int) -> int:
        of_lstm = self.lstm_size * 9 * self.embedding_size
        return seq_length * self.num_hidden_layers * 2 * of_lstm
