"""Dropout: rates, and masks that follow from the seed and stay for good."""

import numpy as np
import pytest
import tensorflow as tf

from modeling import layers
from modeling.architectures.bert import BertEncoder
from tests import tiny

TINY = tiny.config(vocab_size=50, num_hidden_layers=2, max_position_embeddings=12)


def test_dropout_keeps_and_scales():
    x = tf.ones((100, 100))
    y = layers.Dropouts([1, 2])(x, 0.1).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.9)}
    assert (y == 0).mean() == pytest.approx(0.1, abs=0.01)
    assert layers.no_dropout(x, 0.1) is x
    assert layers.Dropouts([1, 2])(x, 0.0) is x


def test_dropout_masks_follow_from_seed_and_number_of_the_call():
    def mask(seed, number):
        dropouts = layers.Dropouts(seed)
        masks = [dropouts(tf.ones(1000), 0.5) for _ in range(number + 1)]
        return masks[-1].numpy() > 0

    assert (mask([1, 2], 3) == mask([1, 2], 3)).all()
    others = [mask([1, 3], 3), mask([2, 2], 3), mask([1, 2], 4), mask([1, 1], 4)]
    for other in others:
        assert (mask([1, 2], 3) == other).mean() == pytest.approx(0.5, abs=0.1)


def test_a_rate_of_zero_moves_no_other_mask():
    some, others = layers.Dropouts([1, 2]), layers.Dropouts([1, 2])
    some(tf.ones(100), 0.0)
    others(tf.ones(100), 0.5)
    masked = (dropouts(tf.ones(100), 0.5).numpy() for dropouts in (some, others))
    np.testing.assert_array_equal(*masked)


MASKS = "080d5d15 730095a2 6b6e6517 d4e5c234 cc30238f 52335120 61040b53 70c110b1"


def test_masks_stay_from_one_version_to_the_next():
    """So that a run survives an upgrade."""
    dropouts = layers.Dropouts([12345, 7])
    masks = [dropouts(tf.ones(32), 0.5).numpy() > 0 for _ in range(8)]
    found = [np.packbits(mask).tobytes().hex() for mask in masks]
    assert found == MASKS.split()


def test_masks_stay_however_many_are_prepared_at_once(monkeypatch):
    monkeypatch.setattr(layers, "_SITES", 3)
    test_masks_stay_from_one_version_to_the_next()


def test_a_layer_that_is_used_twice_draws_twice():
    layer = BertEncoder(TINY).transformer_layers[0]
    dropouts, hidden = layers.Dropouts([1, 1]), tf.ones((2, 4, TINY.hidden_size))
    assert (
        (layer(hidden, dropouts=dropouts) != layer(hidden, dropouts=dropouts))
        .numpy()
        .any()
    )
