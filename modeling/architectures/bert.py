"""The encoder of BERT and RoBERTa, with variables named as in BERT's released checkpoints.

Axes: b batch, s seq_length, h hidden_size, n num_heads, d head_size.
"""

import dataclasses

import keras
from keras import ops

from modeling import attention, block_attention, fusion, layers
from modeling.architectures.config import POOLINGS, EncoderConfig
from modeling.architectures.encoder import Encoder

DIRECTIONS = ("both", "left_to_right", "right_to_left")
ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")


@dataclasses.dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """Sizes, rates and activation of one encoder; the keys of bert_config.json.

    `hidden_act` is one of "gelu" (the tanh form, as at the release's last commit),
    "gelu_erf" (the exact form, which its first code used), "relu", "tanh", "linear".

    `attention_direction` is what a position attends to: "both" sides, as in the release, or
    itself and what precedes it ("left_to_right") or follows it ("right_to_left").

    `pooling` is what a head for whole rows reads: the "first" token, as in the release, the
    "last", or the "mean" of all; without a value, the one that sees the whole row.

    Raises:
        ValueError: a value has the wrong type or is out of range.
    Source: google-research/bert@eedf571 modeling.py, class BertConfig.
    """

    architecture = "bert"
    choices = {
        "hidden_act": ACTIVATIONS,
        "attention_direction": DIRECTIONS,
        "pooling": POOLINGS,
    }
    capabilities = frozenset({"documents"})
    own_keys = frozenset({"attention_direction", "pooling"})
    keys_without_shape = ("num_attention_heads", "hidden_act", "attention_direction")
    tolerated_keys = frozenset(
        {
            "directionality",
            "pooler_fc_size",
            "pooler_num_attention_heads",
            "pooler_num_fc_layers",
            "pooler_size_per_head",
            "pooler_type",
        }
    )

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 16
    initializer_range: float = 0.02
    attention_direction: str = "both"
    pooling: str | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size is {self.hidden_size}, which {self.num_attention_heads} "
                "attention heads cannot share equally; make it a multiple of "
                "num_attention_heads"
            )

    @property
    def position_offset(self) -> int:
        """The row of the table of positions that the first token of a row reads."""
        return 0

    @property
    def padding_position(self) -> int | None:
        """The row of that table that all padding reads; None: that of its place."""
        return None

    def kept_numbers(self, seq_length: int) -> int:
        """What the products read: two of queries and keys, and one of each other kind."""
        is_long = block_attention.is_long(seq_length)
        scores = 0 if is_long else self.num_attention_heads * seq_length
        return seq_length * (6 * self.hidden_size + self.intermediate_size + scores)

    def multiplications(self, seq_length: int) -> int:
        """Of the products of matrices in one pass over a row."""
        width = self.hidden_size
        dense = width * (4 * width + 2 * self.intermediate_size)
        of_projection = self.embedding_size * width if self.has_projection else 0
        of_blocks = self.num_blocks * (dense + 2 * seq_length * width)
        return seq_length * (of_projection + of_blocks)

    @property
    def has_projection(self) -> bool:
        """Whether a linear layer makes the embeddings hidden_size wide."""
        return self.embedding_size != self.hidden_size

    @property
    def num_blocks(self) -> int:
        """How many transformer layers a row passes."""
        return self.num_hidden_layers

    @property
    def row_pooling(self) -> str:
        sees_all = "last" if self.attention_direction == "left_to_right" else "first"
        return self.pooling or sees_all


# Added to the attention scores of what a position does not see. Finite, so that a row of
# only padding attends evenly instead of becoming NaN.
_UNSEEN_SCORE = -10000.0


