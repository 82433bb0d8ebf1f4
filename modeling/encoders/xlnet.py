"""The encoder of XLNet: relative positions, two streams, and memory.

Axes: b batch, s seq_length, m memory, k = m + s keys, t targets, h hidden_size,
n num_heads, d head_size, r = k + s relative positions. The release puts the sequence first.
"""

import dataclasses

import keras
import numpy as np
from keras import ops

from modeling import fusion, layers
from modeling.encoders.encoder import Encoder
from modeling.encoders.xlnet_config import XlnetConfig

# Added to the attention scores of what a position does not see, as in the release: so
# large that a row without a single visible key attends evenly.
_UNSEEN_SCORE = -1e30


class XlnetEncoder(Encoder):
    """Embeddings without positions, layers of relative attention, and a summary.

    Every variable exists once the object does, and its `path` is the name that the
    released checkpoints give it, the misspelt "sequnece_summary" included. The names of
    its variables begin with "model/", as does that of the language model's bias.

    The content stream is the ordinary output. With `input_q` among the inputs, there is a
    second stream, of queries, that sees where a token is but not which.

    In training, a dropout acts on the vectors of positions. The release draws one for each
    row; here all rows of a batch share it, which saves a matrix product for each row.

    Args:
        config: an XlnetConfig.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16". Softmax and layer normalization compute in
            float32 under both.
    Source: zihangdai/xlnet@bbaa3a6 modeling.py, transformer_xl and summarize_sequence.
    """

    # In the release, only pre-training has the one, and only heads for rows the other.
    optional_parts = ("transformer/mask_emb/", "sequnece_summary/")

    def __init__(self, config: XlnetConfig, *, seed: int = 0, dtype: str = "float32"):
        super().__init__(name=config.scope, dtype=dtype)
        self.config = config
        initializers = layers.weight_initializers(
            config.initializer_range, f"encoder {seed}", config.truncated_weights
        )
        self.embeddings = _Embeddings(config, initializers, dtype)
        self._of_mask = layers.glorot_uniform(initializers)
        self._of_biases = [next(initializers) for _ in range(4)]
        self._biases = _Biases(config)
        self.transformer_layers = [
            _Layer(config, initializers, index, self._biases, dtype)
            for index in range(config.num_hidden_layers)
        ]
        self.summary = layers.Dense(
            config.hidden_size, next(initializers), dtype, ops.tanh, name="summary"
        )
        self.build()

    def build(self, input_shape=None):
        config = self.config
        shape = (None, None, config.hidden_size)
        with keras.name_scope("transformer"):
            self.embeddings.build()
            with keras.name_scope("mask_emb"):
                self.mask_embedding = keras.Variable(
                    self._of_mask, (1, 1, config.hidden_size), name="mask_emb"
                )
            for (name, size), draw in zip(
                _Biases.shapes(config).items(), self._of_biases, strict=True
            ):
                # Not add_weight, whose names have no scope but the layer's own.
                setattr(self, name, keras.Variable(draw, size, name=name))
                setattr(self._biases, name, getattr(self, name))
            for layer in self.transformer_layers:
                layer.build(shape)
        with keras.name_scope("sequnece_summary"):
            self.summary.build(shape)
        self.built = True

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def word_embeddings(self):
        """The table [vocab_size, h]."""
        return self.embeddings.table

    @property
    def stages(self):
        above = [layer.weights for layer in (*self.transformer_layers, self.summary)]
        known = {v.path for weights in above for v in weights}
        return [[v for v in self.weights if v.path not in known], *above]

    def pool(self, outputs, input_mask=None):
        return self._summary(outputs["sequence_output"], input_mask)

    def _summary(self, hidden, input_mask):
        if self.config.row_pooling == "first":
            return self.summary(hidden[:, 0])
        if self.config.row_pooling == "last":
            return self.summary(layers.last_token(hidden, input_mask))
        return self.summary(layers.mean_of_tokens(hidden, input_mask))

    def call(
        self,
        inputs,
        dropouts=layers.no_dropout,
        return_all=False,
        mem_len=0,
        reuse_len=0,
    ):
        """See `Encoder.call`.

        Args:
            inputs: may also have
                hidden_pairs, int [b, s (from), s (to)], 1 where a position does not see
                another; each always sees itself in the content stream;
                input_q, [b, s], 1 for tokens that the query stream hides;
                target_mapping, [b, t, s], one-hot rows: the positions of the queries, by
                default all; a row of zeros is no query, and its output has no meaning;
                is_backward, int [b], 1 for rows whose text is in reverse order;
                memory, [b, layers, m, h], the inputs of all layers for what precedes the
                rows, which every position sees.
            mem_len: how many positions of memory to return.
            reuse_len: how many positions of a row enter it, from the first; 0 means all.
        Returns:
            also query_output [b, t or s, h] if there is input_q, and, if mem_len is not 0,
            memory [b, layers, mem_len or fewer, h] without a gradient.
        """
        memory, mapping = inputs.get("memory"), inputs.get("target_mapping")
        rate = self.config.hidden_dropout_prob
        content = self.embeddings(inputs["input_ids"])
        length = ops.shape(content)[1]
        older = 0 if memory is None else memory.shape[2]
        hidden = dropouts(content, rate)
        outputs = {"embedding_output": hidden, "layer_outputs": []}
        if "input_q" in inputs:
            queries = self._queries(content, inputs["input_q"], mapping)
            # Both streams in one tensor, as they pass the same weights.
            hidden = ops.concatenate([hidden, dropouts(queries, rate)], axis=1)
        unseen = _unseen(inputs.get("input_mask"), inputs.get("hidden_pairs"))
        around = _Around(
            length=length,
            has_queries="input_q" in inputs,
            positions=dropouts(self._positions(length + older, length), rate),
            is_backward=inputs.get("is_backward"),
            differs=_differs(inputs.get("segment_ids"), older),
            unseen_by_content=_with_memory(_but_itself(unseen, length), older),
            unseen_by_queries=_with_memory(unseen, older),
            target_mapping=mapping,
        )
        kept = []
        for number, layer in enumerate(self.transformer_layers):
            past = None if memory is None else memory[:, number]
            if mem_len:
                added = hidden[:, : reuse_len or length]
                kept.append(_remembered(past, added, mem_len))
            of_layer = dataclasses.replace(around, past=past)
            hidden = layers.apply_layer(layer, hidden, dropouts, around=of_layer)
            outputs["layer_outputs"].append(hidden[:, :length])
        if not return_all:
            outputs = {}
        hidden = dropouts(hidden, rate)
        outputs["sequence_output"] = content = hidden[:, :length]
        outputs["pooled_output"] = self._summary(content, inputs.get("input_mask"))
        if "input_q" in inputs:
            outputs["query_output"] = hidden[:, length:]
        if kept:
            outputs["memory"] = ops.stack(kept, axis=1)
        return outputs

    def attention_scores(self, number, layer_input):
        """Those of words and positions; segments are not known here."""
        length = ops.shape(layer_input)[1]
        attention = self.transformer_layers[number].attention
        query, key = attention.query(layer_input), attention.key(layer_input)
        relative = attention.relative(self._positions(length, length)[None])
        return attention.scores(query, key, relative, None, None)

    def _queries(self, content, input_q, mapping):
        """[b, t or s, h]: what the query stream begins with."""
        if mapping is not None:
            shape = (*ops.shape(mapping)[:2], self.config.hidden_size)
            return ops.broadcast_to(self.mask_embedding, shape)
        hides = ops.cast(input_q, content.dtype)[..., None]
        return hides * self.mask_embedding + (1.0 - hides) * content

    def _positions(self, keys, length):
        """[r, h]: sines and cosines of the distances keys, ..., 1 - length."""
        config = self.config
        places = ops.cast(ops.arange(keys, -length, -1), "float32")
        if config.clamp_len:
            places = ops.clip(places, -config.clamp_len, config.clamp_len)
        steps = np.arange(0, config.hidden_size, 2, dtype=np.float32)
        inverse = (1.0 / 10000.0 ** (steps / config.hidden_size)).astype(np.float32)
        angles = places[:, None] * inverse[None]
        both = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
        return ops.cast(both, self.compute_dtype)


