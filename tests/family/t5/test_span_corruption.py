"""T5's spans: the original's inputs and targets, its numbers, and its distribution."""

import collections
import gzip
import json

import numpy as np
import pytest
from keras import ops

from family.t5 import span_corruption
from family.t5.config import T5Config
from family.t5.span_corruption import SpanCorruption
from modeling.objectives.objective import Tokens
from tests.family.t5 import t5
from tests.training.pretraining.test_dry_run import operations

END, PAD, CLS, SEP = 1, 0, 4, 5
INVARIANTS = json.loads((t5.GOLDEN / "span_invariants.json").read_text())


def tokens(number=100, left_out=(CLS, SEP)):
    return Tokens(range(32099, 32099 - number, -1), END, PAD, left_out)


def test_inputs_and_targets_of_a_mask_equal_the_original_s():
    with gzip.open(t5.GOLDEN / "span_corruption.jsonl.gz", "rt") as file:
        cases = [json.loads(line) for line in file]
    assert len(cases) == 60
    width = max(case["length"] for case in cases)
    text, hidden = np.zeros((2, 60, width), np.int32)
    for row, case in enumerate(cases):
        text[row, : case["length"]] = case["tokens"]
        hidden[row, : case["length"]] = [int(digit) for digit in case["mask"]]
    # What is behind a row does not matter.
    text[text == 0] = 77
    lengths = np.array([case["length"] for case in cases], np.int32)
    for name, is_hidden in (("inputs", hidden > 0), ("targets", hidden == 0)):
        ids, mask = span_corruption.corrupt(
            text, is_hidden, lengths, tokens(), width + 1
        )
        for row, case in enumerate(cases):
            expected = np.array([*case[name], END])  # which comes later there
            np.testing.assert_array_equal(ids[row, : len(expected)], expected)
            assert not np.any(ids[row, len(expected) :])
            assert np.sum(mask[row]) == len(expected) == np.sum(ids[row] > 0)


def test_as_many_tokens_and_spans_as_in_the_original():
    rows = np.array(INVARIANTS["counts_density_0_15_mean_3"])
    found = span_corruption.noise_counts(rows[:, 0], 0.15, 3.0)
    np.testing.assert_array_equal(np.stack(found, axis=1), rows[:, 1:3])


@pytest.mark.parametrize("row", INVARIANTS["random_spans_helper"])
def test_inputs_and_targets_are_as_long_as_the_original_s(row):
    inputs, density, mean, text, targets = row
    if mean == 10.0 and inputs == 32:
        inputs, targets = 33, 7  # there, these rows have a span, but no place for it
    assert SpanCorruption(density, mean, width=text).sizes == (inputs, targets)


def prepared(lengths, width=66, seed=0, first=0, **settings):
    """What becomes of rows [CLS] 10 11 12 ... [SEP], in which one [SEP] is inside."""
    lengths = np.asarray(lengths)
    columns = np.arange(width)
    ids = np.where(columns < 3, columns + 9, columns + 8)[None].repeat(len(lengths), 0)
    ids[:, 0], ids[:, 3] = CLS, SEP
    ids[np.arange(len(ids)), lengths - 1] = SEP
    mask = columns < lengths[:, None]
    batch = {
        "input_ids": np.where(mask, ids, PAD).astype(np.int32),
        "input_mask": mask.astype(np.int32),
        "segment_ids": np.zeros_like(ids),
        "row_numbers": np.arange(first, first + len(ids)),
        "is_real_example": np.ones(len(ids), np.int32),
    }
    objective = SpanCorruption(**settings, tokens=tokens(), width=width)
    found = objective.prepare(batch, seed)
    return {name: np.asarray(value) for name, value in found.items()}


def spans_of(row, mask):
    """sentinel -> what follows it; what is before the first has none."""
    *row, end = row[mask > 0]
    assert end == END and END not in row
    found, key = collections.defaultdict(list), None
    for token in row:
        if token > 32000:
            key = int(token)
            assert key not in found
            found[key] = []
        else:
            found[key].append(int(token))
    return found


