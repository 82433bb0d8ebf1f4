"""The network: equal to the release, whatever the dtype, the compiler or the seed."""

import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import tests
from modeling import custom_gradients, layers, losses
from modeling.architectures.bert import BertConfig, BertEncoder
from modeling.objectives import sentence_pairs
from tests import tiers, tiny

GOLDEN = tests.GOLDEN / "checkpoint"

TINY = tiny.config(vocab_size=50, num_hidden_layers=2, max_position_embeddings=12)


def load_golden(model):
    checkpoint = tf.train.load_checkpoint(str(GOLDEN / "bert_model.ckpt"))
    for variable in model.weights:
        variable.assign(checkpoint.get_tensor(variable.path))
    return model


def tiny_batch():
    draw = np.random.default_rng(0).integers
    return {
        "input_ids": draw(0, 50, (4, 12)),
        "input_mask": np.ones((4, 12), np.int64),
        "segment_ids": draw(0, 2, (4, 12)),
        "masked_lm_positions": draw(0, 12, (4, 3)),
        "masked_lm_ids": draw(0, 50, (4, 3)),
        "masked_lm_weights": draw(0, 2, (4, 3)).astype(np.float32),
        "next_sentence_labels": draw(0, 2, (4, 1)),
    }


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "model_outputs.npz") as file:
        values = dict(file)
    batch = {key[3:]: values[key] for key in values if key.startswith("in_")}
    model = sentence_pairs.PretrainingModel(
        BertConfig.from_json_file(GOLDEN / "bert_config.json")
    )
    return load_golden(model), batch, values


# --- against the release ------------------------------------------------------------


def test_variables_are_those_of_the_released_checkpoint(golden):
    model, _, _ = golden
    checkpoint = tf.train.load_checkpoint(str(GOLDEN / "bert_model.ckpt"))
    shapes = {v.path: list(v.shape) for v in model.weights}
    assert shapes == checkpoint.get_variable_to_shape_map()
    assert len(model.trainable_variables) == len(shapes)


def test_every_layer_equals_the_release(golden):
    model, batch, values = golden
    outputs = model.encoder(batch, return_all=True)
    for key in ("embedding_output", "sequence_output", "pooled_output"):
        np.testing.assert_allclose(outputs[key], values[key], rtol=0, atol=1e-5)
    for index, output in enumerate(outputs["layer_outputs"]):
        expected = values[f"encoder_layer_{index}"]
        np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5)


def test_predictions_and_losses_equal_the_release(golden):
    model, batch, values = golden
    outputs = model(batch)
    log_probs = ops.log_softmax(outputs["masked_lm_logits"])
    np.testing.assert_allclose(
        ops.reshape(log_probs, (80, 3000)), values["masked_lm_log_probs"], atol=1e-5
    )
    np.testing.assert_allclose(
        ops.log_softmax(outputs["next_sentence_logits"]),
        values["next_sentence_log_probs"],
        atol=1e-5,
    )
    pairs = sentence_pairs.MaskedLMNextSentence().losses(batch, outputs)
    assert list(pairs) == ["masked_lm_loss", "next_sentence_loss"]
    assert float(losses.mean(*pairs["masked_lm_loss"])) == pytest.approx(
        6.4687347, abs=1e-5
    )
    assert float(losses.mean(*pairs["next_sentence_loss"])) == pytest.approx(
        0.3772726, abs=1e-5
    )


def test_accuracies_count_the_right_predictions(golden):
    model, batch, values = golden
    metrics = sentence_pairs.MaskedLMNextSentence().metrics(batch, model(batch))
    predicted = values["masked_lm_log_probs"].argmax(-1)
    expected = (predicted == batch["masked_lm_ids"].ravel()).sum()
    assert [float(x) for x in metrics["masked_lm_accuracy"]] == [expected, 80.0]
    assert [float(x) for x in metrics["next_sentence_accuracy"]] == [7.0, 8.0]


# Hidden size, layers, heads, vocabulary, parameters of encoder and pooler.
RELEASED_SIZES = {
    "tiny": (128, 2, 30522, 4_385_920),
    "small": (512, 4, 30522, 28_763_648),
    "medium": (512, 8, 30522, 41_373_184),
    "base_uncased": (768, 12, 30522, 109_482_240),
    "base_cased": (768, 12, 28996, 108_310_272),
    "chinese": (768, 12, 21128, 102_267_648),
    "multilingual": (768, 12, 119547, 177_853_440),
    "large_uncased": (1024, 24, 30522, 335_141_888),
    "large_cased": (1024, 24, 28996, 333_579_264),
}


@pytest.mark.parametrize("size", RELEASED_SIZES)
def test_parameter_counts_of_the_released_sizes(size):
    hidden_size, num_layers, vocab_size, parameters = RELEASED_SIZES[size]
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
        type_vocab_size=2,
    )
    with layers.shapes_only():
        encoder = BertEncoder(config)
    assert sum(math.prod(v.shape) for v in encoder.weights) == parameters


