"""ModernBERT in Hugging Face's layout."""

import dataclasses
import re
from collections.abc import Mapping

from training.interchange.adapter import Adapter, usual_heads
from training.interchange.bert_adapter import check_fixed, our_activation

_TABLE = "modern_bert/embeddings/word_embeddings"
_MASKED_LM = "cls/predictions/output_bias"
_SPANS = "cls/squad/output_weights"
_HEAD = "modern_bert/head/dense/kernel"
# Of a layer: our scope, their module, the kind of module.
_LAYER = (
    ("attention/LayerNorm", "attn_norm", "norm"),
    ("attention/Wqkv", "attn.Wqkv", "dense"),
    ("attention/Wo", "attn.Wo", "dense"),
    ("mlp/LayerNorm", "mlp_norm", "norm"),
    ("mlp/Wi", "mlp.Wi", "dense"),
    ("mlp/Wo", "mlp.Wo", "dense"),
)
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
}
_THEIR_ACTIVATIONS = {"gelu_erf": "gelu", "gelu": "gelu_new", "relu": "relu"}
_POOLINGS = {"cls": "first", "mean": "mean"}
_ACTIVATION_KEYS = ("hidden_activation", "classifier_activation")
# Kinds of layers in their newer configs, and our keys for the base of their positions.
_BASES = {
    "full_attention": "global_rope_theta",
    "sliding_attention": "local_rope_theta",
}
_FIXED = {"rope_scaling": None, "quantization_config": None, "is_decoder": False}
_OF_POSITIONS = (*_BASES.values(), "rope_parameters", "rope_scaling")


class ModernBertAdapter(Adapter):
    """They call the numbers of a config as our files do, or, since transformers 5, list
    the kind of each layer (layer_types) and describe the positions of both kinds
    (rope_parameters). The older keys are written, which all versions read.

    Source: huggingface/transformers v5.24.0
    models/modernbert/configuration_modernbert.py.
    """

    architecture, model_type = "modern_bert", "modernbert"
    modules = (
        (_TABLE, "model.embeddings.tok_embeddings", "embedding"),
        ("modern_bert/embeddings/LayerNorm", "model.embeddings.norm", "norm"),
        *(
            (f"modern_bert/encoder/layer_#/{scope}", f"model.layers.#.{module}", kind)
            for scope, module, kind in _LAYER
        ),
        ("modern_bert/encoder/LayerNorm", "model.final_norm", "norm"),
        ("modern_bert/head/dense", "head.dense", "dense"),
        ("modern_bert/head/LayerNorm", "head.norm", "norm"),
        ("cls/predictions", "decoder", "bias"),
        ("cls/squad/", "qa_outputs", "head"),
        ("", "classifier", "head"),
    )
    why_all_layers = (
        "alternate between local and global attention, and the first one has no norm; set "
        "a smaller num_hidden_layers in the config of a new model instead"
    )
    numbers = (r"(?<=/layer_)\d+(?=/)", r"(?<=\.layers\.)\d+(?=\.)")
    encoder = ("model", ("embeddings", "layers", "final_norm"))
    masked_lm = _MASKED_LM
    tied = {"decoder.weight": (_TABLE, "the table of word embeddings")}
    heads = usual_heads("ModernBert")
    classes = {
        (_SPANS,): "ModernBertForQuestionAnswering",
        (_HEAD,): "ModernBertForMaskedLM",
        (): "ModernBertModel",
    }

    in_class = {"ModernBertForQuestionAnswering": {"qa_outputs": "classifier"}}

    def from_hugging_face(self, values):
        check_fixed(values, _FIXED, "Hugging Face's modernbert")
        for key, value in values.items():
            is_known = key in _OF_POSITIONS or value is None
            if not is_known and re.search("rope|rotary", key):
                raise ValueError(
                    f"{key:.40} is {value!r:.40}; of rotary positions, only the keys "
                    f"{', '.join(_OF_POSITIONS)} are known, so use another model"
                )
        fields = {"vocab_size": 50368, "pad_token_id": 50283} | {
            key: values[key] for key in self._keys.values() if key in values
        }
        fields |= _bases(values)
        if "layer_types" in values:
            period = _period(values["layer_types"], fields)
            fields["global_attn_every_n_layers"] = period
        for key in _ACTIVATION_KEYS:
            fields[key] = our_activation(key, {key: "gelu", **values}, _ACTIVATIONS)
        pooling = values.get("classifier_pooling", "cls")
        if pooling not in list(_POOLINGS):  # not hashed: of any type
            raise ValueError(
                f"classifier_pooling is {pooling!r:.40}; it must be one of "
                f"{', '.join(_POOLINGS)}"
            )
        return self.config.from_dict(fields | {"pooling": _POOLINGS[pooling]})

    @property
    def _keys(self) -> dict[str, str]:
        """Our fields but the pooling -> their keys, which are those of our files."""
        keys = self.config.file_keys
        names = (field.name for field in dataclasses.fields(self.config))
        return {name: keys.get(name, name) for name in names if name != "pooling"}

    def to_hugging_face(self, config) -> dict:
        values = {key: getattr(config, name) for name, key in self._keys.items()}
        for key in _ACTIVATION_KEYS:
            values[key] = _THEIR_ACTIVATIONS[values[key]]
        poolings = {ours: theirs for theirs, ours in _POOLINGS.items()}
        return values | {
            "model_type": self.model_type,
            "classifier_pooling": poolings[config.pooling],
            "tie_word_embeddings": True,
            # Absent, they would be those of the released vocabulary.
            **dict.fromkeys(("bos_token_id", "eos_token_id"), None),
            **dict.fromkeys(("cls_token_id", "sep_token_id"), None),
        }

    def prepare_tensors(self, tensors, config):
        """Leaves out the head of an encoder alone, which their class for it lacks."""
        ends = {"output_weights", _SPANS, _MASKED_LM} & tensors.keys()
        if ends or not config.decoder_bias:
            return tensors
        return {k: v for k, v in tensors.items() if "/head/" not in k}


