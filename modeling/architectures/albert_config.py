"""The config of an ALBERT, read from albert_config.json."""

import dataclasses
import typing
from collections.abc import Mapping

from modeling.architectures.bert_config import BertConfig


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

    their_defaults = BertConfig.their_defaults | {
        "vocab_size": 30000,
        "hidden_act": "gelu_new",
    }

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

    @classmethod
    def from_dict(cls, values: Mapping) -> typing.Self:
        """As that of `BertConfig`; Hugging Face's may also have other groups of layers."""
        config = super().from_dict(values)
        if "model_type" in values:
            config._check_their_groups()
        return config

    def _check_their_groups(self):
        """Hugging Face computes the group of a layer in another order, and rounds it."""
        layers, groups = self.num_hidden_layers, self.num_hidden_groups
        for layer in range(layers):
            if (theirs := int(layer / (layers / groups))) != (
                ours := self.group(layer)
            ):
                raise ValueError(
                    f"num_hidden_groups is {groups} for {layers} layers, of which number "
                    f"{layer} belongs to group {theirs} in Hugging Face's albert, but to "
                    f"group {ours} in the release; converted, the model would compute "
                    "something else, so use it where it was trained"
                )

    @classmethod
    def _translated(cls, values) -> dict:
        width = values.get("embedding_size", cls.embedding_size)
        is_square = width == values.get("hidden_size", cls.hidden_size)
        # Their class does not read is_decoder.
        return super()._translated({**values, "is_decoder": False}) | {
            "projects_embeddings": is_square
        }

    def to_hugging_face(self) -> dict:
        if self.attention_direction != "both":
            raise ValueError(
                f"attention_direction is {self.attention_direction!r}, for which Hugging "
                "Face's albert has no key"
            )
        self._check_their_groups()
        theirs = super().to_hugging_face()
        del theirs["projects_embeddings"]
        return theirs

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
