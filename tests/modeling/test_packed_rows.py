"""A document in a packed row is read as in a row of its own, by all that can."""

import dataclasses

import numpy as np
import pytest

from training.backend import tf
from modeling import block_attention, custom_gradients, losses
from modeling.objectives.masked_lm import MaskedLM
from modeling.objectives.table import OBJECTIVES
from tests import tiers, tiny
from tests.relatives import CONFIGS

LENGTHS = ((5, 17, 9), (30,))  # of the documents of two rows
LENGTH = 32  # so the first row has an empty place, and the second two
SIZES = {"vocab_size": 9, "num_hidden_layers": 2, "max_position_embeddings": 64}
ALL = {"bert": tiny.config(**SIZES)} | CONFIGS
ABLE = [name for name, config in ALL.items() if "documents" in config.capabilities]


def packed_and_apart(rng):
    """A batch of packed rows, one of their documents, and where these are in the first."""
    shape = len(LENGTHS), LENGTH
    packed = {
        "input_ids": rng.integers(1, 9, shape),
        "input_mask": np.zeros(shape, int),
        "segment_ids": np.zeros(shape, int),
        "position_ids": np.zeros(shape, int),
    }
    places = []
    for row, lengths in enumerate(LENGTHS):
        ends = np.cumsum(lengths)
        for end, length in zip(ends, lengths, strict=True):
            own = slice(end - length, end)
            places.append((row, own))
            packed["position_ids"][row, own] = np.arange(length)
            packed["input_mask"][row, own] = 1
    apart = {
        name: np.zeros((len(places), LENGTH), int)
        for name in packed
        if name != "position_ids"
    }
    for number, (row, own) in enumerate(places):
        length = own.stop - own.start
        for name in apart:
            apart[name][number, :length] = packed[name][row, own]
    predictions = [(n, p) for n, (_, own) in enumerate(places) for p in (1, 3)]
    _add_masks(apart, predictions)
    _add_masks(packed, [(places[n][0], places[n][1].start + p) for n, p in predictions])
    return packed, apart, places


def _add_masks(batch, predictions):
    shape = len(batch["input_ids"]), 6
    slots = dict.fromkeys(range(shape[0]), 0)
    batch |= {
        "masked_lm_positions": np.zeros(shape, int),
        "masked_lm_ids": np.zeros(shape, int),
        "masked_lm_weights": np.zeros(shape, np.float32),
    }
    for row, place in predictions:
        at = row, slots[row]
        slots[row] += 1
        batch["masked_lm_positions"][at] = place
        batch["masked_lm_ids"][at] = batch["input_ids"][row, place]
        batch["masked_lm_weights"][at] = 1.0


def learned(objective, network, batch):
    """Hidden states, mean losses and their gradients."""
    batch = {
        name: tf.constant(x, tf.float32 if name.endswith("weights") else tf.int32)
        for name, x in batch.items()
    }
    trained = [v.value for v in network.trainable_variables]
    with custom_gradients.use_gradients(), tf.GradientTape() as tape:
        encoded = network.encode(batch, return_all=True)
        outputs = network.answer(encoded, batch)
        pairs = objective.losses(batch, outputs)
        total = sum(losses.mean(*pair) for pair in pairs.values())
    hidden = [encoded["embedding_output"], *encoded["layer_outputs"]]
    return hidden, total, tape.gradient(total, trained, unconnected_gradients="zero")


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("name", tiers.cases(ABLE, ["bert", "gpt", "modern_bert"]))
def test_packed_and_apart_are_equal(monkeypatch, name, in_blocks):
    config, objective = ALL[name], MaskedLM()
    if in_blocks:
        monkeypatch.setattr(block_attention, "_LONGEST_SQUARE", LENGTH - 1)
        monkeypatch.setattr(block_attention, "_WIDEST", 8)
        if name == "modern_bert":  # so narrow that local layers compute nothing else
            config = dataclasses.replace(config, local_attention=4)
            assert config.is_in_blocks(LENGTH)
    if config.attention_direction != "both":
        objective = OBJECTIVES["next_token"].load()()
    network = objective.network(config, seed=3)
    rng = np.random.default_rng(5)
    for variable in network.weights:  # sharper than at first, so that neighbours matter
        variable.assign_add(rng.normal(0, 0.2, variable.shape).astype("float32"))
    packed, apart, places = packed_and_apart(rng)
    hidden, loss, gradients = learned(objective, network, packed)
    expected, loss_apart, gradients_apart = learned(objective, network, apart)
    for layer, layer_apart in zip(hidden, expected, strict=True):
        for number, (row, own) in enumerate(places):
            alone = layer_apart[number, : own.stop - own.start]
            np.testing.assert_allclose(layer[row, own], alone, rtol=0, atol=1e-5)
    np.testing.assert_allclose(loss, loss_apart, rtol=0, atol=1e-5)
    for variable, *both in zip(
        network.trainable_variables, gradients, gradients_apart, strict=True
    ):
        np.testing.assert_allclose(*both, rtol=0, atol=1e-5, err_msg=variable.path)


def test_all_who_should_be_able_are():
    assert {"bert", "roberta", "albert", "electra", "gpt", "modern_bert"} >= set(ABLE)
    assert "bert" in ABLE
