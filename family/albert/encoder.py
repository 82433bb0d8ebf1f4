"""The encoder of ALBERT: BERT's, with a narrow table of words and shared layers.

Axes: b batch, s seq_length, h hidden_size, e embedding_size.
"""

import dataclasses

import keras

from modeling import layers
from modeling.architectures.bert import BertConfig, BertEncoder, SelfAttention


@dataclasses.dataclass(frozen=True)
class AlbertConfig(BertConfig):
    """Sizes, rates and activation of one encoder; the keys of albert_config.json.

    `embedding_size` is the width of the tables, which a projection makes hidden_size. The
    layers are divided evenly into `num_hidden_groups`. Those of a group share weights: each
    runs the group's `inner_group_num` transformer layers in turn.

    The defaults are those of the release, which are xxlarge's.

    Hugging Face's network has a projection even if both widths are equal, where the release
    has none; `projects_embeddings` is set where such a model is read. It sees both sides.

    Source: google-research/albert@b772393 modeling.py, class AlbertConfig;
    huggingface/transformers v5.23.0 models/albert/configuration_albert.py.
    """

    architecture = "albert"
    keys_without_shape = (*BertConfig.keys_without_shape, "num_hidden_layers")
    telling_keys = frozenset({"embedding_size", "num_hidden_groups", "inner_group_num"})
    own_keys = BertConfig.own_keys | {"projects_embeddings"}
    tolerated_keys = frozenset(
        {"down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"}
    )

    hidden_size: int = 4096
    num_attention_heads: int = 64
    intermediate_size: int = 16384
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    type_vocab_size: int = 2
    embedding_size: int = 128
    num_hidden_groups: int = 1
    inner_group_num: int = 1
    projects_embeddings: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ValueError(
                f"num_hidden_groups is {self.num_hidden_groups}; it must be at most "
                f"num_hidden_layers, which is {self.num_hidden_layers}"
            )

    @property
    def has_projection(self) -> bool:
        return self.projects_embeddings or super().has_projection

    @property
    def scope(self) -> str:
        return "bert"

    @property
    def head_dropout_prob(self) -> float:
        return 0.1  # in the release whatever hidden_dropout_prob is, which v2 has at 0

    @property
    def num_blocks(self) -> int:
        return self.num_hidden_layers * self.inner_group_num

    def group(self, layer: int) -> int:
        """The group of weights that a layer runs."""
        # In this order, as in the release: others round differently for some sizes.
        return int(layer / self.num_hidden_layers * self.num_hidden_groups)


class AlbertEncoder(BertEncoder):
    """Embeddings, a projection to hidden_size, shared transformer layers, and pooler.

    Every variable exists once the object does, and its `path` is the name that the
    released checkpoints give it.

    Args:
        config: an AlbertConfig.
        seed, dtype: as for `BertEncoder`.
    Source: google-research/albert@b772393 modeling.py, class AlbertModel.
    """

    projection_scope = "encoder/embedding_hidden_mapping_in"

    def make_layers(self, initializers, dtype):
        config = self.config
        self.groups = [
            [
                _SharedLayer(config, initializers, index, dtype)
                for index in range(config.inner_group_num)
            ]
            for _ in range(config.num_hidden_groups)
        ]
        numbers = map(config.group, range(config.num_hidden_layers))
        return [layer for number in numbers for layer in self.groups[number]]

    def build_layers(self):
        config = self.config
        with keras.name_scope("transformer"):
            for number, group in enumerate(self.groups):
                with keras.name_scope(f"group_{number}"):
                    for layer in group:
                        layer.build((None, None, config.hidden_size))


class _SharedLayer(keras.layers.Layer):
    """[b, s, h] -> [b, s, h]: attention, then a position-wise network."""

    def __init__(self, config, initializers, index, dtype):
        super().__init__(name=f"inner_group_{index}", dtype=dtype)

        def dense(units, activation=None):
            return layers.Dense(units, next(initializers), dtype, activation)

        self.dropout_prob = config.hidden_dropout_prob
        self.attention = SelfAttention(config, initializers, dtype)
        self.attention_output = dense(config.hidden_size)
        self.attention_norm = layers.LayerNorm(config.layer_norm_eps, dtype)
        self.intermediate = dense(
            config.intermediate_size, layers.activation(config.hidden_act)
        )
        self.output_dense = dense(config.hidden_size)
        self.norm = layers.LayerNorm(config.layer_norm_eps, dtype, "LayerNorm_1")
        self.intermediate_size = config.intermediate_size

    def build(self, input_shape):
        inner_shape = (*input_shape[:-1], self.intermediate_size)
        with keras.name_scope("attention_1"):
            self.attention.build(input_shape)
            with keras.name_scope("output"):
                self.attention_output.build(input_shape)
        self.attention_norm.build(input_shape)
        with keras.name_scope("ffn_1"), keras.name_scope("intermediate"):
            self.intermediate.build(input_shape)
            with keras.name_scope("output"):
                self.output_dense.build(inner_shape)
        self.norm.build(input_shape)
        self.built = True

    def call(self, hidden, seen=None, dropouts=layers.no_dropout):
        context = self.attention(hidden, seen=seen, dropouts=dropouts)
        rate = self.dropout_prob
        sums = self.attention_output.add_to(hidden, context, dropouts, rate)
        hidden = self.attention_norm(sums)
        inner = self.intermediate(hidden)
        return self.norm(self.output_dense.add_to(hidden, inner, dropouts, rate))
