"""The encoder of ELMo: two stacks of LSTMs, which read a row from its two ends.

Axes: b batch, s seq_length, h hidden_size, p its half, d directions (2).
"""

import dataclasses
import math
import random

from keras import ops

from family.elmo import projected_lstm
from modeling import bilstm, layers
from modeling.architectures.config import EncoderConfig
from modeling.architectures.encoder import Encoder


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
    capabilities = frozenset({"directions"})
    low_rank_targets = ("forward_projection", "backward_projection")

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


class ElmoEncoder(Encoder):
    """A table of tokens and layers of LSTMs; of all outputs, half is each direction's.

    The directions share the table and nothing else. Each begins a row with a state of
    zeros, the backward one at the last token, so padding changes nothing.

    In training, a dropout acts on what each layer reads, separately for each direction.

    Its variables are "elmo/table" and, for each layer and direction, such as
    "elmo/layer_0/forward_kernel", those of `ProjectedLstms`. The release's files have
    other names; see family/elmo/bilm.py.

    Args:
        config: the sizes.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16". The table and the cells are float32 under
            both.
    Source: allenai/bilm-tf@7cffee2 bilm/training.py, LanguageModel.
    """

    def __init__(self, config: ElmoConfig, *, seed: int = 0, dtype: str = "float32"):
        # In float32, in which the gradients of a frequent token add up; see
        # `bert.Embeddings`.
        super().__init__(name=config.scope, dtype=dtype, autocast=False)
        self.config = config
        self._initializer = next(
            layers.weight_initializers(config.initializer_range, f"encoder {seed}")
        )
        self._seeds = random.Random(f"encoder lstms {seed}")
        self.build()

    def build(self, input_shape=None):
        config = self.config
        shape = (config.vocab_size, config.embedding_size)
        self._table = self.add_weight(shape, self._initializer, name="table")
        self.lstms = [
            projected_lstm.ProjectedLstms(
                config.lstm_size,
                config.embedding_size,
                cell_clip=config.cell_clip,
                projection_clip=config.projection_clip,
                adds_inputs=config.use_skip_connections and number > 0,
                seed=self._seeds.getrandbits(31),
                dtype=self.dtype_policy,
                name=f"layer_{number}",
            )
            for number in range(config.num_hidden_layers)
        ]
        self.built = True

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def word_embeddings(self):
        return self._table

    @property
    def stages(self):
        return [[self._table], *(layer.weights for layer in self.lstms), []]

    def pool(self, outputs, input_mask=None):
        """float32 [b, h]: what each direction knows once it has read the row."""
        hidden = ops.cast(outputs["sequence_output"], "float32")
        return bilstm.last_states(hidden, input_mask)

    def initial_states(self, batch_size) -> list[tuple]:
        """Of each layer; see `ProjectedLstms.initial_state`."""
        return [layer.initial_state(batch_size) for layer in self.lstms]

    def encode(self, inputs, dropouts=layers.no_dropout, return_all=False):
        return self.read(inputs, dropouts, return_all=return_all)[0]

    def read(self, inputs, dropouts=layers.no_dropout, states=None, return_all=False):
        """Like `call`, for rows that continue others.

        Args:
            states: of each layer, before the row; by default, zeros.
        Returns:
            the outputs, and the states after the row. The backward direction begins at
            the last token and ends at the first.
        """
        words = layers.look_up(self._table, inputs["input_ids"])  # [b, s, p]
        words = ops.cast(words, self.compute_dtype)
        mask = inputs.get("input_mask")
        if mask is None:
            mask = ops.ones(ops.shape(words)[:2], "int32")
        is_token = _in_reading_order(ops.cast(mask, "float32")[..., None])
        if states is None:
            states = self.initial_states(ops.shape(words)[0])
        rate = self.config.hidden_dropout_prob
        hidden, all_outputs, after = _in_reading_order(words), [], []
        for layer, state in zip(self.lstms, states, strict=True):
            hidden, state = layers.apply_layer(
                layer,
                dropouts(hidden, rate),
                dropouts=dropouts,
                is_token=is_token,
                state=state,
            )
            all_outputs.append(_join_directions(hidden))
            after.append(state)
        outputs = {"sequence_output": all_outputs[-1]}
        if return_all:
            outputs["embedding_output"] = ops.concatenate([words, words], axis=-1)
            outputs["layer_outputs"] = all_outputs
        return outputs, after


def _in_reading_order(x):
    """[b, s, n] -> [s, d, b, n], from the first to the last, and from the last on."""
    x = ops.swapaxes(x, 0, 1)
    return ops.stack([x, ops.flip(x, axis=0)], axis=1)


def _join_directions(x):
    """[s, d, b, p] -> [b, s, h]: undoes `_in_reading_order` and joins the directions."""
    x = ops.concatenate([x[:, 0], ops.flip(x[:, 1], axis=0)], axis=-1)
    return ops.swapaxes(x, 0, 1)