def test_a_row_is_its_inputs_with_the_targets_filled_in():
    lengths = [6, 7, 12, 40, 65, 66] * 20
    found = prepared(lengths)
    assert found["input_ids"].shape == (120, 64 - 10 + 3 + 1)
    assert found["target_ids"].shape == (120, 10 + 3 + 1)
    assert found.keys() == {
        *("input_ids", "input_mask", "target_ids", "target_mask"),
        *("row_numbers", "is_real_example"),
    }
    counts = span_corruption.noise_counts(np.array(lengths) - 3, 0.15, 3.0)
    for row, length in enumerate(lengths):
        inputs, targets = (
            spans_of(found[f"{side}_ids"][row], found[f"{side}_mask"][row])
            for side in ("input", "target")
        )
        text = inputs.pop(None)
        assert text[0] == 10 and None not in targets
        assert list(inputs) == list(targets)  # the sentinels, descending
        assert list(targets) == list(range(32099, 32099 - len(targets), -1))
        for sentinel, kept in inputs.items():
            assert targets[sentinel]
            text += targets[sentinel] + kept
        assert not kept  # the last token is always hidden
        hidden = sum(map(len, targets.values()))
        assert (hidden, len(targets)) == (counts[0][row], counts[1][row])
        assert text == list(range(10, 10 + length - 3))


def test_rows_with_little_text():
    found = prepared([2, 3, 5], width=8)
    # Without text, with one token, and with two; the [SEP] in the middle is not text.
    np.testing.assert_array_equal(
        found["input_ids"][:, :3], [[END, PAD, PAD], [10, END, PAD], [10, 32099, END]]
    )
    np.testing.assert_array_equal(
        found["target_ids"], [[END, PAD, PAD], [32099, END, PAD], [32099, 11, END]]
    )


def test_the_chance_of_each_position_is_the_original_s():
    lengths = np.full(8000, 64)
    hidden, spans = span_corruption.noise_counts(lengths, 0.15, 3.0)
    noise = span_corruption.random_spans(
        3, np.arange(8000), lengths, hidden, spans, 64, (10, 3)
    )
    noise = np.asarray(noise)
    assert (noise.sum(axis=1) == 10).all()
    expected = np.array(INVARIANTS["frequency_by_position_length_64"])
    deviation = np.sqrt(expected * (1 - expected) * (1 / 4000 + 1 / 8000))
    assert (np.abs(noise.mean(axis=0) - expected) <= 4.5 * deviation + 1e-9).all()


def test_every_way_to_cut_has_the_same_chance():
    """6 tokens of 12 in 3 spans: 10 ways to cut each half, so 100 masks."""
    rows = np.arange(20_000)
    twelve = np.full(len(rows), 12)
    noise = span_corruption.random_spans(
        7, rows, twelve, twelve // 2, twelve // 4, 12, (6, 3)
    )
    masks, counts = np.unique(np.asarray(noise), axis=0, return_counts=True)
    assert len(masks) == 100 and (np.abs(counts - 200) < 5 * 200**0.5).all()


def test_spans_follow_from_seed_and_row_number_alone():
    whole = prepared([66] * 6)
    parts = [prepared([66] * 3), prepared([66] * 3, first=3)]
    for name, value in whole.items():
        both = np.concatenate([part[name] for part in parts])
        np.testing.assert_array_equal(value, both)
    assert (whole["target_ids"] != prepared([66] * 6, seed=1)["target_ids"]).any()
    assert len(np.unique(whole["target_ids"], axis=0)) == 6


def test_longer_spans_and_more_of_them():
    found = prepared([66], noise_density=0.5, mean_noise_span_length=8.0)
    targets = spans_of(found["target_ids"][0], found["target_mask"][0])
    assert len(targets) == 4 and sum(map(len, targets.values())) == 32


def test_too_few_sentinels_are_refused():
    SpanCorruption(tokens=tokens(3), width=66)
    with pytest.raises(ValueError, match="66 tokens lose up to 3 spans, .* only 2 tok"):
        SpanCorruption(tokens=tokens(2), width=66)


def test_its_evaluation_draws_the_same_spans_without_the_penalty():
    objective = SpanCorruption(tokens=tokens(), width=66)
    measured = objective.for_evaluation
    assert measured.metric_names == ("target_accuracy",)
    assert measured.for_evaluation is measured
    ids = ops.convert_to_tensor(np.full((1, 66), 9, np.int32))
    batch = {"input_ids": ids, "input_mask": ids, "row_numbers": np.array([5])}
    for name, value in objective.prepare(dict(batch), 0).items():
        np.testing.assert_array_equal(measured.prepare(dict(batch), 0)[name], value)


def test_operations_of_an_encoder_and_its_decoder():
    config = T5Config(vocab_size=32128)
    found = operations(span_corruption.SpanCorruption(), config, 512, 114)
    dense = 512 * (4 * 512 + 2 * 2048)
    of_encoder = 512 * (dense + 2 * 512 * 512)
    of_decoder = 114 * (dense + 2 * 114 * 512)  # and what it reads of the encoder:
    of_decoder += 512 * 2 * 512 * 512 + 114 * (2 * 512 * 512 + 2 * 512 * 512)
    assert found == 6 * (6 * (of_encoder + of_decoder) + 114 * 512 * 32128)
