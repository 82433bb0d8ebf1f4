"""Which words share a row."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from text.tasks import tag_rows


def windows(lengths, start, stop, capacity):
    edges = np.cumsum([0, *lengths])
    return list(tag_rows.windows(edges, start, stop, capacity))


def test_a_sentence_that_fits_is_one_row_with_what_is_around_it():
    assert windows([1] * 5, 0, 5, 5) == [(0, 0, 5, 5)]
    # Four on either side, or more where the other side has less.
    assert windows([1] * 30, 10, 12, 10) == [(6, 10, 12, 16)]
    assert windows([1] * 30, 1, 3, 10) == [(0, 1, 3, 10)]
    assert windows([1] * 30, 28, 30, 10) == [(20, 28, 30, 30)]
    assert windows([1] * 4, 1, 3, 10) == [(0, 1, 3, 4)]
    # Words around it are whole or not there.
    assert windows([3, 1, 3], 1, 2, 4) == [(1, 1, 2, 2)]
    assert windows([3, 1, 3], 1, 2, 7) == [(0, 1, 2, 3)]


def test_a_longer_one_is_read_in_parts_with_context_on_both_sides():
    assert windows([1] * 12, 0, 12, 8) == [(0, 0, 4, 8), (2, 4, 8, 10), (4, 8, 12, 12)]
    # A word of more pieces than half a row is a part of its own.
    assert windows([8, 1, 1], 0, 3, 8) == [(0, 0, 1, 1), (1, 1, 3, 3)]


@given(st.data())
def test_every_word_is_asked_for_once_and_rows_hold_it(data):
    capacity = data.draw(st.integers(1, 9))
    lengths = data.draw(st.lists(st.integers(1, capacity), min_size=1, max_size=25))
    start = data.draw(st.integers(0, len(lengths) - 1))
    stop = data.draw(st.integers(start + 1, len(lengths)))
    asked = []
    for window in windows(lengths, start, stop, capacity):
        assert 0 <= window.start <= window.own_start
        assert window.own_stop <= window.stop <= len(lengths)
        assert sum(lengths[window.start : window.stop]) <= capacity
        asked += range(window.own_start, window.own_stop)
    assert asked == list(range(start, stop))