def test_what_has_only_a_shape_never_takes_memory():
    made = []

    def initializer(shape, dtype):
        made.append(shape)
        return np.zeros(shape, dtype)

    with layers.shapes_only():
        variable = keras.Variable(initializer, shape=(2, 3))
    assert variable.shape == (2, 3)
    with keras.StatelessScope():  # as in any symbolic call of Keras's
        other = keras.Variable(initializer, shape=(4,))
    assert made == [(4,)]
    np.testing.assert_array_equal(other, np.zeros(4))


# --- activations --------------------------------------------------------------------

POINTS = np.array([-12.0, -4.5, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 4.5, 12.0])


def tanh_reference(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + math.tanh(inner))


def erf_reference(x):
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


@pytest.mark.parametrize(
    ("name", "reference"), [("gelu", tanh_reference), ("gelu_erf", erf_reference)]
)
def test_gelu_and_its_slope_equal_float64(name, reference):
    x = tf.constant(POINTS, "float32")
    with custom_gradients.use_gradients(), tf.GradientTape() as tape:
        tape.watch(x)
        y = layers.activation(name)(x)
    np.testing.assert_allclose(y, [reference(p) for p in POINTS], rtol=2e-6, atol=2e-7)
    step = 1e-5
    slopes = [(reference(p + step) - reference(p - step)) / 2 / step for p in POINTS]
    np.testing.assert_allclose(tape.gradient(y, x), slopes, rtol=2e-6, atol=1e-6)


def test_gelu_keeps_the_dtype():
    x = tf.constant([1.0], "bfloat16")
    with custom_gradients.use_gradients(), tf.GradientTape() as tape:
        tape.watch(x)
        y = layers.gelu_tanh(x)
    assert (y.dtype, tape.gradient(y, x).dtype) == ("bfloat16", "bfloat16")


# --- initial weights ----------------------------------------------------------------


def test_initial_weights_are_cut_normal_and_differ_between_variables():
    model = sentence_pairs.PretrainingModel(
        dataclasses.replace(TINY, vocab_size=5000), seed=3
    )
    samples = set()
    for variable in model.weights:
        value = variable.numpy()
        if variable.path.endswith(("bias", "beta")):
            assert not value.any(), variable.path
        elif variable.path.endswith("gamma"):
            assert (value == 1).all(), variable.path
        else:
            assert np.abs(value).max() <= 0.04, variable.path
            samples.add(float(value.ravel()[0]))
    # 3 tables, 6 kernels in 2 layers, pooler, transform, next sentence.
    assert len(samples) == 3 + 12 + 3
    table = model.encoder.word_embeddings.numpy()
    # A normal distribution of deviation 0.02 cut at two deviations has 0.0176.
    assert table.std() == pytest.approx(0.0176, rel=0.02)


def test_seed_determines_initial_weights():
    first, again, other = (
        sentence_pairs.PretrainingModel(TINY, seed=seed).get_weights()
        for seed in (1, 1, 2)
    )
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first[0] != other[0]).all()


def test_model_dropout_follows_the_seed():
    model, batch = sentence_pairs.PretrainingModel(TINY), tiny_batch()

    def logits(*seed):
        dropouts = {"dropouts": layers.Dropouts(seed)} if seed else {}
        return model(batch, **dropouts)["masked_lm_logits"].numpy()

    assert (logits(1, 1) != logits()).any()
    assert (logits(1, 1) == logits(1, 1)).all()
    assert (logits(1, 1) != logits(1, 2)).any()


@pytest.mark.parametrize(
    "dtype", tiers.cases(["float32", "mixed_bfloat16"], ["float32"])
)
def test_recomputed_layers_give_the_same_gradients_and_later_masks(dtype):
    model, batch = sentence_pairs.PretrainingModel(TINY, dtype=dtype), tiny_batch()
    objective = sentence_pairs.MaskedLMNextSentence()
    later = tf.ones(100)

    @tf.function
    def gradients(recompute):
        dropouts = layers.Dropouts([1, 2], recompute)
        with custom_gradients.use_gradients(), tf.GradientTape() as tape:
            outputs = model(batch, dropouts=dropouts)
            pairs = objective.losses(batch, outputs)
            loss = sum(total / weight for total, weight in pairs.values())
        variables = [v.value for v in model.trainable_variables]
        found = tape.gradient(loss, variables)
        return [loss, dropouts(later, 0.5), *map(tf.convert_to_tensor, found)]

    plain, recomputed = gradients(False), gradients(True)
    assert len(plain) == len(model.trainable_variables) + 2
    for a, b in zip(plain, recomputed, strict=True):
        np.testing.assert_array_equal(a, b)


# --- inputs -------------------------------------------------------------------------