def _differs(segment_ids, older):
    """int [b, 1, s, k]: 1 where a key is of another segment; memory is of segment 0."""
    if segment_ids is None:
        return None
    keys = ops.pad(segment_ids, ((0, 0), (older, 0)))
    differs = ops.not_equal(segment_ids[:, :, None], keys[:, None, :])
    return ops.cast(differs, "int32")[:, None]


def _remembered(past, added, mem_len):
    """The last `mem_len` of what was remembered and what a row adds; fewer, if short."""
    if past is not None:
        added = ops.concatenate([ops.cast(past, added.dtype), added], axis=1)
    return ops.stop_gradient(added[:, -mem_len:])


def _unseen(input_mask, hidden_pairs):
    """int [b, 1, 1 or s (from), s (to)]: 1 where a key is not seen; None if all are."""
    unseen = None
    if input_mask is not None:
        unseen = 1 - ops.cast(input_mask, "int32")[:, None, :]
    if hidden_pairs is not None:
        pairs = ops.cast(hidden_pairs, "int32")
        unseen = pairs if unseen is None else ops.maximum(unseen, pairs)
    return None if unseen is None else unseen[:, None]


def _but_itself(unseen, length):
    """The same, but every position sees itself."""
    if unseen is None:
        return None
    places = ops.arange(length)
    others = ops.not_equal(places[:, None], places[None, :])
    return unseen * ops.cast(others, "int32")[None, None]


