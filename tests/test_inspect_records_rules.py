"""inspect_records.py: each rule, where record 3 is broken in one way."""

import re

import numpy as np
import pytest

from tests.inspection import (
    CLS,
    MASK,
    SEP,
    copy_first,
    decoded,
    inspect,
    rewrite,
    write,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with records of this project, and their description."""
    return write(tmp_path_factory.mktemp("made"))


@pytest.fixture
def copy(made, tmp_path):
    """The same, to be spoilt; without its second file."""
    return copy_first(made, tmp_path)


def last_token(batch):
    return batch["input_mask"][2].sum() - 1


def first_sep(batch):
    return np.flatnonzero(batch["segment_ids"][2])[0] - 1


def unpredicted(batch):
    """A position of side A or B where nothing is predicted."""
    taken = {0, first_sep(batch), *batch["masked_lm_positions"][2].tolist()}
    return min(set(range(last_token(batch))) - taken)


def put(feature, where, value):
    def spoil(batch):
        column = where(batch) if callable(where) else where
        batch[feature][2, column] = value

    return spoil


def swap_predictions(batch):
    for feature in ("masked_lm_positions", "masked_lm_ids"):
        batch[feature][2, :2] = batch[feature][2, 1::-1]


def repeat_position(batch):
    batch["masked_lm_positions"][2, 1] = batch["masked_lm_positions"][2, 0]


def drop_prediction(batch):
    count = int(batch["masked_lm_weights"][2].sum())
    for feature in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        batch[feature][2, count - 1] = 0


def drop_all_predictions(batch):
    for feature in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        batch[feature][2] = 0


def predict_last_sep(batch):
    count = int(batch["masked_lm_weights"][2].sum())
    batch["masked_lm_positions"][2, count - 1] = last_token(batch)
    batch["masked_lm_ids"][2, count - 1] = SEP
    batch["input_ids"][2, last_token(batch)] = MASK


def predict_last_sep_as_word(batch):
    predict_last_sep(batch)
    count = int(batch["masked_lm_weights"][2].sum())
    batch["masked_lm_ids"][2, count - 1] = 1000


def empty_first_side(batch):
    batch["input_ids"][2, 1] = SEP
    batch["input_ids"][2, first_sep(batch)] = 1000
    batch["masked_lm_positions"][2, 0] = max(2, batch["masked_lm_positions"][2, 0])


@pytest.mark.parametrize(
    "spoil, line",
    [
        (
            put("input_ids", unpredicted, 2941),
            r"input_ids\[\d+\] is 2941 \(no token\); must be in the vocabulary, "
            r"from 0 to 2940",
        ),
        (put("masked_lm_ids", 0, 3000), r"masked_lm_ids\[0\] is 3000 \(no token\);"),
        (put("input_mask", 3, 0), r"input_mask\[3\] is 0; must be 1 for every token"),
        (put("input_mask", 0, 2), r"input_mask\[0\] is 2; must be 1 for every token"),
        (put("segment_ids", 1, 1), r"segment_ids\[1\] is 1; must be 0 up to the first"),
        (put("segment_ids", last_token, 0), r"segment_ids\[\d+\] is 0; must be 0 up"),
        (put("segment_ids", last_token, 2), r"segment_ids\[\d+\] is 2; must be 0 up"),
        (put("input_ids", 0, 1000), r"input_ids\[0\] is 1000 \(.+\); must begin with"),
        (put("input_ids", last_token, 1000), r"input_ids\[\d+\] is 1000 .*must be"),
        (put("input_ids", first_sep, 1000), r"input_ids\[\d+\] is \d+ .*must have"),
        (put("input_ids", unpredicted, SEP), r"input_ids\[\d+\] is \d+ .*must be"),
        (empty_first_side, r"input_ids\[1\] is \d+ \(\[SEP\]\); must have two sides"),
        (put("input_ids", unpredicted, MASK), r"\(\[MASK\]\); must be a token of the"),
        (put("input_ids", unpredicted, CLS), r"\(\[CLS\]\); must be a token of the"),
        (put("masked_lm_positions", 0, 0), r"positions\[0\] is 0; must be within the"),
        (put("masked_lm_positions", 0, 32), r"positions\[0\] is 32; must be within"),
        (swap_predictions, r"positions\[1\] is \d+; must rise"),
        (repeat_position, r"positions\[1\] is \d+; must rise"),
        (put("masked_lm_weights", 0, 0.5), r"weights\[0\] is 0.5; must be 1 for every"),
        (put("masked_lm_weights", 0, 0), r"weights\[0\] is 0.0; must be 1 for every"),
        (drop_all_predictions, r"weights\[0\] is 0.0; must be 1 for every"),
        (drop_prediction, r"weights\[\d\] is 0.0; --masked_lm_prob=0.15 asks for a"),
        (put("masked_lm_positions", 5, 3), r"positions\[5\] is 3; must be 0 for"),
        (put("masked_lm_ids", 5, 1000), r"ids\[5\] is 1000 \(.+\); must be 0 for"),
        (predict_last_sep, r"\(\[SEP\]\); must be a token .* never predicted"),
        (predict_last_sep_as_word, r"must be \[SEP\] at the end of the two sides"),
        (
            put("next_sentence_labels", 0, 2),
            r"labels\[0\] is 2; must be 0 \(the next sentence\)",
        ),
    ],
)
def test_a_broken_record_is_named(copy, capsys, spoil, line):
    batch = decoded(copy)
    spoil(batch)
    rewrite(copy, batch)
    status, lines = inspect(copy, capsys=capsys, num_shown=3)
    assert status == 1
    found = [text for text in lines if f"{copy}: record 3: " in text]
    assert re.search(line, found[-1])
    assert lines[-1].endswith("records in 1 file(s): 1 violation(s)")


def test_padding_ids_are_zero(copy, capsys):
    batch = decoded(copy)
    row = int(np.argmin(batch["input_mask"].sum(axis=1)))
    length = int(batch["input_mask"][row].sum())
    batch["input_ids"][row, length] = 1000
    rewrite(copy, batch)
    status, lines = inspect(copy, capsys=capsys, num_shown=0)
    assert status == 1
    assert f"{copy}: record {row + 1}: input_ids[{length}] is 1000" in lines[-2]
    assert lines[-2].endswith("must be 0 or [PAD] after the tokens")
    batch["input_ids"][row, length] = 0
    rewrite(copy, batch)
    assert inspect(copy, capsys=capsys)[0] == 0
