"""ALBERT: the release's numbers, names and sizes."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import tests
from family.albert import sentence_order
from family.albert.encoder import AlbertConfig, AlbertEncoder
from modeling import layers
from modeling.architectures.table import config_from_dict
from modeling.objectives import sentence_pairs
from modeling.optimizers import clipping
from modeling.optimizers.table import OptimizerSettings
from tests.gradients import check_close, gradients

GOLDEN = tests.GOLDEN / "albert"
OBJECTIVE = sentence_order.MaskedLMSentenceOrder()
SMALL = AlbertConfig(
    vocab_size=20,
    embedding_size=4,
    hidden_size=8,
    num_hidden_layers=4,
    num_attention_heads=2,
    intermediate_size=8,
    max_position_embeddings=16,
)


def golden(name):
    with np.load(GOLDEN / name) as file:
        return dict(file)


def read_config(name):
    return config_from_dict(
        json.loads((GOLDEN / name / "albert_config.json").read_text())
    )


@pytest.fixture(scope="module")
def batch():
    return golden("inputs.npz")


def make_model(name, **changes):
    config = dataclasses.replace(
        read_config("base" if name == "sharp" else name), **changes
    )
    model = OBJECTIVE.network(config)
    weights = golden(f"{name}/weights.npz")
    weights.pop("global_step", None)
    assert {v.path: tuple(v.shape) for v in model.weights} == {
        path: value.shape for path, value in weights.items()
    }
    for variable in model.weights:
        variable.assign(weights[variable.path])
    return model


@pytest.mark.parametrize("name", ["base", "groups", "same_width", "sharp"])
def test_outputs_equal_the_release(name, batch):
    model, expected = make_model(name), golden(f"{name}/outputs.npz")
    outputs = model.encoder(batch, return_all=True)
    embedded = model.encoder.embeddings(batch["input_ids"], batch["segment_ids"])
    found = outputs | {"embedding_output": embedded}
    for number, layer in enumerate(found.pop("layer_outputs")):
        found[f"all_encoder_layers_{number}"] = layer
    names = [key for key in expected if key in found or key.startswith("all_enc")]
    if name != "sharp":  # only its outputs were kept
        assert len(names) == 3 + len(model.encoder.transformer_layers)
    for key in names:
        np.testing.assert_allclose(found[key], expected[key], rtol=0, atol=1e-5)
    heads = model(batch)
    logits = tf.nn.log_softmax(heads["masked_lm_logits"])
    log_probs = tf.reshape(logits, (-1, logits.shape[-1]))
    np.testing.assert_allclose(
        log_probs, expected["masked_lm_log_probs"], rtol=0, atol=1e-5
    )
    np.testing.assert_allclose(
        tf.nn.log_softmax(heads["sentence_order_logits"]),
        expected["sentence_order_log_probs"],
        rtol=0,
        atol=1e-5,
    )
    found, _ = gradients(OBJECTIVE, model, batch)
    total = expected["masked_lm_loss"] + expected["sentence_order_loss"]
    np.testing.assert_allclose(found["total_loss"], total, rtol=1e-5)


@pytest.mark.parametrize("name", ["base", "groups", "same_width"])
def test_gradients_equal_the_release(name, batch):
    _, found = gradients(OBJECTIVE, make_model(name), batch)
    expected = golden(f"{name}/gradients.npz")
    assert found.keys() == expected.keys()
    check_close(found, expected)


TYPES = "bert/embeddings/token_type_embeddings"


@pytest.fixture(scope="module")
def by_token(batch):
    """The losses and gradients of weights, with a row of TYPES for each token."""
    segments = batch["segment_ids"].ravel()
    # Every token has a type of its own here, so that each has its own gradient.
    model = OBJECTIVE.network(
        dataclasses.replace(read_config("base"), type_vocab_size=len(segments))
    )
    apart = {"segment_ids": np.arange(len(segments)).reshape(-1, 12)}
    compiled = tf.function(
        lambda: gradients(OBJECTIVE, model, batch | apart), autograph=False
    )

    def losses_and_gradients(variables):
        for variable in model.weights:
            value = variables[variable.path].numpy()
            variable.assign(value[segments] if variable.path == TYPES else value)
        return compiled()

    return losses_and_gradients


@pytest.mark.parametrize(
    ("trace", "optimizer", "peak", "power"),
    [
        ("trace_adamw.npz", "adam_weight_decay", 2e-3, 1.0),
        ("trace_lamb.npz", "lamb", 2e-2, 1.0),
        # Whose first rates are below 0: here each is taken as it was.
        ("trace_lamb_power05_start3.npz", "lamb", 2e-2, 0.5),
    ],
)
def test_twenty_updates_equal_the_release(
    trace, optimizer, peak, power, batch, by_token
):
    """With its clipping, which counts the rows of the table of segments one by one."""
    segments = batch["segment_ids"].ravel()
    model, expected = make_model("base"), golden(trace)
    settings = OptimizerSettings(optimizer, lr_decay_power=power)
    optimizer = settings.make(model.trainable_variables)
    variables = {v.path: v for v in model.weights}
    for step, rate in enumerate(expected["learning_rate"]):
        if step > 7:  # after the warm-up of each
            own = settings.learning_rate(step, peak, 20, 5)
            np.testing.assert_allclose(own, rate, rtol=2e-6)
        means, found = by_token(variables)
        for name, loss in means.items():
            np.testing.assert_allclose(loss, expected[name][step], rtol=1e-5)
        paths = [v.path for v in optimizer.trainable_variables]
        scale, _ = clipping.clip_scale([found[path] for path in paths], 1.0)
        found[TYPES] = tf.math.unsorted_segment_sum(found[TYPES], segments, 2)
        ordered = [found[path] for path in paths]
        optimizer.apply(ordered, tf.constant(rate), scale=scale)
        if step == 1 and power == 1.0:  # of the other, only the end was kept
            check_close(variables, expected, "after_step_2/", 1e-5)
    check_close(variables, expected, "final/", 1e-4)
    slots = {slot.path: slot for slot in optimizer.variables}
    check_close(slots, expected, "final/", 1e-4)
    loss = by_token(variables)[0]["total_loss"]
    np.testing.assert_allclose(loss, expected["final_total_loss"], rtol=1e-5)


def test_shared_layers_draw_dropout_anew():
    config = dataclasses.replace(SMALL, hidden_dropout_prob=0.5)
    drawn = []

    class Noting(layers.Dropouts):
        def key(self, rate):
            drawn.append(tuple(map(int, super().key(0.5))))
            return ()

    AlbertEncoder(config)(
        {"input_ids": np.ones((1, 4), np.int32)}, dropouts=Noting([1, 2])
    )
    assert len(set(drawn)) == len(drawn) == 1 + 3 * 4


@pytest.mark.parametrize(
    ("sizes", "parameters"),
    [
        ((12, 768, 12), 11_813_810),
        ((24, 1024, 16), 17_847_474),
        ((24, 2048, 16), 59_021_490),
        ((12, 4096, 64), 223_158_450),
    ],
)
def test_released_sizes(sizes, parameters):
    num_layers, width, heads = sizes
    config = AlbertConfig(
        vocab_size=30000,
        hidden_size=width,
        num_hidden_layers=num_layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    with layers.shapes_only():
        model = sentence_pairs.PretrainingModel(config)
    assert sum(np.prod(v.shape) for v in model.weights) == parameters


def test_layers_are_divided_as_in_the_release():
    config = dataclasses.replace(SMALL, num_hidden_layers=18, num_hidden_groups=14)
    assert config.group(9) == 7  # 6 if the layers of a group were counted first
    config = dataclasses.replace(SMALL, num_hidden_layers=5, num_hidden_groups=2)
    assert [config.group(i) for i in range(5)] == [0, 0, 0, 1, 1]


def test_released_config_files_need_no_architecture():
    config = read_config("groups")
    assert isinstance(config, AlbertConfig) and config.inner_group_num == 2
    written = json.loads(config.to_json_string())
    assert written["architecture"] == "albert"
    assert config_from_dict(written) == config
    with pytest.raises(ValueError, match="did you mean 'embedding_size'"):
        config_from_dict({"vocab_size": 9, "num_hidden_groups": 1, "embeding_size": 4})
    with pytest.raises(ValueError, match="num_hidden_groups is 5; it must be at most"):
        dataclasses.replace(SMALL, num_hidden_groups=5)
