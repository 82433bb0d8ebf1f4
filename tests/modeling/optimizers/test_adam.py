"""The release's optimizer to the digit: rule, schedule, clipping, 20 traced updates.

RoBERTa's is held to fairseq's updates in tests/family/roberta/test_roberta_conversion.py.
"""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import tests
from training.run import compiler
from modeling import custom_gradients, fusion, losses
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs
from modeling.optimizers import adam, clipping, schedules
from modeling.optimizers.table import OptimizerSettings
from tests import forked, jobs

GOLDEN = tests.GOLDEN


def variable(value, name):
    return keras.Variable(np.array(value, np.float32), name=name)


# --- one update ---------------------------------------------------------------------


def test_first_update_has_no_bias_correction():
    kernel, bias = variable([2.0], "kernel"), variable([2.0], "bias")
    optimizer = adam.AdamWeightDecay([kernel, bias])
    optimizer.apply([ops.ones(1), ops.ones(1)], 0.01)
    # 0.1 / (sqrt(0.001) + 1e-6) = 3.16218 times the rate; corrected Adam gives 1.
    assert float(bias[0]) == pytest.approx(2.0 - 0.0316218, abs=1e-6)
    # Decay adds 0.01 * 2.0 before the rate.
    assert float(kernel[0]) == pytest.approx(2.0 - 0.0316218 - 0.0002, abs=1e-6)


def test_five_updates_equal_the_formula_in_float64():
    draw = np.random.default_rng(0).normal
    start, gradients = draw(size=(3, 4)), draw(size=(5, 3, 4)) * 1e-3
    kernel = variable(start, "kernel")
    optimizer = adam.AdamWeightDecay([kernel])
    w, m, v = start, 0.0, 0.0
    for step, gradient in enumerate(gradients, start=1):
        optimizer.apply([ops.cast(gradient, "float32")], 0.1 * step)
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        w = w - 0.1 * step * (m / (np.sqrt(v) + 1e-6) + 0.01 * w)
    np.testing.assert_allclose(kernel, w, rtol=1e-5)
    np.testing.assert_allclose(optimizer.first_moments[0], m, rtol=1e-5)
    np.testing.assert_allclose(optimizer.second_moments[0], v, rtol=1e-5)


def test_bias_correction_is_that_of_the_paper_on_adam():
    draw = np.random.default_rng(0).normal
    start, gradients = draw(size=(3, 4)), draw(size=(5, 3, 4)) * 1e-3
    kernel = variable(start, "kernel")
    optimizer = adam.AdamWeightDecay([kernel], bias_correction=True)
    w, m, v = start, 0.0, 0.0
    for step, gradient in enumerate(gradients):
        optimizer.apply([ops.cast(gradient, "float32")], 0.1, step)
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        corrected = m / (1 - 0.9 ** (step + 1))
        scale = np.sqrt(v / (1 - 0.999 ** (step + 1)))
        w = w - 0.1 * (corrected / (scale + 1e-6) + 0.01 * w)
    np.testing.assert_allclose(kernel, w, rtol=1e-5)


def test_layer_normalization_and_biases_are_not_decayed():
    config = BertConfig(
        vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1
    )
    model = sentence_pairs.PretrainingModel(config)
    optimizer = adam.AdamWeightDecay(model.trainable_variables)
    decayed = {v.path for v in model.weights if optimizer.decays(v.path)}
    layer = "bert/encoder/layer_0"
    assert decayed == {
        "bert/embeddings/word_embeddings",
        "bert/embeddings/token_type_embeddings",
        "bert/embeddings/position_embeddings",
        f"{layer}/attention/self/query/kernel",
        f"{layer}/attention/self/key/kernel",
        f"{layer}/attention/self/value/kernel",
        f"{layer}/attention/output/dense/kernel",
        f"{layer}/intermediate/dense/kernel",
        f"{layer}/output/dense/kernel",
        "bert/pooler/dense/kernel",
        "cls/predictions/transform/dense/kernel",
        "cls/seq_relationship/output_weights",
    }