class BertEncoder(Encoder):
    """Embeddings, transformer layers and pooler; a projection if the config has one.

    Every variable exists once the object does, and its `path` is the name that the
    released checkpoints give it ("bert/encoder/layer_0/attention/self/query/kernel"); it
    begins with the config's scope.

    Args:
        config: the sizes, and the constants in which BERT and RoBERTa differ.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16". Softmax and layer normalization compute in
            float32 under both.
        scope: what the names of its own variables begin with; by default, the config's.
        embeddings: those of another encoder, to share; by default, its own.
    Source: google-research/bert@eedf571 modeling.py, class BertModel.
    """

    # A model for spans or tags may lack it and does not need it.
    optional_parts = ("pooler/",)
    # From embedding_size to hidden_size: its scope, and what draws its first weights.
    projection_scope = "embeddings_project"
    draw_projection = staticmethod(next)

    def __init__(
        self,
        config: BertConfig,
        *,
        seed: int = 0,
        dtype: str = "float32",
        scope: str | None = None,
        embeddings: "Embeddings | None" = None,
    ):
        super().__init__(name=scope or config.scope, dtype=dtype)
        self.config = config
        initializers = layers.weight_initializers(
            config.initializer_range, f"encoder {seed}", config.truncated_weights
        )
        self.embeddings = embeddings or self.make_embeddings(initializers, dtype)
        self.projection = None
        if config.has_projection:
            self.projection = keras.layers.Dense(
                config.hidden_size,
                kernel_initializer=self.draw_projection(initializers),
                dtype=dtype,
                name=self.projection_scope.rpartition("/")[2],
            )
        self.transformer_layers = self.make_layers(initializers, dtype)
        self.pooler = self.make_pooler(initializers, dtype)
        self.build()

    def make_embeddings(self, initializers, dtype) -> "Embeddings":
        """The layer that turns ids into vectors, not built."""
        return Embeddings(self.config, initializers, dtype=dtype)

    def make_layers(self, initializers, dtype) -> list[keras.layers.Layer]:
        """The transformer layers in the order of their calls, not built."""
        return [
            _TransformerLayer(self.config, initializers, index, dtype=dtype)
            for index in range(self.config.num_hidden_layers)
        ]

    def make_pooler(self, initializers, dtype) -> keras.layers.Layer:
        """What a row's vector becomes for the heads that read it, not built."""
        return keras.layers.Dense(
            self.config.hidden_size,
            activation="tanh",
            kernel_initializer=next(initializers),
            dtype=dtype,
            name="dense",
        )

    def build_embeddings(self) -> None:
        """Builds what is before the transformer layers."""
        if not self.embeddings.built:  # by the encoder that shares them
            self.embeddings.build()
        if self.projection:
            with layers.name_scopes(self.projection_scope.rpartition("/")[0]):
                self.projection.build((None, None, self.config.embedding_size))

    def build_layers(self) -> None:
        """Builds what is between the embeddings and the pooler."""
        for layer in self.transformer_layers:
            layer.build((None, None, self.config.hidden_size))

    def embed(self, inputs, dropouts):
        """[b, s, h]: what the first transformer layer reads."""
        embedded = self.embeddings(
            inputs["input_ids"],
            segment_ids=inputs.get("segment_ids"),
            input_mask=inputs.get("input_mask"),
            position_ids=inputs.get("position_ids"),
            dropouts=dropouts,
        )
        return self.projection(embedded) if self.projection else embedded

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def word_embeddings(self):
        """The table [vocab_size, embedding_size]."""
        return self.embeddings.word_embeddings

    @property
    def position_embeddings(self):
        return self.embeddings.position_embeddings

    @property
    def stages(self):
        above = [layer.weights for layer in (*self.transformer_layers, self.pooler)]
        paths_above = {v.path for weights in above for v in weights}
        return [[v for v in self.weights if v.path not in paths_above], *above]

    def build(self, input_shape=None):
        self.build_embeddings()
        with keras.name_scope("encoder"):
            self.build_layers()
        with keras.name_scope("pooler"):
            self.pooler.build((None, self.config.hidden_size))
        self.built = True

    def pool(self, outputs, input_mask=None):
        if self.config.row_pooling == "first":
            return outputs["pooled_output"]
        hidden = outputs["sequence_output"]
        if self.config.row_pooling == "last":
            return self.pooler(layers.last_token(hidden, input_mask))
        return self.pooler(layers.mean_of_tokens(hidden, input_mask))

    def encode(self, inputs, dropouts=layers.no_dropout, return_all=False):
        """See `Encoder.encode`.

        Raises:
            ValueError: the sequence is too long.
        """
        hidden = self.embed(inputs, dropouts)
        outputs = {"embedding_output": hidden, "layer_outputs": []}
        seen = _visible(hidden, inputs, self.config.attention_direction)
        for layer in self.transformer_layers:
            hidden = layers.apply_layer(layer, hidden, dropouts=dropouts, seen=seen)
            outputs["layer_outputs"].append(hidden)
        if not return_all:
            outputs = {}
        outputs["sequence_output"] = hidden
        outputs["pooled_output"] = self.pooler(hidden[:, 0])
        return outputs

    def attention_scores(self, number, layer_input):
        return self.transformer_layers[number].attention.scores(layer_input)


