"""Masked words and sentence order: the release's losses, and next sentences' network."""

import numpy as np
import pytest

from family.albert.sentence_order import MaskedLMSentenceOrder
from modeling import losses
from modeling.objectives.sentence_pairs import MaskedLMNextSentence
from tests.family.albert.test_albert_encoder import golden, read_config

OBJECTIVE = MaskedLMSentenceOrder()


@pytest.mark.parametrize("name", ["base", "groups", "same_width"])
def test_losses_equal_the_release(name):
    batch, expected = golden("inputs.npz"), golden(f"{name}/outputs.npz")
    model = OBJECTIVE.network(read_config(name))
    weights = golden(f"{name}/weights.npz")
    for variable in model.weights:
        variable.assign(weights[variable.path])
    outputs = model(batch)
    found = OBJECTIVE.losses(batch, outputs)
    assert found.keys() == OBJECTIVE.loss_weights.keys()
    for loss, pair in found.items():
        np.testing.assert_allclose(losses.mean(*pair), expected[loss], rtol=1e-5)
    log_probs = expected["sentence_order_log_probs"]
    found = OBJECTIVE.metrics(batch, outputs)
    assert set(found) == set(OBJECTIVE.metric_names)
    right = log_probs.argmax(axis=1) == batch["next_sentence_labels"][:, 0]
    assert float(losses.mean(*found["sentence_order_accuracy"])) == pytest.approx(
        right.mean(), rel=1e-4
    )


def test_its_network_is_that_of_next_sentences():
    config = read_config("base")
    order, follows = (
        objective.network(config, seed=3)
        for objective in (OBJECTIVE, MaskedLMNextSentence())
    )
    assert [v.path for v in order.weights] == [v.path for v in follows.weights]
    assert "cls/seq_relationship/output_weights" in [v.path for v in order.weights]
    for one, other in zip(order.weights, follows.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    features = MaskedLMNextSentence.needs.features
    assert OBJECTIVE.needs.features == features
