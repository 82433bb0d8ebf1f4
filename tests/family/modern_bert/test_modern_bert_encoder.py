"""ModernBERT computes what transformers computes, and its blocks what a mask does."""

import dataclasses
import json
import math

import numpy as np
import pytest
from keras import ops

from training.backend import tf
from family.modern_bert.config import ModernBertConfig
from modeling import custom_gradients, layers, losses
from modeling.architectures.table import make_encoder
from modeling.objectives import masked_lm, tasks
from tests import tiers
from tests.family.modern_bert import golden
from training.interchange.table import ADAPTERS

CLOSE = 1e-5
LARGE = {
    "hidden_size": 1024,
    "intermediate_size": 2624,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
}
SMALL = ModernBertConfig(50, 16, 4, 2, 24, local_attention=6, weights_range=0.2)


@pytest.mark.parametrize("kind", ["long", "short"])
@pytest.mark.parametrize("name", golden.OBJECTIVES)
def test_logits_are_theirs(name, kind):
    batch, theirs = golden.rows(kind), golden.outputs(name)
    ours = golden.logits(golden.load(name), batch)
    for output, value in ours.items():
        expected = theirs[f"{kind}_{output}"]
        real = batch["input_mask"] > 0
        real = real if value.shape[:2] == real.shape else slice(None)
        assert np.ptp(expected[real]) > 0.1
        np.testing.assert_allclose(value[real], expected[real], rtol=0, atol=CLOSE)
    assert len(ours) == sum(key.startswith(kind) and "logits" in key for key in theirs)


@pytest.mark.parametrize("kind", ["long", "short"])
def test_hidden_states_are_theirs(kind):
    network, batch = golden.load("masked_lm"), golden.rows(kind)
    assert network.config.is_in_blocks(batch["input_ids"].shape[1]) is (kind == "long")
    encoded = network.encode(batch, return_all=True)
    ours = [encoded["embedding_output"], *encoded["layer_outputs"]]
    theirs, real = golden.outputs("masked_lm"), batch["input_mask"] > 0
    assert f"{kind}_hidden_{len(ours)}" not in theirs
    for number, value in enumerate(ours):
        expected = theirs[f"{kind}_hidden_{number}"][real]
        np.testing.assert_allclose(
            np.array(value)[real], expected, rtol=0, atol=CLOSE, err_msg=str(number)
        )


@pytest.mark.parametrize("written_out", [False, True])
def test_gradients_are_theirs(written_out):
    network, batch = golden.load("masked_lm"), golden.rows("long")
    theirs = golden.outputs("masked_lm")
    with custom_gradients.use_gradients(written_out), tf.GradientTape() as tape:
        logits = network(batch)["masked_lm_logits"]
        real = np.float32(batch["input_mask"])
        loss, weight = losses.cross_entropy(logits, batch["input_ids"], real)
        loss /= weight
    np.testing.assert_allclose(loss, theirs["long_loss"], rtol=1e-6)
    variables = {v.path: v for v in network.trainable_variables}
    assert len(variables) == len(network.weights)  # the head is trained, too
    found = tape.gradient(loss, {path: v.value for path, v in variables.items()})
    adapter = ADAPTERS["modern_bert"]
    for path, gradient in found.items():
        pair = adapter.of_released(path)
        expected = theirs[f"gradient_{pair.hugging_face}"]
        gradient = tf.convert_to_tensor(gradient).numpy()
        np.testing.assert_allclose(
            gradient.T if pair.transposed else gradient,
            expected,
            rtol=0,
            atol=CLOSE,
            err_msg=path,
        )


def whole_attention(monkeypatch):
    monkeypatch.setattr(ModernBertConfig, "is_in_blocks", lambda *_: False)


