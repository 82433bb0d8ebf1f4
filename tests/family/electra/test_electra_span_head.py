"""ELECTRA's head for questions: the numbers, names and masks of its release."""

import numpy as np
import pytest

from run_squad import SPAN_HEADS
from tests.family.electra import test_electra_encoder as test_electra
from tests.modeling.objectives.test_span_beams import (
    BEAMS,
    THEIR_BEAMS,
    check_dropout,
    check_window_without_answer,
    first_weights,
    loss_of,
    made,
    trained,
    variables_in,
)


def electra():
    golden = test_electra.golden
    heads = golden("heads.npz")
    labels = {
        k: heads[f"squad/squad_{k}"]
        for k in ("start_positions", "end_positions", "is_impossible")
    }
    objective, model = made(
        SPAN_HEADS["electra"],
        test_electra.CONFIG,
        golden("weights.npz"),
        variables_in(heads, "squad/joint/variables/"),
        num_starts=3,
        num_ends=3,
    )
    return objective, model, golden("inputs.npz") | labels, heads


def test_training_equals_the_release():
    objective, model, batch, heads = electra()
    outputs = trained(model, batch)
    expected = variables_in(heads, "squad/joint/train/")
    allowed = expected["start_logits"] > -500
    for name in ("start_logits", "end_logits"):
        found = outputs[name].numpy()
        np.testing.assert_allclose(found[allowed], expected[name][allowed], atol=2e-5)
        assert (found[~allowed] < -1e29).all()
    np.testing.assert_allclose(
        outputs["no_answer_logit"], expected["answerable_logit"], atol=1e-5
    )
    summed = float(expected["summed_loss"])
    assert 4 * loss_of(objective, batch, outputs) == pytest.approx(summed, abs=1e-4)


def test_beams_equal_the_release():
    _, model, batch, heads = electra()
    outputs = model(batch)
    for mine, theirs in zip(BEAMS, THEIR_BEAMS, strict=True):
        expected = heads[f"squad/joint/predict/{theirs}"]
        np.testing.assert_allclose(outputs[mine], expected, atol=1e-5, err_msg=mine)


def test_a_window_without_the_answer_has_one_elsewhere_in_its_text():
    check_window_without_answer(SPAN_HEADS["electra"], 5.0)


def test_first_weights_are_glorot_s():
    name = "task_specific/squad/qa_hidden/kernel"
    kernel = first_weights(SPAN_HEADS["electra"], name)
    assert kernel.shape == (128, 512)
    limit = np.sqrt(6 / (128 + 512))
    assert 0.98 * limit < np.abs(kernel).max() <= limit


def test_a_head_has_dropout():
    check_dropout(test_electra.CONFIG)
