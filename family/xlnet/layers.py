"""The layers of XLNet's encoder: attention to relative positions, in two streams.

Axes: as in xlnet.py.
"""

import dataclasses
import math

import keras
from keras import ops

from modeling import fusion, layers

# Added to the attention scores of what a position does not see, as in the release: so
# large that a row without a single visible key attends evenly.
_UNSEEN_SCORE = -1e30


@dataclasses.dataclass(frozen=True)
class Around:
    """What a layer reads besides the two streams; see `XlnetEncoder.encode`.

    Attributes:
        length: s, of the content stream, which precedes the queries.
        positions: [r, h].
        past: [b, m, h], the layer's part of the memory.
        differs, unseen_by_content, unseen_by_queries: int [b, 1, s, k] or None.
    """

    length: object
    has_queries: bool
    positions: object
    differs: object
    unseen_by_content: object
    unseen_by_queries: object
    target_mapping: object
    past: object = None


class Biases:
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


class Layer(keras.layers.Layer):
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


class _Projection(layers.Dense):
    """[..., h] -> [..., n, d], without a bias."""

    def __init__(self, config, initializers, dtype, name):
        heads = config.num_attention_heads, config.head_size
        super().__init__(
            math.prod(heads), next(initializers), dtype, name=name, use_bias=False
        )
        self.heads = heads

    def kernel_shape(self, num_inputs):
        return (num_inputs, *self.heads)

    def call(self, x):
        return ops.reshape(self.product(x), (*ops.shape(x)[:-1], *self.heads))


class _XlnetOutput(layers.Dense):
    """[..., n * d] -> [..., h], without a bias; the kernel is stored as [h, n, d]."""

    def __init__(self, config, initializers, dtype):
        super().__init__(
            config.hidden_size, next(initializers), dtype, name="o", use_bias=False
        )
        self.heads = config.num_attention_heads, config.head_size

    def kernel_shape(self, num_inputs):
        return (self.units, *self.heads)

    def adapt(self, rank, alpha, seed):
        """Like that of `layers.Dense`, but b is what inputs meet first."""
        draw = layers.linear_uniform("fan_out", seed)
        self.enable_lora(rank, alpha, a_initializer="zeros", b_initializer=draw)

    def times(self, x, a, *b):
        """x times the transpose of a product of matrices."""
        for factor in (*reversed(b), a):
            x = ops.matmul(x, ops.transpose(ops.cast(factor, x.dtype)))
        return x


class _Attention(keras.layers.Layer):
    """[b, s + t, h] -> the same: what each position reads from the content stream."""

    def __init__(self, config, initializers, index, biases, dtype):
        super().__init__(name="rel_attn", dtype=dtype)
        self.config, self.index, self.biases = config, index, biases
        self.query, self.key, self.value, self.relative = (
            _Projection(config, initializers, dtype, name) for name in "qkvr"
        )
        self.output_layer = _XlnetOutput(config, initializers, dtype)
        self.norm = layers.LayerNorm(config.layer_norm_eps, dtype)

    def build(self, input_shape):
        for layer in (self.query, self.key, self.value, self.relative):
            layer.build(input_shape)
        self.output_layer.build((None, self.query.units))
        self.norm.build(input_shape)
        self.built = True

    def call(self, hidden, around=None, dropouts=layers.no_dropout):
        length, past = around.length, around.past
        keys = content = hidden[:, :length]
        if past is not None:
            keys = ops.concatenate([ops.cast(past, content.dtype), content], axis=1)
        key, value = self.key(keys), self.value(keys)
        relative = self.relative(around.positions[None])
        query = self.query(hidden)

        def attend(query, unseen):
            scores = self.scores(query, key, relative, around.differs, unseen)
            probs = ops.cast(ops.softmax(scores), value.dtype)
            probs = dropouts(probs, self.config.attention_probs_dropout_prob)
            context = ops.matmul(probs, ops.transpose(value, (0, 2, 1, 3)))
            return _merge_heads(context)

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
        return self.norm(self.output_layer.add_to(hidden, context, dropouts, rate))

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


def _merge_heads(context):
    """[b, n, s, d] -> [b, s, n * d]"""
    context = ops.transpose(context, (0, 2, 1, 3))
    return ops.reshape(context, (*ops.shape(context)[:2], -1))


@fusion.fuse
def _sum_of_scores(of_words, of_places, of_segments, differs, unseen):
    length, keys = ops.shape(of_words)[2:]
    total = ops.cast(of_words, "float32")
    total += ops.cast(_shift(of_places, length, keys), "float32")
    if differs is not None:
        same, other = ops.split(ops.cast(of_segments, "float32"), 2, axis=-1)
        total += ops.where(differs > 0, other, same)
    if unseen is not None:
        total += _UNSEEN_SCORE * ops.cast(unseen, "float32")
    return total


def _shift(x, length, keys):
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
        return self.norm(self.outer.add_to(hidden, inner, dropouts, self.rate))
