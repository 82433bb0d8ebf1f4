"""N-grams in records: which are masked, how long they are, and how often."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import records, reference_ngrams
from tests.inspection import inspect
from text.instances.ngrams import choose_ngrams, ngram_shares

ROW, NUM_ROWS = reference_ngrams.ROW, 40_000


def test_lengths_have_the_release_s_shares():
    np.testing.assert_allclose(ngram_shares(3), [6 / 11, 3 / 11, 2 / 11])
    assert ngram_shares(1).tolist() == [1]


@pytest.fixture(scope="module")
def found():
    """How often each set of positions is chosen."""
    starts, candidates = np.zeros((2, NUM_ROWS, ROW.width), bool)
    for word in ROW.words:
        starts[:, word[0]] = candidates[:, word] = True
    counts = np.full(NUM_ROWS, ROW.count)
    rng = np.random.default_rng(7)
    chosen = choose_ngrams(candidates, starts, counts, ngram_shares(3), rng)
    return Counter(frozenset(np.flatnonzero(row).tolist()) for row in chosen)


def test_every_choice_is_as_likely_as_in_the_release(found):
    expected = reference_ngrams.outcomes(ROW, ngram_shares(3).tolist())
    assert sum(expected.values()) == pytest.approx(1)
    assert reference_ngrams.distance(found, expected) < 4


@given(st.integers(4, 40), st.integers(1, 45), st.integers(2, 6), st.integers(0, 99))
def test_no_budget_is_exceeded_and_no_word_is_split(width, count, ngram, seed):
    rng = np.random.default_rng(seed)
    candidates = rng.random((30, width)) < 0.9
    candidates[:, [0, -1]] = False
    follows = np.roll(candidates, 1, axis=1)
    starts = candidates & ((rng.random(candidates.shape) < 0.6) | ~follows)
    counts = rng.integers(1, count + 1, 30)
    shares = ngram_shares(ngram)
    chosen = choose_ngrams(candidates, starts, counts, shares, rng)
    assert not (chosen & ~candidates).any()
    assert (chosen.sum(axis=1) <= counts).all()
    goes_on = candidates & ~starts
    split = chosen[:, 1:] != chosen[:, :-1]
    assert not (split & goes_on[:, 1:]).any()


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("prob", [0.15, 1.0])
def test_records_are_sound(tmp_path, capsys, whole_words, prob):
    pattern = records.make_records(
        tmp_path,
        ngram=5,
        do_whole_word_mask=whole_words,
        masked_lm_prob=prob,
        max_seq_length=64,
        max_predictions_per_seq=64,
        dupe_factor=1,
    )
    status, _ = inspect(pattern, capsys=capsys)
    assert status == 0