def _with_memory(unseen, older):
    """int [b, 1, 1 or s, k]: no memory is hidden."""
    if unseen is None:
        return None
    return ops.pad(unseen, ((0, 0), (0, 0), (0, 0), (older, 0)))


@dataclasses.dataclass(frozen=True)
class _Around:
    """What a layer reads besides the two streams; see `XlnetEncoder.call`.

    Attributes:
        length: s, of the content stream, which precedes the queries.
        positions: [r, h].
        past: [b, m, h], the layer's part of the memory.
        differs, unseen_by_content, unseen_by_queries: int [b, 1, s, k] or None.
    """

    length: object
    has_queries: bool
    positions: object
    is_backward: object
    differs: object
    unseen_by_content: object
    unseen_by_queries: object
    target_mapping: object
    past: object = None


class _Biases:
    """What all layers add to their queries, and the vectors of segments.

    Not a Keras layer, so that the variables, which lie above the layers, are not counted
    as those of each.
    """

    def __init__(self, config):
        self._untied = config.untie_r

    @staticmethod
    def shapes(config) -> dict[str, tuple[int, ...]]:
        number, head = (
            config.num_hidden_layers,
            (config.num_attention_heads, config.head_size),
        )
        each = (number, *head) if config.untie_r else head
        names = dict.fromkeys(("r_w_bias", "r_r_bias", "r_s_bias"), each)
        return names | {"seg_embed": (number, 2, *head)}

    def of_queries(self, name, number, dtype):
        """[n, d] of a layer."""
        value = ops.cast(getattr(self, name), dtype)
        return value[number] if self._untied else value

    def of_segments(self, number, dtype):
        """[2, n, d] of a layer: the same segment, another one."""
        return ops.cast(self.seg_embed, dtype)[number]


class _Embeddings(keras.layers.Layer):
    """Token ids [b, s] -> their vectors [b, s, h]."""

    def __init__(self, config, initializers, dtype):
        # In float32; see `bert.Embeddings`.
        super().__init__(name="word_embedding", dtype=dtype, autocast=False)
        self.config = config
        self.initializer = next(initializers)

    def build(self, input_shape=None):
        shape = (self.config.vocab_size, self.config.hidden_size)
        self.table = self.add_weight(shape, self.initializer, name="lookup_table")
        self.built = True

    def call(self, input_ids):
        return ops.cast(layers.look_up(self.table, input_ids), self.compute_dtype)


