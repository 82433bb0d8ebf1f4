"""ELECTRA in Hugging Face's layout, its fine-tuned heads, and its two networks.

In a file of Hugging Face, which holds one network, the encoder of either is `electra`.
"""

import re
from collections.abc import Mapping

import numpy as np

from modeling.architectures.config import EncoderConfig
from training.interchange.adapter import CheckpointNetwork, parts_of_head, usual_heads
from training.interchange.bert_adapter import BertAdapter, classes_in, encoder_modules

_MASKED_LM = "generator_predictions/output_bias"
_DISCRIMINATOR = "discriminator_predictions/dense/kernel"
# The name of the task, the layer, the weight and its slot.
_HEAD = re.compile(r"task_specific/([^/]+)/([^/]+)/(kernel|bias)(/adam_[mv])?")


def _discriminator(tensors, config):
    own = ("electra/", "discriminator_predictions/")
    return {k: v for k, v in tensors.items() if k.startswith(own)}, config


def _generator(
    tensors: Mapping[str, np.ndarray], config: EncoderConfig
) -> tuple[dict[str, np.ndarray], EncoderConfig]:
    head = {k: v for k, v in tensors.items() if k.startswith("generator_predictions/")}
    own = {k: v for k, v in tensors.items() if k.startswith("generator/")}
    if not own:  # one encoder is both
        own = {k: v for k, v in tensors.items() if k.startswith("electra/")}
        return own | head, config
    shared = {k: v for k, v in tensors.items() if k.startswith("electra/embeddings/")}
    own = {re.sub("^generator/", "electra/", k): v for k, v in own.items()}
    generator = shared | own | head
    layers = {name.split("/")[2] for name in own if name.startswith("electra/encoder/")}
    width = head["generator_predictions/dense/kernel"].shape[0]
    config = config.of_sizes(
        width,
        len(layers),
        intermediate_size=own["electra/encoder/layer_0/intermediate/dense/bias"].size,
        embedding_size=generator["electra/embeddings/word_embeddings"].shape[1],
    )
    return generator, config


class ElectraAdapter(BertAdapter):
    """Their heads for whole rows have a dense layer, where the release's have none.

    Source: huggingface/transformers v5.23.0 models/electra/configuration_electra.py.
    """

    architecture = model_type = "electra"
    modules = (
        *encoder_modules("electra", "embeddings", "encoder"),
        ("electra/embeddings_project", "electra.embeddings_project", "dense"),
        (
            "discriminator_predictions/dense",
            "discriminator_predictions.dense",
            "dense",
        ),
        (
            "discriminator_predictions/dense_1",
            "discriminator_predictions.dense_prediction",
            "dense",
        ),
        ("generator_predictions/dense", "generator_predictions.dense", "dense"),
        ("generator_predictions/LayerNorm", "generator_predictions.LayerNorm", "norm"),
        ("generator_predictions", "generator_lm_head", "bias"),
        ("electra/pooler/dense", "electra.pooler.dense", "dense"),
        ("cls/squad/", "qa_outputs", "head"),
        ("", "classifier", "head"),
    )
    layer = "electra/encoder/layer_#"
    encoder = ("electra", ("embeddings", "embeddings_project", "encoder"))
    masked_lm = _MASKED_LM
    tied = {
        "generator_lm_head.weight": (
            "electra/embeddings/word_embeddings",
            "the table of word embeddings",
        ),
    }
    heads = usual_heads("Electra")
    classes = {
        ("cls/squad/output_weights",): "ElectraForQuestionAnswering",
        (_DISCRIMINATOR,): "ElectraForPreTraining",
        (_MASKED_LM,): "ElectraForMaskedLM",
        (): "ElectraModel",
    }
    causal = {"ElectraForMaskedLM": "ElectraForCausalLM"}
    pooled = frozenset({"ElectraForSequenceClassification", "ElectraForMultipleChoice"})
    renamed = {
        "classification": {
            "electra.pooler.dense": "classifier.dense",
            "classifier": "classifier.out_proj",
        },
        "choice": {"electra.pooler.dense": "sequence_summary.summary"},
    }
    without_layer = (
        'this model has none, as in the release; with "pooler_act": "gelu_erf" in the '
        "config file, fine-tuning makes one"
    )
    fixed_values = BertAdapter.fixed_values | {
        "hidden_act": "gelu"  # of the generator's head, whatever the key says
    }
    fixed_in_heads = {
        "ElectraForMultipleChoice": {
            "summary_type": "first",
            "summary_use_proj": True,
            "summary_activation": "gelu",
        }
    }
    networks = {
        "generator": CheckpointNetwork(
            head=_MASKED_LM,
            does="fills masks",
            take=_generator,
            scopes=("generator/", "generator_predictions/"),
            flags="--generator_hidden_size and --generator_layers",
        ),
        "discriminator": CheckpointNetwork(
            head=_DISCRIMINATOR,
            does="finds replaced words",
            take=_discriminator,
            scopes=("discriminator_predictions/",),
        ),
    }

    def translate(self, values) -> dict:
        has_layer = not self.pooled.isdisjoint(classes_in(values))
        return super().translate(values) | {
            "pooler_act": "gelu_erf" if has_layer else None
        }

    def to_hugging_face(self, config) -> dict:
        if config.hidden_act != "gelu_erf":
            raise ValueError(
                f"hidden_act is {config.hidden_act!r}; in Hugging Face's electra, the "
                "generator's head always has the exact GELU (gelu_erf)"
            )
        return super().to_hugging_face(config)

    def own_heads(self, names):
        """The heads that the release fine-tunes.

        A single layer is that of a classifier or a tagger; several answer questions.

        Source: google-research/electra@8a46635
        finetune/classification/classification_tasks.py, finetune/tagging/tagging_tasks.py,
        finetune/qa/qa_tasks.py.
        """
        parts = parts_of_head(names, _HEAD)
        if {layer for _, layer, _, _ in parts.values()} == {"dense"}:
            ours = {"kernel": "output_weights", "bias": "output_bias"}
            return {
                name: (ours[weight] + (slot or ""), weight == "kernel")
                for name, (_, _, weight, slot) in parts.items()
            }
        return {
            name: (f"task_specific/squad/{layer}/{weight}{slot or ''}", False)
            for name, (_, layer, weight, slot) in parts.items()
        }
