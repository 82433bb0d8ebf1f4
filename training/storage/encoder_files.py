"""Writes an encoder with config and vocabulary, in the layouts of several libraries."""

import json
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from training.storage import adapters, checkpoint, loading
from training.storage.folder import CONFIG, TASK, TEXT
from files import anywhere
from modeling import private
from modeling.architectures.encoder import Encoder
from text.tokenizers.tokenizer import Tokenizer
from training.interchange import hugging_face, sentence_folder
from training.interchange.vector_settings import TASK as VECTORS
from training.interchange.vector_settings import VectorSettings

_BUNDLE = "bert_model.ckpt"  # as in a release


class Written(NamedTuple):
    """What is written.

    Attributes:
        layer: the encoder.
        tokenizer: its own.
        vectors: the settings of a model that was trained for vectors; None of others.
        projection: the weights of its linear layer, by our names; {} without one.
    """

    layer: Encoder
    tokenizer: Tokenizer
    vectors: VectorSettings | None
    projection: Mapping[str, np.ndarray]


def write_release(folder: str, written: Written) -> str:
    """Writes what all scripts read; returns the prefix of the checkpoint."""
    beside = dict(written.tokenizer.files)
    beside[CONFIG] = written.layer.config.to_json_string()
    name, settings = TEXT, written.tokenizer.settings
    if written.vectors:
        name, settings = (
            TASK,
            {"task": VECTORS, **written.vectors._asdict(), **settings},
        )
    beside[name] = json.dumps(settings, indent=2) + "\n"
    anywhere.write_files(folder, beside)
    prefix = os.path.join(folder, _BUNDLE)
    checkpoint.write_bundle(
        prefix, _merged_weights(written.layer) | dict(written.projection)
    )
    return prefix


def write_hugging_face(folder: str, written: Written) -> str:
    """Writes Hugging Face's layout; returns the path of the weights."""
    return _write_hugging_face(folder, written, {})


def write_sentence_transformers(folder: str, written: Written) -> str:
    """Writes what sentence-transformers loads; returns the path of the weights."""
    width = written.layer.hidden_size
    files = sentence_folder.module_files(written.vectors, width, written.projection)
    return _write_hugging_face(folder, written, files)


def _write_hugging_face(folder, written, more):
    beside = dict(written.tokenizer.files) | more
    config, tensors = written.layer.config, _merged_weights(written.layer)
    described = written.tokenizer.hugging_face()
    return hugging_face.write(
        folder, tensors, config, tokenizer=described, beside=beside
    )


def _merged_weights(layer: Encoder) -> dict[str, np.ndarray]:
    """The weights by name; what `enable_lora` added is part of its kernel."""
    values = {variable.path: variable.numpy() for variable in layer.weights}
    for each in private.layers_in(layer):
        if getattr(each, "lora_enabled", False):
            own = {variable.path: variable for variable in each.weights}
            values |= adapters.without(own, each.lora_alpha)
    return {k: v for k, v in values.items() if not loading.is_adapter(k)}


LAYOUTS = {
    "release": write_release,
    "hugging_face": write_hugging_face,
    "sentence_transformers": write_sentence_transformers,
}
