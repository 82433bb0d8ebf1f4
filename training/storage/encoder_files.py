"""Writes an encoder with config and vocabulary, as a release or as Hugging Face does."""

import json
import os

import numpy as np

from training.storage import adapters, checkpoint
from training.storage.folder import CONFIG, TEXT
from files import anywhere
from modeling import private
from modeling.architectures.config import EncoderConfig
from modeling.architectures.encoder import Encoder
from text.tokenizers import tokenizer_json
from text.tokenizers.tokenizer import Tokenizer
from training.interchange import hugging_face

_BUNDLE = "bert_model.ckpt"  # as in a release


def write_release(
    folder: str, layer: Encoder, config: EncoderConfig, tokenizer: Tokenizer
) -> str:
    """Writes what all scripts read; returns the prefix of the checkpoint."""
    os.makedirs(folder, exist_ok=True)
    beside = dict(tokenizer.files)
    beside[CONFIG] = config.to_json_string().encode()
    beside[TEXT] = (json.dumps(tokenizer.settings, indent=2) + "\n").encode()
    for name, content in beside.items():
        with anywhere.replacing(os.path.join(folder, name)) as file:
            file.write(content)
    prefix = os.path.join(folder, _BUNDLE)
    checkpoint.write_bundle(prefix, _merged_weights(layer))
    return prefix


def write_hugging_face(
    folder: str, layer: Encoder, config: EncoderConfig, tokenizer: Tokenizer
) -> str:
    """Writes Hugging Face's layout; returns the path of the weights."""
    beside = dict(tokenizer.files)
    described = tokenizer.hugging_face()
    if described.json:
        beside[tokenizer_json.NAME] = described.json
    tensors = _merged_weights(layer)
    return hugging_face.write(
        folder, tensors, config, tokenizer=described.config, beside=beside
    )


def _merged_weights(layer: Encoder) -> dict[str, np.ndarray]:
    """The weights by name; what `enable_lora` added is part of its kernel."""
    values = {variable.path: variable.numpy() for variable in layer.weights}
    for each in private.layers_in(layer):
        if getattr(each, "lora_enabled", False):
            own = {variable.path: variable for variable in each.weights}
            values |= adapters.without(own, each.lora_alpha)
    return {k: v for k, v in values.items() if not adapters.are_in([k])}


LAYOUTS = {"release": write_release, "hugging_face": write_hugging_face}