class _Layer(keras.layers.Layer):
    """[b, s + t, h] -> the same: attention, then a position-wise network.

    The first s vectors of a row are the content stream, the others queries.
    """

    def __init__(self, config, initializers, index, biases, dtype):
        super().__init__(name=f"layer_{index}", dtype=dtype)
        self.attention = _Attention(config, initializers, index, biases, dtype)
        self.feed_forward = _FeedForward(config, initializers, dtype)

    def build(self, input_shape):
        self.attention.build(input_shape)
        self.feed_forward.build(input_shape)
        self.built = True

    def call(self, hidden, around=None, dropouts=layers.no_dropout):
        hidden = self.attention(hidden, around=around, dropouts=dropouts)
        return self.feed_forward(hidden, dropouts=dropouts)


class _Projection(keras.layers.Layer):
    """[..., h] -> [..., n, d], without a bias."""

    def __init__(self, config, initializers, dtype, name):
        super().__init__(name=name, dtype=dtype)
        self.shape = (
            config.hidden_size,
            config.num_attention_heads,
            config.head_size,
        )
        self.initializer = next(initializers)

    def build(self, input_shape=None):
        self.kernel = self.add_weight(self.shape, self.initializer, name="kernel")
        self.built = True

    @property
    def matrix(self):
        """[h, n * d]"""
        return ops.reshape(self.kernel, (self.shape[0], -1))

    def call(self, x):
        product = ops.matmul(x, self.matrix)
        return ops.reshape(product, (*ops.shape(x)[:-1], *self.shape[1:]))


class _Output(_Projection):
    """[..., n * d] -> [..., h]"""

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.matrix))


class _Attention(keras.layers.Layer):
    """[b, s + t, h] -> the same: what each position reads from the content stream."""

    def __init__(self, config, initializers, index, biases, dtype):
        super().__init__(name="rel_attn", dtype=dtype)
        self.config, self.index, self.biases = config, index, biases
        self.query, self.key, self.value, self.relative = (
            _Projection(config, initializers, dtype, name) for name in "qkvr"
        )
        self.output_layer = _Output(config, initializers, dtype, "o")
        self.norm = layers.LayerNorm(config.layer_norm_eps, dtype)

    def build(self, input_shape):
        for layer in (self.query, self.key, self.value, self.relative):
            layer.build(input_shape)
        self.output_layer.build()
        self.norm.build(input_shape)
        self.built = True

    def call(self, hidden, around=None, dropouts=layers.no_dropout):
        length, past = around.length, around.past
        keys = content = hidden[:, :length]
        if past is not None:
            keys = ops.concatenate([ops.cast(past, content.dtype), content], axis=1)
        key, value = self.key(keys), self.value(keys)
        relative = self.relative(_directed(around.positions, around.is_backward))
        query = self.query(hidden)

        def attend(query, unseen):
            scores = self.scores(query, key, relative, around.differs, unseen)
            probs = ops.cast(ops.softmax(scores), value.dtype)
            probs = dropouts(probs, self.config.attention_probs_dropout_prob)
            context = ops.matmul(probs, ops.transpose(value, (0, 2, 1, 3)))
            return _merged(context)

        context = attend(query[:, :length], around.unseen_by_content)
        if around.has_queries:
            query, mapping = query[:, length:], around.target_mapping
            if mapping is None:
                read = attend(query, around.unseen_by_queries)
            else:
                mapping = ops.cast(mapping, query.dtype)
                query = ops.reshape(query, (*ops.shape(query)[:2], -1))
                placed = ops.matmul(ops.transpose(mapping, (0, 2, 1)), query)
                placed = ops.reshape(placed, (*ops.shape(placed)[:2], *value.shape[2:]))
                read = attend(placed, around.unseen_by_queries)
                read = ops.matmul(mapping, read)
            context = ops.concatenate([context, read], axis=1)
        rate = self.config.hidden_dropout_prob
        product = self.output_layer(context)
        return self.norm(_drop_and_add(product, hidden, rate, *dropouts.key(rate)))

    def scores(self, query, key, relative, differs, unseen):
        """What queries [b, s, n, d] and keys [b, k, n, d] give: float32 [b, n, s, k].

        Args:
            relative: [1 or b, r, n, d], of all distances.
            differs, unseen: int [b, 1, s, k], or None.
        """
        add = self.biases.of_queries
        scale, dtype = self.config.head_size**-0.5, query.dtype

        def heads(name):
            biased = (query + add(name, self.index, dtype)) * scale
            return ops.transpose(biased, (0, 2, 1, 3))

        of_words = ops.matmul(heads("r_w_bias"), ops.transpose(key, (0, 2, 3, 1)))
        of_places = ops.matmul(heads("r_r_bias"), ops.transpose(relative, (0, 2, 3, 1)))
        of_segments = None
        if differs is not None:
            segments = self.biases.of_segments(self.index, dtype)
            segments = ops.transpose(segments, (1, 2, 0))[None]
            of_segments = ops.matmul(heads("r_s_bias"), segments)  # [b, n, s, 2]
        return _sum_of_scores(of_words, of_places, of_segments, differs, unseen)


