"""The layers of T5's two stacks, with variables named as in its released checkpoints.

Axes: b batch, q queries, k keys, h hidden_size, n num_heads, d head_size.
"""

import keras
import numpy as np
from keras import ops

from family.t5.config import T5Config
from modeling import attention, custom_gradients, fusion, layers

# Added to the scores of what a position does not see.
_UNSEEN_SCORE = -1e9


def bucket(relative_positions, both_sides: bool, buckets: int, max_distance: int):
    """Numbers the distances that share an embedding: near ones alone, far ones together.

    Args:
        relative_positions: int array, of what is read minus that of what reads.
        both_sides: whether there are buckets for what follows, too; half of all.
        buckets, max_distance: see T5Config.
    Returns:
        int64 array.
    Source: tensorflow/mesh@da90793 mesh_tensorflow/transformer/transformer_layers.py,
        _relative_position_bucket.
    """
    positions = np.asarray(relative_positions, np.int64)
    first = np.zeros_like(positions)
    if both_sides:
        buckets //= 2
        first = np.where(positions > 0, buckets, 0)
        distance = np.abs(positions)
    else:
        distance = np.maximum(-positions, 0)
    exact = buckets // 2
    # In float64: in float32, the logarithm of a power of two may fall short of it.
    ratio = np.log(np.maximum(distance, 1) / exact) / np.log(max_distance / exact)
    far = exact + (np.maximum(ratio, 0.0) * (buckets - exact)).astype(np.int64)
    return first + np.where(distance < exact, distance, np.minimum(far, buckets - 1))


def unseen_scores(seen):
    """int tensor, 1 where a position is seen -> float32 to add to the scores."""
    return _UNSEEN_SCORE * (1.0 - ops.cast(seen, "float32"))


class RmsNorm(keras.layers.Layer):
    """Divides by the root of the mean square over the last axis; computes in float32."""

    def __init__(self, config: T5Config, dtype: str, name: str = "layer_norm"):
        super().__init__(name=name, dtype=dtype, autocast=False)
        self.width, self.epsilon = config.hidden_size, config.layer_norm_eps

    def build(self, input_shape=None):
        self.scale = self.add_weight(
            (self.width,), "ones", name="scale", autocast=False
        )
        self.built = True

    def call(self, x):
        @custom_gradients.with_gradient
        def normalize(x, scale):
            result, inverse = _normalize(x, scale, self.epsilon)

            def gradient(upstream):
                of_x, of_scale = _normalize_gradient(x, scale, inverse, upstream)
                return of_x, layers.sum_of_rows(of_scale)

            return result, gradient

        return normalize(x, ops.copy(self.scale))


@fusion.fuse
def _normalize(x, scale, epsilon):
    wide = ops.cast(x, "float32")
    inverse = ops.rsqrt(ops.mean(ops.square(wide), axis=-1, keepdims=True) + epsilon)
    return ops.cast(wide * inverse * scale, x.dtype), inverse


@fusion.fuse
def _normalize_gradient(x, scale, inverse, upstream):
    """By x; and by the scale, before the sum over all rows."""
    normal = ops.cast(x, "float32") * inverse
    upstream = ops.cast(upstream, "float32")
    of_normal = upstream * scale
    slope = ops.mean(of_normal * normal, axis=-1, keepdims=True)
    return ops.cast(inverse * (of_normal - normal * slope), x.dtype), upstream * normal


