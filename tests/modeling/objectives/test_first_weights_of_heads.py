"""The distribution that the first weights of task heads are drawn from."""

import dataclasses

import numpy as np
import pytest

from modeling.architectures.bert import BertConfig
from modeling.objectives import tasks
from tests import samples

CONFIGS = {"bert": BertConfig(9, 64, 1, 2, 8)} | samples.collect("CONFIGS")
DEVIATIONS = {"bert": 0.02} | samples.collect("FIRST_HEADS")


@pytest.mark.parametrize("architecture", DEVIATIONS)
def test_they_have_the_deviation_of_the_encoder(architecture):
    config = dataclasses.replace(CONFIGS[architecture], hidden_size=64)
    model = tasks.Classification(40).network(config, seed=3)
    np.testing.assert_array_equal(model.output_bias.numpy(), 0.0)
    weights, deviation = model.output_weights.numpy(), DEVIATIONS[architecture]
    assert np.abs(weights).max() <= 2 * deviation  # where they are cut off
    assert weights.std() == pytest.approx(0.88 * deviation, rel=0.05)
