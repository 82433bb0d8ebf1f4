"""ALBERT in Hugging Face's layout. Text and token classifiers have no scope in the release.

The numbers of a layer are those of its group and of its place in the group.
"""

import numpy as np

from training.interchange.adapter import usual_heads
from training.interchange.bert_adapter import BertAdapter

_EMBEDDINGS = ("word_embeddings", "token_type_embeddings", "position_embeddings")
_LAYER = (
    ("attention_1/self/query", "attention.query", "dense"),
    ("attention_1/self/key", "attention.key", "dense"),
    ("attention_1/self/value", "attention.value", "dense"),
    ("attention_1/output/dense", "attention.dense", "dense"),
    ("LayerNorm", "attention.LayerNorm", "norm"),
    ("ffn_1/intermediate/dense", "ffn", "dense"),
    ("ffn_1/intermediate/output/dense", "ffn_output", "dense"),
    ("LayerNorm_1", "full_layer_layer_norm", "norm"),
)
_MASKED_LM = "cls/predictions/output_bias"
_SENTENCE_ORDER = "cls/seq_relationship/output_weights"
_PROJECTION = "encoder/embedding_hidden_mapping_in"
_THEIR_PROJECTION = f"albert.{_PROJECTION.replace('/', '.')}"
_SHARED = "bert/encoder/transformer/group_#/inner_group_#"
_THEIR_SHARED = "albert.encoder.albert_layer_groups.#.albert_layers.#"


class AlbertAdapter(BertAdapter):
    """Their network has a projection even if both widths are equal, and sees both sides.

    Source: huggingface/transformers v5.23.0 models/albert/configuration_albert.py.
    """

    architecture = model_type = "albert"
    modules = (
        *(
            (f"bert/embeddings/{name}", f"albert.embeddings.{name}", "embedding")
            for name in _EMBEDDINGS
        ),
        ("bert/embeddings/LayerNorm", "albert.embeddings.LayerNorm", "norm"),
        (f"bert/{_PROJECTION}", _THEIR_PROJECTION, "dense"),
        *(
            (f"{_SHARED}/{scope}", f"{_THEIR_SHARED}.{module}", kind)
            for scope, module, kind in _LAYER
        ),
        ("bert/pooler/dense", "albert.pooler", "dense"),
        ("cls/predictions/transform/dense", "predictions.dense", "dense"),
        ("cls/predictions/transform/LayerNorm", "predictions.LayerNorm", "norm"),
        ("cls/predictions", "predictions", "bias"),
        ("cls/seq_relationship/", "sop_classifier.classifier", "head"),
        ("cls/squad/", "qa_outputs", "head"),
        ("", "classifier", "head"),
    )
    layer = None
    encoder = ("albert", ("embeddings", "encoder", "pooler"))
    tied = {
        "predictions.decoder.weight": (
            "bert/embeddings/word_embeddings",
            "the table of word embeddings",
        ),
        "predictions.decoder.bias": (_MASKED_LM, "its output bias"),
    }
    heads = usual_heads("Albert")
    classes = {
        ("cls/squad/output_weights",): "AlbertForQuestionAnswering",
        (_MASKED_LM, _SENTENCE_ORDER): "AlbertForPreTraining",
        (_MASKED_LM,): "AlbertForMaskedLM",
        (): "AlbertModel",
    }
    causal = {}
    defaults = BertAdapter.defaults | {"vocab_size": 30000, "hidden_act": "gelu_new"}

    def from_hugging_face(self, values):
        config = super().from_hugging_face(values)
        _check_groups(config)
        return config

    def translate(self, values) -> dict:
        width = values.get("embedding_size", self.config.embedding_size)
        is_square = width == values.get("hidden_size", self.config.hidden_size)
        # Their class does not read is_decoder.
        return super().translate({**values, "is_decoder": False}) | {
            "projects_embeddings": is_square
        }

    def to_hugging_face(self, config) -> dict:
        if config.attention_direction != "both":
            raise ValueError(
                f"attention_direction is {config.attention_direction!r}, for which Hugging "
                "Face's albert has no key"
            )
        _check_groups(config)
        return super().to_hugging_face(config)

    def complete_tensors(self, tensors, values) -> None:
        width = values["hidden_size"]
        tensors.setdefault(
            f"{_THEIR_PROJECTION}.weight", np.eye(width, dtype=np.float32)
        )
        tensors.setdefault(f"{_THEIR_PROJECTION}.bias", np.zeros(width, np.float32))


def _check_groups(config):
    """Hugging Face computes the group of a layer in another order, and rounds it."""
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    for layer in range(layers):
        their_group = int(layer / (layers / groups))
        our_group = config.group(layer)
        if their_group != our_group:
            raise ValueError(
                f"num_hidden_groups is {groups} for {layers} layers; number "
                f"{layer} belongs to group {their_group} in Hugging Face's albert, but to "
                f"group {our_group} in the release; converted, the model would compute "
                "something else, so use it where it was trained"
            )
