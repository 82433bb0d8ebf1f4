"""The distribution that the first weights of task heads are drawn from."""

import dataclasses

import numpy as np
import pytest

from modeling.architectures.bert import BertConfig
from modeling.objectives import tasks
from tests import samples

SIZES = {"vocab_size": 9, "hidden_size": 64, "num_hidden_layers": 1}
SIZES |= {
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 8,
}
TASKS = {
    "classification": (tasks.Classification(40), 40),
    "tagging": (tasks.Tagging(40), 40),
    "regression": (tasks.Regression(), 1),
}

CONFIGS = {"bert": BertConfig(**SIZES)} | {
    name: dataclasses.replace(config, **SIZES)
    for name, config in samples.collect("CONFIGS").items()
    if name in ("albert", "roberta")
}


def drawn(config, objective):
    model = objective.network(config, seed=3)
    np.testing.assert_array_equal(model.output_bias.numpy(), 0.0)
    return model.output_weights.numpy()


@pytest.mark.parametrize("architecture", CONFIGS)
def test_they_have_the_deviation_of_the_encoder(architecture):
    weights = drawn(CONFIGS[architecture], TASKS["classification"][0])
    assert np.abs(weights).max() <= 0.04
    assert weights.std() == pytest.approx(0.0176, rel=0.05)  # cut off at two deviations