class Attention(keras.layers.Layer):
    """[b, q, h] -> [b, q, h]: what each position reads from keys and values.

    Scores are not divided by the root of head_size: the first weights of `q` are smaller.

    Args:
        config: a T5Config.
        initializers: their seeds are used.
        name: its scope.
        has_bias: whether it holds the biases of its stack, which depend on distance.
        both_sides: see `bucket`.
    """

    def __init__(
        self, config, initializers, dtype, *, name, has_bias=False, both_sides=True
    ):
        super().__init__(name=name, dtype=dtype, autocast=False)
        self.config = config
        self.num_heads = config.num_attention_heads
        width, inner = config.hidden_size, self.num_heads * config.attention_head_size
        # What the deviation is one divided by the root of, and the width of the outputs.
        sizes = {
            "q": (width * config.attention_head_size, inner),
            "k": (width, inner),
            "v": (width, inner),
            "o": (inner, width),
        }
        self.q, self.k, self.v, self.o = (
            dense(config, initializers, dtype, *size, name=name, names=(name,))
            for name, size in sizes.items()
        )
        self.bias = _Bias(config, initializers, both_sides) if has_bias else None

    def build(self, input_shape=None):
        width = self.config.hidden_size
        for layer in (self.q, self.k, self.v):
            layer.build((None, width))
        self.o.build((None, self.q.units))
        if self.bias:
            self.bias.build()
        self.built = True

    def keys_values(self, x):
        """[b, k, h] -> two tensors [b, n, k, d]."""
        return self._heads(x, self.k), self._heads(x, self.v)

    def scores(self, x):
        """[b, n, s, s], without a bias; of the positions of x for each other."""
        keys = ops.transpose(self._heads(x, self.k), (0, 1, 3, 2))
        return ops.matmul(self._heads(x, self.q), keys)

    def call(self, x, keys_values=None, biases=(), dropouts=layers.no_dropout):
        """Reads keys and values; by default, those of x itself.

        Args:
            x: [b, q, h].
            keys_values: what `keys_values` returned.
            biases: float32 tensors to add to the scores [b, n, q, k].
        """
        keys, values = self.keys_values(x) if keys_values is None else keys_values
        context = attention.attend(
            self._heads(x, self.q),
            ops.transpose(keys, (0, 1, 3, 2)),
            values,
            *biases,
            bias_scores=_biased_scores,
            rate=self.config.hidden_dropout_prob,
            dropouts=dropouts,
        )
        return self.o.product(context)

    def _heads(self, x, layer):
        split = (*ops.shape(x)[:2], self.num_heads, self.config.attention_head_size)
        return ops.transpose(ops.reshape(layer.product(x), split), (0, 2, 1, 3))


class _Bias(keras.layers.Layer):
    """What a stack adds to its scores, by distance.

    Args:
        config: a T5Config.
        initializers: their seeds are used.
        both_sides: see `bucket`.
    """

    def __init__(self, config, initializers, both_sides):
        super().__init__(name="relative_attention_bias", autocast=False)
        self.config, self.both_sides = config, both_sides
        self._initializer = _normal(config, initializers, config.hidden_size**-0.5)

    def build(self, input_shape=None):
        config = self.config
        shape = (config.num_attention_heads, config.relative_attention_num_buckets)
        with layers.scope_around(self):
            self.table = keras.Variable(
                self._initializer, shape, autocast=False, name=self.name
            )
        self.built = True

    def of_distances(self, queries, keys):
        """float32 [1, n, q, k]: what is added to the scores, by distance.

        Args:
            queries, keys: how many there are; the first of both are at the same place.
        """
        config = self.config
        most = config.relative_attention_max_distance
        table = bucket(
            np.arange(-most, most + 1),
            self.both_sides,
            config.relative_attention_num_buckets,
            most,
        )
        distances = ops.arange(1 - queries, keys + 1)  # one more than there are
        numbers = ops.take(
            ops.convert_to_tensor(table.astype(np.int32)),
            ops.clip(distances, -most, most) + most,
        )
        # Products and slices, because the gradient of a lookup would scatter.
        picks = ops.one_hot(numbers, config.relative_attention_num_buckets)
        by_distance = ops.matmul(ops.cast(self.table, "float32"), ops.transpose(picks))
        # In rows that are one shorter than what repeats, each begins one further left.
        width = queries + keys
        repeated = ops.tile(by_distance, (1, queries))[:, : queries * (width - 1)]
        rows = ops.reshape(repeated, (-1, queries, width - 1))
        return rows[None, :, :, queries - 1 :]


@fusion.fuse
def _biased_scores(scores, *biases):
    scores = ops.cast(scores, "float32")
    for bias in biases:
        scores += bias
    return scores


class FeedForward(keras.layers.Layer):
    """[b, q, h] -> [b, q, h]: each position for itself, gated in v1.1."""

    def __init__(self, config, initializers, dtype):
        super().__init__(name="DenseReluDense", dtype=dtype, autocast=False)
        self.rate = config.hidden_dropout_prob
        self.width, inner = config.hidden_size, config.intermediate_size
        activation = layers.activation(config.hidden_act)
        acts = (
            {"wi_0": activation, "wi_1": None}
            if config.is_gated
            else {"wi": activation}
        )
        self.inner = [
            dense(
                *(config, initializers, dtype, self.width, inner),
                name=name,
                activation=function,
            )
            for name, function in acts.items()
        ]
        self.outer = dense(config, initializers, dtype, inner, self.width, name="wo")

    def build(self, input_shape=None):
        for layer in self.inner:
            layer.build((None, self.width))
        self.outer.build((None, self.inner[0].units))
        self.built = True

    def call(self, x, dropouts=layers.no_dropout):
        inner, *gates = (layer(x) for layer in self.inner)
        for gate in gates:  # one in v1.1, else none
            inner = inner * gate
        return self.outer(dropouts(inner, self.rate))


