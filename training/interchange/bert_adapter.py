"""BERT in Hugging Face's layout. Text and token classifiers have no scope of their own."""

import dataclasses
from collections.abc import Mapping

from absl import logging

from modeling.architectures.config import EncoderConfig
from training.interchange.adapter import Adapter, usual_heads

_EMBEDDINGS = ("word_embeddings", "token_type_embeddings", "position_embeddings")
_LAYER = (
    ("attention/self/query", "dense"),
    ("attention/self/key", "dense"),
    ("attention/self/value", "dense"),
    ("attention/output/dense", "dense"),
    ("attention/output/LayerNorm", "norm"),
    ("intermediate/dense", "dense"),
    ("output/dense", "dense"),
    ("output/LayerNorm", "norm"),
)
_MASKED_LM = "cls/predictions/output_bias"
_NEXT_SENTENCE = "cls/seq_relationship/output_weights"
# They call the exact GELU "gelu", which in the release is the tanh form.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_DIRECTIONS = {"both": {}, "left_to_right": {"is_decoder": True}}


def _same_name(scope: str, kind: str) -> tuple[str, str, str]:
    """Their name is the same, with dots."""
    return scope, scope.replace("/layer_", "/layer/").replace("/", "."), kind


def encoder_modules(scope: str, *parts: str) -> tuple[tuple[str, str, str], ...]:
    """The modules of BERT's encoder under another scope.

    Args:
        parts: what comes next in the names; all by default.
    """
    begins = tuple(f"bert/{part}" for part in parts) or ("bert/",)
    return tuple(
        (name.replace("bert/", f"{scope}/"), module.replace("bert.", f"{scope}."), kind)
        for name, module, kind in BertAdapter.modules
        if name.startswith(begins)
    )


