"""Sentence pairs: each rule by itself, and the whole against the oracle."""

import random
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import reference_pairs
from text.instances import pairs

NUM_SEEDS = 80


def plan(arrays, seed, **changed):
    settings = {"max_num_tokens": 20, "short_seq_prob": 0.1, "random_next": True}
    rng = np.random.default_rng(seed)
    last = len(arrays[1]) - 1
    return pairs.plan(*arrays, 0, last, **(settings | changed), rng=rng)


# === Every rule, on random corpora ===

CORPORA = st.lists(
    st.lists(st.integers(1, 12), min_size=1, max_size=12), min_size=2, max_size=5
)


def sentence_bounds(documents):
    """Per document, the token offsets of its sentences with the end."""
    bounds, first = [], 0
    for document in documents:
        bounds.append([first, *(first + end for end in accumulate(document))])
        first = bounds[-1][-1]
    return bounds


def document_at(bounds, offset):
    (found,) = (d for d, b in enumerate(bounds) if b[0] <= offset < b[-1])
    return found


@given(
    CORPORA, st.integers(5, 30), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 99)
)
def test_every_pair_keeps_the_rules(flat, documents, max_num_tokens, short, seed):
    bounds = sentence_bounds(documents)
    planned, _ = plan(
        flat(documents), seed, max_num_tokens=max_num_tokens, short_seq_prob=short
    )
    for a_start, b_start, a_length, b_length, is_random in planned.tolist():
        assert a_length >= 1 and b_length >= 1
        assert a_length + b_length <= max_num_tokens
        # Neither span crosses the end of its document.
        a_document = document_at(bounds, a_start)
        b_document = document_at(bounds, b_start)
        assert a_start + a_length <= bounds[a_document][-1]
        assert b_start + b_length <= bounds[b_document][-1]
        assert (a_document != b_document) == is_random
        if not is_random:
            assert a_start + a_length <= b_start
        if a_length + b_length < max_num_tokens:  # nothing was cut
            for document, start, length in (
                (a_document, a_start, a_length),
                (b_document, b_start, b_length),
            ):
                assert start in bounds[document]
                assert start + length in bounds[document]
            if not is_random:
                assert a_start + a_length == b_start


@given(CORPORA, st.sampled_from([0.0, 0.6]), st.integers(0, 99))
def test_without_cutting_the_chunks_cover_each_document(flat, documents, short, seed):
    # Where nothing is cut, spans are the sentences they were made of.
    arrays = flat([[length % 3 + 1 for length in document] for document in documents])
    sentences, ends = arrays[0][0 : len(arrays[0])], arrays[1][0 : len(arrays[1])]
    planned, counts = plan(arrays, seed, max_num_tokens=50, short_seq_prob=short)
    assume(not counts["truncated_tokens"])
    position = 0  # in sentences
    for a_start, b_start, a_length, b_length, is_random in planned.tolist():
        assert a_start == sentences[position]  # unused sentences were put back
        end = a_start + a_length + (0 if is_random else b_length)
        position = int(np.searchsorted(sentences, end))
        assert sentences[position] == end
        if not is_random:
            assert b_start == a_start + a_length
            # Only the end of a document keeps a chunk below its target, two at least.
            assert end - a_start >= 2 or position in ends
    assert position == len(sentences) - 1


@given(CORPORA, st.integers(0, 99))
def test_a_document_has_one_target(flat, documents, seed):
    # Sentences of one token: a chunk is as long as the target, so the target shows.
    arrays = flat([[1] * (10 * len(document)) for document in documents])
    planned, counts = plan(arrays, seed, max_num_tokens=20, short_seq_prob=0.5)
    ends = arrays[1][0 : len(arrays[1])]
    assert counts["truncated_tokens"] == 0
    targets = {}
    for a_start, _, a_length, b_length, is_random in planned.tolist():
        document = int(np.searchsorted(ends, a_start, side="right"))
        at_end = a_start + a_length + b_length >= ends[document]
        if not is_random and not at_end:
            targets.setdefault(document, set()).add(a_length + b_length)
    assert all(len(found) == 1 for found in targets.values())
    assert all(2 <= target <= 20 for found in targets.values() for target in found)


@given(CORPORA, st.integers(0, 99))
def test_without_random_nexts_all_is_used_once_and_in_order(flat, documents, seed):
    arrays = flat(documents)
    planned, counts = plan(
        arrays, seed, max_num_tokens=1000, random_next=False, short_seq_prob=0.5
    )
    assert not planned["is_random"].any()
    used = planned["a_length"].sum(dtype=int) + planned["b_length"].sum(dtype=int)
    ends = planned["a_start"] + planned["a_length"]
    assert (ends == planned["b_start"]).all()
    left_out = arrays[0][len(arrays[0]) - 1] - used
    lone = [document[-1] for document in documents]
    assert counts["unpaired_sentences"] <= len(documents)
    assert left_out <= sum(lone)
    assert (left_out == 0) == (counts["unpaired_sentences"] == 0)


