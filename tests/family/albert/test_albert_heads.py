"""ALBERT's heads: the numbers, names and masks of its release."""

import numpy as np
import pytest
from keras import ops

from modeling.objectives import tasks
from run_squad import SPAN_HEADS
from tests.family.albert import test_albert_encoder as test_albert
from tests.modeling.objectives.test_span_beams import (
    BEAMS,
    THEIR_BEAMS,
    check_dropout,
    loss_of,
    made,
    trained,
    variables_in,
)


@pytest.fixture(scope="module")
def albert():
    golden = test_albert.golden
    heads, batch = golden("heads.npz"), golden("inputs.npz")
    labels = {
        k: heads[k] for k in ("start_positions", "end_positions", "is_impossible")
    }
    objective, model = made(
        SPAN_HEADS["albert"],
        test_albert.read_config("base"),
        golden("base/weights.npz"),
        variables_in(heads, "squad_v2/variables/"),
        num_starts=3,
        num_ends=2,
    )
    return objective, model, batch | labels, heads


def test_training_with_beams_equals_the_release(albert):
    objective, model, batch, heads = albert
    outputs = trained(model, batch)
    assert "start_top" not in outputs
    allowed = heads["p_mask"] == 0
    for name in ("start", "end"):
        log_probs = ops.log_softmax(outputs[f"{name}_logits"]).numpy()
        expected = heads[f"squad_v2/train/{name}_log_probs"]
        np.testing.assert_allclose(log_probs[allowed], expected[allowed], atol=1e-5)
        assert (log_probs[~allowed] < -1e29).all()
    np.testing.assert_allclose(
        outputs["no_answer_logit"], heads["squad_v2/train/cls_logits"], atol=1e-5
    )
    expected = float(heads["squad_v2/train/total_loss"])
    assert loss_of(objective, batch, outputs) == pytest.approx(expected, abs=1e-5)


def test_beams_equal_the_release(albert):
    _, model, batch, heads = albert
    given = {k: batch[k] for k in ("input_ids", "input_mask", "segment_ids")}
    outputs = model(given)
    assert "end_logits" not in outputs
    for mine, theirs in zip(BEAMS, THEIR_BEAMS, strict=True):
        expected = heads[f"squad_v2/predict/{theirs}"]
        found = np.reshape(outputs[mine], expected.shape)
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=mine)


@pytest.mark.parametrize("name", ["mnli", "sts-b"])
def test_classifiers_equal_the_release(name):
    golden = test_albert.golden
    heads, batch = golden("heads.npz"), golden("inputs.npz")
    weights = golden("base/weights.npz") | variables_in(heads, f"{name}/variables/")
    if name == "mnli":
        objective = tasks.Classification(3)
        batch["label_ids"] = heads["mnli/labels"]
    else:
        objective = tasks.Regression()
        batch["label_values"] = heads["sts-b/labels"]
    model = objective.network(test_albert.read_config("base"))
    for variable in model.weights:
        variable.assign(weights[variable.path])
    outputs = model(batch)
    found = np.reshape(outputs["logits"], heads[f"{name}/logits"].shape)
    np.testing.assert_allclose(found, heads[f"{name}/logits"], atol=1e-5)
    loss = loss_of(objective, batch, outputs)
    assert loss == pytest.approx(float(heads[f"{name}/loss"]), abs=1e-5)


def test_head_for_questions_that_have_answers_equals_the_release():
    golden = test_albert.golden
    heads = golden("heads.npz")
    weights = golden("base/weights.npz") | variables_in(heads, "squad_v1/variables/")
    model = tasks.Span().network(test_albert.read_config("base"))
    for variable in model.weights:
        variable.assign(weights[variable.path])
    outputs = model(golden("inputs.npz"))
    for name in ("start_logits", "end_logits"):
        expected = heads[f"squad_v1/{name}"]
        np.testing.assert_allclose(outputs[name], expected, rtol=0, atol=1e-5)


def test_a_head_has_dropout():
    check_dropout(test_albert.read_config("base"))