class BertAdapter(Adapter):
    """Their config.json has our keys and many more.

    Attributes:
        defaults: values of keys that a config.json may lack.
        fixed_values: keys that have no field here; with other values, the network is
            another one.
        fixed_in_heads: their class -> keys that its head reads, and their values; the head
            has no others here, and the keys have no effect in other classes.
    """

    architecture = model_type = "bert"
    modules = (
        *(_same_name(f"bert/embeddings/{name}", "embedding") for name in _EMBEDDINGS),
        _same_name("bert/embeddings/LayerNorm", "norm"),
        *(_same_name(f"bert/encoder/layer_#/{scope}", kind) for scope, kind in _LAYER),
        _same_name("bert/pooler/dense", "dense"),
        _same_name("cls/predictions/transform/dense", "dense"),
        _same_name("cls/predictions/transform/LayerNorm", "norm"),
        _same_name("cls/predictions", "bias"),
        ("cls/seq_relationship/", "cls.seq_relationship", "head"),
        ("cls/squad/", "qa_outputs", "head"),
        ("", "classifier", "head"),
    )
    layer = "bert/encoder/layer_#"
    # As sentence-transformers saves an encoder.
    encoder = ("bert", ("embeddings", "encoder", "pooler"))
    masked_lm = _MASKED_LM
    tied = {
        "cls.predictions.decoder.weight": (
            "bert/embeddings/word_embeddings",
            "the table of word embeddings",
        ),
        "cls.predictions.decoder.bias": (_MASKED_LM, "its output bias"),
    }
    heads = usual_heads("Bert")
    classes = {
        ("cls/squad/output_weights",): "BertForQuestionAnswering",
        (_MASKED_LM, _NEXT_SENTENCE): "BertForPreTraining",
        (_MASKED_LM,): "BertForMaskedLM",
        (_NEXT_SENTENCE,): "BertForNextSentencePrediction",
        (): "BertModel",
    }
    causal = {"BertForMaskedLM": "BertLMHeadModel"}
    pooled = frozenset(
        {
            "BertForSequenceClassification",
            "BertForMultipleChoice",
            "BertForPreTraining",
            "BertForNextSentencePrediction",
        }
    )
    defaults: Mapping[str, object] = {
        "vocab_size": 30522,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
    }
    fixed_values: Mapping[str, object] = {
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "absolute",
        "is_encoder_decoder": False,
        "add_cross_attention": False,
        "pruned_heads": {},
        "quantization_config": None,
    }
    fixed_in_heads: Mapping[str, Mapping[str, object]] = {}

    def from_hugging_face(self, values) -> EncoderConfig:
        return self.config.from_dict(self.translate(values))

    def translate(self, values: Mapping) -> dict:
        """Their keys and values -> those of our file."""
        check_fixed(values, self.fixed_values, f"the release's {self.architecture}")
        self.check_heads(values)
        _warn_of_differences(values)
        is_decoder = values.get("is_decoder")
        if is_decoder not in (None, False, True):
            raise ValueError(
                f"is_decoder is {is_decoder!r:.40}; it must be of type bool"
            )
        reads_first = is_decoder and not self.pooled.isdisjoint(classes_in(values))
        fields = {field.name for field in dataclasses.fields(self.config)}
        fields -= self.config.own_keys
        values = self.defaults | {k: values[k] for k in values if k in fields}
        return values | {
            "hidden_act": our_activation("hidden_act", values, _ACTIVATIONS),
            "attention_direction": "left_to_right" if is_decoder else "both",
            "pooling": "first" if reads_first else None,
        }

    def check_heads(self, values: Mapping) -> None:
        """ValueError if the head of their class computes something else than ours."""
        for their_class in classes_in(values):
            for key, expected in self.fixed_in_heads.get(their_class, {}).items():
                if values.get(key, expected) != expected:
                    raise ValueError(
                        f"{key} is {values[key]!r:.40}; in an {their_class} it must be "
                        f"{expected!r}"
                    )

    def to_hugging_face(self, config) -> dict:
        if config.attention_direction not in _DIRECTIONS:
            raise ValueError(
                f"attention_direction is {config.attention_direction!r}, for which Hugging "
                f"Face's {self.architecture} has no key; only "
                f"{' and '.join(_DIRECTIONS)} have one"
            )
        fields = dataclasses.asdict(config).items()
        activations = {"gelu": "gelu_new", "gelu_erf": "gelu"}
        return {key: value for key, value in fields if key not in config.own_keys} | {
            "model_type": self.model_type,
            "hidden_act": activations.get(config.hidden_act, config.hidden_act),
            "layer_norm_eps": config.layer_norm_eps,
            **_DIRECTIONS[config.attention_direction],
        }


def check_fixed(values: Mapping, fixed: Mapping[str, object], network: str) -> None:
    """ValueError if a key that has no field here has another value than that network's."""
    for key, expected in fixed.items():
        value = values.get(key)
        if value is not None and value != expected:
            raise ValueError(
                f"{key} is {value!r:.40}, but must be {expected!r} in {network}; use "
                "another model"
            )


def our_activation(key: str, values: Mapping, ours: Mapping[str, str]) -> str:
    """Their name of an activation -> ours; ValueError if there is none."""
    activation = values[key]
    if activation not in list(ours):  # not hashed: of any type
        raise ValueError(
            f"{key} is {activation!r:.40}; in Hugging Face's config it must be one of "
            f"{', '.join(ours)}"
        )
    return ours[activation]


def classes_in(values: Mapping) -> list[str]:
    """The classes that a config.json of Hugging Face names; mostly one, or none."""
    names = values.get("architectures")
    names = names if isinstance(names, list) else []
    return [name for name in names if isinstance(name, str)]


def _warn_of_differences(values):
    if "position_embedding_type" in values and not values["position_embedding_type"]:
        logging.warning(
            "position_embedding_type is null and is read as 'absolute'; transformers 4 "
            "gave such models no positions, so check the answers if this one is from there"
        )
    used = values.get("hidden_dropout_prob", 0.1)
    if values.get("classifier_dropout") not in (None, used):
        logging.warning(
            "classifier_dropout=%r is ignored: heads are trained with "
            "hidden_dropout_prob=%r",
            values["classifier_dropout"],
            used,
        )
