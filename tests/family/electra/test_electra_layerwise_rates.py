"""Learning rates that fall from layer to layer, as ELECTRA's: exponents and 20 updates."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from modeling import custom_gradients, layers, losses
from modeling.architectures.table import make_encoder
from modeling.objectives import tasks
from modeling.optimizers.table import OptimizerSettings, layerwise_shares
from tests.family.electra.test_electra_encoder import CONFIG, facts, golden

GROUPS = {
    "learning_rate/embeddings": "electra/embeddings/",
    "learning_rate/embeddings_project": "electra/embeddings_project/",
    "learning_rate/encoder.layer_0": "electra/encoder/layer_0/",
    "learning_rate/encoder.layer_1": "electra/encoder/layer_1/",
    "learning_rate/task_specific": "output_",
}
HEAD = {
    "output_weights": lambda of: of("dense/kernel").T,
    "output_bias": lambda of: of("dense/bias"),
}


@pytest.fixture
def model():
    """The release's classifier."""
    weights, heads = golden("weights.npz"), golden("heads.npz")
    made = tasks.Classification(3).network(CONFIG)
    for variable in made.weights:
        if variable.path in HEAD:
            value = HEAD[variable.path](
                lambda name: heads[f"mnli/variables/task_specific/mnli/{name}"]
            )
        else:
            value = weights[variable.path]
        variable.assign(value)
    return made


@pytest.mark.parametrize(("depth", "decay"), [(2, 0.8), (12, 0.8), (24, 0.9)])
def test_shares_are_those_of_the_release(depth, decay):
    config = dataclasses.replace(CONFIG, num_hidden_layers=depth)
    with layers.shapes_only():
        found = layerwise_shares(make_encoder(config).stages, decay)
    expected = facts()["layer_lrs_for_rate_1"][f"layers_{depth}_decay_{decay}"]
    assert expected.pop("task_specific/") == 1.0
    assert len(expected) == depth + 2
    for name, rate in expected.items():
        (share,) = {share for path, share in found.items() if name in path}
        assert share == pytest.approx(rate, rel=1e-12), name


def test_twenty_updates_of_fine_tuning_equal_the_release(model, monkeypatch):
    # The release's norm for clipping has the rows of a lookup's gradient unsummed.
    monkeypatch.setattr(layers, "_dense", lambda table: table)
    trace, heads = golden("trace_finetuning_mnli.npz"), golden("heads.npz")
    batch = golden("inputs.npz") | {"label_ids": heads["mnli/label_ids"]}
    objective = tasks.Classification(3)
    optimizer = OptimizerSettings(layerwise_lr_decay=0.8).make_for(model)
    variables = model.trainable_variables
    rates = trace["learning_rate/task_specific"]
    assert rates[0] == 0.0
    for loss, rate in zip(trace["loss"], rates, strict=True):
        with tf.GradientTape() as tape:
            # The release adds up the losses of a batch.
            found, _ = objective.losses(batch, model(batch))["loss"]
        assert float(found) == pytest.approx(loss, rel=1e-4)
        gradients = tape.gradient(found, [v.value for v in variables])
        scale = 1.0 / max(1.0, float(tf.linalg.global_norm(gradients)))
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        optimizer.apply(dense, rate, scale=scale)
    for variable in [*variables, *optimizer.variables]:
        path, _, slot = variable.path.partition("/adam_")
        if path in HEAD:
            value = HEAD[path](functools.partial(_of_head, trace, slot))
        else:
            value = trace[f"final/{variable.path}"]
        np.testing.assert_allclose(
            variable, value, rtol=0, atol=1e-4, err_msg=variable.path
        )
    for group, prefix in GROUPS.items():
        share = {
            optimizer.shares.get(v.path, 1.0) for v in variables if prefix in v.path
        }
        np.testing.assert_allclose(rates * share.pop(), trace[group], rtol=1e-6)
        assert not share


def test_gradients_of_fine_tuning_equal_the_release(model):
    expected, heads = golden("gradients_finetuning_mnli.npz"), golden("heads.npz")
    batch = golden("inputs.npz") | {"label_ids": heads["mnli/label_ids"]}
    variables = model.trainable_variables
    with custom_gradients.use_gradients(), tf.GradientTape() as tape:
        summed, _ = tasks.Classification(3).losses(batch, model(batch))["loss"]
    found = tape.gradient(summed, [v.value for v in variables])
    assert len(found) == len(expected)
    for variable, gradient in zip(variables, found, strict=True):
        if variable.path in HEAD:
            value = HEAD[variable.path](
                lambda name: expected[f"task_specific/mnli/{name}"]
            )
        else:
            value = expected[variable.path]
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient),
            value,
            rtol=0,
            atol=1e-5,
            err_msg=variable.path,
        )


def _of_head(trace, slot, name):
    return trace[f"final/task_specific/mnli/{name}" + (slot and f"/adam_{slot}")]


def test_logits_and_losses_equal_the_release(model):
    heads = golden("heads.npz")
    batch = golden("inputs.npz") | {"label_ids": heads["mnli/label_ids"]}
    outputs = model(batch)
    np.testing.assert_allclose(outputs["logits"], heads["mnli/logits"], atol=1e-5)
    total, weight = tasks.Classification(3).losses(batch, outputs)["loss"]
    assert float(total) == pytest.approx(float(heads["mnli/summed_loss"]), rel=1e-5)
    # Ours is the mean: another factor, which only clipping sees.
    assert float(losses.mean(total, weight)) == pytest.approx(
        float(total) / 4, rel=1e-4
    )
