"""Checks that the losses of an objective by source are those of the rows of each."""

import numpy as np
import pytest

from training.backend import tf
from modeling import custom_gradients, losses
from tests import tiny
from training.pretraining.by_source import BySource

SOURCES = np.array([2, 0, 0, 2, 0, 2], np.int32)
REAL = np.array([1, 1, 0, 1, 1, 1], np.float32)


def batch():
    rng = np.random.default_rng(0)
    width, masked = 9, 3
    return {
        "input_ids": rng.integers(1, 40, (6, width), np.int32),
        "input_mask": rng.integers(0, 2, (6, width), np.int32),
        "segment_ids": np.zeros((6, width), np.int32),
        "masked_lm_positions": rng.integers(0, width, (6, masked), np.int32),
        "masked_lm_ids": rng.integers(0, 40, (6, masked), np.int32),
        "masked_lm_weights": rng.integers(0, 2, (6, masked)).astype("f"),
        "next_sentence_labels": rng.integers(0, 2, (6, 1), np.int32),
        "is_real_example": REAL,
    }


def check(objective, **config):
    """With rows of two of three sources, some of which do not count."""
    network = objective.network(tiny.config(vocab_size=40, **config))
    mixed = BySource(objective, ["wiki", "books", "code"])
    whole = {name: tf.constant(x) for name, x in batch().items()}
    whole["source"] = tf.constant(SOURCES)
    with custom_gradients.use_gradients():
        counts = mixed.summary.counts(whole, network.predict(whole)).numpy()
    found = mixed.summary.compute(dict.fromkeys(objective.loss_weights, 1.0), counts)
    for number, name in enumerate(("wiki", "books", "code")):
        own = {k: tf.constant(x[SOURCES == number]) for k, x in batch().items()}
        if number == 1:
            assert f"loss/{name}" not in found  # no row is from it
            continue
        pairs = objective.losses(own, network.predict(own))
        expected = {k: float(losses.mean(*pair)) for k, pair in pairs.items()}
        assert found[f"loss/{name}"] == pytest.approx(sum(expected.values()), rel=1e-5)
        if len(expected) > 1:
            for loss, value in expected.items():
                assert found[f"{loss}/{name}"] == pytest.approx(value, rel=1e-5)
