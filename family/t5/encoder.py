"""T5's encoder, and the stack of layers that its decoder shares with it.

Axes: b batch, s seq_length, h hidden_size.
"""

import keras
from keras import ops

from family.t5.config import T5Config
from family.t5.layers import Block, RmsNorm, unseen_scores
from modeling import layers
from modeling.architectures.encoder import Encoder


class Stack:
    """What encoder and decoder have in common: blocks, and the norm after the last one."""

    def make_stack(self, initializers, dtype, number, reads_encoder=False) -> None:
        """Makes the layers, not built."""
        self.blocks = [
            Block(self.config, initializers, dtype, index, reads_encoder)
            for index in range(number)
        ]
        self.norm = RmsNorm(self.config, dtype, name="final_layer_norm")

    def build_stack(self) -> None:
        """Builds them in the scope of the caller."""
        for layer in (*self.blocks, self.norm):
            layer.build()

    def run_stack(self, hidden, bias, encoded=None, unseen=None, dropouts=None) -> dict:
        """Passes all layers.

        Args:
            hidden: [b, s, h].
            bias, encoded, unseen: as for `Block.call`.
        Returns:
            dict of layer_outputs, a list of [b, s, h], the last after norm and dropout,
            and sequence_output, which is that one.
        """
        more = () if encoded is None else (encoded,)
        outputs = []
        for block in self.blocks:
            hidden = layers.apply_layer(
                block, hidden, bias, *more, dropouts=dropouts, unseen=unseen
            )
            outputs.append(hidden)
        outputs[-1] = dropouts(self.norm(hidden), self.config.hidden_dropout_prob)
        return {"sequence_output": outputs[-1], "layer_outputs": outputs}


class T5Encoder(Stack, Encoder):
    """The encoder of a T5, alone: for heads, or for the decoder of a `TextToTextModel`.

    A head for whole rows reads the mean of the outputs, unless the config's `pooling` is
    another. There is no pooler.

    Every variable exists once the object does, and its `path` is the name that the
    released checkpoints give it: "shared/embedding" and what begins with "encoder/".

    In training, each number has a dropout of its own, as in Hugging Face's class. The
    release drops the same numbers at all positions of a row.

    Args:
        config: a T5Config.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16". Softmax and norms compute in float32 under
            both.
    Source: tensorflow/mesh@da90793 mesh_tensorflow/transformer/transformer.py, LayerStack;
        transformer_layers.py.
    """

    def __init__(self, config: T5Config, *, seed: int = 0, dtype: str = "float32"):
        super().__init__(name=config.scope, dtype=dtype)
        self.config = config
        initializers = layers.weight_initializers(
            config.initializer_range, f"encoder {seed}", config.truncated_weights
        )
        # Built here, outside this layer's own name scope.
        self.embeddings = T5Embeddings(config, next(initializers).seed, dtype)
        self.embeddings.build()
        self.make_stack(initializers, dtype, config.num_hidden_layers)
        self.build()

    def build(self, input_shape=None):
        self.build_stack()
        self.built = True

    @property
    def scope(self):
        return ("shared/", f"{self.name}/")

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def word_embeddings(self):
        return self.embeddings.embedding

    @property
    def stages(self):
        *below, top = (block.weights for block in self.blocks)
        return [[self.word_embeddings], *below, [*top, *self.norm.weights], []]

    def pool(self, outputs, input_mask=None):
        hidden = outputs["sequence_output"]
        if self.config.row_pooling == "first":
            return ops.cast(hidden[:, 0], "float32")
        if self.config.row_pooling == "last":
            return layers.last_token(hidden, input_mask)
        return layers.mean_of_tokens(hidden, input_mask)

    def encode(self, inputs, dropouts=layers.no_dropout, return_all=False):
        """See `Encoder.encode`; segment_ids have no effect."""
        hidden = self.embeddings(inputs["input_ids"], dropouts=dropouts)
        length = ops.shape(hidden)[1]
        outputs = self.run_stack(
            hidden,
            self.blocks[0].attention.bias.of_distances(length, length),
            unseen=padding_scores(inputs),
            dropouts=dropouts,
        )
        if return_all:
            return {"embedding_output": hidden, **outputs}
        return {"sequence_output": outputs["sequence_output"]}

    def attention_scores(self, number, layer_input):
        block, length = self.blocks[number], ops.shape(layer_input)[1]
        bias = self.blocks[0].attention.bias.of_distances(length, length)
        scores = block.attention.scores(block.parts[0].norm(layer_input))
        return ops.add(scores, bias)


def padding_scores(inputs):
    """float32 [b, 1, 1, s] to add to scores for the padding of inputs; None without."""
    mask = inputs.get("input_mask")
    return None if mask is None else unseen_scores(mask)[:, None, None, :]


class T5Embeddings(keras.layers.Layer):
    """Token ids [b, s] -> the vectors [b, s, h] of the table of encoder and decoder."""

    def __init__(self, config, seed, dtype):
        # In float32, in which the gradients of a frequent token add up; see
        # `bert.Embeddings`.
        super().__init__(name="shared", dtype=dtype, autocast=False)
        self.config = config
        self._initializer = keras.initializers.RandomNormal(
            stddev=config.embedding_range, seed=seed
        )

    def build(self, input_shape=None):
        shape = (self.config.vocab_size, self.config.hidden_size)
        self.embedding = self.add_weight(
            shape, self._initializer, name="embedding", autocast=False
        )
        self.built = True

    def call(self, ids, dropouts=layers.no_dropout):
        hidden = ops.cast(layers.look_up(self.embedding, ids), self.compute_dtype)
        return dropouts(hidden, self.config.hidden_dropout_prob)
