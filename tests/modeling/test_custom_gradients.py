"""Gradients that are written out are those of the backend."""

import contextlib

import numpy as np
import pytest

import tests.tiny as tiny
from training.backend import tf
from training.run import compiler
from modeling import custom_gradients, fusion, layers
from modeling.objectives import sentence_pairs

BATCH = {
    "input_ids": np.array([[2, 7, 8, 9, 3, 0], [2, 11, 3, 12, 13, 3]]),
    "input_mask": np.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]),
    "segment_ids": np.array([[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1]]),
    "masked_lm_positions": np.array([[1, 3], [4, 0]]),
    "masked_lm_ids": np.array([[7, 10], [12, 0]]),
    "masked_lm_weights": np.array([[1.0, 1.0], [1.0, 0.0]], "float32"),
    "next_sentence_labels": np.array([[1], [0]]),
}


@pytest.mark.parametrize(
    "compile", [None, compiler.compile_function], ids=["plain", "fused"]
)
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf"])
def test_a_network_has_the_same_gradients_either_way(hidden_act, compile):
    objective = sentence_pairs.MaskedLMNextSentence()
    model = objective.network(tiny.config(hidden_act=hidden_act), seed=0)
    found = []
    for context in (contextlib.nullcontext, custom_gradients.use_gradients):
        with fusion.fuse_with(compile), context(), tf.GradientTape() as tape:
            outputs = model(BATCH, dropouts=layers.Dropouts([1, 2]))
            pairs = objective.losses(BATCH, outputs)
            loss = sum(total for total, _ in pairs.values())
        variables = model.trainable_variables
        found.append([loss, *tape.gradient(loss, [v.value for v in variables])])
    assert len(found[0]) == 1 + len(variables)
    for automatic, written in zip(*found, strict=True):
        written, automatic = map(tf.convert_to_tensor, (written, automatic))
        np.testing.assert_allclose(written, automatic, rtol=1e-4, atol=1e-6)


def test_only_where_they_are_asked_for():
    @custom_gradients.with_gradient
    def twice(x):
        return 2.0 * x, lambda upstream: 100.0 * upstream

    def gradient():
        x = tf.constant(1.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = twice(x)
        return float(tape.gradient(y, x))

    assert gradient() == 2.0
    with pytest.raises(ZeroDivisionError), custom_gradients.use_gradients():
        assert custom_gradients.are_written_out() and gradient() == 100.0
        raise ZeroDivisionError
    assert gradient() == 2.0 and not custom_gradients.are_written_out()
