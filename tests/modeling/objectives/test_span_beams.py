"""Heads for questions that try beams: the numbers, names and masks of their releases."""

import dataclasses

import numpy as np
import pytest
from keras import ops

from errors import UserError
from family.roberta.config import RobertaConfig
from modeling import layers
from modeling.bilstm import BiLstm
from modeling.objectives import tasks
from modeling.objectives.span_beams import SpanBeams
from run_squad import SPAN_HEADS
from tests.family.albert import test_albert_encoder as test_albert
from tests.family.electra import test_electra_encoder as test_electra

BEAMS = ("start_top_scores", "start_top", "end_top_scores", "end_top")
THEIR_BEAMS = (
    "start_top_log_probs",
    "start_top_index",
    "end_top_log_probs",
    "end_top_index",
)


def made(head, config, weights, variables, **beams):
    """The objective, and its network with the weights of a release."""
    without_dropout = dataclasses.replace(SPAN_HEADS[head], answer_dropout=0.0)
    objective = SpanBeams(without_dropout, **beams)
    model = objective.network(config)
    of_head = {v.path for v in model.weights if v.path not in weights}
    assert of_head == variables.keys()
    for variable in model.weights:
        variable.assign((weights | variables)[variable.path])
    return objective, model


def variables_in(heads, prefix):
    return {k[len(prefix) :]: v for k, v in heads.items() if k.startswith(prefix)}


def loss_of(objective, batch, outputs):
    total, weight = objective.losses(batch, outputs)["loss"]
    return float(total) / float(weight)


def trained(model, batch):
    """Its outputs in training, where no rate is above 0."""
    return model(batch, dropouts=layers.Dropouts(np.array([1, 2])))


@pytest.fixture(scope="module")
def albert():
    golden = test_albert.golden
    heads, batch = golden("heads.npz"), golden("inputs.npz")
    labels = {
        k: heads[k] for k in ("start_positions", "end_positions", "is_impossible")
    }
    objective, model = made(
        "albert",
        test_albert.read_config("base"),
        golden("base/weights.npz"),
        variables_in(heads, "squad_v2/variables/"),
        num_starts=3,
        num_ends=2,
    )
    return objective, model, batch | labels, heads


def electra():
    golden = test_electra.golden
    heads = golden("heads.npz")
    labels = {
        k: heads[f"squad/squad_{k}"]
        for k in ("start_positions", "end_positions", "is_impossible")
    }
    objective, model = made(
        "electra",
        test_electra.CONFIG,
        golden("weights.npz"),
        variables_in(heads, "squad/joint/variables/"),
        num_starts=3,
        num_ends=3,
    )
    return objective, model, golden("inputs.npz") | labels, heads


def test_albert_s_training_equals_the_release(albert):
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


def test_albert_s_beams_equal_the_release(albert):
    _, model, batch, heads = albert
    given = {k: batch[k] for k in ("input_ids", "input_mask", "segment_ids")}
    outputs = model(given)
    assert "end_logits" not in outputs
    for mine, theirs in zip(BEAMS, THEIR_BEAMS, strict=True):
        expected = heads[f"squad_v2/predict/{theirs}"]
        found = np.reshape(outputs[mine], expected.shape)
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=mine)


def test_electra_s_training_equals_the_release():
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


def test_electra_s_beams_equal_the_release():
    _, model, batch, heads = electra()
    outputs = model(batch)
    for mine, theirs in zip(BEAMS, THEIR_BEAMS, strict=True):
        expected = heads[f"squad/joint/predict/{theirs}"]
        np.testing.assert_allclose(outputs[mine], expected, atol=1e-5, err_msg=mine)


@pytest.mark.parametrize("head", SPAN_HEADS)
def test_a_row_may_have_fewer_tokens_than_beams(head):
    model = SpanBeams(SPAN_HEADS[head]).network(test_electra.CONFIG)
    ids = np.array([[2, 5, 3, 6, 3, 0]])
    row = {"input_ids": ids, "input_mask": [[1, 1, 1, 1, 1, 0]]}
    row["segment_ids"] = [[0, 0, 0, 1, 1, 0]]
    outputs = model({k: np.array(v) for k, v in row.items()})
    number = 3 if SPAN_HEADS[head].final_sep else 2  # [CLS], the word, and [SEP]
    scores = outputs["start_top_scores"].numpy()
    assert (scores > -1e29).sum() == number
    assert np.isfinite(outputs["end_top_scores"]).all()
    assert outputs["start_top"].shape == (1, SPAN_HEADS[head].num_starts)
    assert outputs["end_top"].shape[2] == SPAN_HEADS[head].num_ends


def test_windows_without_the_answer():
    """ALBERT says that these have none; ELECTRA that their text has one."""
    batch = {k: np.array([0]) for k in ("start_positions", "end_positions")}
    batch |= {"is_impossible": np.array([0]), "input_ids": np.zeros((1, 2), int)}
    logits = np.array([[50.0, 0.0]], np.float32)
    outputs = {"start_logits": logits, "end_logits": logits}
    outputs["no_answer_logit"] = np.array([10.0], np.float32)
    for head, loss in (("albert", 0.0), ("electra", 5.0)):
        objective = SpanBeams(SPAN_HEADS[head])
        assert loss_of(objective, batch, outputs) == pytest.approx(loss, abs=1e-3)


def test_what_such_a_head_cannot_read_is_refused():
    objective = SpanBeams(SPAN_HEADS["electra"])
    objective.check(test_electra.CONFIG)
    with pytest.raises(UserError, match="roberta does not tell question and text"):
        objective.check(RobertaConfig(vocab_size=9))
    objective.lstm = BiLstm(1)
    with pytest.raises(UserError, match="remove --lstm_layers"):
        objective.check(test_electra.CONFIG)


def test_first_weights_are_drawn_as_in_the_release():
    config = dataclasses.replace(test_electra.CONFIG, hidden_size=64)
    drawn = {}
    for head in ("albert", "electra"):
        model = SpanBeams(SPAN_HEADS[head]).network(config, seed=3)
        drawn[head] = {v.path: v.numpy() for v in model.weights}
    kernel = drawn["albert"]["end_logits/dense_0/kernel"]
    assert kernel.shape == (128, 64)
    assert 0.015 < kernel.std() < 0.02  # truncated at two deviations
    kernel = drawn["electra"]["task_specific/squad/qa_hidden/kernel"]
    assert kernel.shape == (128, 512)
    limit = np.sqrt(6 / (128 + 512))
    assert 0.98 * limit < np.abs(kernel).max() <= limit


@pytest.mark.parametrize("name", ["mnli", "sts-b"])
def test_albert_s_classifiers_equal_the_release(name):
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


def test_albert_s_head_for_questions_that_have_answers_equals_the_release():
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


def test_heads_have_dropout_even_if_the_encoder_has_none():
    for config in (test_albert.read_config("base"), test_electra.CONFIG):
        assert config.hidden_dropout_prob == 0.0
        model = tasks.Classification(3).network(config)
        dropouts = layers.Dropouts(np.array([1, 2]))
        hidden = np.ones((200, 16), np.float32)
        dropped = model.logits(hidden, dropouts)[:, 0]
        whole = np.isclose(0.9 * dropped, model.logits(hidden)[:, 0], atol=1e-7)
        assert 0.1 < np.mean(whole) < 0.3  # 0.9 ** 16 of the rows