def _visible(hidden, inputs, direction):
    """int [b or 1, 1, 1 or s (from), s (to)], 1 where a position sees another, or None;
    of long rows, their `block_attention.Seen`.
    """
    documents = attention.documents(inputs)
    seen = inputs.get("input_mask")
    if block_attention.is_long(hidden.shape[1]):
        return block_attention.Seen.of(hidden, seen, documents)
    if seen is not None:
        seen = ops.cast(seen, "int32")[:, None, None, :]
    if documents is not None:
        same = documents[:, None, :, None] == documents[:, None, None, :]
        seen = _both(seen, same)
    if direction != "both":
        places = ops.arange(ops.shape(hidden)[1])
        one_side = places[:, None] >= places[None, :]
        if direction == "right_to_left":
            one_side = ops.transpose(one_side)
        seen = _both(seen, one_side[None, None])
    return seen


def _both(seen, condition):
    condition = ops.cast(condition, "int32")
    return condition if seen is None else seen * condition


class Embeddings(keras.layers.Layer):
    """Token ids [b, s] -> the normalized sums [b, s, embedding_size] of their vectors."""

    def __init__(self, config, initializers, dtype):
        # In float32 throughout: the gradient of a lookup adds up hundreds of rows for a
        # frequent token, and in bfloat16 the later ones would vanish in the sum.
        super().__init__(name="embeddings", dtype=dtype, autocast=False)
        self.config = config
        self.initializers = [next(initializers) for _ in range(3)]

    def build(self, input_shape=None):
        config = self.config
        words, types, positions = self.initializers
        self.add_words(words)
        self.token_type_embeddings = self.add_weight(
            (config.type_vocab_size, config.embedding_size),
            types if config.has_segments else "zeros",
            trainable=config.has_segments,
            name="token_type_embeddings",
        )
        self.add_positions(positions)
        self.norm = layers.LayerNorm(config.layer_norm_eps, "float32")
        self.norm.build((None, None, config.embedding_size))
        self.built = True

    def add_words(self, initializer):
        shape = (self.config.vocab_size, self.config.embedding_size)
        self.word_embeddings = self.add_weight(
            shape, initializer, name="word_embeddings"
        )

    def add_positions(self, initializer):
        rows = self.config.position_offset + self.config.max_position_embeddings
        self.position_embeddings = self.add_weight(
            (rows, self.config.embedding_size), initializer, name="position_embeddings"
        )

    def positions(self, input_ids, position_ids=None):
        """The rows of the table of positions that these ids read.

        Args:
            position_ids: int [b, s]; by default, they count from 0.
        Returns:
            tensor [s, embedding_size], or with position_ids [b, s, embedding_size].

        Raises:
            ValueError: the sequence is too long.
        """
        seq_length = ops.shape(input_ids)[1]  # a tensor if it varies by batch
        if (input_ids.shape[1] or 0) > self.config.max_position_embeddings:
            raise ValueError(
                f"the sequence has {seq_length} tokens, but the model has only "
                f"{self.config.max_position_embeddings} position embeddings "
                "(max_position_embeddings); shorten the sequence"
            )
        first = self.config.position_offset
        if position_ids is not None:
            return layers.look_up(self.position_embeddings, position_ids + first)
        return self.position_embeddings[first : first + seq_length]

    def call(
        self,
        input_ids,
        segment_ids=None,
        input_mask=None,
        position_ids=None,
        dropouts=layers.no_dropout,
    ):
        hidden = self.vectors(input_ids, segment_ids, input_mask, position_ids)
        hidden = ops.cast(hidden, self.compute_dtype)
        return dropouts(hidden, self.config.hidden_dropout_prob)

    def vectors(self, input_ids, segment_ids, input_mask, position_ids):
        """[b, s, embedding_size], as the dropout reads them."""
        if segment_ids is None or not self.config.has_segments:
            segment_ids = ops.zeros_like(input_ids)
        hidden = layers.look_up(self.word_embeddings, input_ids)
        # With so few types a product is faster than a lookup, whose gradient scatters.
        types = ops.one_hot(segment_ids, self.config.type_vocab_size)
        hidden += ops.matmul(types, self.token_type_embeddings)
        positions = self.positions(input_ids, position_ids)
        return self.norm(self._at_positions(hidden, positions, input_mask))

    def _at_positions(self, hidden, positions, input_mask):
        """[b, s, embedding_size], with the vectors of the positions added."""
        positioned = hidden + positions
        row = self.config.padding_position
        if row is None or input_mask is None:
            return positioned
        # As in the models that have this row, padding trains no embeddings.
        padding = ops.stop_gradient(hidden + self.position_embeddings[row])
        is_token = ops.cast(input_mask, "bool")[..., None]
        return ops.where(is_token, positioned, padding)


