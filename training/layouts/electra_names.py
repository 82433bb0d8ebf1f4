"""ELECTRA's table of names, and how to take one network out of a checkpoint of two.

A file of Hugging Face holds one network; the encoder of both has the scope `electra`.
"""

import re
from collections.abc import Container, Mapping

import numpy as np

from modeling.encoders.config import EncoderConfig
from modeling.encoders.electra_config import ElectraConfig
from text.errors import UserError
from training.layouts.bert_names import BERT
from training.layouts.names import Names

_MASKED_LM = "generator_predictions/output_bias"
_DISCRIMINATOR = "discriminator_predictions/dense/kernel"


def _of_encoder(module: tuple[str, str, str]) -> tuple[str, str, str]:
    scope, theirs, kind = module
    return scope.replace("bert/", "electra/"), theirs.replace("bert.", "electra."), kind


def holds_both(names: Container[str]) -> bool:
    """Whether a checkpoint with these released names has both networks."""
    return _MASKED_LM in names and _DISCRIMINATOR in names


def check_network(path: str, names: Container[str], wanted: Container[str]) -> None:
    """Refuses to read a masked LM from a checkpoint of both networks.

    If they are equally large, the generator's head would fit the discriminator.

    Args:
        names: those in the checkpoint.
        wanted: those of the model's variables.
    Raises:
        UserError: says how to take out the generator.
    """
    if holds_both(names) and _MASKED_LM in wanted and _DISCRIMINATOR not in wanted:
        raise UserError(
            f"{path}: contains a generator and a discriminator, and only the generator "
            "fills masks; take it out with convert_checkpoint.py --network=generator"
        )


def take(
    path: str,
    tensors: Mapping[str, np.ndarray],
    config: EncoderConfig,
    network: str | None,
    alone: bool,
) -> tuple[Mapping[str, np.ndarray], EncoderConfig]:
    """One network of a checkpoint of two, as a model of its own.

    Args:
        path: of the checkpoint.
        tensors: by their released names.
        network: a key of NETWORKS; None leaves everything as it is.
        alone: refuse to leave two networks.
    Raises:
        UserError: there are two networks and none was chosen, or the other way round.
    """
    both = holds_both(tensors)
    if network and not both:
        raise UserError(
            f"{path}: does not contain both a generator and a discriminator; leave "
            "--network out"
        )
    if network:
        return NETWORKS[network](tensors, config)
    if both and alone:
        raise UserError(
            f"{path}: contains a generator and a discriminator, of which only one at a "
            f"time can be changed or written so; pass --network={' or '.join(NETWORKS)}"
        )
    return tensors, config


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


# How to take it out: (tensors, config) -> (tensors, config).
NETWORKS = {"discriminator": _discriminator, "generator": _generator}

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
)