def _directed(positions, is_backward):
    """[r, h] -> [1 or b, r, h]: a text in reverse order has the opposite distances."""
    if is_backward is None:
        return positions[None]
    sines, cosines = ops.split(positions, 2, axis=-1)
    backward = ops.concatenate([-sines, cosines], axis=-1)
    is_backward = ops.cast(is_backward, "bool")[:, None, None]
    return ops.where(is_backward, backward[None], positions[None])


def _merged(context):
    """[b, n, s, d] -> [b, s, n * d]"""
    context = ops.transpose(context, (0, 2, 1, 3))
    return ops.reshape(context, (*ops.shape(context)[:2], -1))


@fusion.fused
def _drop_and_add(x, residual, rate, *key):
    return layers.dropped(x, rate, *key) + residual


@fusion.fused
def _sum_of_scores(of_words, of_places, of_segments, differs, unseen):
    length, keys = ops.shape(of_words)[2:]
    total = ops.cast(of_words, "float32")
    total += ops.cast(_shifted(of_places, length, keys), "float32")
    if differs is not None:
        same, other = ops.split(ops.cast(of_segments, "float32"), 2, axis=-1)
        total += ops.where(differs > 0, other, same)
    if unseen is not None:
        total += _UNSEEN_SCORE * ops.cast(unseen, "float32")
    return total


def _shifted(x, length, keys):
    """Of [b, n, s, r], moves row i to the left by s - i, and keeps k columns.

    The places of a row are then those of keys, not of distances. Reading the numbers of
    all rows in a line, with the first s left out, moves each row one further than the
    row above.
    """
    batch, heads = ops.shape(x)[:2]
    x = ops.reshape(x, (batch, heads, length * (keys + length)))[:, :, length:]
    return ops.reshape(x, (batch, heads, length, keys + length - 1))[..., :keys]


class _FeedForward(keras.layers.Layer):
    """[b, s + t, h] -> the same, each position on its own."""

    def __init__(self, config, initializers, dtype):
        super().__init__(name="ff", dtype=dtype)
        self.rate = config.hidden_dropout_prob
        activation = layers.activation(config.hidden_act)
        self.inner = layers.Dense(
            *(config.intermediate_size, next(initializers), dtype, activation),
            name="layer_1",
        )
        self.outer = layers.Dense(
            config.hidden_size, next(initializers), dtype, name="layer_2"
        )
        self.norm = layers.LayerNorm(config.layer_norm_eps, dtype)

    def build(self, input_shape):
        self.inner.build(input_shape)
        self.outer.build((*input_shape[:-1], self.inner.units))
        self.norm.build(input_shape)
        self.built = True

    def call(self, hidden, dropouts=layers.no_dropout):
        inner = dropouts(self.inner(hidden), self.rate)
        return self.norm(self.outer.added_to(hidden, inner, dropouts, self.rate))
