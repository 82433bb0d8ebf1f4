"""The distribution that the first weights of task heads are drawn from."""

import numpy as np
import pytest

from family.albert.encoder import AlbertConfig
from family.electra.encoder import ElectraConfig
from family.gpt.encoder import GptConfig
from family.roberta.config import RobertaConfig
from modeling.architectures.bert import BertConfig
from modeling.architectures.table import make_encoder
from modeling.objectives import tasks

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


def drawn(config, objective):
    model = objective.network(config, seed=3)
    np.testing.assert_array_equal(model.output_bias.numpy(), 0.0)
    return model.output_weights.numpy()


@pytest.mark.parametrize("task", TASKS)
def test_electra_s_are_glorot_s(task):
    objective, number = TASKS[task]
    weights = drawn(ElectraConfig(**SIZES), objective)
    assert weights.shape == (number, 64)
    limit = np.sqrt(6 / (number + 64))
    assert 0.9 * limit < np.abs(weights).max() <= limit
    assert weights.std() == pytest.approx(limit / np.sqrt(3), rel=0.1)


@pytest.mark.parametrize("config", [BertConfig, RobertaConfig, AlbertConfig])
def test_the_others_have_the_deviation_of_the_encoder(config):
    weights = drawn(config(**SIZES), TASKS["classification"][0])
    assert np.abs(weights).max() <= 0.04
    assert weights.std() == pytest.approx(0.0176, rel=0.05)  # cut off at two deviations


def test_gpt_s_are_not_cut_off():
    config = GptConfig(**SIZES)
    encoder = make_encoder(config).embeddings.position_embeddings.numpy()
    for weights in (drawn(config, TASKS["classification"][0]), encoder):
        assert np.abs(weights).max() > 0.04
        assert weights.std() == pytest.approx(0.02, rel=0.1)
