"""[CLS] a [SEP] b [SEP]: layout, padding, truncation."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from text.instances import packing
from text.tokenizers.vocabulary import Vocabulary

# Special ids that are not the usual ones: nothing may be a constant.
VOCABULARY = Vocabulary(["a", "b", "[SEP]", "[MASK]", "c", "[PAD]", "[UNK]", "[CLS]"])
PAD, SEP, CLS = 5, 2, 7


def test_rows_are_laid_out_as_in_the_release():
    tokens = np.array([10, 11, 12, 13, 20, 21], np.uint16)
    batch, is_text = packing.pack_pairs(
        tokens, np.array([3, 1]), np.array([1, 1]), VOCABULARY, max_seq_length=8
    )
    assert batch["input_ids"].tolist() == [
        [CLS, 10, 11, 12, SEP, 13, SEP, PAD],
        [CLS, 20, SEP, 21, SEP, PAD, PAD, PAD],
    ]
    assert batch["input_mask"].tolist() == [
        [1, 1, 1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1, 0, 0, 0],
    ]
    assert batch["segment_ids"].tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1, 0, 0, 0],
    ]
    assert is_text.astype(int).tolist() == [
        [0, 1, 1, 1, 0, 1, 0, 0],
        [0, 1, 0, 1, 0, 0, 0, 0],
    ]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(0, 4),
)
def test_any_lengths(lengths, room):
    max_seq_length = 3 + room + max(map(sum, lengths))
    total = sum(map(sum, lengths))
    tokens = np.arange(100, 100 + total)
    batch, _ = packing.pack_pairs(
        tokens, *np.array(lengths).T, VOCABULARY, max_seq_length
    )
    token = iter(tokens.tolist())
    for row, (a, b) in enumerate(lengths):
        ids = [CLS, *(next(token) for _ in range(a)), SEP]
        ids += [*(next(token) for _ in range(b)), SEP]
        padding = [0] * (max_seq_length - len(ids))
        assert batch["input_ids"][row].tolist() == ids + [PAD] * len(padding)
        assert batch["input_mask"][row].tolist() == [1] * len(ids) + padding
        assert batch["segment_ids"][row].tolist() == (
            [0] * (a + 2) + [1] * (b + 1) + padding
        )


def test_a_tie_takes_from_the_second_side():
    a, b = packing.truncated_lengths(
        np.array([10, 10, 20, 2, 9, 100]), np.array([10, 11, 2, 20, 1, 100]), 13
    )
    assert a.tolist() == [7, 7, 11, 2, 9, 7]
    assert b.tolist() == [6, 6, 2, 11, 1, 6]


@given(st.integers(1, 80), st.integers(1, 80), st.integers(5, 60))
def test_truncation_is_the_loop_of_the_release(a, b, maximum):
    left = packing.truncated_lengths(np.array([a]), np.array([b]), maximum)
    while a + b > maximum:
        if a > b:
            a -= 1
        else:
            b -= 1
    assert [side.tolist() for side in left] == [[a], [b]]