@pytest.mark.parametrize("window", [1, 2, 6, 7])
@pytest.mark.parametrize("length", tiers.cases([29, 30, 36, 41], [29, 36]))
def test_blocks_see_what_a_mask_of_the_window_sees(window, length, monkeypatch):
    """In rows that fill the last block or do not; with padding, and without a mask."""
    config = dataclasses.replace(SMALL, local_attention=window)
    assert config.is_in_blocks(length) and not config.is_in_blocks(4 * window)
    encoder = make_encoder(config, seed=3)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 50, (2, length))
    mask = np.ones_like(ids)
    mask[1, length // 2 :] = 0
    rows = [{"input_ids": ids}, {"input_ids": ids, "input_mask": mask}]
    in_blocks = [np.array(encoder(each)["sequence_output"]) for each in rows]
    whole_attention(monkeypatch)
    for each, found in zip(rows, in_blocks, strict=True):  # at padding, too
        expected = np.array(encoder(each)["sequence_output"])
        np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)
    assert np.abs(in_blocks[0] - in_blocks[1])[1, : length // 2].max() > 1e-3


def test_a_local_layer_sees_half_of_the_window_on_each_side(monkeypatch):
    """Of a change in the middle of a long row, and in blocks as in a whole row."""
    config = dataclasses.replace(SMALL, num_hidden_layers=2, local_attention=6)
    encoder = make_encoder(config, seed=3)
    hidden = np.random.default_rng(0).normal(size=(1, 40, 16)).astype(np.float32)
    changed = hidden.copy()
    changed[0, 20] *= -1.0

    def differs():
        _, local = encoder._sights(ops.convert_to_tensor(hidden), {})
        layer = encoder.transformer_layers[1]
        before, after = (np.array(layer(x, sight=local)) for x in (hidden, changed))
        return np.flatnonzero(np.abs(after - before)[0].max(-1) > 1e-6).tolist()

    assert differs() == list(range(17, 24))
    whole_attention(monkeypatch)
    assert differs() == list(range(17, 24))


def test_rows_of_any_length_are_read_by_one_graph():
    encoder = make_encoder(dataclasses.replace(SMALL, max_position_embeddings=50))
    run = tf.function(
        lambda ids: encoder({"input_ids": ids})["sequence_output"],
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
        autograph=False,
    )
    for length in (2, 5, 24, 25, 50):
        ids = np.random.default_rng(length).integers(0, 50, (2, length), np.int32)
        expected = np.array(encoder({"input_ids": ids})["sequence_output"])
        np.testing.assert_allclose(run(ids), expected, rtol=0, atol=CLOSE)
    with pytest.raises(ValueError, match="51 tokens, but the model reads at most 50"):
        encoder({"input_ids": np.zeros((1, 51), np.int32)})


@pytest.mark.parametrize(("size", "values"), [("base", {}), ("large", LARGE)])
def test_released_sizes_have_as_many_parameters(size, values):
    expected = json.loads((golden.FOLDER / "counts.json").read_text())
    config = ModernBertConfig(50368, **values)
    with layers.shapes_only():
        network = masked_lm.MaskedLM().network(config)
    of_encoder = [v for v in network.encoder.weights if "/head/" not in v.path]
    for variables, kind in ((of_encoder, "Model"), (network.weights, "ForMaskedLM")):
        count = sum(math.prod(v.shape) for v in variables)
        assert count == expected[f"{size} {kind}"]


def test_first_weights_have_the_deviation_of_their_kind():
    """Normal ones that end at two deviations have 0.8796 of it."""
    config = ModernBertConfig(500, 64, 8, 2, 96, weights_range=0.02)
    weights = {v.path: v.numpy() for v in tasks.Tagging(40).network(config).weights}
    into, out = 0.02, 0.02 / math.sqrt(2 * 8)
    layer = "modern_bert/encoder/layer_3"
    for path, deviation in (
        ("modern_bert/embeddings/word_embeddings", into),
        (f"{layer}/attention/Wqkv/kernel", into),
        (f"{layer}/mlp/Wi/kernel", into),
        (f"{layer}/attention/Wo/kernel", out),
        (f"{layer}/mlp/Wo/kernel", out),
        ("modern_bert/head/dense/kernel", out),
        ("output_weights", 64**-0.5),
    ):
        value = weights[path]
        assert value.std() == pytest.approx(0.8796 * deviation, rel=0.05), path
        assert np.abs(value).max() <= 2 * deviation, path
    assert len({value.tobytes() for value in weights.values() if value.ndim > 1}) == 35
    wide = dataclasses.replace(config, initializer_cutoff_factor=3.0)
    words = make_encoder(wide).word_embeddings.numpy()
    assert 2.5 * into < np.abs(words).max() <= 3 * into


def test_rates_of_dropout_may_be_zero_and_each_acts():
    encoder = make_encoder(SMALL)
    ids = np.arange(10)[None]
    plain = np.array(encoder({"input_ids": ids})["sequence_output"])
    for field in ("embedding_dropout", "attention_dropout", "hidden_dropout"):
        config = dataclasses.replace(SMALL, **{f"{field}_prob": 0.5})
        dropping = make_encoder(config)
        found = dropping({"input_ids": ids}, training=True)["sequence_output"]
        assert np.abs(np.array(found) - plain).max() > 0.01, field
        found = dropping({"input_ids": ids})["sequence_output"]
        np.testing.assert_array_equal(found, plain)
