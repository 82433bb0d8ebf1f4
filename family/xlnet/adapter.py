"""XLNet in Hugging Face's layout, and its fine-tuned heads.

In the release, the biases of queries and the vectors of segments of all layers are one
variable each; in Hugging Face's layout, each layer has its own.
"""

import re

import numpy as np
from absl import logging

from training.interchange.adapter import Adapter, parts_of_head, usual_heads
from training.interchange.bert_adapter import check_fixed, our_activation

_RELEASED, _THEIRS = "model/transformer/layer_#", "transformer.layer.#"
_MASKED_LM = "model/lm_loss/bias"
_WORDS = "model/transformer/word_embedding"
# Variable of all layers -> its axes if each layer has its own.
_STACKED = {
    "model/transformer/r_w_bias": 3,
    "model/transformer/r_r_bias": 3,
    "model/transformer/r_s_bias": 3,
    "model/transformer/seg_embed": 4,
}
# The scope of the head of a task, the weight and its slot.
_HEAD = re.compile(
    r"(model/(?:classification|regression)_[^/]+/logit|logits/dense)/(kernel|bias)"
    r"(/adam_[mv])?"
)
# They call the exact GELU "gelu", which in the release is the tanh form.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
}
# What a config.json of theirs may lack.
_DEFAULTS = {
    "n_token": 32000,
    "d_model": 1024,
    "n_layer": 24,
    "n_head": 16,
    "d_inner": 4096,
    "ff_activation": "gelu",
}
# With other values, the network is another one.
_FIXED_VALUES = {
    "layer_norm_eps": 1e-12,
    "attn_type": "bi",
    "bi_data": False,
    "same_length": False,
    "summary_activation": "tanh",
    "summary_use_proj": True,
    "pruned_heads": {},
    "quantization_config": None,
}


class XlnetAdapter(Adapter):
    """They have one dropout for everything and, of the heads' biases, always one a layer.

    Source: huggingface/transformers v5.23.0 models/xlnet/configuration_xlnet.py.
    """

    architecture = model_type = "xlnet"
    modules = (
        (f"{_WORDS}/lookup_table", "transformer.word_embedding", "embedding"),
        ("model/transformer/mask_emb/mask_emb", "transformer.mask_emb", "variable"),
        *(
            (f"{_RELEASED}/rel_attn/{name}", f"{_THEIRS}.rel_attn.{name}", "kernel")
            for name in "qkvro"
        ),
        *(
            (name, f"{_THEIRS}.rel_attn.{name.rpartition('/')[2]}", "variable")
            for name in _STACKED
        ),
        (
            f"{_RELEASED}/rel_attn/LayerNorm",
            f"{_THEIRS}.rel_attn.layer_norm",
            "norm",
        ),
        (f"{_RELEASED}/ff/layer_1", f"{_THEIRS}.ff.layer_1", "dense"),
        (f"{_RELEASED}/ff/layer_2", f"{_THEIRS}.ff.layer_2", "dense"),
        (f"{_RELEASED}/ff/LayerNorm", f"{_THEIRS}.ff.layer_norm", "norm"),
        ("model/lm_loss", "lm_loss", "plain_bias"),
        ("model/sequnece_summary/summary", "sequence_summary.summary", "dense"),
        ("start_logits/dense", "start_logits.dense", "dense"),
        ("end_logits/dense_0", "end_logits.dense_0", "dense"),
        ("end_logits/LayerNorm", "end_logits.LayerNorm", "norm"),
        ("end_logits/dense_1", "end_logits.dense_1", "dense"),
        ("answer_class/dense_0", "answer_class.dense_0", "dense"),
        ("answer_class/dense_1", "answer_class.dense_1", "dense"),
        ("cls/squad/", "qa_outputs", "head"),
        ("", "classifier", "head"),
    )
    layer = _RELEASED
    stacked = _STACKED
    encoder = ("transformer", ("word_embedding", "mask_emb", "layer"))
    masked_lm = _MASKED_LM
    tied = {
        "lm_loss.weight": (f"{_WORDS}/lookup_table", "the table of word embeddings")
    }
    heads = usual_heads("XLNet")
    classes = {
        ("start_logits/dense/kernel",): "XLNetForQuestionAnswering",
        ("cls/squad/output_weights",): "XLNetForQuestionAnsweringSimple",
        (_MASKED_LM,): "XLNetLMHeadModel",
        (): "XLNetModel",
    }
    renamed = {
        head: {"classifier": "logits_proj"} for head in ("classification", "choice")
    }

    def from_hugging_face(self, values):
        check_fixed(values, _FIXED_VALUES, "an XLNet of the release")
        words = {"n_token": values["vocab_size"]} if "vocab_size" in values else {}
        keys = [key for key in self.config.file_keys.values() if key in values]
        config_values = _DEFAULTS | {key: values[key] for key in keys} | words
        activation = our_activation("ff_activation", config_values, _ACTIVATIONS)
        width, heads = config_values["d_model"], config_values["n_head"]
        if (
            "d_head" not in config_values
            and isinstance(width, int)
            and isinstance(heads, int)
        ):
            config_values["d_head"] = width // max(heads, 1)
        dropout = values.get("dropout", self.config.hidden_dropout_prob)
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
        range_ = values.get("initializer_range", self.config.initializer_range)
        return self.config.from_dict(
            config_values
            | {
                "ff_activation": activation,
                "untie_r": True,
                "hidden_dropout_prob": dropout,
                "attention_probs_dropout_prob": dropout,
                "initializer_range": range_,
                "clamp_len": clamp_len,
                "pooling": pooling,
            }
        )

    def to_hugging_face(self, config) -> dict:
        if config.head_size * config.num_attention_heads != config.hidden_size:
            raise ValueError(
                f"d_head is {config.head_size}; in Hugging Face's xlnet, "
                f"{config.num_attention_heads} heads share d_model, {config.hidden_size}"
            )
        values = {key: getattr(config, ours) for ours, key in config.file_keys.items()}
        del values["n_token"], values["untie_r"]
        activations = {"gelu": "gelu_new", "gelu_erf": "gelu"}
        return values | {
            "model_type": self.model_type,
            "vocab_size": config.vocab_size,
            "ff_activation": activations.get(config.hidden_act, config.hidden_act),
            "dropout": config.hidden_dropout_prob,
            "summary_last_dropout": config.hidden_dropout_prob,
            "summary_type": config.pooling,
            "initializer_range": config.initializer_range,
            "layer_norm_eps": config.layer_norm_eps,
            "clamp_len": config.clamp_len or -1,
        }

    def prepare_tensors(self, tensors, config):
        """Gives each layer a copy of the biases that all of them share."""

        def of_all(name, value):
            axes = _STACKED.get(name, value.ndim)
            if value.ndim == axes:
                return value
            return np.broadcast_to(value, (config.num_hidden_layers, *value.shape))

        return {name: of_all(name, value) for name, value in tensors.items()}

    def own_heads(self, names):
        """The head of a classifier, of a regression, or for multiple choice.

        Source: zihangdai/xlnet@bbaa3a6 function_builder.py, get_classification_loss,
        get_regression_loss, get_race_loss.
        """
        ours = {"kernel": "output_weights", "bias": "output_bias"}
        return {
            name: (ours[weight] + (slot or ""), weight == "kernel")
            for name, (_, weight, slot) in parts_of_head(names, _HEAD).items()
        }
