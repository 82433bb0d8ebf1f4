"""Numbers of rows: even, independent of each other, and the same for everybody.

test_draw_masks.py draws them on JAX.
"""

import numpy as np
import pytest

from training.backend import tf
from modeling import row_random

CELLS = 16
DEVIATIONS = 5  # of a chi-square from its mean; by chance in one of millions


def draw(rows, width=128, seed=12345, purpose=0):
    return row_random.uniform(seed, purpose, np.asarray(rows), width).numpy()


def chi_square(*numbers):
    """How many deviations the counts of cells are from what independence expects."""
    cell = np.zeros(numbers[0].shape, np.int64)
    for some in numbers:
        cell = cell * CELLS + (some * CELLS).astype(np.int64)
    counts = np.bincount(cell.ravel(), minlength=CELLS ** len(numbers))
    expected = cell.size / len(counts)
    freedom = len(counts) - 1
    statistic = ((counts - expected) ** 2).sum() / expected
    return abs(statistic - freedom) / np.sqrt(2 * freedom)


def test_numbers_fill_the_interval_evenly():
    numbers = draw(np.arange(4096))
    assert numbers.dtype == np.float32 and numbers.shape == (4096, 128)
    assert 0 <= numbers.min() < 1e-5 and 1 - 1e-5 < numbers.max() < 1
    assert chi_square(numbers) < DEVIATIONS
    fine = np.bincount((numbers.ravel() * 2**24).astype(np.int64) % 256)
    assert abs(fine - fine.mean()).max() < DEVIATIONS * np.sqrt(fine.mean())


def test_each_position_and_each_row_is_even():
    numbers = draw(np.arange(4096))
    assert max(chi_square(column) for column in numbers.T) < DEVIATIONS
    long = draw(np.arange(64), width=4096)
    assert max(chi_square(row) for row in long) < DEVIATIONS


@pytest.mark.parametrize("apart", [1, 2, 3, 7, 64, 127])
def test_positions_are_independent(apart):
    numbers = draw(np.arange(4096))
    assert chi_square(numbers[:, apart:], numbers[:, :-apart]) < DEVIATIONS


@pytest.mark.parametrize(
    "apart", [1, 2, 256, 4096, 841, 10_000, 65_536, 1_000_000, 3_276_800, 2**31]
)
def test_rows_and_epochs_are_independent(apart):
    """The record of an epoch is some number of rows from itself in the next."""
    rows = np.arange(4096, dtype=np.int64)
    numbers, others = draw(rows), draw(rows + apart)
    assert chi_square(numbers, others) < DEVIATIONS
    for shift in (1, 5):
        assert chi_square(numbers[:, shift:], others[:, :-shift]) < DEVIATIONS


def test_seeds_and_purposes_are_independent():
    rows = np.arange(4096)
    numbers = draw(rows)
    for other in (
        draw(rows, seed=12346),
        draw(rows, seed=0),
        draw(rows, purpose=1),
        draw(rows, seed=1, purpose=12345),
    ):
        assert chi_square(numbers, other) < DEVIATIONS


def test_no_two_rows_share_a_run_of_numbers():
    """As rows whose states were near would."""
    numbers = row_random.bits(1, 0, np.arange(50_000), 16).numpy()
    pairs = numbers[:, :-1].astype(np.uint64) << np.uint64(32) | numbers[:, 1:]
    assert len(np.unique(pairs)) == pairs.size


def test_a_row_has_the_same_numbers_in_every_batch():
    whole = draw(np.arange(64))
    np.testing.assert_array_equal(whole[17:23], draw(np.arange(17, 23)))
    np.testing.assert_array_equal(whole[5:6, :9], draw([5], width=9))
    np.testing.assert_array_equal(whole[5:6], draw(np.array([2**32 + 5], np.int64)))
    compiled = tf.function(
        lambda rows: row_random.uniform(12345, 0, rows, 128), jit_compile=True
    )
    np.testing.assert_array_equal(whole, compiled(tf.range(64, dtype=tf.int64)).numpy())


# --- masks of dropout ---------------------------------------------------------------


def draw_of_pass(seed, site, size=1 << 19):
    """The numbers of one dropout, as fractions."""
    return (
        row_random.words(row_random.states(seed, [site])[0], (size,)).numpy() / 2.0**32
    )


def test_numbers_of_a_dropout_are_even_and_independent_of_their_neighbors():
    numbers = draw_of_pass([12345, 7], 3)
    assert chi_square(numbers) < DEVIATIONS
    for apart in (1, 2, 64, 128, 16_384):
        assert chi_square(numbers[apart:], numbers[:-apart]) < DEVIATIONS
    for rate in (0.1, 0.5):
        words = row_random.words(row_random.states([1, 2], [0])[0], (1 << 20,))
        dropped = row_random.below(words, rate)
        deviation = np.sqrt(rate * (1 - rate) / (1 << 20))
        assert abs(dropped.numpy().mean() - rate) < DEVIATIONS * deviation


def test_dropouts_of_a_pass_and_of_the_next_are_independent():
    numbers = draw_of_pass([12345, 7], 3)
    others = [([12345, 7], 4), ([12345, 8], 3), ([12346, 7], 3), ([7, 12345], 3)]
    for other in others:
        others_numbers = draw_of_pass(*other)
        assert chi_square(numbers, others_numbers) < DEVIATIONS
        for apart in (1, 128):
            shifted = chi_square(numbers[apart:], others_numbers[:-apart])
            assert shifted < DEVIATIONS


def test_a_tensor_may_have_more_places_than_an_int32_counts():
    @tf.function
    def drawn():
        return row_random.words(row_random.states([1, 2], [3])[0], (2**16, 2**16))

    assert drawn.get_concrete_function().output_shapes == (2**16, 2**16)