def test_two_updates_of_lamb_equal_albert_s():
    # The first has the rate 0, so both have the gradients of the first weights.
    def golden(name):
        with np.load(GOLDEN / "albert" / name) as file:
            return dict(file)

    start, gradients = golden("base/weights.npz"), golden("base/gradients.npz")
    trace = golden("trace_lamb.npz")
    variables = {
        name: keras.Variable(start[name], dtype="float32", name=name.replace("/", "."))
        for name in gradients
    }
    optimizer = OptimizerSettings("lamb").make(variables.values())
    # Their clipping measured this norm, see tests/golden/README.md.
    clipped = [ops.cast(g / 2.4779484, "float32") for g in gradients.values()]
    for rate in trace["learning_rate"][:2]:
        optimizer.apply(clipped, ops.cast(rate, "float32"))
    for name, of_us in variables.items():
        expected = trace[f"after_step_2/{name}"]
        np.testing.assert_allclose(of_us, expected, atol=1e-6, err_msg=name)
        if "kernel" in name:
            assert np.abs(expected - start[name]).max() > 1e-4


def test_lamb_leaves_the_rate_where_a_norm_is_0():
    zeros, kernel = variable([0.0, 0.0], "kernel"), variable([3.0, 4.0], "kernel")
    optimizer = OptimizerSettings("lamb", weight_decay=0.0).make([zeros, kernel])
    optimizer.apply([ops.ones(2), ops.zeros(2)], 0.01)
    np.testing.assert_allclose(zeros, [-0.0316218] * 2, rtol=1e-5)
    np.testing.assert_array_equal(kernel, [3.0, 4.0])
    optimizer.apply([ops.zeros(2), ops.full((2,), 1.0)], 0.01)
    # An update of equal parts, as long as the variable, which has the norm 5.
    np.testing.assert_allclose(
        kernel, np.array([3.0, 4.0]) - 0.05 / np.sqrt(2), rtol=1e-5
    )


def test_slots_have_the_names_of_the_released_training_checkpoints():
    with keras.name_scope("bert"), keras.name_scope("pooler"):
        kernel = variable([1.0], "kernel")
    optimizer = adam.AdamWeightDecay([kernel])
    assert [slot.path for slot in optimizer.variables] == [
        "bert/pooler/kernel/adam_m",
        "bert/pooler/kernel/adam_v",
    ]


# --- schedule -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.0), (1, 2e-4), (4, 8e-4), (5, 7.5e-4), (19, 5e-5), (20, 0.0), (99, 0.0)],
)
def test_learning_rate_rises_jumps_down_and_falls(step, expected):
    rate = schedules.bert(step, 1e-3, 20, 5)
    assert rate.dtype == tf.float32
    assert float(rate) == pytest.approx(expected, rel=1e-6)


def test_learning_rate_without_warmup_starts_at_the_peak():
    assert float(schedules.bert(0, 1e-3, 20, 0)) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.0), (4, 8e-4), (5, 1e-3), (6, 1e-3 * 14 / 15), (19, 1e-3 / 15), (20, 0.0)],
)
def test_a_learning_rate_may_fall_from_its_peak(step, expected):
    rate = schedules.from_peak(step, 1e-3, 20, 5)
    assert float(rate) == pytest.approx(expected, rel=1e-6)


def test_it_does_so_without_warmup_or_without_a_fall():
    rate = schedules.from_peak
    assert float(rate(0, 1e-3, 20, 0)) == pytest.approx(1e-3)
    assert float(rate(19, 1e-3, 20, 20)) == pytest.approx(1e-3 * 19 / 20)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # The second number is ALBERT's with poly_power 0.5, at a peak of 2e-2.
        (schedules.bert, [4e-4, 0.01549193 / 20, 0.0]),
        (schedules.from_peak, [4e-4, 1e-3 * 0.8**0.5, 0.0]),
        (schedules.times_warmup, [4e-4 * 0.9**0.5, 1e-3 * 0.6**0.5, 0.0]),
    ],
)
def test_the_rate_falls_with_a_power(schedule, expected):
    for step, rate in zip((2, 8, 20), expected, strict=True):
        found = float(schedule(step, 1e-3, 20, 5, 0.5))
        assert found == pytest.approx(rate, rel=1e-6)


# --- clipping -----------------------------------------------------------------------


