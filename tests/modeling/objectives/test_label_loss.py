"""The loss of labels in training, against Keras's and numbers computed by hand."""

import keras
import numpy as np
import pytest

from training.backend import tf
from modeling.bilstm import BiLstm
from modeling.objectives import tasks
from modeling.objectives.label_loss import WithLabelLoss
from tests import tiny

LOGITS = np.array([[2.0, 0.0, -1.0], [0.5, 1.0, 0.0], [-3.0, 0.0, 3.0]], np.float32)
ONE = np.array([0, 2, 2])
SEVERAL = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1]])


def loss(task, label_ids, logits=LOGITS, **settings):
    batch = {
        "input_ids": np.ones((len(logits), 4), np.int32),
        "label_ids": label_ids,
        "is_real_example": np.ones(len(logits), np.int32),
    }
    made = WithLabelLoss(task, **settings)
    return made.losses(batch, {"logits": tf.constant(logits)})["loss"]


def softmax(logits):
    shares = np.exp(logits)
    return shares / shares.sum(axis=-1, keepdims=True)


def test_a_weighted_batch_is_divided_by_the_number_of_its_examples():
    """As `fit` does; torch divides by the sum of the weights."""
    entropy = -np.log(softmax(LOGITS)[np.arange(3), ONE])
    total, weight = loss(tasks.Classification(3), ONE, weights=(0.5, 1.0, 3.0))
    assert total.numpy() == pytest.approx(entropy @ [0.5, 3.0, 3.0], rel=1e-6)
    assert weight.numpy() == 3.0


def test_smoothing_and_discount_of_one_class_are_kerass():
    expected = keras.losses.CategoricalFocalCrossentropy(
        alpha=1.0, gamma=2.0, label_smoothing=0.2, reduction=None, from_logits=True
    )(np.eye(3, dtype=np.float32)[ONE], LOGITS)
    total, _ = loss(tasks.Classification(3), ONE, smoothing=0.2, gamma=2.0)
    assert total.numpy() == pytest.approx(np.sum(expected), rel=1e-5)
    # By hand: 0.8 of the label and 0.2 / 3 of every class.
    probs = softmax(LOGITS)
    targets = np.eye(3)[ONE] * 0.8 + 0.2 / 3
    by_hand = np.sum(-targets * (1 - probs) ** 2 * np.log(probs))
    assert total.numpy() == pytest.approx(by_hand, rel=1e-5)


def test_each_of_several_labels_is_a_choice_of_two():
    task = tasks.MultiLabel(3)
    expected = keras.losses.BinaryFocalCrossentropy(
        gamma=2.0, label_smoothing=0.1, from_logits=True, reduction=None
    )(SEVERAL.astype(np.float32), LOGITS)
    total, _ = loss(task, SEVERAL, smoothing=0.1, gamma=2.0)
    assert total.numpy() == pytest.approx(np.sum(expected), rel=1e-5)
    probs = 1 / (1 + np.exp(-LOGITS))
    entropy = -np.log(np.where(SEVERAL, probs, 1 - probs))
    factors = np.where(SEVERAL, [2.0, 3.0, 4.0], [0.5, 0.25, 1.0])
    total, _ = loss(
        task, SEVERAL, weights=(2.0, 3.0, 4.0), negative_weights=(0.5, 0.25, 1.0)
    )
    assert total.numpy() == pytest.approx((entropy * factors).mean(1).sum(), rel=1e-5)
    total, _ = loss(task, SEVERAL, weights=(2.0, 3.0, 4.0))  # torch's pos_weight
    factors = np.where(SEVERAL, [2.0, 3.0, 4.0], 1.0)
    assert total.numpy() == pytest.approx((entropy * factors).mean(1).sum(), rel=1e-5)


def test_tokens_without_a_label_do_not_count():
    batch = {
        "input_ids": np.ones((1, 3), np.int32),
        "label_ids": ONE[None],
        "label_weights": np.array([[1.0, 0.0, 1.0]], np.float32),
    }
    made = WithLabelLoss(tasks.Tagging(3), weights=(2.0, 1.0, 0.5))
    total, weight = made.losses(batch, {"logits": tf.constant(LOGITS[None])})["loss"]
    entropy = -np.log(softmax(LOGITS)[np.arange(3), ONE])
    assert total.numpy() == pytest.approx(entropy @ [2.0, 0.0, 0.5], rel=1e-6)
    assert weight.numpy() == made.weights(batch)["loss"].numpy() == 2.0


@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize(
    ("task", "label_ids"),
    [(tasks.Classification(3), ONE), (tasks.MultiLabel(3), SEVERAL)],
)
def test_gradients_of_sure_answers_are_finite(task, label_ids, gamma):
    logits = tf.constant(LOGITS * 100.0)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        total, _ = loss(task, label_ids, logits, gamma=gamma, smoothing=0.1)
    assert np.isfinite(total.numpy())
    assert np.isfinite(tape.gradient(total, logits).numpy()).all()


def test_evaluations_measure_the_plain_loss_and_layers_can_be_added():
    task = tasks.Classification(3)
    made = WithLabelLoss(task, weights=(1.0, 2.0, 3.0))
    assert made.for_evaluation is task
    deeper = made.with_layers(BiLstm(1, 4), None)
    model = deeper.network(tiny.config(), seed=1)
    assert len(model.lstms) == 1
    outputs = {"logits": tf.constant(LOGITS)}
    batch = {"label_ids": ONE, "input_ids": np.ones((3, 4), np.int32)}
    for found, expected in zip(
        deeper.losses(batch, outputs)["loss"],
        made.losses(batch, outputs)["loss"],
        strict=True,
    ):
        assert found.numpy() == expected.numpy()
