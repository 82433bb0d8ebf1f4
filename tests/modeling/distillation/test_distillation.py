"""The losses of distillation against golden values, and what a student's layers learn."""

import json

import keras
import numpy as np
import pytest
from keras import ops

import tests
from errors import UserError
from modeling.distillation.distillation import Distillation
from modeling.distillation.distilled import TEACHERS, Distilled
from modeling.distillation.soft_answers import COMPARED
from modeling.objectives import tasks
from tests import tiny

GOLDEN = tests.GOLDEN / "distillation"
CASES = json.loads((GOLDEN / "logits.json").read_text())
VECTORS = json.loads((GOLDEN / "vectors.json").read_text())
LENGTHS = [9, 5, 7]


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def batch_of(rng, **more):
    """Three rows of 9 tokens, with padding."""
    mask = (np.arange(9) < np.array(LENGTHS)[:, None]).astype(np.int32)
    return {
        "input_ids": rng.integers(5, 40, (3, 9)).astype(np.int32),
        "input_mask": mask,
        "segment_ids": np.zeros((3, 9), np.int32),
        **more,
    }


# --- Answers -------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"][:20])
@pytest.mark.parametrize("temperature", [1, 2, 10])
def test_losses_of_classes_are_the_golden_ones(case, temperature):
    logits = (np.array(case[f"{who}_logits"], "f") for who in ("student", "teacher"))
    student, teacher = logits
    losses, t = COMPARED["classes"].losses, float(temperature)
    kl = np.mean(losses["kl"](student, teacher, t))
    assert kl == pytest.approx(
        case[f"hinton_kl_batchmean_T{temperature}_times_T2"], abs=1e-6
    )
    # Codes that also divide by the number of classes.
    classes = student.shape[1]
    assert kl / classes == pytest.approx(
        case[f"pkd_code_kl_mean_over_elements_T{temperature}_times_T2"], abs=1e-6
    )
    soft = np.mean(losses["soft_cross_entropy"](student, teacher, t))
    assert soft == pytest.approx(case[f"pkd_paper_soft_ce_T{temperature}"], abs=1e-6)
    square = np.mean(losses["mse"](student, teacher, t))
    assert square == pytest.approx(case["tang_logits_mse_sum_over_classes"], rel=1e-6)


