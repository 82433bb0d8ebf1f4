"""N-grams in records: which are masked, how long they are, and how often."""

import gzip
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import create_pretraining_data
import inspect_records
import tests
from tests import reference_ngrams
from text.instances.ngrams import choose_ngrams, ngram_shares
from text.instances.table import RowOptions
from text.records import encoding, framing
from text.tokenizers.vocabulary import Vocabulary

ROW, NUM_ROWS = reference_ngrams.ROW, 40_000
GOLDEN = tests.GOLDEN / "albert" / "data"
VOCAB_FILE = str(tests.ROOT / "vocab" / "vocab.txt")


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


# --- Records -------------------------------------------------------------------------


@pytest.fixture
def make(tmp_path):
    """Writes records of the release's text; returns their path."""
    text = tmp_path / "text.txt"
    text.write_bytes(gzip.decompress((GOLDEN / "corpus.txt.gz").read_bytes()))

    def made(**changes):
        given = {
            "input_file": [str(text)],
            "output_file": [str(tmp_path / "records")],
            "vocab_file": VOCAB_FILE,
            "dupe_factor": 3,
            "num_workers": 1,
        }
        options = create_pretraining_data.Options(**given | changes)
        create_pretraining_data.main(options)
        return str(tmp_path / "records")

    return made


def masked_runs(path, vocabulary):
    """The shares of runs of 1, 2, 3 and 4 masked words, and the tokens shown in them."""
    schema = RowOptions(instances="sentence_order").make_instances().schema()
    batch, faults = encoding.decode(list(framing.read(path)), schema)
    assert not faults
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    positions = batch["masked_lm_positions"][rows, slots]
    labels = batch["masked_lm_ids"][rows, slots]
    shown = batch["input_ids"][rows, positions]
    text = batch["input_ids"].copy()
    text[rows, positions] = labels
    special = [vocabulary.cls_id, vocabulary.sep_id]
    candidates = (batch["input_mask"] > 0) & ~np.isin(text, special)
    follows = np.roll(candidates, 1, axis=1)
    starts = candidates & (~vocabulary.is_continuation[text] | ~follows)
    chosen = np.zeros(text.shape, int)
    chosen[rows, positions] = 1
    runs = Counter()
    for row, is_start in zip(chosen, starts, strict=True):
        edges = np.diff(row[is_start], prepend=0, append=0)
        runs.update((np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)).tolist())
    is_mask, is_kept = shown == vocabulary.mask_id, shown == labels
    shares = [is_mask.mean(), is_kept.mean(), (~is_mask & ~is_kept).mean()]
    return [runs[n] / runs.total() for n in range(1, 5)], shares, batch


def test_shares_are_those_of_the_release_s_records(make):
    facts = json.loads((GOLDEN / "facts.json").read_text())["vocab_default"]
    path = make(instances="sentence_order", do_whole_word_mask=True, ngram=3)
    runs, shares, batch = masked_runs(path, Vocabulary.load(VOCAB_FILE))
    release = facts["runs_of_masked_words"]
    expected = [release[str(n)] / sum(release.values()) for n in range(1, 5)]
    np.testing.assert_allclose(runs, expected, atol=0.025)
    np.testing.assert_allclose(
        shares, list(facts["share_of_predictions"].values()), atol=0.01
    )
    lengths = batch["input_mask"].sum(axis=1)
    wanted = np.minimum(20, np.rint(lengths * 0.15).clip(1))
    assert batch["masked_lm_weights"].sum() == wanted.sum()
    # A document's target length is drawn once a pass, so these scatter from seed to seed.
    labels = batch["next_sentence_labels"].mean()
    assert labels == pytest.approx(facts["share_label_1"], abs=0.08)
    assert lengths.mean() == pytest.approx(facts["mean_length"], rel=0.15)
    boundaries = batch["token_boundary"].sum() / lengths.sum()
    assert boundaries == pytest.approx(facts["share_token_boundary"], abs=0.001)


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("prob", [0.15, 1.0])
def test_records_are_sound(make, capsys, whole_words, prob):
    path = make(
        ngram=5,
        do_whole_word_mask=whole_words,
        masked_lm_prob=prob,
        max_seq_length=64,
        max_predictions_per_seq=64,
        dupe_factor=1,
    )
    given = inspect_records.Options(input_file=[path], vocab_file=VOCAB_FILE)
    assert inspect_records.main(given) == 0
    assert "no problems found" in capsys.readouterr().out
