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
CONFIGS = {"bert": BertConfig(**SIZES)} | samples.collect("CONFIGS")
DEVIATIONS = {"bert": 0.02} | samples.collect("FIRST_HEADS")


def drawn(config, objective):
    model = objective.network(config, seed=3)
    np.testing.assert_array_equal(model.output_bias.numpy(), 0.0)
    return model.output_weights.numpy()


@pytest.mark.parametrize("architecture", DEVIATIONS)
def test_they_have_the_deviation_of_the_encoder(architecture):
    config = dataclasses.replace(CONFIGS[architecture], hidden_size=64)
    weights = drawn(config, TASKS["classification"][0])
    deviation = DEVIATIONS[architecture]
    assert np.abs(weights).max() <= 2 * deviation  # where they are cut off
    assert weights.std() == pytest.approx(0.88 * deviation, rel=0.05)