class _TransformerLayer(keras.layers.Layer):
    """[b, s, h] -> [b, s, h]: attention, then a position-wise network."""

    def __init__(self, config, initializers, index, dtype):
        super().__init__(name=f"layer_{index}", dtype=dtype)
        self.attention = SelfAttention(config, initializers, dtype)
        self.attention_output = _Output(config, initializers, dtype)
        self.intermediate = layers.Dense(
            config.intermediate_size,
            next(initializers),
            dtype,
            layers.activation(config.hidden_act),
        )
        self.output_layer = _Output(config, initializers, dtype)
        self.intermediate_size = config.intermediate_size

    def build(self, input_shape):
        with keras.name_scope("attention"):
            self.attention.build(input_shape)
            self.attention_output.build(input_shape)
        with keras.name_scope("intermediate"):
            self.intermediate.build(input_shape)
        self.output_layer.build((None, None, self.intermediate_size))
        self.built = True

    def call(self, hidden, seen=None, dropouts=layers.no_dropout):
        context = self.attention(hidden, seen=seen, dropouts=dropouts)
        hidden = self.attention_output(context, residual=hidden, dropouts=dropouts)
        inner = self.intermediate(hidden)
        return self.output_layer(inner, residual=hidden, dropouts=dropouts)


class SelfAttention(keras.layers.Layer):
    """[b, s, h] -> [b, s, h]: what each position reads from the others."""

    def __init__(self, config, initializers, dtype):
        super().__init__(name="self", dtype=dtype)
        self.num_heads = config.num_attention_heads
        self.head_size = config.hidden_size // config.num_attention_heads
        self.dropout_prob = config.attention_probs_dropout_prob
        self.direction = config.attention_direction
        self.query, self.key, self.value = (
            layers.Dense(config.hidden_size, next(initializers), dtype, name=name)
            for name in ("query", "key", "value")
        )

    def build(self, input_shape):
        for layer in (self.query, self.key, self.value):
            layer.build(input_shape)
        self.built = True

    def scores(self, hidden):
        """[b, s, h] -> [b, n, s (from), s (to)]"""
        return ops.matmul(*self._query_and_key(hidden))

    def _query_and_key(self, hidden):
        """[b, s, h] -> [b, n, s, d] and [b, n, d, s]"""
        # Scaled here rather than in the scores: the same result from far fewer numbers.
        query = self._heads(self.query, hidden, self.head_size**-0.5)
        return query, self._heads(self.key, hidden, order=(0, 2, 3, 1))

    def call(self, hidden, seen=None, dropouts=layers.no_dropout):
        query, key = self._query_and_key(hidden)
        return attention.attend(
            query,
            key,
            self._heads(self.value, hidden),
            bias_scores=lambda scores: _seen_scores(scores, seen),
            rate=self.dropout_prob,
            dropouts=dropouts,
            seen=seen if isinstance(seen, block_attention.Seen) else None,
            direction=self.direction,
        )

    def _heads(self, dense, hidden, scale=1.0, order=(0, 2, 1, 3)):
        """[b, s, h] -> [b, n, s, d], or these axes in another order."""
        x = dense.product(hidden)
        return _split_heads(x, dense.bias, self.num_heads, scale, order)


@fusion.fuse
def _split_heads(x, bias, num_heads, scale, order):
    x = layers.add_bias(x, bias) * scale
    split = (*ops.shape(x)[:2], num_heads, x.shape[2] // num_heads)
    return ops.transpose(ops.reshape(x, split), order)


@fusion.fuse
def _seen_scores(scores, seen):
    """float32, with one penalty for what is padding, on the other side, or both."""
    wide = ops.cast(scores, "float32")
    if seen is None:
        return wide
    return wide + _UNSEEN_SCORE * (1.0 - ops.cast(seen, "float32"))


class _Output(keras.layers.Layer):
    """Back to [b, s, h]: projection, dropout, residual, layer normalization."""

    def __init__(self, config, initializers, dtype):
        super().__init__(name="output", dtype=dtype)
        self.dropout_prob = config.hidden_dropout_prob
        self.dense = layers.Dense(config.hidden_size, next(initializers), dtype)
        self.norm = layers.LayerNorm(config.layer_norm_eps, dtype)

    def build(self, input_shape):
        self.dense.build(input_shape)
        self.norm.build((*input_shape[:-1], self.dense.units))
        self.built = True

    def call(self, x, residual=None, dropouts=layers.no_dropout):
        return self.norm(self.dense.add_to(residual, x, dropouts, self.dropout_prob))