def clip_scale(values, clip_norm):
    gradients = [ops.convert_to_tensor(value) for value in values]
    return tuple(map(float, clipping.clip_scale(gradients, clip_norm)))


def test_clipping_scales_the_common_norm_to_one():
    scale, norm = clip_scale([[3.0], [[0.0, 4.0]]], 1.0)
    assert (scale, norm) == (pytest.approx(0.2, rel=1e-6), 5.0)


def test_small_gradients_pass_unclipped():
    for value in (0.25, 0.0):
        assert clip_scale([[value]], 1.0) == (1.0, value)


def test_a_norm_of_zero_does_not_clip():
    assert clip_scale([[30.0], [40.0]], 0.0) == (1.0, 50.0)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_norm_that_is_not_finite_shows_in_the_scale(bad):
    scale, norm = clip_scale([[bad], [1.0]], 1.0)
    assert np.isnan(scale) and not np.isfinite(norm)


def test_the_scale_multiplies_gradients():
    variables = [keras.Variable([1.0, 2.0], name=name) for name in ("a", "b")]
    for variable, gradient, scale in zip(
        variables, (3.0, 0.75), (0.25, 1.0), strict=True
    ):
        optimizer = adam.AdamWeightDecay([variable])
        optimizer.apply([ops.full((2,), gradient)], 0.1, scale=scale)
    np.testing.assert_array_equal(*variables)


# --- the release's trace ------------------------------------------------------------


def golden_batches():
    features = {
        key: tf.io.FixedLenFeature([length], tf.int64)
        for key, length in {
            "input_ids": 64,
            "input_mask": 64,
            "segment_ids": 64,
            "masked_lm_positions": 10,
            "masked_lm_ids": 10,
            "next_sentence_labels": 1,
        }.items()
    }
    features["masked_lm_weights"] = tf.io.FixedLenFeature([10], tf.float32)
    path = str(GOLDEN / "pretraining" / "pretraining.tfrecord")
    return (
        tf.data.TFRecordDataset(path)
        .batch(32)
        .take(20)
        .map(lambda rows: tf.io.parse_example(rows, features))
    )


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "compile", [None, compiler.compile_function], ids=["plain", "fused"]
)
def test_twenty_updates_equal_the_release(compile):
    directory = GOLDEN / "checkpoint"
    config = dataclasses.replace(
        BertConfig.from_json_file(directory / "bert_config.json"),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    objective = sentence_pairs.MaskedLMNextSentence()
    model = objective.network(config)
    checkpoint = tf.train.load_checkpoint(str(directory / "bert_model.ckpt"))
    for weight in model.weights:
        weight.assign(checkpoint.get_tensor(weight.path))
    optimizer = adam.AdamWeightDecay(model.trainable_variables)

    @tf.function
    def update(batch, step):
        with custom_gradients.use_gradients(), tf.GradientTape() as tape:
            outputs = model(batch)
            pairs = objective.losses(batch, outputs)
            means = {name: losses.mean(*pair) for name, pair in pairs.items()}
            loss = sum(means.values())
        values = [weight.value for weight in model.trainable_variables]
        gradients = tape.gradient(loss, values)
        scale, norm = clipping.clip_scale(gradients, 1.0)
        rate = schedules.bert(step, 1e-3, 20, 5)
        optimizer.apply(gradients, rate, scale=scale)
        return means | {"loss": loss, "global_norm": norm, "learning_rate": rate}

    with np.load(directory / "training_trace.npz") as file:
        trace = dict(file)
    for step, batch in enumerate(golden_batches()):
        with fusion.fuse_with(compile):
            results = update(batch, tf.constant(step))
        for name, value in results.items():
            assert float(value) == pytest.approx(trace[name][step], rel=1e-5), (
                f"{name} of update {step}"
            )
    finals = [key for key in trace if key.startswith("final/")]
    weights = {weight.path: weight for weight in model.weights}
    assert len(finals) == 61
    for key in finals:
        np.testing.assert_allclose(
            weights[key.removeprefix("final/")], trace[key], rtol=0, atol=1e-5
        )


# --- replicas -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.exhaustive
def test_replicas_update_their_copies_alike():
    done = forked.finished(jobs.command("tests/programs/two_replicas.py", {}))
    assert done.returncode == 0, done.stderr
