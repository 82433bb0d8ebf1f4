"""Fine-tuning's losses and gradients, compiled by XLA: as on a TPU, nothing in them has a
varying shape or is a string."""

import numpy as np
import pytest
import tensorflow as tf

from modeling import bilstm, losses
from modeling.objectives import tasks
from tests import tiers, tiny

CONFIG = tiny.config(vocab_size=40, max_position_embeddings=16)
ROWS, LENGTH, CLASSES = 4, 12, 3
RNG = np.random.default_rng(1)


def integers(below, *shape):
    return RNG.integers(below, size=shape).astype(np.int32)


def inputs(*shape):
    mask = np.arange(shape[-1]) < RNG.integers(5, shape[-1], size=(*shape[:-1], 1))
    return {
        "input_ids": integers(CONFIG.vocab_size, *shape) * mask,
        "input_mask": mask.astype(np.int32),
        "segment_ids": integers(2, *shape),
        "is_real_example": np.array([1, 1, 1, 0], np.int32),
    }


ROW, TOKENS = inputs(ROWS, LENGTH), inputs(ROWS, LENGTH)
TOKENS |= {
    "label_ids": integers(CLASSES, ROWS, LENGTH),
    "label_weights": integers(2, ROWS, LENGTH),
}
FROZEN = tasks.Tagging(CLASSES)
FROZEN.lstm, FROZEN.frozen = bilstm.BiLstm(num_layers=1), "last"
CASES = {
    "classes": (tasks.Classification(CLASSES), ROW | {"label_ids": integers(3, ROWS)}),
    "labels": (tasks.MultiLabel(CLASSES), ROW | {"label_ids": integers(2, ROWS, 3)}),
    "number": (
        tasks.Regression(),
        ROW | {"label_values": RNG.random(ROWS, np.float32)},
    ),
    "span": (
        tasks.Span(),
        ROW
        | {f"{side}_positions": integers(LENGTH, ROWS) for side in ("start", "end")},
    ),
    "choice": (
        tasks.Choice(),
        inputs(ROWS, 2, LENGTH) | {"label_ids": integers(2, ROWS)},
    ),
    "tags": (tasks.Tagging(CLASSES), TOKENS),
    "tags by a BiLSTM on a frozen encoder": (FROZEN, TOKENS),
}


@pytest.mark.parametrize("case", tiers.cases(CASES, ["span"]))
def test_losses_gradients_and_metrics_compile(case):
    objective, batch = CASES[case]
    model = objective.network(CONFIG)
    variables = [v.value for v in model.trainable_variables]
    batch = {name: tf.constant(value) for name, value in batch.items()}

    def step():
        with tf.GradientTape() as tape:
            outputs = model(batch)
            found = objective.losses(batch, outputs)
            loss = losses.mean(*found["loss"])
        metrics = [losses.mean(*m) for m in objective.metrics(batch, outputs).values()]
        gradients = tape.gradient(loss, variables)
        return loss, metrics, [g for g in gradients if g is not None]

    plain, compiled = step(), tf.function(step, jit_compile=True)()
    for expected, found in zip(
        tf.nest.flatten(plain), tf.nest.flatten(compiled), strict=True
    ):
        np.testing.assert_allclose(found, tf.convert_to_tensor(expected), atol=1e-5)
