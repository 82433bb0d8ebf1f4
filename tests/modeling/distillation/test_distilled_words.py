"""DistilBERT's losses: golden values, in parts as at once, and what a student learns."""

import json

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import tests
from errors import UserError
from modeling import custom_gradients, losses
from modeling.distillation import soft_words
from modeling.distillation.distillation import Distillation
from modeling.distillation.distilled import Distilled
from modeling.distillation.distilled_words import DistilledWords
from modeling.distillation.soft_answers import COMPARED
from modeling.objectives import masked_lm, sentence_pairs
from tests import tiny

GOLDEN = tests.GOLDEN / "distillation"
CASE = json.loads((GOLDEN / "vectors.json").read_text())["distilbert"]
RECIPE = {
    "loss": "kl",
    "temperature": 2.0,
    "weight": 5.0,
    "hard_weight": 2.0,
    "cosine_weight": 1.0,
}


def words_of(logits):
    """Words that have these logits [rows, vocab_size]."""
    logits = tf.constant(logits, tf.float32)
    size = logits.shape[1]
    return soft_words.Words(logits, tf.eye(size), tf.zeros(size))


@pytest.mark.parametrize("tokens", ["all", "masked"])
def test_distilberts_total_is_the_golden_one(monkeypatch, tokens):
    monkeypatch.setattr(losses, "LOGIT_BYTES", 3 * 7 * 4)  # 10 rows in parts of 3
    logits = [np.array(CASE[f"{who}_logits"], "f") for who in ("student", "teacher")]
    labels = np.array(CASE["mlm_labels"])
    is_masked = labels != -100
    mask = np.array(CASE["attention_mask"])
    weights = (mask if tokens == "all" else is_masked).astype("f").reshape(-1)
    both = [words_of(x.reshape(-1, 7)) for x in logits]
    total, _ = soft_words.compare(*both, weights, "kl", CASE["temperature"])
    soft = float(total) / weights.sum()
    name = "ce_over_all_real_tokens" if tokens == "all" else "ce_restricted_to_masked"
    assert soft == pytest.approx(CASE[name], abs=1e-6)
    hard, _ = losses.cross_entropy(
        logits[0], np.where(is_masked, labels, 0), is_masked.astype("f")
    )
    hard = float(hard) / is_masked.sum()
    assert hard == pytest.approx(CASE["mlm"], abs=1e-6)
    expected = CASE["total_5_2_1" if tokens == "all" else "total_5_2_1_restricted"]
    # The cosine is tested with the other losses of layers.
    assert 5 * soft + 2 * hard + CASE["cosine"] == pytest.approx(expected, abs=1e-5)


def random_words(rng, rows, width, vocab_size):
    shapes = (rows, width), (vocab_size, width), (vocab_size,)
    return [tf.constant(rng.normal(size=shape), tf.float32) for shape in shapes]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("loss", "dtype", "close"),
    [("kl", "float32", 1e-5), ("soft_cross_entropy", "bfloat16", 0.02)]
    + [("mse", "float32", 1e-5)],
)
def test_in_parts_they_are_the_loss_and_the_gradient_at_once(
    monkeypatch, loss, dtype, close
):
    monkeypatch.setattr(losses, "LOGIT_BYTES", 5 * 50 * 4)
    rng = np.random.default_rng(0)
    student, teacher = random_words(rng, 37, 8, 50), random_words(rng, 37, 12, 50)
    weights = tf.constant(rng.uniform(size=37), tf.float32)
    student[0], teacher[0] = (tf.cast(x[0], dtype) for x in (student, teacher))
    theirs = soft_words.Words(*teacher)

    def at_once(mine, theirs, weights, loss, temperature):
        mine, theirs = mine.logits(), theirs.logits()
        values = COMPARED["classes"].losses[loss](mine, theirs, temperature)
        same = COMPARED["classes"].metrics["agreement"](mine, theirs)
        return ops.sum(values * weights), ops.sum(same * weights)

    @tf.function
    def derived(function):
        with custom_gradients.use_gradients(), tf.GradientTape() as tape:
            tape.watch(student)
            mine = soft_words.Words(*student)
            total, same = function(mine, theirs, weights, loss, 2.0)
            scaled = 3.0 * total
        return total, same, *tape.gradient(scaled, student)

    expected = derived(at_once)
    for found, other in zip(derived(soft_words.compare), expected, strict=True):
        assert found.dtype == other.dtype
        scale = np.max(np.abs(tf.cast(other, "float32")))
        np.testing.assert_allclose(found, other, rtol=0, atol=close * scale)
    without = soft_words.compare(soft_words.Words(*student), theirs, weights, loss, 2.0)
    np.testing.assert_allclose(without, expected[:2], rtol=1e-5)


# --- The objective -------------------------------------------------------------------


def batch_of(rng):
    """Three rows of 9 tokens, the last only fills the batch; two masks each."""
    lengths = np.array([9, 5, 7])[:, None]
    return {
        "input_ids": rng.integers(5, 40, (3, 9)).astype(np.int32),
        "input_mask": (np.arange(9) < lengths).astype(np.int32),
        "segment_ids": np.zeros((3, 9), np.int32),
        "masked_lm_positions": np.array([[1, 4], [2, 0], [3, 6]], np.int32),
        "masked_lm_ids": rng.integers(5, 40, (3, 2)).astype(np.int32),
        "masked_lm_weights": np.array([[1, 1], [1, 0], [1, 1]], np.float32),
        "next_sentence_labels": np.array([[0], [1], [1]], np.int32),
        "is_real_example": np.array([1, 1, 0], np.float32),
    }


