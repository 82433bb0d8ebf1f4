"""In a whole program, attention is computed again for the gradients: the same result."""

import numpy as np
import pytest

from training.backend import tf
from modeling import attention, custom_gradients, fusion, layers
from modeling.architectures.table import make_encoder
from tests import tiny

LENGTH = 128
CONFIGS = {
    "bert": tiny.config(max_position_embeddings=LENGTH),
    "left_to_right": tiny.config(
        max_position_embeddings=LENGTH, attention_direction="left_to_right"
    ),
}


def gradients_of(config, length, is_whole, seed=(1, 2)):
    """Outputs and gradients of an encoder; and how often the graph has a softmax."""
    encoder = make_encoder(config, seed=3)
    ids = np.random.default_rng(0).integers(1, 40, (2, length)).astype("int32")
    mask = np.ones_like(ids)
    mask[1, length // 2 :] = 0

    @tf.function(autograph=False)
    def compute(seed):
        with fusion.whole_program(is_whole), custom_gradients.use_gradients():
            trained = [v.value for v in encoder.trainable_variables]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(trained)
                outputs = encoder(
                    {"input_ids": ids, "input_mask": mask},
                    dropouts=layers.Dropouts(seed),
                )["sequence_output"]
                total = tf.reduce_sum(outputs**2)
            return outputs, tape.gradient(
                total, trained, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )

    seed = tf.constant(seed)
    operations = compute.get_concrete_function(seed).graph.get_operations()
    return compute(seed), [o.type for o in operations].count("Softmax")


def check_gradients(config):
    """Those of what is kept; with padding and dropout, whose masks are drawn again."""
    (outputs, gradients), again = gradients_of(config, LENGTH, is_whole=True)
    (expected, of_kept), once = gradients_of(config, LENGTH, is_whole=False)
    assert again == 2 * once
    np.testing.assert_array_equal(outputs, expected)
    for found, kept in zip(gradients, of_kept, strict=True):
        np.testing.assert_allclose(found, kept, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_are_those_of_what_is_kept(name):
    check_gradients(CONFIGS[name])


def test_few_positions_are_kept():
    config = CONFIGS["bert"]
    _, number = gradients_of(config, attention._FEWEST - 1, is_whole=True)
    assert number == config.num_hidden_layers


def test_without_gradients_nothing_is_computed_again():
    """As a SavedModel must not have such functions."""
    x = tf.ones([1, 1, LENGTH, 1])
    with fusion.whole_program(), tf.GradientTape() as tape:
        tape.watch(x)
        calls = []
        total = attention.of_pairs(lambda x: calls.append(x) or 2.0 * x, x)
    np.testing.assert_array_equal(tape.gradient(total, x), tf.fill(x.shape, 2.0))
    assert len(calls) == 1
