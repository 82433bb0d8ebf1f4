"""XLNet's heads: the release's numbers for rows, numbers, choices and questions."""

import dataclasses

import numpy as np
import pytest

from family.xlnet.encoder import XlnetConfig
from modeling.architectures.table import make_encoder
from modeling.distillation.distillation import Distillation
from modeling.distillation.distilled import TEACHERS
from modeling.objectives import tasks
from run_squad import SPAN_HEADS
from tests import tiny
from tests.family.xlnet.test_xlnet_encoder import GOLDEN, read_config
from tests.modeling.distillation.test_distillation import LENGTHS, batch_of
from tests.modeling.distillation.test_distillation import make as distilled
from tests.modeling.objectives import test_span_beams
from tests.modeling.objectives.test_span_beams import BEAMS, THEIR_BEAMS, trained

CONFIG = dataclasses.replace(
    read_config(), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
)


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "finetune.npz") as file:
        return dict(file)


def assign(model, golden, head=""):
    """Gives a network the released weights; `head` is the scope of its linear layer."""
    released = test_span_beams.variables_in(golden, "variables/")
    released["model/transformer/mask_emb/mask_emb"] = np.zeros((1, 1, 32))
    if head:
        released["output_weights"] = released[f"{head}/kernel"].T
        released["output_bias"] = released[f"{head}/bias"]
    for variable in model.weights:
        variable.assign(released[variable.path])
    return model


def inputs(golden, prefix="in/"):
    """The release pads on the left, and says with 1 what is padding."""
    return {
        "input_ids": golden[f"{prefix}input_ids"],
        "input_mask": 1 - golden[f"{prefix}input_mask"].astype(np.int32),
        "segment_ids": golden[f"{prefix}segment_ids"],
    }


def loss_of(objective, model, batch):
    total, weight = objective.losses(batch, model(batch))["loss"]
    return float(total / weight)


def test_a_classifier_equals_the_release(golden):
    objective = tasks.Classification(3)
    model = objective.network(CONFIG)
    assign(model, golden, "model/classification_mnli_matched/logit")
    batch = inputs(golden) | {"label_ids": golden["in/label_ids"]}
    found = model(batch)["logits"]
    np.testing.assert_allclose(found, golden["out/class/logits"], atol=1e-5)
    expected = float(golden["out/class/total_loss"])
    assert loss_of(objective, model, batch) == pytest.approx(expected, abs=1e-5)


def test_a_regression_equals_the_release(golden):
    objective = tasks.Regression()
    model = objective.network(CONFIG)
    assign(model, golden, "model/regression_sts-b/logit")
    batch = inputs(golden) | {"label_values": golden["in/targets"]}
    found = model(batch)["logits"][:, 0]
    np.testing.assert_allclose(found, golden["out/reg/logits"], atol=1e-5)
    expected = float(golden["out/reg/total_loss"])
    assert loss_of(objective, model, batch) == pytest.approx(expected, abs=1e-5)


def test_multiple_choice_equals_the_release(golden):
    objective = tasks.Choice()
    model = assign(objective.network(CONFIG), golden, "logits/dense")
    batch = {name: value[None] for name, value in inputs(golden).items()}
    batch["label_ids"] = golden["in/race/label_ids"]
    # Its bias is the same for all choices.
    found = model(batch)["logits"] + golden["variables/logits/dense/bias"]
    np.testing.assert_allclose(found, golden["out/race/logits"], atol=1e-5)
    expected = float(golden["out/race/total_loss"])
    assert loss_of(objective, model, batch) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("pooling", ["last", "first", "mean"])
def test_summaries_equal_the_release(golden, pooling):
    encoder = make_encoder(dataclasses.replace(CONFIG, pooling=pooling))
    assign(encoder, golden)
    batch = inputs(golden)
    outputs = encoder(batch)
    hidden = golden["out/sequence_output"].swapaxes(0, 1)
    np.testing.assert_allclose(outputs["sequence_output"], hidden, atol=1e-5)
    expected, rows = golden[f"out/summary/{pooling}"], slice(None)
    if pooling == "mean":  # the release counts padding, too; the last row has none
        rows = slice(3, None)
    found = outputs["pooled_output"][rows]
    np.testing.assert_allclose(found, expected[rows], atol=1e-5)
    np.testing.assert_array_equal(
        encoder.pool(outputs, batch["input_mask"])[rows], found
    )


def questions(golden):
    objective, model = test_span_beams.made(
        SPAN_HEADS["xlnet"],
        CONFIG,
        {
            v.path: golden.get(f"variables/{v.path}")
            for v in make_encoder(CONFIG).weights
        }
        | {"model/transformer/mask_emb/mask_emb": np.zeros((1, 1, 32))},
        {
            k: v
            for k, v in test_span_beams.variables_in(golden, "variables/").items()
            if k.startswith(("start_logits", "end_logits", "answer_class"))
        },
        num_starts=3,
        num_ends=2,
        document_first=True,
        cls_last=True,
    )
    labels = ("start_positions", "end_positions", "is_impossible")
    of_rows = {name: golden[f"in/squad/{name}"] for name in labels}
    return objective, model, inputs(golden, "in/squad/") | of_rows


def test_the_losses_of_questions_equal_the_release(golden):
    objective, model, batch = questions(golden)
    outputs = trained(model, batch)
    allowed = golden["in/squad/p_mask"] == 0
    for name in ("start", "end"):
        logits = np.array(outputs[f"{name}_logits"], np.float64)
        found = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        expected = golden[f"out/squad_train_dropout0/{name}_log_probs"]
        np.testing.assert_allclose(found[allowed], expected[allowed], atol=1e-5)
        assert (found[~allowed] < -1e29).all()
    expected = golden["out/squad_train_dropout0/cls_logits"]
    np.testing.assert_allclose(outputs["no_answer_logit"], expected, atol=1e-5)
    expected = float(golden["out/squad_train_dropout0/total_loss"])
    found = test_span_beams.loss_of(objective, batch, outputs)
    assert found == pytest.approx(expected, abs=1e-5)
    # An answer that is not in the window counts as none, wherever [CLS] is.
    batch["is_impossible"] = np.zeros(4, np.int32)
    found = test_span_beams.loss_of(objective, batch, outputs)
    assert found == pytest.approx(expected, abs=1e-5)


def test_the_beams_of_questions_equal_the_release(golden):
    _, model, batch = questions(golden)
    outputs = model({name: batch[name] for name in inputs(golden)})
    for mine, theirs in zip(BEAMS, THEIR_BEAMS, strict=True):
        expected = golden[f"out/squad_predict/{theirs}"]
        found = np.reshape(outputs[mine], expected.shape)
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=mine)


def test_a_student_learns_cls_from_the_last_token():
    settings = Distillation(weight=0.0, cls_weight=1.0, layers=((1, 1),))
    teacher = XlnetConfig(tiny.config().vocab_size, 16, 1, 2, 8, 16, "gelu", True)
    student = tiny.config(num_hidden_layers=1)
    _, model, network = distilled(settings, student, teacher)
    batch = batch_of(np.random.default_rng(3))
    *_, hidden = network.encode(batch, return_all=True)["layer_outputs"]
    expected = np.array(hidden)[range(3), np.array(LENGTHS) - 1]
    # Of the only pair, the last layers.
    found = model(batch, dropouts=tiny.NothingDropped())[f"{TEACHERS}cls_0"]
    np.testing.assert_allclose(found, expected, atol=1e-6)