def make(settings, tokens="all", task=None, student=None, teacher=None):
    """The objective, the student's network and the teacher's."""
    teacher = teacher or tiny.config(num_hidden_layers=4)
    network = masked_lm.MaskedLM().network(teacher, seed=5)
    task = task or masked_lm.MaskedLM()
    objective = DistilledWords(task, settings, lambda: network, teacher, tokens)
    student = student or tiny.config(num_hidden_layers=2)
    objective.check(student)
    return objective, objective.network(student, seed=1), network


def values_of(objective, student, batch):
    outputs = student(batch, dropouts=tiny.NothingDropped())
    found = objective.losses(batch, outputs) | objective.metrics(batch, outputs)
    weights = objective.weights(batch)
    for name in objective.loss_weights:
        assert float(found[name][1]) == pytest.approx(float(weights[name])), name
    return {name: [float(x) for x in pair] for name, pair in found.items()}


@pytest.mark.parametrize("tokens, number", [("all", 14), ("masked", 3)])
def test_words_are_compared_at_the_tokens_that_count(tokens, number):
    rng = np.random.default_rng(1)
    batch = batch_of(rng)
    settings = Distillation(**RECIPE)
    task = sentence_pairs.MaskedLMNextSentence()
    objective, student, teacher = make(settings, tokens, task)
    assert objective.loss_weights == {
        "distill_loss": 5.0,
        "cosine_loss": 1.0,
        "masked_lm_loss": 2.0,
        "next_sentence_loss": 2.0,
    }
    found = values_of(objective, student, batch)
    assert found.keys() == {*objective.loss_weights, *objective.metric_names}
    assert found["distill_loss"][1] == found["agreement"][1] == number
    assert found["masked_lm_loss"][1] == 3 and found["cosine_loss"][1] == 14
    # The plain computation, in the objective of any task.
    if tokens == "masked":
        plain = Distilled(task, settings, lambda: teacher, teacher.config)
        of_plain = plain.network(tiny.config(num_hidden_layers=2))
        for own, other in zip(of_plain.weights, student.weights, strict=True):
            own.assign(other)
        expected = values_of(plain, of_plain, batch)
    else:
        everywhere = batch | {
            "masked_lm_positions": np.tile(np.arange(9, dtype=np.int32), (3, 1))
        }
        logits = (x(everywhere)["masked_lm_logits"] for x in (student, teacher))
        values = np.array(COMPARED["classes"].losses["kl"](*logits, 2.0))
        expected = {"distill_loss": [(values * batch["input_mask"])[:2].sum(), 14]}
    for name, pair in expected.items():
        if name in found:
            assert found[name] == pytest.approx(pair, rel=1e-5), name
    # Evaluations see the task alone.
    assert objective.for_evaluation is task
    assert set(student(batch)) == set(student.network(batch))


def test_a_teacher_is_its_own_best_student():
    batch = batch_of(np.random.default_rng(1))
    settings = Distillation(**RECIPE, hidden_weight=1.0, attention_weight=1.0)
    config = tiny.config(num_hidden_layers=4)
    objective, student, teacher = make(settings, student=config)
    for mine, theirs in zip(student.network.weights, teacher.weights, strict=True):
        mine.assign(theirs)
    found = values_of(objective, student, batch)
    for name in ("distill_loss", "cosine_loss", "hidden_loss", "attention_loss"):
        assert found[name][0] == pytest.approx(0.0, abs=1e-5), name
    assert found["agreement"][0] == found["agreement"][1]
    assert not {id(v) for v in student.weights} & {id(v) for v in teacher.weights}


def test_only_the_student_learns_and_all_of_it():
    batch = batch_of(np.random.default_rng(1))
    settings = Distillation(weight=1.0, hidden_weight=1.0)
    narrow = tiny.config(num_hidden_layers=2, hidden_size=8)
    objective, student, _ = make(settings, student=narrow)
    with custom_gradients.use_gradients(), tf.GradientTape() as tape:
        outputs = student(batch, dropouts=tiny.NothingDropped())
        found = objective.losses(batch, outputs)
        total = sum(total for total, _ in found.values())
    variables = {v.path: v.value for v in student.trainable_variables}
    assert "distillation/projection/kernel" in variables
    for name, gradient in tape.gradient(total, variables).items():
        assert gradient is not None, name


def test_without_answers_the_head_is_left_alone():
    settings = Distillation(weight=0.0, hidden_weight=1.0)
    objective, student, _ = make(settings)
    assert not any("predictions" in v.path for v in student.trainable_variables)
    batch = batch_of(np.random.default_rng(1))
    outputs = student(batch, dropouts=tiny.NothingDropped())
    assert not any("word" in name for name in outputs)
    assert set(objective.losses(batch, outputs)) == {"hidden_loss"}
    assert objective.metrics(batch, outputs) == {}


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        ({}, {"teacher": tiny.config(vocab_size=41)}, "teacher's is 41"),
        ({}, {"task": sentence_pairs.MaskedLMNextSentence()}, "head for sentence pair"),
        (
            {"attention_weight": 1.0},
            {"student": tiny.config(num_attention_heads=4)},
            "4 attention heads, the teacher 2",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(settings, changes, message):
    with pytest.raises(UserError, match=message):
        make(Distillation(**settings), **changes)
