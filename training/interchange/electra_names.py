"""ELECTRA's table of names, those of its fine-tuned heads, and its two networks.

In a file of Hugging Face, which holds one network, the encoder of either is `electra`.
"""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from modeling.architectures.electra_config import ElectraConfig
from training.interchange.bert_names import BERT
from training.interchange.names import Names, Network

_MASKED_LM = "generator_predictions/output_bias"
_DISCRIMINATOR = "discriminator_predictions/dense/kernel"
# The name of the task, the layer, the weight and its slot.
_HEAD = re.compile(r"task_specific/([^/]+)/([^/]+)/(kernel|bias)(/adam_[mv])?")


def _of_encoder(module: tuple[str, str, str]) -> tuple[str, str, str]:
    scope, theirs, kind = module
    return scope.replace("bert/", "electra/"), theirs.replace("bert.", "electra."), kind


def _own_heads(names: Iterable[str]) -> dict[str, tuple[str, bool]]:
    """The heads that the release fine-tunes.

    A single layer is that of a classifier or a tagger; several answer questions. A
    checkpoint with the heads of several tasks keeps its names.

    Source: google-research/electra@8a46635 finetune/classification/classification_tasks.py,
    finetune/tagging/tagging_tasks.py, finetune/qa/qa_tasks.py.
    """
    found = {name: _HEAD.fullmatch(name) for name in names}
    found = {name: match.groups() for name, match in found.items() if match}
    layers = {layer for _, layer, _, _ in found.values()}
    if len({task for task, *_ in found.values()}) != 1:
        return {}
    if layers == {"dense"}:
        ours = {"kernel": "output_weights", "bias": "output_bias"}
        return {
            name: (ours[weight] + (slot or ""), weight == "kernel")
            for name, (_, _, weight, slot) in found.items()
        }
    return {
        name: (f"task_specific/squad/{layer}/{weight}{slot or ''}", False)
        for name, (_, layer, weight, slot) in found.items()
    }


def _discriminator(tensors, config):
    own = ("electra/", "discriminator_predictions/")
    return {k: v for k, v in tensors.items() if k.startswith(own)}, config


def _generator(
    tensors: Mapping[str, np.ndarray], config: ElectraConfig
) -> tuple[dict[str, np.ndarray], ElectraConfig]:
    head = {k: v for k, v in tensors.items() if k.startswith("generator_predictions/")}
    own = {k: v for k, v in tensors.items() if k.startswith("generator/")}
    if not own:  # one encoder is both
        own = {k: v for k, v in tensors.items() if k.startswith("electra/")}
        return own | head, config
    shared = {k: v for k, v in tensors.items() if k.startswith("electra/embeddings/")}
    own = {re.sub("^generator/", "electra/", k): v for k, v in own.items()}
    found = shared | own | head
    layers = {name.split("/")[2] for name in own if name.startswith("electra/encoder/")}
    width = head["generator_predictions/dense/kernel"].shape[0]
    config = config.of_sizes(
        width,
        len(layers),
        intermediate_size=own["electra/encoder/layer_0/intermediate/dense/bias"].size,
        embedding_size=found["electra/embeddings/word_embeddings"].shape[1],
    )
    return found, config


_NETWORKS = {
    "generator": Network(
        head=_MASKED_LM,
        does="fills masks",
        take=_generator,
        scopes=("generator/", "generator_predictions/"),
        flags="--generator_hidden_size, --generator_layers and --generator_shares",
    ),
    "discriminator": Network(
        head=_DISCRIMINATOR,
        does="finds replaced words",
        take=_discriminator,
        scopes=("discriminator_predictions/",),
    ),
}

ELECTRA = Names(
    modules=(
        *(
            _of_encoder(module)
            for module in BERT.modules
            if module[0].startswith(("bert/embeddings", "bert/encoder"))
        ),
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
    ),
    layer="electra/encoder/layer_#",
    encoder=("electra", ("embeddings", "embeddings_project", "encoder")),
    masked_lm=_MASKED_LM,
    tied={
        "generator_lm_head.weight": (
            "electra/embeddings/word_embeddings",
            "the table of word embeddings",
        ),
    },
    heads={
        "classification": "ElectraForSequenceClassification",
        "tagging": "ElectraForTokenClassification",
        "choice": "ElectraForMultipleChoice",
    },
    classes={
        ("cls/squad/output_weights",): "ElectraForQuestionAnswering",
        (_DISCRIMINATOR,): "ElectraForPreTraining",
        (_MASKED_LM,): "ElectraForMaskedLM",
        (): "ElectraModel",
    },
    causal={"ElectraForMaskedLM": "ElectraForCausalLM"},
    renamed={
        "classification": {
            "electra.pooler.dense": "classifier.dense",
            "classifier": "classifier.out_proj",
        },
        "choice": {"electra.pooler.dense": "sequence_summary.summary"},
    },
    without_layer='this model has none, as in the release; with "pooler_act": "gelu_erf" '
    "in the config file, fine-tuning makes one",
    own_heads=_own_heads,
    networks=_NETWORKS,
)