def dense(config, initializers, dtype, fan, units, **own) -> layers.Dense:
    """[..., n] -> [..., units]: a product with a matrix, whose deviation is fan ** -0.5."""
    draw = _normal(config, initializers, fan**-0.5)
    return layers.Dense(units, draw, dtype, use_bias=False, **own)


class _Residual(keras.layers.Layer):
    """x + the dropout of what a layer makes of the norm of x."""

    def __init__(self, config, number, layer, dtype):
        super().__init__(name=f"layer_{number:03d}", dtype=dtype, autocast=False)
        self.rate = config.hidden_dropout_prob
        self.norm = RmsNorm(config, dtype)
        self.layer = layer

    def build(self, input_shape=None):
        self.norm.build()
        self.layer.build()
        self.built = True

    def call(self, x, dropouts=layers.no_dropout, normal=None, **inputs):
        normal = self.norm(x) if normal is None else normal
        return x + dropouts(self.layer(normal, dropouts=dropouts, **inputs), self.rate)


class Block(keras.layers.Layer):
    """A layer of the encoder or decoder.

    Args:
        config: a T5Config.
        initializers: their seeds are used.
        number: of the layer, from 0; the first holds the biases of all.
        reads_encoder: whether it is the decoder's.
    """

    def __init__(self, config, initializers, dtype, number, reads_encoder):
        super().__init__(name=f"block_{number:03d}", dtype=dtype, autocast=False)
        self.attention = Attention(
            config,
            initializers,
            dtype,
            name="SelfAttention",
            has_bias=number == 0,
            both_sides=not reads_encoder,
        )
        inner = [self.attention]
        if reads_encoder:
            inner.append(Attention(config, initializers, dtype, name="EncDecAttention"))
        inner.append(FeedForward(config, initializers, dtype))
        self.parts = [
            _Residual(config, number, layer, dtype)
            for number, layer in enumerate(inner)
        ]

    def build(self, input_shape=None):
        for part in self.parts:
            part.build()
        self.built = True

    def call(self, x, bias, encoded=None, unseen=None, dropouts=layers.no_dropout):
        """[b, q, h] -> [b, q, h].

        Args:
            bias: float32 [1, n, q, q], of the scores of its positions for each other.
            encoded: [b, k, h], for the decoder.
            unseen: float32 [b, 1, 1, k], to add to the scores for the encoder's positions.
        """
        masks = () if unseen is None else (unseen,)
        read, *others, transform = self.parts
        x = read(x, biases=(bias,) if others else (bias, *masks), dropouts=dropouts)
        for from_memory in others:
            memory = from_memory.layer.keys_values(encoded)
            x = from_memory(x, keys_values=memory, biases=masks, dropouts=dropouts)
        return transform(x, dropouts=dropouts)

    def step(self, x, place, cache, bias, memory, unseen=None):
        """Like `call`, for one position after others, without dropout.

        Args:
            x: [b, 1, h].
            place: bool [length], true at the position of x.
            cache: keys and values [b, n, length, d] of the positions before.
            bias: float32 [1, n, 1, length].
            memory: keys and values of what is encoded.
            unseen: as for `call`.
        Returns:
            [b, 1, h], and the cache with this position.
        """
        read, from_memory, transform = self.parts
        normal = read.norm(x)
        new = self.attention.keys_values(normal)
        cache = tuple(
            ops.where(place[None, None, :, None], one, other)
            for one, other in zip(new, cache, strict=True)
        )
        x = read(x, normal=normal, keys_values=cache, biases=(bias,))
        masks = () if unseen is None else (unseen,)
        x = from_memory(x, keys_values=memory, biases=masks)
        return transform(x), cache


def _normal(config, initializers, stddev):
    """Takes the seed of the `next` initializer."""
    return keras.initializers.RandomNormal(
        stddev=config.initializer_factor * stddev, seed=next(initializers).seed
    )
