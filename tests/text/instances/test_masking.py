"""Which tokens are predicted and what stands in their place: rules and distributions."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference_pairs
from text.instances import packing
from text.instances.instances import RecordOptions
from text.instances.masking import mask, prediction_counts
from text.tokenizers.vocabulary import Vocabulary


def flags(masked_lm_prob, max_predictions_per_seq, **others):
    return RecordOptions(
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions_per_seq,
        **others,
    )


NUM_WORDS, NUM_CONTINUATIONS = 20, 15
VOCABULARY = Vocabulary(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    + [f"w{i}" for i in range(NUM_WORDS)]
    + [f"##c{i}" for i in range(NUM_CONTINUATIONS)]
)
SPECIALS = 5
SEQ_LENGTH = 64


def masked(input_ids, candidates, *arguments):
    """Masks pairs, which have three special tokens."""
    return mask(input_ids, candidates, candidates.sum(axis=1) + 3, *arguments)


def make_rows(lengths, seed, max_seq_length=SEQ_LENGTH):
    """Random packed rows: ids, candidates, word starts."""
    lengths = np.array(lengths)
    rng = np.random.default_rng(seed)
    # Two of five are continuations, so words of one to many pieces come up.
    tokens = rng.integers(SPECIALS, SPECIALS + NUM_WORDS, lengths.sum())
    goes_on = rng.random(len(tokens)) < 0.4
    tokens[goes_on] = rng.integers(SPECIALS + NUM_WORDS, len(VOCABULARY), goes_on.sum())
    batch, is_text = packing.pack_pairs(tokens, *lengths.T, VOCABULARY, max_seq_length)
    ids = batch["input_ids"]
    return ids, is_text, ~VOCABULARY.is_continuation[ids]


def words_of(candidates, word_starts):
    """The positions of each word of one row."""
    words = []
    for position in np.flatnonzero(candidates).tolist():
        if words and not word_starts[position] and candidates[position - 1]:
            words[-1].append(position)
        else:
            words.append([position])
    return words


# === Rules ===


def test_halves_go_to_the_even_count():
    counts = prediction_counts(np.array([3, 5, 10, 30, 50, 64, 70, 128, 512]), 0.15)
    # 0.45, 0.75, 1.5, 4.5, 7.5, 9.6, 10.5, 19.2, 76.8
    assert counts.tolist() == [1, 1, 2, 4, 8, 10, 10, 19, 77]
    for prob in (0.05, 0.1, 0.15, 0.25, 0.3, 0.5, 1.0):
        lengths = np.arange(5, 513)
        expected = [max(1, int(round(n * prob))) for n in lengths.tolist()]
        assert prediction_counts(lengths, prob).tolist() == expected


ROWS = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 31)), min_size=1, max_size=6
)


@given(
    ROWS,
    st.sampled_from([0.01, 0.15, 0.5, 1.0]),
    st.sampled_from([1, 5, 20, 70]),
    st.booleans(),
    st.integers(0, 99),
)
def test_every_row_keeps_the_rules(lengths, prob, maximum, whole_words, seed):
    ids, candidates, word_starts = make_rows(lengths, seed)
    before = ids.copy()
    masking = flags(prob, maximum, do_whole_word_mask=whole_words)
    batch, outcomes = masked(
        ids,
        candidates,
        word_starts if whole_words else None,
        masking,
        VOCABULARY,
        np.random.default_rng(seed),
    )
    assert (ids == before).all()
    assert outcomes.sum() == batch["masked_lm_weights"].sum()
    for row, (a, b) in enumerate(lengths):
        weights = batch["masked_lm_weights"][row]
        count = int(weights.sum())
        assert weights.tolist() == [1.0] * count + [0.0] * (maximum - count)
        positions = batch["masked_lm_positions"][row]
        labels = batch["masked_lm_ids"][row]
        assert not positions[count:].any() and not labels[count:].any()
        chosen = positions[:count].tolist()
        assert chosen == sorted(set(chosen))
        assert candidates[row][chosen].all()  # never [CLS], [SEP], padding
        assert labels[:count].tolist() == ids[row][chosen].tolist()
        others = np.ones(SEQ_LENGTH, bool)
        others[chosen] = False
        assert (batch["input_ids"][row] == ids[row])[others].all()

        wanted = min(maximum, max(1, int(round((a + b + 3) * prob))))
        if not whole_words:
            assert count == min(wanted, a + b)
            continue
        assert count <= wanted
        for word in words_of(candidates[row], word_starts[row]):
            taken = len(set(word) & set(chosen))
            assert taken in (0, len(word))
            # Only a word that would exceed the budget is passed over.
            assert taken or len(word) > wanted - count


def test_a_word_is_what_the_starts_say_it_is():
    # Two words of three pieces, marked by nothing but word_starts; a budget of 3.
    ids = np.array([[2, 5, 6, 7, 3, 8, 9, 10, 3, 0]], np.int32)
    candidates = (ids > 4) & (np.arange(10) < 8)
    starts = np.isin(np.arange(10), [1, 5])[None]
    masking = flags(0.33, 20, do_whole_word_mask=True)
    found = set()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        batch, _ = masked(ids, candidates, starts, masking, VOCABULARY, rng)
        assert batch["masked_lm_weights"].sum() == 3
        found.add(tuple(batch["masked_lm_positions"][0, :3].tolist()))
    assert found == {(1, 2, 3), (5, 6, 7)}


def test_a_word_cut_off_in_front_is_a_word_of_its_own():
    goes_on = SPECIALS + NUM_WORDS
    ids = np.array([[2, goes_on, 5, 3, goes_on, 3, 0]], np.int32)
    candidates = np.isin(np.arange(7), [1, 2, 4])[None]
    starts = ~VOCABULARY.is_continuation[ids]
    masking = flags(0.15, 20, do_whole_word_mask=True)  # one prediction
    found = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        batch, _ = masked(ids, candidates, starts, masking, VOCABULARY, rng)
        found.add(batch["masked_lm_positions"][0, 0].item())
    assert found == {1, 2, 4}


def test_a_row_of_words_too_long_has_no_prediction():
    ids = np.array([[2, 5, 25, 25, 3, 6, 25, 3]], np.int32)
    candidates = ids > 4
    starts = ~VOCABULARY.is_continuation[ids]
    masking = flags(0.15, 20, do_whole_word_mask=True)  # one prediction
    batch, outcomes = masked(
        ids, candidates, starts, masking, VOCABULARY, np.random.default_rng(0)
    )
    assert outcomes.sum() == 0 and not batch["masked_lm_weights"].any()
    assert (batch["input_ids"] == ids).all()


@pytest.mark.parametrize(
    "mask_share, random_share, expected",
    [(1.0, 0.0, [1, 0, 0]), (0.0, 0.0, [0, 1, 0]), (0.0, 1.0, [0, 0, 1])],
)
def test_shares_at_their_ends(mask_share, random_share, expected):
    ids, candidates, _ = make_rows([(30, 31)] * 50, seed=0)
    masking = flags(0.15, 20, mask_share=mask_share, random_share=random_share)
    batch, outcomes = masked(
        ids, candidates, None, masking, VOCABULARY, np.random.default_rng(0)
    )
    assert (outcomes / outcomes.sum()).tolist() == expected
    positions = batch["masked_lm_positions"][:, :10]
    after = np.take_along_axis(batch["input_ids"], positions, axis=1)
    if mask_share:
        assert (after == VOCABULARY.mask_id).all()
    elif random_share:
        # Every line of the vocabulary, the special ones too, and each as often.
        counts = np.bincount(after.ravel(), minlength=len(VOCABULARY))
        assert counts.min() > 0 and counts.max() < 40  # 12.5 +- 3.5
    else:
        assert (after == batch["masked_lm_ids"][:, :10]).all()


@pytest.mark.parametrize("whole_words", [False, True])
def test_every_token_is_as_likely(whole_words):
    ids, candidates, _ = make_rows([(20, 41)] * 3000, seed=0)
    starts = np.ones_like(candidates) if whole_words else None
    masking = flags(0.15, 20, do_whole_word_mask=whole_words)
    batch, _ = masked(
        ids, candidates, starts, masking, VOCABULARY, np.random.default_rng(0)
    )
    positions = batch["masked_lm_positions"][:, :10]
    counts = np.bincount(positions.ravel(), minlength=SEQ_LENGTH)[candidates[0]]
    expected = 3000 * 10 / 61
    assert abs(counts - expected).max() < 4.5 * np.sqrt(expected)


# === Distributions, against the oracle ===

NUM_SEEDS = 40
LENGTHS = [(20, 41)] * 60 + [(10, 17)] * 40 + [(3, 4)] * 20


def statistics(ids, corrupted, chosen):
    """Means over a batch, given bool [batch, seq_length] of what is predicted."""
    counts = chosen.sum(axis=1)
    is_mask = chosen & (corrupted == VOCABULARY.mask_id)
    is_kept = chosen & (corrupted == ids)
    is_special = chosen & ~is_mask & (corrupted < SPECIALS)
    goes_on = VOCABULARY.is_continuation[ids]
    neighbours = chosen[:, 1:] & chosen[:, :-1] & goes_on[:, 1:]
    equal = is_mask[:, 1:] == is_mask[:, :-1]
    values = {
        "masks": is_mask.sum() / counts.sum(),
        "kept": is_kept.sum() / counts.sum(),
        "specials": is_special.sum() / counts.sum(),
        "continuations": (chosen & goes_on).sum() / counts.sum(),
        "places": np.nonzero(chosen)[1].mean(),
        "equal neighbours": equal[neighbours].mean(),
    }
    for name, some in zip(
        ("long", "middle", "short"), np.split(counts, [60, 100]), strict=True
    ):
        values |= {f"count, {name}": some.mean(), f"spread, {name}": some.std()}
    return values


def our_statistics(whole_words):
    ids, candidates, starts = make_rows(LENGTHS, seed=1)
    masking = flags(0.15, 9, do_whole_word_mask=whole_words)
    for seed in range(NUM_SEEDS):
        batch, _ = masked(
            ids, candidates, starts, masking, VOCABULARY, np.random.default_rng(seed)
        )
        chosen = np.zeros(ids.shape, bool)
        rows, slots = np.nonzero(batch["masked_lm_weights"])
        chosen[rows, batch["masked_lm_positions"][rows, slots]] = True
        yield statistics(ids, batch["input_ids"], chosen)


def oracle_statistics(whole_words):
    ids, candidates, _ = make_rows(LENGTHS, seed=1)
    for seed in range(NUM_SEEDS):
        rng = random.Random(seed)
        corrupted, chosen = ids.copy(), np.zeros(ids.shape, bool)
        for row in range(len(ids)):
            corrupted[row], positions = reference_pairs.mask_row(
                ids[row].tolist(),
                candidates[row].tolist(),
                VOCABULARY.is_continuation.tolist(),
                masked_lm_prob=0.15,
                max_predictions=9,
                whole_words=whole_words,
                mask_id=VOCABULARY.mask_id,
                vocabulary_size=len(VOCABULARY),
                rng=rng,
            )
            chosen[row, positions] = True
        yield statistics(ids, corrupted, chosen)


@pytest.mark.parametrize("whole_words", [False, True])
def test_distributions_are_the_release_s(whole_words):
    name, distance = reference_pairs.furthest(
        our_statistics(whole_words), oracle_statistics(whole_words)
    )
    assert distance < 4, name
