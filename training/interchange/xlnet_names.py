"""XLNet's table of names, and those of its fine-tuned heads.

In the release, the biases of queries and the vectors of segments of all layers are one
variable each; in Hugging Face's layout, each layer has its own.
"""

import re
import types
from collections.abc import Iterable, Mapping

import numpy as np

from modeling.architectures.xlnet_config import XlnetConfig
from training.interchange.names import Names

_RELEASED, _THEIRS = "model/transformer/layer_#", "transformer.layer.#"
_MASKED_LM = "model/lm_loss/bias"
_WORDS = "model/transformer/word_embedding"
# Variable of all layers -> its axes if each layer has its own.
_STACKED = types.MappingProxyType(
    {
        "model/transformer/r_w_bias": 3,
        "model/transformer/r_r_bias": 3,
        "model/transformer/r_s_bias": 3,
        "model/transformer/seg_embed": 4,
    }
)
# The scope of the head of a task, the weight and its slot.
_HEAD = re.compile(
    r"(model/(?:classification|regression)_[^/]+/logit|logits/dense)/(kernel|bias)"
    r"(/adam_[mv])?"
)


def _own_heads(names: Iterable[str]) -> dict[str, tuple[str, bool]]:
    """The head of a classifier, of a regression, or for multiple choice.

    A checkpoint with several keeps its names.

    Source: zihangdai/xlnet@bbaa3a6 function_builder.py, get_classification_loss,
    get_regression_loss, get_race_loss.
    """
    found = {name: _HEAD.fullmatch(name) for name in names}
    found = {name: match.groups() for name, match in found.items() if match}
    if len({scope for scope, *_ in found.values()}) != 1:
        return {}
    ours = {"kernel": "output_weights", "bias": "output_bias"}
    return {
        name: (ours[weight] + (slot or ""), weight == "kernel")
        for name, (_, weight, slot) in found.items()
    }


def _untied(
    tensors: Mapping[str, np.ndarray], config: XlnetConfig
) -> dict[str, np.ndarray]:
    """Gives each layer a copy of the biases that all of them share."""

    def of_all(name, value):
        axes = _STACKED.get(name, value.ndim)
        if value.ndim == axes:
            return value
        return np.broadcast_to(value, (config.num_hidden_layers, *value.shape))

    return {name: of_all(name, value) for name, value in tensors.items()}


XLNET = Names(
    modules=(
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
    ),
    layer=_RELEASED,
    stacked=_STACKED,
    prepared=_untied,
    encoder=("transformer", ("word_embedding", "mask_emb", "layer")),
    masked_lm=_MASKED_LM,
    tied={"lm_loss.weight": (f"{_WORDS}/lookup_table", "the table of word embeddings")},
    heads={
        "classification": "XLNetForSequenceClassification",
        "tagging": "XLNetForTokenClassification",
        "choice": "XLNetForMultipleChoice",
    },
    classes={
        ("start_logits/dense/kernel",): "XLNetForQuestionAnswering",
        ("cls/squad/output_weights",): "XLNetForQuestionAnsweringSimple",
        (_MASKED_LM,): "XLNetLMHeadModel",
        (): "XLNetModel",
    },
    causal={},
    renamed={
        head: {"classifier": "logits_proj"} for head in ("classification", "choice")
    },
    own_heads=_own_heads,
)
