"""Learning rates that fall from layer to layer."""

import re

import numpy as np
import pytest

from modeling.architectures.bert import BertConfig
from modeling.architectures.table import make_encoder
from modeling.optimizers.table import layerwise_shares
from tests import samples

SIZES = {"vocab_size": 9, "hidden_size": 4, "num_attention_heads": 1}


def shares(config, decay=0.5):
    """The exponent of each variable."""
    encoder = make_encoder(config)
    found = layerwise_shares(encoder.stages, decay)
    assert found.keys() == {v.path for v in encoder.weights}
    return {path: round(float(np.log2(1 / share))) for path, share in found.items()}


def test_exponents_are_those_of_the_release():
    config = BertConfig(**SIZES, num_hidden_layers=3)
    found = shares(config)
    expected = {"embeddings": 5, "layer_0": 4, "layer_1": 3, "layer_2": 2, "pooler": 1}
    for name, exponent in expected.items():
        of_stage = {value for path, value in found.items() if f"/{name}/" in path}
        assert of_stage == {exponent}, name


CONFIGS = samples.collect("CONFIGS")
LOWEST = re.compile("(embeddings|table|shared/embedding)$")
HIGHEST = re.compile("(encoder|transformer|elmo)/layer_1/|group_0|block_001")


@pytest.mark.parametrize("architecture", CONFIGS)
def test_lower_layers_learn_more_slowly_in_every_architecture(architecture):
    found = shares(CONFIGS[architecture])
    assert {v for path, v in found.items() if LOWEST.search(path)} == {4}
    assert {v for path, v in found.items() if HIGHEST.search(path)} == {2}
