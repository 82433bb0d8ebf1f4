"""Features of a frozen encoder under LSTMs, by their names, equal to those by hand."""

import dataclasses

import numpy as np
import pytest

from modeling import layers
from modeling.architectures.features import FEATURES
from modeling.bilstm import BiLstm
from modeling.objectives import tasks
from tests import numpy_lstm
from tests.ner import DEEP


def batch():
    ids = np.array([[2, 5, 6, 11, 3, 0, 0], [2, 7, 8, 9, 10, 12, 3]])
    return {
        "input_ids": ids,
        "input_mask": (ids > 0).astype(int),
        "segment_ids": np.zeros_like(ids),
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize("features", FEATURES)
def test_features_and_lstms_are_what_they_are_called(features):
    # The attention's dropout stays.
    config = dataclasses.replace(DEEP, num_hidden_layers=5, hidden_dropout_prob=0.0)
    objective = tasks.Tagging(3)
    objective.lstm, objective.frozen = BiLstm(2, 6), features
    model = objective.network(config, seed=3)
    weights = {variable.path: variable for variable in model.weights}
    if features.startswith("weighted_sum"):
        number = {"weighted_sum_all": 5, "weighted_sum_last_four": 4}[features]
        weights["layer_weights"].assign([0.5, -1.0, 0.0, 2.0, 1.0][:number])
    if features == "mix":
        weights["layer_weights"].assign([0.2, 0.5, -1.0, 0.0, 2.0, 1.0])
        weights["gamma"].assign(1.5)
    weights = {name: variable.numpy() for name, variable in weights.items()}
    forward, backward = (
        weights[f"lstm_0/{way}_lstm/lstm_cell/kernel"]
        for way in ("forward", "backward")
    )
    assert np.any(forward != backward)
    assert np.array_equal(
        objective.network(config, seed=3).lstms[0].weights[0].numpy(), forward
    )

    logits = np.array(model(batch())["logits"])
    dropouts = layers.Dropouts(np.array([1, 2]))
    training = model(batch(), dropouts=dropouts)["logits"]
    np.testing.assert_array_equal(logits, training)  # no dropout in the encoder

    all_of_it = model.encoder(batch(), return_all=True)
    embeddings, *encoded = (
        np.array(x)
        for x in (all_of_it["embedding_output"], *all_of_it["layer_outputs"])
    )
    odds = np.exp(weights.get("layer_weights", np.zeros(1)))
    last_four = encoded[1:]

    def weighted(outputs):
        return sum(w * x for w, x in zip(odds / odds.sum(), outputs, strict=False))

    expected = {
        "embeddings": embeddings,
        "second_to_last": encoded[3],
        "last": encoded[4],
        "sum_last_four": sum(last_four),
        "concat_last_four": np.concatenate(last_four, axis=-1),
        "weighted_sum_last_four": weighted(last_four),
        "weighted_sum_all": weighted(encoded),
        "mix": weights.get("gamma", 1.0) * weighted([embeddings, *encoded]),
    }[features]
    for row, length in enumerate((5, 7)):  # what lies behind has no influence
        states = numpy_lstm.bilstm(expected[row, :length], weights, 2)
        wanted = states @ weights["output_weights"].T + weights["output_bias"]
        np.testing.assert_allclose(logits[row, :length], wanted, atol=1e-6)
