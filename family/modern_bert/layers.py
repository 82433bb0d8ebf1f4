"""The layers of a ModernBERT.

Axes: b batch, s seq_length, h hidden_size, n num_heads, d head_size, i intermediate_size;
c blocks of a row, w the width of one.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from family.modern_bert.config import ModernBertConfig
from modeling import attention, block_attention, fusion, layers

# Added to the scores of padding. Finite, so that a row of only padding attends evenly
# instead of becoming NaN.
_OF_PADDING = -1e9
# What is out of a layer's sight is below even that, so that a position that sees padding
# alone gets the same in blocks as in a whole row.
_OUT_OF_SIGHT = -2e9


class CutNormal(keras.initializers.Initializer):
    """Draws from a normal distribution that ends at some deviations.

    Args:
        deviation: before it is cut off.
        cutoff: how many of them are kept on each side.
        seed: of the draw.
    """

    def __init__(self, deviation: float, cutoff: float, seed: int):
        self.deviation, self.cutoff, self.seed = deviation, cutoff, seed

    def __call__(self, shape, dtype=None):
        most = math.erf(self.cutoff / math.sqrt(2.0))
        drawn = keras.random.uniform(shape, -most, most, "float32", seed=self.seed)
        scaled = (self.deviation * math.sqrt(2.0)) * ops.erfinv(drawn)
        return ops.cast(scaled, dtype or "float32")

    def get_config(self):
        return {"deviation": self.deviation, "cutoff": self.cutoff, "seed": self.seed}


class Sight(NamedTuple):
    """Where layers of one kind look.

    Attributes:
        cos, sin: float32 [s, d] or [b, 1, s, d], by which the positions turn.
        penalty: float32 to add to scores, [b or 1, 1, 1 or s (from), s (to)] or, to compare
            blocks, [b or 1, 1, c, w (from), 3 w (to)]; None if everything is seen.
        whole: in place of it in long rows, where everything of a document is seen.
    """

    cos: object
    sin: object
    penalty: object = None
    whole: block_attention.Seen | None = None

    @property
    def block(self) -> int | None:
        """w; None to compare all positions."""
        is_in_blocks = self.penalty is not None and len(self.penalty.shape) == 5
        return self.penalty.shape[3] if is_in_blocks else None


def sights(config: ModernBertConfig, tokens, inputs):
    """The `Sight` of global layers, and that of local ones.

    Args:
        tokens: [b, s, ...].
        inputs: see `Encoder.call`; input_ids are not read.
    """
    input_mask, documents = inputs.get("input_mask"), attention.documents(inputs)
    places = inputs.get("position_ids")
    if places is None:
        places = ops.arange(ops.shape(tokens)[1])
    turns = _turns(config, config.global_rope_theta, places)
    if block_attention.is_long(tokens.shape[1]):
        seen = block_attention.Seen.of(tokens, input_mask, documents)
        everything = Sight(*turns, whole=seen)
    else:
        everything = Sight(*turns, _penalty(_same(documents), input_mask))
    turns = _turns(config, config.local_rope_theta, places)
    if config.is_in_blocks(tokens.shape[1]):
        if input_mask is None:
            input_mask = ops.ones((1, ops.shape(tokens)[1]), "int32")
        penalty = _penalty_in_blocks(config.reach, input_mask, documents)
        return everything, Sight(*turns, penalty)
    places = ops.arange(ops.shape(tokens)[1])
    is_near = ops.abs(places[:, None] - places[None, :]) <= config.reach
    is_near = is_near[None, None]
    if documents is not None:
        is_near = ops.logical_and(is_near, _same(documents))
    return everything, Sight(*turns, _penalty(is_near, input_mask))


def _same(documents):
    """bool [b, 1, s (from), s (to)]: which positions are in one document; or None."""
    if documents is None:
        return None
    return documents[:, None, :, None] == documents[:, None, None, :]


def _penalty(is_near, input_mask):
    """float32 to add to scores; None if everything is seen.

    Args:
        is_near: bool [b or 1, 1, s (from), s (to)], what is in sight; None: everything.
        input_mask: int [b, s], 0 for padding; or None.
    """
    of_padding = None
    if input_mask is not None:
        of_padding = _of_padding(input_mask)[:, None, None, :]
    return of_padding if is_near is None else _in_sight(is_near, of_padding)


def _of_padding(input_mask):
    return _OF_PADDING * (1.0 - ops.cast(input_mask, "float32"))


def _in_sight(is_near, of_padding):
    return ops.where(is_near, 0.0 if of_padding is None else of_padding, _OUT_OF_SIGHT)


def _turns(config, base, places):
    """The cosines and sines of the angles of each position, float32.

    Args:
        places: int [s] or [b, s].
    Returns:
        two tensors, [s, d] or [b, 1, s, d].
    """
    exponents = np.arange(0, config.head_size, 2, dtype=np.float32) / config.head_size
    frequencies = np.float32(1.0) / np.power(np.float32(base), exponents)
    angles = ops.cast(places, "float32")[..., None] * frequencies
    angles = ops.concatenate([angles, angles], axis=-1)
    if len(places.shape) == 2:
        angles = angles[:, None]
    return ops.cos(angles), ops.sin(angles)


# --- Blocks --------------------------------------------------------------------------


def _in_blocks(x, block):
    """[b, n, s, d] -> [b, n, c, w, d]; zeros fill the last one."""
    rows, heads, length, width = ops.shape(x)
    missing = -length % block
    filler = ops.zeros((rows, heads, missing, width), x.dtype)
    blocks = (length + missing) // block
    x = ops.concatenate([x, filler], axis=2)
    return ops.reshape(x, (rows, heads, blocks, block, width))


def _with_neighbours(x):
    """[b, n, c, w, d] -> [b, n, c, 3 w, d]: the block before, itself, the next one."""
    none = ops.zeros_like(x[:, :, :1])
    before = ops.concatenate([none, x[:, :, :-1]], axis=2)
    after = ops.concatenate([x[:, :, 1:], none], axis=2)
    return ops.concatenate([before, x, after], axis=3)


# Compiled for its gradient: that of each slice would be a whole tensor, most of it zeros.
@fusion.fuse
def _near_blocks(x, block):
    """[b, n, s, d] -> [b, n, c, 3 w, d]"""
    return _with_neighbours(_in_blocks(x, block))


def _penalty_in_blocks(reach, input_mask, documents):
    """float32 [b, 1, c, w, 3 w], for blocks as wide as the reach."""
    block = max(reach, 1)

    def in_blocks(x):
        return _in_blocks(x[:, None, :, None], block)

    def neighbours(x):
        return ops.transpose(_with_neighbours(in_blocks(x)), (0, 1, 2, 4, 3))

    is_near = neighbours(ops.ones_like(input_mask, "float32"))
    distances = np.arange(3 * block)[None] - np.arange(block, 2 * block)[:, None]
    is_near = is_near * (np.abs(distances) <= reach).astype(np.float32) > 0
    if documents is not None:
        is_same = in_blocks(documents) == neighbours(documents)
        is_near = ops.logical_and(is_near, is_same)
    return _in_sight(is_near, neighbours(_of_padding(input_mask)))


# --- Layers --------------------------------------------------------------------------


class ModernBertLayer(keras.layers.Layer):
    """[b, s, h] -> [b, s, h]: attention, then a gated network; each adds to its input.

    Args:
        config: a ModernBertConfig.
        draw: makes the initializer for a deviation.
        index: of the layer, from 0; the first one's attention reads embeddings, which are
            normalized already.
    """

    def __init__(
        self, config: ModernBertConfig, draw: Callable, dtype: str, index: int
    ):
        super().__init__(name=f"layer_{index}", dtype=dtype, autocast=False)
        self.config, self.index = config, index
        width, inner = config.hidden_size, config.intermediate_size

        def dense(units, deviation, name, use_bias):
            return layers.Dense(
                units, draw(deviation), dtype, name=name, use_bias=use_bias
            )

        into, out = config.weights_range, config.output_range
        self.attention_norm = norm(config, dtype) if index else None
        self.attention_in = dense(3 * width, into, "Wqkv", config.attention_bias)
        self.attention_out = dense(width, out, "Wo", config.attention_bias)
        self.mlp_norm = norm(config, dtype)
        self.mlp_in = dense(2 * inner, into, "Wi", config.mlp_bias)
        self.mlp_out = dense(width, out, "Wo", config.mlp_bias)

    def build(self, input_shape=None):
        shape = (None, None, self.config.hidden_size)
        with keras.name_scope("attention"):
            if self.attention_norm:
                self.attention_norm.build(shape)
            self.attention_in.build(shape)
            self.attention_out.build(shape)
        with keras.name_scope("mlp"):
            self.mlp_norm.build(shape)
            self.mlp_in.build(shape)
            self.mlp_out.build((None, None, self.config.intermediate_size))
        self.built = True

    def call(self, hidden, sight: Sight = None, dropouts=layers.no_dropout):
        context = self._read(hidden, sight, dropouts)
        rate = self.config.attention_dropout_prob
        hidden = self.attention_out.add_to(hidden, context, dropouts, rate)
        product = self.mlp_in.product(self.mlp_norm(hidden))
        activation = layers.activation(self.config.hidden_act)

        def gate(product, *bias):
            return _gate(product, *(bias or (None,)), activation)

        bias = self.mlp_in.bias
        bias = () if bias is None else (ops.copy(bias),)
        gated = fusion.recompute(gate, product, *bias)
        gated = dropouts(gated, self.config.hidden_dropout_prob)
        return self.mlp_out.add_to(hidden, gated, layers.no_dropout, 0.0)

    def scores(self, hidden, sight: Sight):
        """[b, s, h] -> [b, n, s (from), s (to)], before anything is unseen."""
        query, key, _ = self._heads(hidden, sight)
        return ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))

    def _heads(self, hidden, sight):
        """Queries, keys and values, each [b, n, s, d]; the first two turned."""
        normal = self.attention_norm(hidden) if self.attention_norm else hidden
        product = self.attention_in.product(normal)
        number = self.config.num_attention_heads
        return _heads(product, self.attention_in.bias, sight.cos, sight.sin, number)

    def _read(self, hidden, sight, dropouts):
        """[b, s, h]: what each position reads from those that it sees."""
        rate = self.config.attention_dropout_prob
        words, penalty, block = dropouts.key(rate), sight.penalty, sight.block
        heads = self._heads(hidden, sight)

        def of_heads(query, key, value):
            length = ops.shape(query)[2]
            if block:
                query = _in_blocks(query, block)
                key, value = _near_blocks(key, block), _near_blocks(value, block)
            scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
            # Not fused: a CPU's own softmax is faster than what a compiler makes of it.
            probs = ops.softmax(_seen_scores(scores, penalty))
            probs = layers.fused_dropout(ops.cast(probs, value.dtype), rate, *words)
            context = ops.matmul(probs, value)
            if not block:
                return context
            flat = (*ops.shape(context)[:2], -1, context.shape[-1])
            context = ops.reshape(context, flat)
            return context if context.shape[2] == length else context[:, :, :length]

        if sight.whole is None:
            context = attention.of_pairs(of_heads, *heads)
        else:
            context = block_attention.attend(
                *heads, sight.whole, rate=rate, words=words
            )
        return ops.reshape(ops.transpose(context, (0, 2, 1, 3)), ops.shape(hidden))


@fusion.fuse
def _heads(x, bias, cos, sin, num_heads):
    """[b, s, 3 h] -> queries, keys and values, each [b, n, s, d].

    One function, so that its gradient joins theirs in one pass.
    """
    x = layers.add_bias(x, bias)
    size = x.shape[2] // (3 * num_heads)
    x = ops.reshape(x, (*ops.shape(x)[:2], 3, num_heads, size))
    query, key, value = ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)))
    return _turn(query, cos, sin, size**-0.5), _turn(key, cos, sin, 1.0), value


def _turn(x, cos, sin, scale):
    """[b, n, s, d], turned by the angles of its positions, times a factor."""
    cos, sin = ops.stop_gradient(cos), ops.stop_gradient(sin)
    wide = ops.cast(x, "float32")
    first, second = ops.split(wide, 2, axis=-1)
    turned = wide * cos + ops.concatenate([-second, first], axis=-1) * sin
    return ops.cast(turned * scale, x.dtype)


@fusion.fuse
def _seen_scores(scores, penalty):
    wide = ops.cast(scores, "float32")
    return wide if penalty is None else wide + ops.stop_gradient(penalty)


@fusion.fuse
def _gate(x, bias, activation):
    """[b, s, 2 i] -> [b, s, i]: the activation of one half, times the other."""
    inner, gate = ops.split(layers.add_bias(x, bias), 2, axis=-1)
    return activation(inner) * gate


def norm(config: ModernBertConfig, dtype: str) -> layers.LayerNorm:
    """Layer normalization, mostly without a beta."""
    return layers.LayerNorm(config.layer_norm_eps, dtype, center=config.norm_bias)


class PredictionHead(keras.layers.Layer):
    """[..., h] -> [..., h]: what all heads do before their last layer."""

    def __init__(self, config: ModernBertConfig, draw: Callable, dtype: str):
        super().__init__(name="head", dtype=dtype)
        self.width = config.hidden_size
        self.dense = layers.Dense(
            self.width,
            draw(config.output_range),
            dtype,
            layers.activation(config.head_act),
            use_bias=config.classifier_bias,
        )
        self.norm = norm(config, dtype)

    def build(self, input_shape=None):
        self.dense.build((None, self.width))
        self.norm.build((None, self.width))
        self.built = True

    def call(self, x):
        return self.norm(self.dense(x))
