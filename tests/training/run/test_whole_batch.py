"""Gradients of a whole batch, which the network reads in parts, and twice."""

import contextlib
import functools
import types

import numpy as np
import pytest

from training.backend import tf
from training.run import whole_batch
from modeling import layers, vector_losses
from modeling.objectives.sentence_vectors import OUTPUT, SentenceVectors
from tests import tiny


def objective_and_batch(rows):
    """Pairs of texts that fit, and what learns their vectors."""
    loss = functools.partial(
        vector_losses.in_batch_negatives, temperature=0.1, symmetric=False
    )
    objective = SentenceVectors(loss, of_whole_batch=True, metric="accuracy")
    ids = np.random.default_rng(0).integers(5, 20, (rows, 2, 6), np.int32)
    keys = np.arange(1, 2 * rows + 1, dtype=np.int32).reshape(rows, 2)
    batch = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
        "text_keys": keys,
    }
    return objective, {name: tf.constant(value) for name, value in batch.items()}


@pytest.mark.exhaustive
def test_both_readings_of_a_part_have_the_same_dropout(untraced):
    """So the gradients are those of one reading, whose outputs are compared."""
    objective, batch = objective_and_batch(rows=4)
    model = objective.network(tiny.config(vocab_size=20, hidden_dropout_prob=0.4))
    seeds = tf.constant([[1, 2], [3, 4]])
    weights = {"loss": tf.constant(4.0)}
    with tf.GradientTape() as tape:
        parts = whole_batch.split(batch, 2)
        vectors = []
        for i in range(2):
            rows = {name: value[i] for name, value in parts.items()}
            vectors.append(model(rows, dropouts=layers.Dropouts(seeds[i]))[OUTPUT])
        outputs = {OUTPUT: tf.concat(vectors, axis=0)}
        loss = objective.losses(batch, outputs)["loss"][0] / weights["loss"]
    expected = tape.gradient(loss, [v.value for v in model.trainable_variables])
    found, _ = whole_batch.WholeBatch(
        model,
        objective,
        types.SimpleNamespace(xla=False, recompute=False),
        contextlib.nullcontext,
        lambda *values: tf.zeros([1, 2]),
    ).gradients(batch, weights, seeds)
    for variable, ours, theirs in zip(
        model.trainable_variables, found, expected, strict=True
    ):
        theirs = 0.0 if theirs is None else tf.convert_to_tensor(theirs)
        np.testing.assert_allclose(
            ours, theirs, rtol=1e-4, atol=1e-5, err_msg=variable.path
        )
