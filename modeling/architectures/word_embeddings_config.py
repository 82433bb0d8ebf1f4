"""The config of a table of word embeddings."""

import dataclasses
import math

from modeling.architectures.config import EncoderConfig


@dataclasses.dataclass(frozen=True)
class WordEmbeddingsConfig(EncoderConfig):
    """The sizes of a table: a vector of `hidden_size` numbers for each token.

    With --lstm_layers=1 --lstm_size=150, the network is the BiLSTM to which
    arXiv:1903.12136 distills BERT, without its hidden layer between states and classes;
    its vectors have 300 numbers.

    `hidden_dropout_prob` is the dropout of what reads the vectors: BiLSTM layers, heads.
    """

    architecture = "word_embeddings"
    has_segments = False

    vocab_size: int
    hidden_size: int = 300
    hidden_dropout_prob: float = 0.1
    initializer_range: float = 0.02

    @property
    def num_hidden_layers(self) -> int:
        """The table counts as the only layer."""
        return 1

    @property
    def max_position_embeddings(self) -> float:
        """Rows may have any length."""
        return math.inf

    @property
    def hidden_act(self) -> str:
        """Of a masked-LM head, which is made to know its variables, never to train."""
        return "gelu"

    @property
    def attention_direction(self) -> str:
        return "none"

    @property
    def row_pooling(self) -> str:
        return "mean"  # any single token is the same for many rows

    def multiplications(self, seq_length: int) -> int:
        return 0
