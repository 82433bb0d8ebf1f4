"""The golden T5s, and a small one of our own."""

import dataclasses
import json
import re

import numpy as np
from safetensors.numpy import load_file

import tests
from family.t5.config import T5Config
from family.t5.span_corruption import SpanCorruption
from modeling.objectives.objective import Objective, Tokens
from training.interchange.table import config_from_json

GOLDEN = tests.GOLDEN / "t5"
VERSIONS = ("v1_0", "v1_1")
SMALL = T5Config(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    attention_head_size=6,
    intermediate_size=24,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=16,
)
# For tests/golden/pretraining/pretraining.tfrecord, whose [CLS] and [SEP] are 2 and 3.
OF_RECORDS = dataclasses.replace(
    SMALL, vocab_size=3000, num_hidden_layers=1, eos_token_id=3, hidden_dropout_prob=0.0
)


def spans_of_records() -> Objective:
    """The last ids of their vocabulary stand for spans."""
    tokens = Tokens(range(2999, 2960, -1), end_id=3, pad_id=0, left_out=(2, 3))
    return SpanCorruption(tokens=tokens, width=64)


def golden(name: str) -> dict:
    with np.load(GOLDEN / name) as file:
        return dict(file)


def read_config(version: str) -> T5Config:
    return config_from_json(json.loads((GOLDEN / version / "config.json").read_text()))


def weights(version: str) -> dict[str, np.ndarray]:
    """Of the golden model, by the names and with the shapes of the release."""
    theirs = load_file(GOLDEN / version / "model.safetensors")
    names = json.loads((GOLDEN / version / "variables.json").read_text())
    found = {}
    for name, shape in names:
        other = re.sub(
            r"block_(\d+)/layer_(\d+)",
            lambda number: f"block.{int(number[1])}.layer.{int(number[2])}",
            name.replace("decoder/logits", "lm_head"),
        )
        other = re.sub("/(embedding|scale|kernel)$", "", other).replace("/", ".")
        value = theirs.pop(f"{other}.weight")
        is_transposed = value.ndim > 1 and name != "shared/embedding"
        found[name] = value.T if is_transposed else value
        assert found[name].shape == tuple(shape)
    assert not theirs
    return found


def load(model, version: str):
    """Gives a network the golden weights that it has."""
    values = weights(version)
    for variable in model.weights:
        variable.assign(values[variable.path])
    return model


def batch(version: str) -> dict[str, np.ndarray]:
    """The inputs and targets of the golden outputs."""
    found = golden(f"{version}/outputs.npz")
    labels = found["in_labels"]
    values = {
        "input_ids": found["in_ids"],
        "input_mask": found["in_mask"],
        "target_ids": np.maximum(labels, 0),
        "target_mask": labels >= 0,
    }
    return {name: value.astype(np.int32) for name, value in values.items()}
