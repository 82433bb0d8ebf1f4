"""XLNet's optimizers: 20 updates of the release, with memory, and their learning rates."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from family.xlnet.permuted import Permuted
from modeling import losses
from modeling.objectives import tasks
from modeling.optimizers import adam, clipping, schedules
from modeling.optimizers.table import PRESETS, OptimizerSettings
from tests.family.xlnet import test_xlnet_heads
from tests.family.xlnet.test_xlnet_encoder import GOLDEN, inputs_of, read_config
from tests.family.xlnet.test_xlnet_heads import CONFIG
from tests.modeling.objectives import test_span_beams

TRACES = {
    "train_adam": ("xlnet_adam", 0.0, 5),
    "train_adamw": ("xlnet_adam", 0.01, 5),
    "train_cos": ("xlnet_adam_cosine", 0.0, 0),
}


@pytest.fixture(scope="module")
def model():
    return Permuted().network(read_config())


@pytest.fixture(scope="module")
def step(model):
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def step(inputs, labels, weights):
        with tf.GradientTape() as tape:
            outputs = model.encoder(inputs, mem_len=8, reuse_len=6)
            logits = model.answer(outputs, inputs)["permuted_lm_logits"]
            entropy = ops.sparse_categorical_crossentropy(
                labels, logits, from_logits=True
            )
            loss = ops.sum(entropy * weights) / ops.sum(weights)
        gradients = tape.gradient(loss, [v.value for v in variables])
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        scale, norm = clipping.clip_scale(gradients, 1.0)
        return loss, norm, scale, gradients, outputs["memory"]

    return step


@pytest.mark.parametrize("name", TRACES)
def test_twenty_updates_equal_the_release(model, step, name):
    kind, decay, warmup = TRACES[name]
    with np.load(GOLDEN / f"{name}.npz") as file:
        trace = dict(file)
    for variable in model.trainable_variables:
        variable.assign(trace[f"start/{variable.path}"])
    settings = OptimizerSettings(kind, weight_decay=decay, min_lr_ratio=0.001)
    optimizer = settings.make_for(model)
    memory = np.zeros((4, 2, 8, 32), np.float32)
    for number in range(20):
        arrays = {k: v[number] for k, v in trace.items() if k.startswith("in/")}
        inputs, labels, weights = inputs_of(arrays)
        inputs["target_mapping"] = inputs["target_mapping"].astype(np.float32)
        inputs["memory"] = memory
        loss, norm, scale, gradients, memory = step(inputs, labels, weights)
        assert float(loss) == pytest.approx(trace["out/loss"][number], abs=1e-4)
        assert float(norm) == pytest.approx(trace["out/gnorm"][number], rel=1e-3)
        sums = np.abs(memory).sum(axis=(0, 2, 3))
        np.testing.assert_allclose(sums, trace["out/mem_checksum"][number], rtol=1e-4)
        rate = settings.learning_rate(number, 3e-3, 20, warmup)
        assert float(rate) == pytest.approx(trace["out/lr"][number], abs=1e-8)
        used = trace["out/lr_used"][number]  # they differ: see tests/golden/README.md
        optimizer.apply(gradients, ops.cast(used, "float32"), number, scale)
    for variable in model.trainable_variables:
        expected = trace[f"final/{variable.path}"]
        found = variable.numpy()[: len(expected)]
        np.testing.assert_allclose(found, expected, atol=1e-4, err_msg=variable.path)


@pytest.mark.exhaustive
def test_a_fine_tuning_equals_the_release():
    with np.load(GOLDEN / "train_classifier.npz") as file:
        trace = dict(file)
    objective = tasks.Classification(3)
    scope = "model/classification_mnli_matched/logit"
    config = dataclasses.replace(CONFIG, num_hidden_layers=3)
    model = test_xlnet_heads.assign(objective.network(config), trace, scope)
    variables = model.trainable_variables
    settings = PRESETS["xlnet_adam"].settings | {"bias_correction": True}
    optimizer = adam.AdamWeightDecay(variables, weight_decay=0.0, **settings)

    @tf.function(autograph=False)
    def step(batch):
        with tf.GradientTape() as tape:
            loss = losses.mean(*objective.losses(batch, model(batch))["loss"])
        gradients = tape.gradient(
            loss, [v.value for v in variables], unconnected_gradients="zero"
        )
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        return loss, clipping.clip_scale(gradients, 1.0)[1], gradients

    for number in range(20):
        arrays = {k: v[number] for k, v in trace.items() if k.startswith("in/")}
        batch = test_xlnet_heads.inputs(arrays) | {"label_ids": arrays["in/label_ids"]}
        loss, norm, gradients = step(batch)
        assert float(loss) == pytest.approx(trace["out/loss"][number], abs=1e-4)
        # The release's layer-wise decay changes nothing that Adam does not undo.
        expected = trace["out/loss_with_layer_decay"][number]
        assert float(loss) == pytest.approx(expected, abs=5e-4)
        assert float(norm) == pytest.approx(trace["out/true_gnorm"][number], rel=1e-3)
        rate = schedules.to_ratio(number, 3e-3, 20, 5)
        assert float(rate) == pytest.approx(trace["out/lr"][number], abs=1e-8)
        # It clips by a norm in which rows of the table that occur twice count apart.
        scale = min(1.0, 1.0 / trace["out/gnorm"][number])
        optimizer.apply(gradients, rate, number, ops.cast(scale, "float32"))
    finals = test_span_beams.variables_in(trace, "final/")
    finals["output_weights"] = finals.pop(f"{scope}/kernel").T
    finals["output_bias"] = finals.pop(f"{scope}/bias")
    for variable in variables:
        if variable.path in finals:  # which has no mask_emb
            expected = finals.pop(variable.path)
            found = variable.numpy()[: len(expected)]
            np.testing.assert_allclose(found, expected, atol=1e-4)
    assert not finals


def variable(name):
    with keras.name_scope("model"):
        return keras.Variable(np.ones(1, np.float32), name=name)


def test_biases_of_queries_decay():
    names = ("r_w_bias", "r_r_bias", "r_s_bias", "seg_embed", "bias", "kernel")
    variables = [variable(name) for name in names]
    optimizer = OptimizerSettings("xlnet_adam", weight_decay=0.1).make(variables)
    optimizer.apply([ops.zeros(1)] * len(names), 1.0, 0)
    found = dict(zip(names, (float(v[0]) for v in variables), strict=True))
    assert found == pytest.approx(dict.fromkeys(names, 0.9) | {"bias": 1.0})


def test_only_without_weight_decay_are_moments_corrected():
    for decay, expected in ((0.0, 1.0), (1e-9, 0.1 / 0.001**0.5)):
        bias = variable("bias")
        settings = OptimizerSettings("xlnet_adam", weight_decay=decay)
        settings.make([bias]).apply([ops.ones(1)], 0.01, 0)
        assert float(bias[0]) == pytest.approx(1.0 - 0.01 * expected, abs=1e-5)