def gradient(function, x):
    """By x, in TensorFlow."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        x = tf.constant(x)
        tape.watch(x)
        value = ops.mean(function(x))
    return tape.gradient(value, x).numpy()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"][:20])
def test_gradients_of_classes_are_the_golden_ones(case):
    teacher = np.array(case["teacher_logits"], "f")
    student = np.array(case["student_logits"], "f")
    losses = COMPARED["classes"].losses
    for name, loss, temperature, factor in (
        ("well_read", "soft_cross_entropy", 1.0, 1.0),
        ("hinton_T2", "kl", 2.0, 1.0),
        ("mse_mean", "mse", 1.0, 1.0 / student.shape[1]),
    ):
        found = gradient(
            lambda x, n=loss, t=temperature: losses[n](x, teacher, t), student
        )
        expected = case[f"gradient_{name}_wrt_student_logits"]
        np.testing.assert_allclose(found * factor, expected, atol=1e-6)


def test_kl_of_extreme_answers_is_exact():
    kl = COMPARED["classes"].losses["kl"]
    student = np.array([[0.0, 0.0], [1e-4, 0.0], [100.0, 0.0], [0.0, 200.0]], "f")
    teacher = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [200.0, 0.0]], "f")
    expected = [0.0, 1.25e-9, 100.0 / 2 - np.log(2), 200.0]
    np.testing.assert_allclose(kl(student, teacher, 1.0), expected, rtol=2e-3)
    assert np.isfinite(gradient(lambda x: kl(x, teacher, 1.0), student)).all()


def test_several_labels_are_compared_one_by_one(rng):
    student, teacher = rng.normal(size=(2, 6, 3)).astype("f")
    sides = COMPARED["sides"].losses
    both = (np.stack([x, np.zeros_like(x)], -1) for x in (student, teacher))
    both = list(both)
    for name in ("soft_cross_entropy", "kl"):
        expected = COMPARED["classes"].losses[name](*both, 2.0)
        np.testing.assert_allclose(
            sides[name](student, teacher, 2.0), np.mean(expected, -1), rtol=1e-5
        )


# --- Layers --------------------------------------------------------------------------


def test_pairs_of_layers_are_the_golden_ones():
    maps = VECTORS["layer_maps"]
    for case in maps["tinybert_uniform"]:
        sizes = case["student"], case["teacher"]
        settings = Distillation()
        assert settings.hidden_pairs(*sizes) == [tuple(p) for p in case["hidden"]]
        assert settings.attention_pairs(*sizes) == [tuple(p) for p in case["attention"]]
    for name in ("skip", "last"):
        for student in (6, 3):
            case = maps[f"pkd_{name}_12_to_{student}"]
            pairs = Distillation(layers=name).hidden_pairs(student, 12)
            assert pairs == list(
                zip(case["student_layers"], case["teacher_layers"], strict=True)
            )


@pytest.mark.parametrize(
    ("chosen", "student", "teacher", "message"),
    [
        ("uniform", 5, 12, "not a multiple"),
        ("last", 6, 4, "more than the teacher's 4"),
        (((1, 13),), 4, 12, "the teacher has the layers 1 to 12"),
        (((5, 1),), 4, 12, "the student has the layers 1 to 4"),
    ],
)
def test_layers_that_cannot_be_paired_are_refused(chosen, student, teacher, message):
    with pytest.raises(UserError, match=message):
        Distillation(layers=chosen).hidden_pairs(student, teacher)


def state_loss(kind, mine, their, mask):
    """What `Distilled` makes of one pair of states."""
    settings = Distillation(weight=0.0, **{f"{kind}_weight": 1.0})
    objective = Distilled(tasks.Classification(2), settings, None, tiny.config())
    batch = {"input_ids": mask, "input_mask": mask}
    outputs = {f"{kind}_0": np.array(mine, "f")}
    outputs[f"{TEACHERS}{kind}_0"] = np.array(their, "f")
    total, weight = objective.losses(batch, outputs)[f"{kind}_loss"]
    assert float(weight) == pytest.approx(
        float(objective.weights(batch)[f"{kind}_loss"])
    )
    return float(total) / float(weight)


def test_losses_of_states_are_the_golden_ones():
    def case(name, student="student"):
        return [VECTORS[name][student]], [VECTORS[name]["teacher"]]

    two = np.ones((1, 2), np.int32)
    cosine = state_loss("cosine", *case("cosine"), two)
    assert cosine == pytest.approx(VECTORS["cosine"]["distilbert_loss_mean"], abs=1e-6)
    hidden = state_loss("hidden", *case("tinybert_hidden", "projected"), two)
    assert hidden == pytest.approx(VECTORS["tinybert_hidden"]["mse"], abs=1e-6)
    # Its rows are the first tokens of two texts.
    mine, their = (np.array(x)[0] for x in case("pkd_patience"))
    cls = state_loss("cls", mine, their, np.ones((2, 1), np.int32))
    assert cls == pytest.approx(VECTORS["pkd_patience"]["code_mean"], abs=1e-6)


def test_loss_of_attention_is_the_golden_one_but_for_padding():
    case = VECTORS["tinybert_attention"]
    scores = [
        [[case[f"{who}_scores_with_mask_added"]]] for who in ("student", "teacher")
    ]
    whole = np.ones((1, 2), np.int32)
    # The first token does not see the second: 0 on both sides, as in the code.
    shown = [np.where(np.array(x) <= -100, 0.0, x) for x in scores]
    assert state_loss("attention", *shown, whole) == pytest.approx(
        case["mse"], abs=1e-6
    )
    # Padding never counts: of a row of one token, one pair is left.
    first = np.array([[1, 0]], np.int32)
    assert state_loss("attention", *scores, first) == pytest.approx(1.0, abs=1e-6)


def test_distilberts_losses_are_the_golden_ones():
    case = VECTORS["distilbert"]
    mask = np.array(case["attention_mask"], np.int32)
    found = state_loss("cosine", case["student_hidden"], case["teacher_hidden"], mask)
    assert found == pytest.approx(case["cosine"], abs=1e-6)
    kl = COMPARED["classes"].losses["kl"]
    logits = (np.array(case[f"{who}_logits"], "f") for who in ("student", "teacher"))
    values = np.array(kl(*logits, case["temperature"]))
    real = np.sum(values * mask) / mask.sum()
    assert real == pytest.approx(case["ce_over_all_real_tokens"], abs=1e-6)


# --- The whole -----------------------------------------------------------------------


def make(settings, student=None, teacher=None, task=None):
    """An objective with a live teacher, and the student's network."""
    task = task or tasks.Classification(3)
    teacher = teacher or tiny.config(num_hidden_layers=4)
    network = task.network(teacher, seed=5)
    objective = Distilled(task, settings, lambda: network, teacher)
    student = student or tiny.config(num_hidden_layers=2)
    objective.check(student)
    return objective, objective.network(student, seed=1), network


