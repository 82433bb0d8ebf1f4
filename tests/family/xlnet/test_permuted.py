"""Permuted language modelling: the release's order and spans, keyed by row."""

import json

import numpy as np
import pytest

from errors import UserError
from family.xlnet import mask_spans, permuted
from family.xlnet.permuted import DrawSpans, Permuted
from tests import tiny
from tests.family.xlnet.test_xlnet_encoder import GOLDEN, read_config

SEP, CLS = 4, 3  # in the release's vocabulary


def masks(most=10, width=64, whole_words=False, reuse_len=0, alpha=6, beta=1):
    return DrawSpans(
        alpha=alpha,
        beta=beta,
        reuse_len=reuse_len,
        counts=np.full(width + 1, most),
        max_predictions_per_seq=most,
        mask_share=0.8,
        random_share=0.1,
        whole_words=whole_words,
        vocab_size=600,
        mask_id=6,
        special_ids=(CLS, SEP),
    )


@pytest.mark.parametrize("number", range(6))
def test_who_sees_whom_equals_the_release(number):
    case = json.loads((GOLDEN / "local_perm.json").read_text())[number]
    ids = np.array([case["inputs"]], np.int32)
    chosen = np.array([case["is_masked"]], bool)
    order = np.array([case["index"]], np.int32)
    parts = np.zeros(case["seq_len"], np.int32)
    specials = (ids == SEP) | (ids == CLS)
    hidden = permuted.hidden_pairs(*permuted.places(order, chosen, specials, parts))
    np.testing.assert_array_equal(hidden[0], case["perm_mask"])