def test_mask_and_segments_have_the_release_defaults():
    encoder, ids = BertEncoder(TINY), tiny_batch()["input_ids"]
    given = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
    }
    np.testing.assert_array_equal(
        encoder({"input_ids": ids})["sequence_output"],
        encoder(given)["sequence_output"],
    )


def test_padding_changes_nothing_before_it():
    encoder, batch = BertEncoder(TINY), tiny_batch()
    batch["input_mask"][:, 8:] = 0
    before = encoder(batch)["sequence_output"]
    batch["input_ids"][:, 8:] = 0
    after = encoder(batch)["sequence_output"]
    np.testing.assert_array_equal(before[:, :8], after[:, :8])


def test_a_row_of_padding_stays_finite():
    batch = tiny_batch()
    batch["input_mask"][0] = 0
    assert np.isfinite(BertEncoder(TINY)(batch)["sequence_output"]).all()


def test_the_batch_size_may_be_open_as_in_an_exported_model():
    model, batch = sentence_pairs.PretrainingModel(TINY), tiny_batch()
    specs = {k: tf.TensorSpec([None, *v.shape[1:]], v.dtype) for k, v in batch.items()}
    serve = tf.function(lambda batch: model(batch), input_signature=[specs])
    logits = serve({key: tf.constant(value) for key, value in batch.items()})
    np.testing.assert_allclose(
        logits["masked_lm_logits"], model(batch)["masked_lm_logits"], atol=1e-6
    )


def test_a_sequence_beyond_the_position_table_is_refused():
    with pytest.raises(ValueError, match="13 tokens.*12 position embeddings"):
        BertEncoder(TINY)({"input_ids": np.zeros((1, 13), np.int64)})


# --- losses -------------------------------------------------------------------------


def test_losses_and_metrics_of_parts_add_up_to_the_whole():
    model, batch = sentence_pairs.PretrainingModel(TINY), tiny_batch()
    objective = sentence_pairs.MaskedLMNextSentence()

    def pairs(rows):
        part = {key: value[rows] for key, value in batch.items()}
        outputs = model(part)
        found = objective.losses(part, outputs) | objective.metrics(part, outputs)
        weights = {name: found[name][1] for name in objective.loss_weights}
        assert objective.weights(part) == weights
        return np.array([found[name] for name in sorted(found)])

    whole = pairs(slice(0, 4))
    np.testing.assert_allclose(
        pairs(slice(0, 1)) + pairs(slice(1, 4)), whole, rtol=1e-6
    )


def test_rows_that_fill_up_a_batch_count_for_nothing():
    model, objective = (
        sentence_pairs.PretrainingModel(TINY),
        sentence_pairs.MaskedLMNextSentence(),
    )
    batch = tiny_batch()
    batch["masked_lm_weights"][:] = 1.0
    filled = batch | {"is_real_example": np.array([1.0, 1.0, 1.0, 0.0])}
    real = {key: value[:3] for key, value in batch.items()}

    def pairs(part):
        outputs = model(part)
        found = objective.losses(part, outputs) | objective.metrics(part, outputs)
        return np.array([found[name] for name in sorted(found)])

    np.testing.assert_allclose(pairs(filled), pairs(real), rtol=1e-6)
    assert float(objective.weights(filled)["masked_lm_loss"]) == 9.0
    assert float(objective.weights(filled)["next_sentence_loss"]) == 3.0


def test_a_batch_without_predictions_has_no_loss():
    total, weight = losses.cross_entropy(
        tf.random.normal((2, 3, 5), seed=1), np.ones((2, 3)), tf.zeros((2, 3))
    )
    assert float(losses.mean(total, weight)) == 0.0


# --- dtype and compiler -------------------------------------------------------------


def test_bfloat16_stays_near_float32_and_its_logits_are_float32(golden):
    model, batch, values = golden
    rounded = load_golden(
        sentence_pairs.PretrainingModel(model.encoder.config, dtype="mixed_bfloat16")
    )
    assert {v.dtype for v in rounded.weights} == {"float32"}
    outputs = rounded(batch)
    assert {v.dtype for v in outputs.values()} == {tf.float32}
    assert rounded.encoder(batch)["sequence_output"].dtype == tf.bfloat16
    pairs = sentence_pairs.MaskedLMNextSentence().losses(batch, outputs)
    assert float(losses.mean(*pairs["masked_lm_loss"])) == pytest.approx(
        float(values["masked_lm_loss"]), rel=5e-3
    )


def test_xla_draws_the_same_masks():
    def drop(seed):
        return layers.Dropouts(seed)(tf.ones(10_000), 0.1)

    compiled = tf.function(drop, jit_compile=True)
    first = compiled(tf.constant([5, 7])).numpy()
    np.testing.assert_array_equal(first, drop([5, 7]))
    assert (first != compiled(tf.constant([5, 8])).numpy()).any()
