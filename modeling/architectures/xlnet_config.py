"""The config of an XLNet, read from xlnet_config.json or Hugging Face's config.json."""

import dataclasses
import math
import types
from collections.abc import Mapping

from absl import logging

from modeling.architectures.config import POOLINGS, EncoderConfig

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
# Hugging Face calls the exact GELU "gelu", which in the release is the tanh form.
_THEIR_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
}
# What a config.json of theirs may lack.
_THEIR_DEFAULTS = {
    "n_token": 32000,
    "d_model": 1024,
    "n_layer": 24,
    "n_head": 16,
    "d_inner": 4096,
    "ff_activation": "gelu",
}
# With other values, the network is another one.
_THEIR_FIXED_VALUES = {
    "layer_norm_eps": 1e-12,
    "attn_type": "bi",
    "bi_data": False,
    "same_length": False,
    "summary_activation": "tanh",
    "summary_use_proj": True,
    "pruned_heads": {},
    "quantization_config": None,
}


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
    has_query_stream = True
    masked_lm_scope = "model/lm_loss"
    masked_lm_transform = None
    masked_lm_bias = "bias"
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

    @classmethod
    def from_dict(cls, values: Mapping) -> "XlnetConfig":
        """Builds a config from the keys of a file.

        If they include `model_type`, they are those of Hugging Face's config.json.

        Raises:
            ValueError: a key of the release is absent, a key is unknown, or a value is
                wrong or describes another network.
        """
        return super().from_dict(
            cls._translated(values) if "model_type" in values else values
        )

    @classmethod
    def _translated(cls, values) -> dict:
        """Hugging Face's keys and values -> those of our file."""
        for key, expected in _THEIR_FIXED_VALUES.items():
            found = values.get(key)
            if found is not None and found != expected:
                raise ValueError(
                    f"{key} is {found!r:.40}, but must be {expected!r} in an XLNet of the "
                    "release; use another model"
                )
        given = {"n_token": values["vocab_size"]} if "vocab_size" in values else {}
        known = [key for key in _RELEASED.values() if key in values]
        found = _THEIR_DEFAULTS | {key: values[key] for key in known} | given
        activation = found["ff_activation"]
        if activation not in list(_THEIR_ACTIVATIONS):  # not hashed: of any type
            raise ValueError(
                f"ff_activation is {activation!r:.40}; in Hugging Face's config it must "
                f"be one of {', '.join(_THEIR_ACTIVATIONS)}"
            )
        width, heads = found["d_model"], found["n_head"]
        if "d_head" not in found and isinstance(width, int) and isinstance(heads, int):
            found["d_head"] = width // max(heads, 1)
        dropout = values.get("dropout", cls.hidden_dropout_prob)
        clamp_len = values.get("clamp_len", -1)
        if isinstance(clamp_len, int) and clamp_len <= 0:
            clamp_len = None
        pooling = values.get("summary_type", "last")
        if pooling == "cls_index":
            pooling = "last"  # where [CLS] is
        if values.get("summary_last_dropout", dropout) != dropout:
            logging.warning(
                "summary_last_dropout=%r is ignored: dropout=%r is used in its place",
                *(values["summary_last_dropout"], dropout),
            )
        return found | {
            "ff_activation": _THEIR_ACTIVATIONS[activation],
            "untie_r": True,
            "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": dropout,
            "initializer_range": values.get("initializer_range", cls.initializer_range),
            "clamp_len": clamp_len,
            "pooling": pooling,
        }

    def to_hugging_face(self) -> dict:
        """The equivalent keys of a Hugging Face config.json.

        Raises:
            ValueError: its heads have another width than theirs.
        """
        if self.head_size * self.num_attention_heads != self.hidden_size:
            raise ValueError(
                f"d_head is {self.head_size}; in Hugging Face's xlnet, "
                f"{self.num_attention_heads} heads share d_model, {self.hidden_size}"
            )
        theirs = {key: getattr(self, ours) for ours, key in _RELEASED.items()}
        del theirs["n_token"], theirs["untie_r"]
        activations = {"gelu": "gelu_new", "gelu_erf": "gelu"}
        return theirs | {
            "model_type": "xlnet",
            "vocab_size": self.vocab_size,
            "ff_activation": activations.get(self.hidden_act, self.hidden_act),
            "dropout": self.hidden_dropout_prob,
            "summary_last_dropout": self.hidden_dropout_prob,
            "summary_type": self.pooling,
            "initializer_range": self.initializer_range,
            "layer_norm_eps": self.layer_norm_eps,
            "clamp_len": self.clamp_len or -1,
        }