def in_blocks(shuffle, rows=8, width=32):
    """int32 [rows, width]: the release repeats an order of `perm_size`, here by hand."""
    starts = np.repeat(np.arange(0, width, len(shuffle)), len(shuffle))
    order = np.tile(shuffle, width // len(shuffle)) + starts
    return np.tile(order, (rows, 1)).astype(np.int32)


@pytest.mark.parametrize("name", ["perm32_fnp10", "perm16_fnp10", "perm32_nofnp"])
def test_rows_of_two_parts_equal_the_release(name):
    with np.load(GOLDEN / "parsed.npz") as file:
        ids, chosen = file["input"], file["is_masked"] > 0
        found = {k.removeprefix(f"{name}/"): file[k] for k in file if name in k}
    orders = [in_blocks(found[f"shuffle_{half}_half"]) for half in ("first", "second")]
    specials = (ids == SEP) | (ids == CLS)
    batch = masks(reuse_len=32).make_inputs(
        ids, np.concatenate(orders, axis=1), chosen, specials
    )
    hidden = permuted.hidden_pairs(batch["query_places"], batch["key_places"])
    np.testing.assert_array_equal(hidden, found["perm_mask"])
    positions, weights = (
        np.array(batch[f"masked_lm_{key}"]) for key in ("positions", "weights")
    )
    if "target_mapping" in found:
        mapping = np.eye(64)[positions] * weights[..., None]
        np.testing.assert_array_equal(mapping, found["target_mapping"])
        np.testing.assert_array_equal(weights, found["target_mask"])
        np.testing.assert_array_equal(batch["masked_lm_ids"], found["target"])
    else:
        predicted = np.zeros((8, 64))
        np.put_along_axis(predicted, positions, weights, axis=1)
        np.testing.assert_array_equal(predicted, found["target_mask"])


SHARES = permuted.ngram_shares(5)
FACTS = json.loads((GOLDEN / "sample_mask_facts.json").read_text())


def replayed(seed, steps):
    """What the release draws if a row has no goal: spans and the tokens before them."""
    random = np.random.RandomState(seed)
    lengths, offsets = [], []
    for _ in range(steps):
        draw = random.random_sample()
        size = 6 * (1 + np.searchsorted(np.cumsum(SHARES), draw, side="right"))
        lengths.append(draw)
        offsets.append((random.choice(size) + 0.5) / size)
    return [np.array([draws], np.float32) for draws in (lengths, offsets)]


def test_spans_equal_the_release_for_the_same_drawings():
    cases = json.loads((GOLDEN / "sample_mask.json").read_text())
    cases = [case for case in cases if case["goal_num_predict"] is None]
    assert len(cases) >= 4
    for case in cases:
        step = -1 if case["reverse"] else 1
        starts, expected = (
            np.array([case[name]])[:, ::step] > 0 for name in ("starts", "mask")
        )
        width = starts.shape[1]
        found = mask_spans.draw(
            *replayed(case["numpy_seed"], mask_spans.most_steps(width, 6, 1)),
            starts,
            *(np.array([width], np.int32), np.array([width], np.int32)),
            shares=SHARES,
            alpha=6,
            beta=1,
        )
        np.testing.assert_array_equal(found, expected)


def runs(chosen):
    """The lengths of all runs of chosen tokens, and where they begin."""
    edges = np.diff(np.pad(chosen.astype(int), ((0, 0), (1, 1))), axis=1)
    rows, begins = np.nonzero(edges == 1)
    return np.nonzero(edges == -1)[1] - begins, (rows, begins)


def text(rows, width, seed=0):
    """Random word starts, as frequent as in the release's text; two [SEP] and a [CLS]."""
    starts = np.random.default_rng(seed).random((rows, width)) < 0.5857
    ids = np.full((rows, width), 9, np.int32)
    ids[:, [width // 2, width - 2]], ids[:, -1] = SEP, CLS
    return {
        "input_ids": ids,
        "input_mask": np.ones((rows, width), np.int32),
        "word_starts": (starts & (ids == 9)).astype(np.int32),
        "row_numbers": np.arange(rows, dtype=np.int32),
    }


def drawn(batch, most=43, **flags):
    """What is chosen, and what is predicted, in a batch."""
    made = masks(most, batch["input_ids"].shape[1], whole_words=True, **flags)
    kept = []
    arranged = made.make_inputs

    def note(ids, order, chosen, specials):
        kept.append(np.array(chosen))
        return arranged(ids, order, chosen, specials)

    made.make_inputs = note
    return kept, made(batch, 7)


def test_spans_are_distributed_as_in_the_release():
    batch, facts = text(600, 256), FACTS["second_half_goal42"]
    kept, found = drawn(batch)
    (chosen,) = kept
    assert (chosen.sum(axis=1) == 43).all()
    lengths, (rows, begins) = runs(chosen)
    of_release = facts["run_length_histogram"]
    total = sum(of_release.values())
    for length in range(1, 6):
        share = (lengths == length).mean()
        assert share == pytest.approx(of_release[str(length)] / total, abs=0.02)
    begin_words = batch["word_starts"] + (batch["input_ids"] != 9)
    share = begin_words[rows, begins].mean()
    expected = facts["runs_that_begin_at_a_word_start"]
    assert share == pytest.approx(expected, abs=0.03)
    share = chosen[:, -32:].sum() / (600 * 32)
    assert share == pytest.approx(facts["share_in_last_32"], abs=0.01)
    # Those have no loss.
    special = chosen & (batch["input_ids"] != 9)
    assert special.sum() / 600 == pytest.approx(0.42, abs=0.12)
    weights = np.array(found["masked_lm_weights"])
    np.testing.assert_array_equal(weights.sum(axis=1), 43 - special.sum(axis=1))


def test_a_row_is_drawn_alike_wherever_it_is():
    batch = text(6, 64)
    _, together = drawn(batch)
    _, alone = drawn({name: value[4:5] for name, value in batch.items()})
    for name, value in alone.items():
        np.testing.assert_array_equal(value[0], np.array(together[name])[4])
    _, next_epoch = drawn(batch | {"row_numbers": batch["row_numbers"] + 6})
    assert np.any(next_epoch["key_places"] != together["key_places"])


def test_no_token_to_predict_reaches_its_own_prediction():
    model = Permuted().network(read_config(), seed=3)
    batch = text(2, 24) | {"segment_ids": np.zeros((2, 24), np.int32)}
    batch["input_ids"] = np.where(batch["input_ids"] == 9, 10, batch["input_ids"])
    batch["input_ids"][:, :20] += np.arange(20, dtype=np.int32)
    _, prepared = drawn(batch, 8)
    before = np.array(model(prepared)["permuted_lm_logits"])
    order = np.array(prepared["key_places"])
    positions = np.array(prepared["masked_lm_positions"])
    weights = np.array(prepared["masked_lm_weights"])
    for slot in np.flatnonzero(weights[0])[:6]:
        changed = np.array(prepared["input_ids"])
        changed[0, positions[0, slot]] = 45
        after = np.array(
            model({**prepared, "input_ids": changed})["permuted_lm_logits"]
        )
        differs = np.abs(after[0] - before[0]).max(axis=-1) > 1e-6
        of_slots = order[0, positions[0]]
        sees = (of_slots > order[0, positions[0, slot]]) & (weights[0] > 0)
        np.testing.assert_array_equal(differs & (weights[0] > 0), sees)


def test_bfloat16_is_close():
    batch = text(2, 24) | {"segment_ids": np.zeros((2, 24), np.int32)}
    _, prepared = drawn(batch, 8)
    plain, rounded = (
        Permuted().network(read_config(), seed=3, dtype=dtype)(prepared)
        for dtype in ("float32", "mixed_bfloat16")
    )
    for name, value in rounded.items():
        assert value.dtype == "float32"
        np.testing.assert_allclose(value, plain[name], atol=0.1)


def test_what_permuted_needs():
    config = tiny.config()
    with pytest.raises(UserError, match="'bert' has no second stream"):
        Permuted().check(config)
    Permuted().check(read_config())
