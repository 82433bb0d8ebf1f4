"""An encoder that is only a table of word embeddings, for BiLSTM layers to read.

Axes: b batch, s seq_length, h hidden_size.
"""

import dataclasses
import math

from keras import ops

from modeling import layers
from modeling.architectures.config import EncoderConfig
from modeling.architectures.encoder import Encoder


@dataclasses.dataclass(frozen=True)
class WordEmbeddingsConfig(EncoderConfig):
    """The sizes of a table: a vector of `hidden_size` numbers for each token.

    With one BiLSTM layer of 150 units a direction, the network is the BiLSTM to which
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


class WordEmbeddingsEncoder(Encoder):
    """Gives each token its own vector, which does not depend on the others.

    It applies no dropout; what reads the vectors does. A head for whole rows reads their
    mean.

    Args:
        config: the sizes.
        seed: the same seed gives the same initial vectors.
        dtype: "float32" or "mixed_bfloat16". The table is float32 under both.
    Source: arXiv:1903.12136, section 3.
    """

    def __init__(
        self, config: WordEmbeddingsConfig, *, seed: int = 0, dtype: str = "float32"
    ):
        # In float32, in which the gradients of a frequent token add up; see
        # `bert.Embeddings`.
        super().__init__(name=config.scope, dtype=dtype, autocast=False)
        self.config = config
        self._initializer = next(
            layers.weight_initializers(config.initializer_range, f"encoder {seed}")
        )
        self.build()

    def build(self, input_shape=None):
        self._table = self.add_weight(
            (self.config.vocab_size, self.config.hidden_size),
            self._initializer,
            name="table",
        )
        self.built = True

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def word_embeddings(self):
        return self._table

    @property
    def stages(self):
        return [[], [self._table], []]  # as a layer, it has the rate of a top layer

    def pool(self, outputs, input_mask=None):
        return layers.mean_of_tokens(outputs["sequence_output"], input_mask)

    def encode(self, inputs, dropouts=layers.no_dropout, return_all=False):
        hidden = layers.look_up(self._table, inputs["input_ids"])
        hidden = ops.cast(hidden, self.compute_dtype)
        outputs = {"sequence_output": hidden}
        if return_all:
            outputs |= {"embedding_output": hidden, "layer_outputs": [hidden]}
        return outputs
