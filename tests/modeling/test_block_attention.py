"""Attention in blocks: the same as of all pairs at once, and blind to what it skips."""

import dataclasses

import numpy as np
import pytest

from training.backend import tf
from modeling import block_attention, custom_gradients, fusion, layers, row_random
from modeling.objectives.masked_lm import MaskedLM
from tests import relatives, samples, tiers, tiny

RATE = 0.4
SIZES = samples.SIZES | {"attention_probs_dropout_prob": RATE, "num_hidden_layers": 1}
CONFIGS = {"bert": tiny.config(**SIZES)}
if "modern_bert" in relatives.CONFIGS:
    changes = {"attention_dropout_prob": RATE, "num_hidden_layers": 1}
    config = dataclasses.replace(relatives.CONFIGS["modern_bert"], **changes)
    CONFIGS["modern_bert"] = config
LENGTH, WIDTH = 45, 16
SHAPE = (2, 3, LENGTH, 4)


@pytest.fixture(autouse=True)
def narrow_blocks(monkeypatch):
    monkeypatch.setattr(block_attention, "_WIDEST", WIDTH)


def at_once(query, key, value, seen, direction="both", kept=1.0):
    places = np.arange(LENGTH)
    is_seen = seen.queries[:, :, None] == seen.keys[:, None, :]
    if direction == "left_to_right":
        is_seen &= places[:, None] >= places
    if direction == "right_to_left":
        is_seen &= places[:, None] <= places
    scores = tf.matmul(query, key, transpose_b=True)
    probs = tf.nn.softmax(scores + tf.where(is_seen, 0.0, -1e9)[:, None])
    return tf.matmul(probs * kept, value)


def with_gradients(function, tensors, upstream, compiled):
    @tf.function(autograph=False, jit_compile=compiled)
    def compute(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = function(*tensors)
        return result, *tape.gradient(result, tensors, upstream)

    return compute(*tensors)


def draws(number):
    rng = np.random.default_rng(0)
    return [tf.constant(rng.normal(size=SHAPE), tf.float32) for _ in range(number)]


def documents(*lengths):
    row = np.repeat(np.arange(len(lengths)), lengths)
    return np.pad(row, (0, LENGTH - len(row)), constant_values=len(lengths))


PADDED = (np.arange(LENGTH) < np.array([[17], [LENGTH]])).astype("int32")
PACKED = np.stack([documents(3, 20, 1, 9), documents(40)]).astype("int32")
CASES = {
    "everything": (None, None, "both"),
    "padding": (PADDED, None, "both"),
    "documents": (None, PACKED, "both"),
    "documents to the left": (None, PACKED, "left_to_right"),
    "to the right": (None, None, "right_to_left"),
}


@pytest.mark.parametrize("compiled", tiers.cases([False, True], [True]))
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_those_of_all_pairs_at_once(case, compiled):
    *tensors, upstream = draws(4)
    *sees, direction = CASES[case]
    seen = block_attention.Seen.of(tensors[0][:, 0], *sees)

    def in_blocks(*tensors):
        return block_attention.attend(*tensors, seen, direction)

    found = with_gradients(in_blocks, tensors, upstream, compiled)
    expected = with_gradients(
        lambda *tensors: at_once(*tensors, seen, direction), tensors, upstream, False
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_gradients_drop_what_was_dropped():
    *tensors, upstream = draws(4)
    seen = block_attention.Seen.of(tensors[0][:, 0])
    [words] = row_random.states((1, 2), [3])
    blocks = block_attention._Blocks(seen, LENGTH, "both", RATE, words)
    ones = tf.ones([*SHAPE[:2], blocks.width, blocks.width])
    places = range(blocks.count)
    rows = [tf.concat([blocks.drop(ones, i, j) for j in places], 3) for i in places]
    kept = tf.concat(rows, 2)[:, :, :LENGTH, :LENGTH]
    assert 0.5 < np.mean(kept != 0) < 0.7
    assert len({np.asarray(row).tobytes() for row in rows}) == len(rows)
    found = with_gradients(
        lambda *t: block_attention.attend(*t, seen, "both", RATE, words),
        tensors,
        upstream,
        False,
    )
    expected = with_gradients(
        lambda *t: at_once(*t, seen, kept=kept), tensors, upstream, False
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_blocks_that_nobody_sees_are_not_read():
    """A NaN that is read would be in the result, whatever its weight."""
    query, key, value, upstream = draws(4)
    row = np.repeat([0, 1, 2], LENGTH // 3)  # as wide as blocks
    seen = block_attention.Seen.of(query[:, 0], documents=np.stack([row, row]))
    unseen = tf.where(row[:, None] == 1, np.nan, 0.0)
    key, value = key + unseen, value + unseen
    found = with_gradients(
        lambda *t: block_attention.attend(*t, seen),
        (query, key, value),
        upstream,
        False,
    )
    for result in found:
        is_finite = np.isfinite(result.numpy()).all(axis=(0, 1, 3))
        np.testing.assert_array_equal(is_finite, row != 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["bert", "modern_bert"])
def test_a_compiled_program_that_keeps_only_outputs_learns_the_same(monkeypatch, name):
    """With dropout, whose masks are drawn again."""
    if name not in CONFIGS:
        pytest.skip(f"family/{name} is not there")
    monkeypatch.setattr(block_attention, "_LONGEST_SQUARE", LENGTH - 1)
    network = MaskedLM().network(CONFIGS[name], seed=1)
    rng = np.random.default_rng(2)
    for variable in network.weights:
        variable.assign_add(rng.normal(0, 0.2, variable.shape).astype("float32"))
    batch = {"input_ids": rng.integers(1, 9, PACKED.shape).astype("int32")}
    begins = np.diff(PACKED, axis=1, prepend=-1) > 0
    places = np.arange(LENGTH)
    begins_of = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    batch["position_ids"] = (places - begins_of).astype("int32")

    def learned(compiled):
        @tf.function(autograph=False, jit_compile=compiled)
        def compute(seed):
            trained = [v.value for v in network.encoder.trainable_variables]
            with (
                fusion.whole_program(compiled),
                custom_gradients.use_gradients(),
                tf.GradientTape() as tape,
            ):
                dropouts = layers.Dropouts(seed, recompute=compiled)
                hidden = network.encoder(batch, dropouts=dropouts)["sequence_output"]
                total = tf.reduce_sum(hidden[:, :40] ** 2)
            return total, tape.gradient(total, trained, unconnected_gradients="zero")

        return compute(tf.constant([3, 4]))

    total, gradients = learned(compiled=True)
    expected, others = learned(compiled=False)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    for found, other in zip(gradients, others, strict=True):
        scale = max(1.0, np.abs(other).max())
        np.testing.assert_allclose(found, other, rtol=0, atol=1e-5 * scale)
