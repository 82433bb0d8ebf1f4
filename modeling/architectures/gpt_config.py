"""The config of a GPT, the first one, read from our keys or from Hugging Face's."""

import dataclasses
import typing

from absl import logging

from modeling.architectures.bert_config import BertConfig

# Our key -> that of Hugging Face's openai-gpt.
_THEIRS = {
    "vocab_size": "vocab_size",
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "hidden_act": "afn",
    "hidden_dropout_prob": "resid_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_epsilon",
}
# There, "gelu" is the tanh form.
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}
_OTHER_DROPOUTS = ("embd_pdrop", "summary_first_dropout")


@dataclasses.dataclass(frozen=True)
class GptConfig(BertConfig):
    """Sizes, rates and activation of one encoder; the keys of a bert_config.json.

    Every token sees itself and what precedes it. Tokens have no types, the sum of their
    embeddings is not normalized, and the vector of a row is that of its last token.
    `vocab_size` counts the rows of special tokens that fine-tuning adds.

    The defaults are the sizes of the released model. A file of ours names its
    architecture.

    `hidden_dropout_prob` is one rate for embeddings, layers and heads, where Hugging Face
    has embd_pdrop, resid_pdrop and summary_first_dropout. The release has 0.1 everywhere.

    Source: openai/finetune-transformer-lm@a69b5c4 train.py; huggingface/transformers
    v5.23.0 models/openai/configuration_openai.py.
    """

    architecture = "gpt"
    choices = BertConfig.choices | {"attention_direction": ("left_to_right",)}
    keys_without_shape = (*BertConfig.keys_without_shape, "layer_norm_eps")
    has_segments = False
    masked_lm_transform = None
    masked_lm_bias = None
    truncated_weights = False
    their_defaults = {"vocab_size": 40478, "hidden_act": "gelu_new"}
    their_fixed_values = {
        key: value
        for key, value in BertConfig.their_fixed_values.items()
        if key != "layer_norm_eps"
    }
    their_heads = {
        "OpenAIGPTDoubleHeadsModel": {
            "summary_type": "cls_index",
            "summary_use_proj": True,
            "summary_activation": None,
            "summary_proj_to_labels": True,
        }
    }
    their_pooled_classes = frozenset()

    type_vocab_size: typing.ClassVar[int] = 0  # so it is not a key
    attention_direction: str = "left_to_right"
    layer_norm_eps: float = 1e-5

    @classmethod
    def _translated(cls, values) -> dict:
        cls._check_their_head(values)
        known = {
            key: values[theirs] for key, theirs in _THEIRS.items() if theirs in values
        }
        activation = known.get("hidden_act", "gelu")
        if activation not in list(_ACTIVATIONS):  # not hashed: of any type
            raise ValueError(
                f"afn is {activation!r:.40}; it must be one of {', '.join(_ACTIVATIONS)}"
            )
        known["hidden_act"] = _ACTIVATIONS[activation]
        used = known.get("hidden_dropout_prob", cls.hidden_dropout_prob)
        for key in _OTHER_DROPOUTS:
            if values.get(key, used) != used:
                logging.warning(
                    "%s=%r is ignored: resid_pdrop=%r is used in its place",
                    *(key, values[key], used),
                )
        width = known.get("hidden_size", cls.hidden_size)
        if isinstance(width, int):  # else refused later
            known["intermediate_size"] = 4 * width
        fixed = {key: values[key] for key in cls.their_fixed_values if key in values}
        return super()._translated(known | fixed | {"is_decoder": True})

    def to_hugging_face(self) -> dict:
        if self.intermediate_size != 4 * self.hidden_size:
            raise ValueError(
                f"intermediate_size is {self.intermediate_size}; in Hugging Face's "
                f"openai-gpt it is 4 times hidden_size, {4 * self.hidden_size}"
            )
        if self.hidden_act not in _ACTIVATIONS:
            raise ValueError(
                f"hidden_act is {self.hidden_act!r}; in Hugging Face's openai-gpt it must "
                f"be one of {', '.join(_ACTIVATIONS)}"
            )
        theirs = {key: getattr(self, ours) for ours, key in _THEIRS.items()}
        return theirs | {
            "model_type": "openai-gpt",
            **dict.fromkeys(_OTHER_DROPOUTS, self.hidden_dropout_prob),
        }