def test_a_random_next_fills_the_target_with_whole_sentences(flat):
    # The first document is one sentence of 6, so b is to have 14 of the second's 5s.
    planned, _ = plan(flat([[6], [5] * 40]), seed=1, short_seq_prob=0.0)
    a_start, b_start, a_length, b_length, is_random = planned[0].tolist()
    assert (a_start, a_length, is_random) == (0, 6, True)
    assert b_length == 14  # of 15, one of them cut off
    # A first sentence that fills the record still gets one sentence to be cut with.
    planned, _ = plan(flat([[30], [5] * 40]), seed=1, short_seq_prob=0.0)
    assert planned[0]["a_length"] == 15 and planned[0]["b_length"] == 5


def test_blocks_plan_what_they_are_given(flat):
    arrays = flat([[3, 4, 5]] * 4)
    rng = np.random.default_rng(0)
    planned, _ = pairs.plan(
        *arrays, 2, 3, max_num_tokens=20, short_seq_prob=0.0, random_next=True, rng=rng
    )
    assert planned["a_start"].min() >= 24 and planned["a_start"].max() < 36


@pytest.mark.parametrize("random_next", [True, False])
def test_a_long_document_is_planned_in_windows(flat, monkeypatch, random_next):
    arrays = flat([[1, 2, 3, 4, 5] * 60, [2] * 300])
    whole = plan(arrays, seed=3, random_next=random_next)
    monkeypatch.setattr(pairs, "_WINDOW", 7)
    windows = plan(arrays, seed=3, random_next=random_next)
    assert whole[0].tolist() == windows[0].tolist()
    assert whole[1] == windows[1]


# === The whole, against the oracle ===


def oracle_corpus():
    rng = random.Random(5)
    documents = [
        [min(1 + int(rng.expovariate(0.12)), 90) for _ in range(rng.randint(2, 90))]
        for _ in range(10)
    ]
    return [*documents, [25], [70], [8, 9]]


def statistics(spans, documents, max_num_tokens):
    """Means over the pairs of one pass, which any wrong rule should move."""
    bounds = sentence_bounds(documents)
    starts = np.array(sorted({offset for b in bounds for offset in b}))
    document_ends = np.array([b[-1] for b in bounds])
    a_start, b_start, a, b, is_random = np.array(spans, np.int64).T
    is_random = is_random.astype(bool)
    total = a + b
    full = total == max_num_tokens
    own = np.searchsorted(document_ends, a_start, side="right")
    other = np.searchsorted(document_ends, b_start, side="right")
    other_firsts = np.array([b[0] for b in bounds])[other]
    short = total < max_num_tokens // 2
    shorts = [short[own == d] for d in range(len(documents)) if sum(own == d) > 3]
    values = {
        "pairs": len(a),
        "short documents": np.mean([rows.mean() > 0.7 for rows in shorts]),
        "random": is_random.mean(),
        "full": full.mean(),
        "total": total.mean(),
        "spread of totals": total.std(),
        "a = b + 1": (full & (a == b + 1)).mean(),
        "b = a + 1": (full & (b == a + 1)).mean(),
        "a starts whole": np.isin(a_start, starts).mean(),
        "a ends whole": np.isin(a_start + a, starts).mean(),
        "b starts whole": np.isin(b_start, starts).mean(),
        "b ends whole": np.isin(b_start + b, starts).mean(),
        "same document": (own == other)[is_random].mean(),
        "b's place": (b_start - other_firsts)[is_random].mean(),
        "b's document": other[is_random].mean(),
    }
    for name, rows in (("random", is_random), ("next", ~is_random)):
        values |= {
            f"a, {name}": a[rows].mean(),
            f"b, {name}": b[rows].mean(),
            f"spread of a, {name}": a[rows].std(),
            f"short, {name}": short[rows].mean(),
        }
    return values


def oracle_spans(documents, seed):
    bounds = sentence_bounds(documents)
    as_tokens = [
        [list(range(*span)) for span in zip(b[:-1], b[1:], strict=True)] for b in bounds
    ]
    made = reference_pairs.create_pairs(as_tokens, 61, 0.3, random.Random(seed))
    return [(a[0], b[0], len(a), len(b), is_random) for a, b, is_random in made]


@pytest.fixture(scope="module")
def ours(flat):
    documents = oracle_corpus()
    arrays = flat(documents)
    passes = [
        plan(arrays, seed, max_num_tokens=61, short_seq_prob=0.3)[0].tolist()
        for seed in range(NUM_SEEDS)
    ]
    return [statistics(spans, documents, 61) for spans in passes]


def oracle_statistics():
    documents = oracle_corpus()
    return [
        statistics(oracle_spans(documents, seed), documents, 61)
        for seed in range(NUM_SEEDS)
    ]


def test_distributions_are_the_release_s(ours):
    name, distance = reference_pairs.furthest(ours, oracle_statistics())
    assert distance < 4, name
