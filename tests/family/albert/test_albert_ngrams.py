"""ALBERT's n-grams in records: which words are masked, and how often, as in its release."""

import gzip
import json
from collections import Counter

import numpy as np
import pytest

import tests
from tests import records
from text.tokenizers.vocabulary import Vocabulary

GOLDEN = tests.GOLDEN / "albert" / "data"
VOCAB_FILE = str(tests.ROOT / "vocab" / "vocab.txt")


def masked_runs(batch, vocabulary):
    """The shares of runs of 1, 2, 3 and 4 masked words, and the tokens shown in them."""
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
    return [runs[n] / runs.total() for n in range(1, 5)], shares


def test_shares_are_those_of_the_release_s_records(tmp_path):
    facts = json.loads((GOLDEN / "facts.json").read_text())["vocab_default"]
    text = tmp_path / "text.txt"
    text.write_bytes(gzip.decompress((GOLDEN / "corpus.txt.gz").read_bytes()))
    batch = records.make(
        input_file=[str(text)],
        output_file=[str(tmp_path / "records")],
        vocab_file=VOCAB_FILE,
        instances="sentence_order",
        do_whole_word_mask=True,
        ngram=3,
        max_seq_length=128,
        max_predictions_per_seq=20,
        dupe_factor=3,
    )
    runs, shares = masked_runs(batch, Vocabulary.load(VOCAB_FILE))
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