def _bases(values: Mapping) -> dict[str, object]:
    """Our keys for what rope_parameters says, if a config has it."""
    described = values.get("rope_parameters")
    if described is None:
        return {}
    if not isinstance(described, Mapping):
        raise ValueError(f"rope_parameters is {described!r:.40}; it must be an object")
    found = {}
    for kind, parameters in described.items():
        where = f"rope_parameters.{kind:.40}"
        if kind not in _BASES or not isinstance(parameters, Mapping | None):
            raise ValueError(
                f"{where} is {parameters!r:.40}; it must be an object, and its key one of "
                f"{', '.join(_BASES)}"
            )
        for key, value in (parameters or {}).items():
            if key == "rope_theta":
                found[_BASES[kind]] = value
            elif key != "rope_type" or value != "default":
                raise ValueError(
                    f"{where}.{key:.40} is {value!r:.40}; positions with rope_theta and "
                    'rope_type "default" alone are supported, so use another model'
                )
    return found


def _period(types: object, fields: Mapping) -> int:
    """global_attn_every_n_layers, of the kinds of all layers.

    Args:
        fields: what else is known; of several periods that fit, that of an older key.
    """
    key = "global_attn_every_n_layers"
    whole, near = _BASES
    if isinstance(types, list) and len(types) == fields.get("num_hidden_layers", 22):
        later = [place for place, kind in enumerate(types) if place and kind == whole]
        # With one global layer, all longer periods mean the same.
        older = fields.get(key)
        periods = [older] if isinstance(older, int) and older > 0 else []
        for period in (*periods, *later[:1], len(types)):
            kinds = [near if place % period else whole for place in range(len(types))]
            if types == kinds:
                return period
    raise ValueError(
        f"layer_types is {types!r:.80}; it must have {whole} for the first of "
        f"num_hidden_layers and then for every n-th, and {near} for the others, because "
        "other networks are not supported"
    )