@pytest.mark.parametrize("width", [16, 8])
def test_a_teacher_is_its_own_best_student(rng, width):
    settings = Distillation(
        loss="kl",
        cosine_weight=float(width == 16),
        cls_weight=float(width == 16),
        hidden_weight=1.0,
        attention_weight=1.0,
    )
    config = tiny.config(num_hidden_layers=4, hidden_size=width)
    objective, student, teacher = make(settings, config)
    batch = batch_of(rng)
    if width == 16:
        for mine, theirs in zip(student.network.weights, teacher.weights, strict=True):
            mine.assign(theirs)
    outputs = student(batch, dropouts=tiny.NothingDropped())
    found = objective.losses(batch, outputs)
    assert set(found) == set(objective.loss_weights)
    for name, (total, weight) in found.items():
        value = float(total) / float(weight)
        if width == 16:
            assert value == pytest.approx(0.0, abs=1e-5), name
        else:
            assert value > 1e-6, name
    names = {v.path for v in student.trainable_variables}
    own = {n for n in names if n.startswith("distillation/")}
    assert own == (
        set()
        if width == 16
        else {f"distillation/projection/{part}" for part in ("kernel", "bias")}
    )
    # Evaluations see the task alone.
    assert set(student(batch_of(rng))) == {"logits"}


def test_what_padding_holds_changes_no_loss(rng):
    settings = Distillation(cosine_weight=1.0, hidden_weight=1.0, attention_weight=1.0)
    objective, student, _ = make(settings)
    batch = batch_of(rng)
    filler = rng.integers(5, 40, (3, 9)).astype(np.int32)
    other = batch | {
        "input_ids": np.where(batch["input_mask"], batch["input_ids"], filler)
    }
    assert (other["input_ids"] != batch["input_ids"]).any()
    values = []
    for some in (batch, other):
        found = objective.losses(some, student(some, dropouts=tiny.NothingDropped()))
        values.append({name: float(total) for name, (total, _) in found.items()})
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_spans_compare_no_padding(rng):
    objective, student, _ = make(Distillation(loss="kl"), task=tasks.Span())
    positions = {
        f"{side}_positions": np.zeros(3, np.int32) for side in ("start", "end")
    }
    batch = batch_of(rng, **positions)
    outputs = student(batch, dropouts=tiny.NothingDropped())
    before = float(objective.losses(batch, outputs)["distill_loss"][0])
    changed = {
        name: np.where(batch["input_mask"] > 0, value, 50.0)
        for name, value in outputs.items()
    }
    assert float(objective.losses(batch, changed)["distill_loss"][0]) == pytest.approx(
        before, rel=1e-6
    )


def test_choices_and_tags_take_part(rng):
    shape = (2, 3, 6)
    mask = np.ones(shape, np.int32)
    mask[1, 2] = 0  # a choice that does not exist
    batch = {
        "input_ids": rng.integers(5, 40, shape).astype(np.int32),
        "input_mask": mask,
        "segment_ids": np.zeros(shape, np.int32),
        "label_ids": np.zeros(2, np.int32),
    }
    settings = Distillation(hard_weight=0.5, cosine_weight=1.0, attention_weight=1.0)
    objective, student, _ = make(settings, task=tasks.Choice())
    found = objective.losses(batch, student(batch, dropouts=tiny.NothingDropped()))
    assert {"gold_loss", "distill_loss", "cosine_loss"} <= set(found)
    assert all(np.isfinite(float(total)) for total, _ in found.values())
    assert float(found["cosine_loss"][1]) == 5 * 6
    weights = np.zeros((3, 9), "f")
    weights[:, 1:4] = 1
    tags = batch_of(rng, label_ids=np.zeros((3, 9), np.int32), label_weights=weights)
    objective, student, _ = make(Distillation(), task=tasks.Tagging(4))
    outputs = student(tags, dropouts=tiny.NothingDropped())
    loss = objective.losses(tags, outputs)["distill_loss"]
    assert float(loss[1]) == 9


@pytest.mark.parametrize(
    ("settings", "student", "message"),
    [
        ({"attention_weight": 1.0}, {"num_attention_heads": 4}, "4 attention heads"),
        ({"cosine_weight": 1.0}, {"hidden_size": 8}, "hidden_size is 8"),
        ({"cls_weight": 1.0, "layers": "skip"}, {"num_hidden_layers": 1}, "no pair"),
        ({"hidden_weight": 1.0}, {"num_hidden_layers": 3}, "not a multiple"),
    ],
)
def test_a_student_that_cannot_be_compared_is_refused(settings, student, message):
    with pytest.raises(UserError, match=message):
        make(
            Distillation(**settings), tiny.config(**{"num_hidden_layers": 2} | student)
        )


def test_numbers_are_compared_by_their_difference():
    with pytest.raises(UserError, match="pass --distill_loss=mse"):
        make(Distillation(), task=tasks.Regression())
    make(Distillation(loss="mse"), task=tasks.Regression())


def test_only_the_students_weights_are_its_own(rng):
    objective, student, teacher = make(Distillation(hidden_weight=1.0))
    mine = {id(v) for v in student.weights}
    assert not mine & {id(v) for v in teacher.weights}
    assert isinstance(student, keras.layers.Layer)
    assert len(student.weights) == len(student.network.weights)
