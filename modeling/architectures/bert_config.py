"""The config of a BERT, read from bert_config.json or Hugging Face's config.json."""

import dataclasses
import typing
from collections.abc import Mapping

from absl import logging

from modeling.architectures.config import POOLINGS, EncoderConfig

DIRECTIONS = ("both", "left_to_right", "right_to_left")
ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")

# === Hugging Face ===
# Its config.json has our keys and many more. It calls the exact GELU "gelu", which in the
# release is the tanh form.
_THEIR_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_THEIR_DIRECTIONS = {"both": {}, "left_to_right": {"is_decoder": True}}


@dataclasses.dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """Sizes, rates and activation of one encoder; the keys of bert_config.json.

    `hidden_act` is one of "gelu" (the tanh form, as at the release's last commit),
    "gelu_erf" (the exact form, which its first code used), "relu", "tanh", "linear".

    `attention_direction` is what a position attends to: "both" sides, as in the release, or
    itself and what precedes it ("left_to_right") or follows it ("right_to_left").

    `pooling` is what a head for whole rows reads: the "first" token, as in the release, the
    "last", or the "mean" of all; without a value, the one that sees the whole row.

    Attributes:
        their_defaults: values of keys that a config.json of Hugging Face may lack.
        their_fixed_values: keys of such a file that have no field here; with other values,
            the network is another one.
        their_heads: Hugging Face's class -> keys that its head reads, and their values; the
            head has no others here, and the keys have no effect in other classes.
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
    their_defaults = {"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"}
    their_fixed_values = {
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "absolute",
        "is_encoder_decoder": False,
        "add_cross_attention": False,
        "pruned_heads": {},
        "quantization_config": None,
    }
    their_heads: typing.ClassVar[Mapping[str, Mapping[str, object]]] = {}
    their_pooled_classes = frozenset(
        {
            "BertForSequenceClassification",
            "BertForMultipleChoice",
            "BertForPreTraining",
            "BertForNextSentencePrediction",
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

    @classmethod
    def from_dict(cls, values: Mapping) -> "BertConfig":
        """Builds a config from the keys of a bert_config.json.

        If they include `model_type`, they are those of Hugging Face's config.json.

        Raises:
            ValueError: vocab_size is absent, a key is unknown, or a value is wrong or
                describes another network than BERT's.
        """
        if "model_type" in values:
            values = cls._translated(values)
        elif "architectures" in values:
            raise ValueError(
                "missing key 'model_type', which Hugging Face's configs have; if the model "
                'is a BERT, add "model_type": "bert"'
            )
        return super().from_dict(values)

    @classmethod
    def _translated(cls, values) -> dict:
        """Hugging Face's keys and values -> those of our file."""
        for key, expected in cls.their_fixed_values.items():
            found = values.get(key)
            if found is not None and found != expected:
                raise ValueError(
                    f"{key} is {found!r:.40}, but must be {expected!r} in the release's "
                    f"{cls.architecture}; use another model"
                )
        cls._check_their_head(values)
        _warn_of_differences(values)
        is_decoder = values.get("is_decoder")
        if is_decoder not in (None, False, True):
            raise ValueError(
                f"is_decoder is {is_decoder!r:.40}; it must be of type bool"
            )
        classes = their_classes(values)
        reads_first = is_decoder and not cls.their_pooled_classes.isdisjoint(classes)
        known = {field.name for field in dataclasses.fields(cls)} - cls.own_keys
        values = cls.their_defaults | {k: values[k] for k in values if k in known}
        activation = values["hidden_act"]
        if activation not in list(_THEIR_ACTIVATIONS):  # not hashed: of any type
            raise ValueError(
                f"hidden_act is {activation!r:.40}; in Hugging Face's config it must be "
                f"one of {', '.join(_THEIR_ACTIVATIONS)}"
            )
        return values | {
            "hidden_act": _THEIR_ACTIVATIONS[activation],
            "attention_direction": "left_to_right" if is_decoder else "both",
            "pooling": "first" if reads_first else None,
        }

    @classmethod
    def _check_their_head(cls, values):
        for their_class in their_classes(values):
            for key, expected in cls.their_heads.get(their_class, {}).items():
                if values.get(key, expected) != expected:
                    raise ValueError(
                        f"{key} is {values[key]!r:.40}; in an {their_class} it must be "
                        f"{expected!r}"
                    )

    def to_hugging_face(self) -> dict:
        """The equivalent keys of a Hugging Face config.json.

        Raises:
            ValueError: its network cannot attend in this direction.
        """
        if self.attention_direction not in _THEIR_DIRECTIONS:
            raise ValueError(
                f"attention_direction is {self.attention_direction!r}, for which Hugging "
                f"Face's {self.architecture} has no key; only "
                f"{' and '.join(_THEIR_DIRECTIONS)} have one"
            )
        theirs = {"gelu": "gelu_new", "gelu_erf": "gelu"}
        values = dataclasses.asdict(self) | {
            "model_type": self.architecture,
            "hidden_act": theirs.get(self.hidden_act, self.hidden_act),
            "layer_norm_eps": self.layer_norm_eps,
        }
        del values["pooling"]
        return values | _THEIR_DIRECTIONS[values.pop("attention_direction")]


def their_classes(values: Mapping) -> list[str]:
    """The classes that a config.json of Hugging Face names; mostly one, or none."""
    found = values.get("architectures")
    found = found if isinstance(found, list) else []
    return [name for name in found if isinstance(name, str)]


def _warn_of_differences(values):
    if "position_embedding_type" in values and not values["position_embedding_type"]:
        logging.warning(
            "position_embedding_type is null and is read as 'absolute'; transformers 4 "
            "gave such models no positions, so check the answers if this one is from there"
        )
    used = values.get("hidden_dropout_prob", BertConfig.hidden_dropout_prob)
    if values.get("classifier_dropout") not in (None, used):
        logging.warning(
            "classifier_dropout=%r is ignored: heads are trained with "
            "hidden_dropout_prob=%r",
            values["classifier_dropout"],
            used,
        )
