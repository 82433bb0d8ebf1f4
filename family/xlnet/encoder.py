"""The encoder of XLNet: relative positions, two streams, and memory.

Axes: b batch, s seq_length, m memory, k = m + s keys, t targets, h hidden_size,
n num_heads, d head_size, r = k + s relative positions. The release puts the sequence first.
"""

import dataclasses
import math
import types

import keras
import numpy as np
from keras import ops

from family.xlnet import layers as xlnet_layers
from modeling import layers
from modeling.architectures.config import POOLINGS, EncoderConfig, MaskedLMNames
from modeling.architectures.encoder import Encoder

# Our field -> the key of the release's file.
_RELEASED = types.MappingProxyType(
    {
        "vocab_size": "n_token",
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "head_size": "d_head",
        "intermediate_size": "d_inner",
        "hidden_act": "ff_activation",
        "untie_r": "untie_r",
    }
)


@dataclasses.dataclass(frozen=True)
class XlnetConfig(EncoderConfig):
    """Sizes, rates and activation of one encoder; the keys of xlnet_config.json.

    Those are the eight keys of the release, all of which its files have. The other fields
    are flags of the release's scripts; a file of ours may have them as keys. It also names
    its architecture, which the release's reader ignores.

    `hidden_act` is "gelu" (the tanh form, as in the release), "gelu_erf" or "relu".

    `untie_r` gives each layer its own biases of queries; if false, all layers share one.

    `clamp_len` is the largest distance between two tokens that the network tells from
    smaller ones.

    `pooling` is what a head for whole rows reads: the "last" token, [CLS] in XLNet's rows,
    as in the release, the "first", or the "mean" of all.

    Hugging Face has one dropout for everything and, of the heads' biases, always one for
    each layer.

    Source: zihangdai/xlnet@bbaa3a6 xlnet.py, classes XLNetConfig and RunConfig;
    huggingface/transformers v5.23.0 models/xlnet/configuration_xlnet.py.
    """

    architecture = "xlnet"
    file_keys = _RELEASED
    choices = {"hidden_act": ("gelu", "gelu_erf", "relu"), "pooling": POOLINGS}
    own_keys = frozenset(
        {
            "hidden_dropout_prob",
            "attention_probs_dropout_prob",
            "initializer_range",
            "clamp_len",
            "pooling",
        }
    )
    keys_without_shape = ("hidden_act", "clamp_len")
    telling_keys = frozenset(_RELEASED.values())
    capabilities = frozenset({"query_stream"})
    masked_lm = MaskedLMNames("model/lm_loss", transform=None, bias="bias")
    low_rank_targets = ("q", "v")
    truncated_weights = False

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_size: int
    intermediate_size: int
    hidden_act: str
    untie_r: bool
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    clamp_len: int | None = None
    pooling: str = "last"

    def __post_init__(self):
        super().__post_init__()
        if self.hidden_size % 2:
            raise ValueError(
                f"d_model is {self.hidden_size}; it must be even, because positions have "
                "as many sines as cosines"
            )

    @property
    def scope(self) -> str:
        return "model"

    @property
    def max_position_embeddings(self) -> float:
        """Rows may have any length."""
        return math.inf

    @property
    def type_vocab_size(self) -> float:
        """Any numbers will do: the network only asks whether two are equal."""
        return math.inf

    @property
    def row_pooling(self) -> str:
        return self.pooling

    def multiplications(self, seq_length: int) -> int:
        width = self.num_attention_heads * self.head_size
        dense = self.hidden_size * (4 * width + 2 * self.intermediate_size)
        # There are twice as many distances as tokens.
        of_positions = 2 * self.hidden_size * width
        of_scores = 4 * seq_length * width
        return self.num_hidden_layers * seq_length * (dense + of_positions + of_scores)


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
        self.embeddings = _XlnetEmbeddings(config, initializers, dtype)
        self._of_mask = layers.glorot_uniform(initializers)
        self._of_biases = [next(initializers) for _ in range(4)]
        self._biases = xlnet_layers.Biases(config)
        self.transformer_layers = [
            xlnet_layers.Layer(config, initializers, index, self._biases, dtype)
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
                xlnet_layers.Biases.shapes(config).items(), self._of_biases, strict=True
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
        paths_above = {v.path for weights in above for v in weights}
        return [[v for v in self.weights if v.path not in paths_above], *above]

    def pool(self, outputs, input_mask=None):
        return self._summary(outputs["sequence_output"], input_mask)

    def _summary(self, hidden, input_mask):
        if self.config.row_pooling == "first":
            return self.summary(hidden[:, 0])
        if self.config.row_pooling == "last":
            return self.summary(layers.last_token(hidden, input_mask))
        return self.summary(layers.mean_of_tokens(hidden, input_mask))

    def encode(
        self,
        inputs,
        dropouts=layers.no_dropout,
        return_all=False,
        mem_len=0,
        reuse_len=0,
    ):
        """See `Encoder.encode`.

        Args:
            inputs: may also have
                hidden_pairs, int [b, s (from), s (to)], 1 where a position does not see
                another; each always sees itself in the content stream;
                input_q, [b, s], 1 for tokens that the query stream hides;
                target_mapping, [b, t, s], one-hot rows: the positions of the queries, by
                default all; a row of zeros is no query, and its output has no meaning;
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
        positions = dropouts(self._positions(length + older, length), rate)
        around = _around(inputs, positions, length, older)
        kept = []
        for number, layer in enumerate(self.transformer_layers):
            past = None if memory is None else memory[:, number]
            if mem_len:
                added = hidden[:, : reuse_len or length]
                kept.append(_next_memory(past, added, mem_len))
            of_layer = dataclasses.replace(around, past=past)
            hidden = layers.apply_layer(
                layer, hidden, dropouts=dropouts, around=of_layer
            )
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


def _around(inputs, positions, length, older):
    """What all layers read besides the two streams."""
    unseen = _hidden_keys(inputs.get("input_mask"), inputs.get("hidden_pairs"))
    return xlnet_layers.Around(
        length=length,
        has_queries="input_q" in inputs,
        positions=positions,
        differs=_differs(inputs.get("segment_ids"), older),
        unseen_by_content=_with_memory(_but_itself(unseen, length), older),
        unseen_by_queries=_with_memory(unseen, older),
        target_mapping=inputs.get("target_mapping"),
    )


def _differs(segment_ids, older):
    """int [b, 1, s, k]: 1 where a key is of another segment; memory is of segment 0."""
    if segment_ids is None:
        return None
    keys = ops.pad(segment_ids, ((0, 0), (older, 0)))
    differs = ops.not_equal(segment_ids[:, :, None], keys[:, None, :])
    return ops.cast(differs, "int32")[:, None]


def _next_memory(past, added, mem_len):
    """The last `mem_len` of what was remembered and what a row adds; fewer, if short."""
    if past is not None:
        added = ops.concatenate([ops.cast(past, added.dtype), added], axis=1)
    return ops.stop_gradient(added[:, -mem_len:])


def _hidden_keys(input_mask, hidden_pairs):
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


class _XlnetEmbeddings(keras.layers.Layer):
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
