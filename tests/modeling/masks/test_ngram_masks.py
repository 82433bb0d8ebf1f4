"""N-grams drawn in training: the same choices, as often, as where records are written."""

import json
import subprocess
import sys
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf

import run_pretraining
import tests
from errors import UserError
from modeling.masks import mask_ngrams
from modeling.masks.draw_masks import DrawMasks
from tests import reference_ngrams
from tests.pretraining import flags
from tests.records import make_records
from text.instances.ngrams import choose_ngrams, ngram_shares

ROW, NUM_ROWS = reference_ngrams.ROW, 40_000
CLS, SEP, MASK, FIRST = 1, 2, 3, 10


def masks(width, count, *, shares, whole_words=True):
    return DrawMasks(
        counts=[count] * (width + 1),
        max_predictions_per_seq=count,
        mask_share=0.8,
        random_share=0.1,
        whole_words=whole_words,
        vocab_size=1000,
        mask_id=MASK,
        special_ids=(CLS, SEP),
        ngram_shares=shares,
    )


def batch_of(starts, candidates, first=0):
    """Rows whose candidates are tokens, all others [SEP]."""
    ids = np.where(candidates, FIRST + np.arange(starts.shape[1]), SEP)
    return {
        "input_ids": ids.astype(np.int32),
        "input_mask": np.ones(ids.shape, np.int32),
        "word_starts": starts.astype(np.int32),
        "row_numbers": np.arange(first, first + len(ids), dtype=np.int32),
    }


def chosen(objective, batch, **compiled):
    """bool [b, s]: the positions to predict."""

    @tf.function(**compiled)
    def prepare(batch):
        return objective(batch, seed=5)

    made = prepare({name: tf.constant(x) for name, x in batch.items()})
    rows, slots = np.nonzero(made["masked_lm_weights"].numpy())
    found = np.zeros(batch["input_ids"].shape, bool)
    found[rows, made["masked_lm_positions"].numpy()[rows, slots]] = True
    return found


def row_batch():
    starts, candidates = np.zeros((2, NUM_ROWS, ROW.width), bool)
    for word in ROW.words:
        starts[:, word[0]] = candidates[:, word] = True
    return starts, candidates


@pytest.fixture(scope="module")
def found():
    """How often each set of positions is chosen."""
    objective = masks(ROW.width, ROW.count, shares=ngram_shares(3))
    rows = chosen(objective, batch_of(*row_batch()))
    return Counter(frozenset(np.flatnonzero(row).tolist()) for row in rows)


def test_every_choice_is_as_likely_as_in_the_release(found):
    expected = reference_ngrams.outcomes(ROW, ngram_shares(3).tolist())
    assert reference_ngrams.distance(found, expected) < 4


@pytest.mark.parametrize("mistake", reference_ngrams.MISTAKES)
def test_a_wrong_rule_would_show(found, mistake):
    wrong = reference_ngrams.outcomes(ROW, ngram_shares(3).tolist(), mistake)
    assert reference_ngrams.distance(found, wrong) > 20


def long_rows(number):
    rng = np.random.default_rng(0)
    candidates = np.ones((number, 128), bool)
    candidates[:, [0, 60, -1]] = False
    follows = np.roll(candidates, 1, axis=1)
    starts = candidates & ((rng.random(candidates.shape) < 0.8) | ~follows)
    return starts, candidates


def run_lengths(picked, starts):
    """Share of each number of words in a row that are picked, up to five."""
    runs = Counter()
    for row, is_start in zip(picked, starts, strict=True):
        edges = np.diff(row[is_start].astype(int), prepend=0, append=0)
        runs.update((np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)).tolist())
    return np.array([runs[n] for n in range(1, 6)]) / runs.total()


@pytest.mark.parametrize("whole_words", [False, True])
def test_rows_of_a_usual_size_are_masked_as_in_records(whole_words):
    starts, candidates = long_rows(3000)
    starts = starts if whole_words else candidates
    shares = ngram_shares(3)
    drawn = chosen(
        masks(128, 19, shares=shares, whole_words=whole_words),
        batch_of(starts, candidates),
    )
    rng = np.random.default_rng(1)
    counts = np.full(3000, 19)
    written = choose_ngrams(candidates, starts, counts, shares, rng)
    assert (drawn.sum(axis=1) == 19).mean() == pytest.approx(1, abs=0.001)
    np.testing.assert_allclose(
        run_lengths(drawn, starts), run_lengths(written, starts), atol=0.015
    )
    by_place = drawn.sum(axis=0) - written.sum(axis=0)
    assert abs(by_place).max() < 5 * np.sqrt(2 * 3000 * 0.15)
    assert not (drawn & ~candidates).any()


@pytest.mark.exhaustive
def test_choices_do_not_depend_on_how_rows_are_divided_or_compiled():
    starts, candidates = long_rows(24)
    objective = masks(128, 19, shares=ngram_shares(3))
    whole = chosen(objective, batch_of(starts, candidates))
    part = slice(7, 12)
    some = chosen(objective, batch_of(starts[part], candidates[part], first=7))
    np.testing.assert_array_equal(some, whole[part])
    compiled = chosen(objective, batch_of(starts, candidates), jit_compile=True)
    np.testing.assert_array_equal(compiled, whole)
    later = chosen(objective, batch_of(starts, candidates, first=24))
    assert (later != whole).any(axis=1).all()


ON_JAX = """
import os, sys
os.environ["KERAS_BACKEND"] = "jax"
import jax, numpy
from modeling.masks import mask_ngrams
given = dict(numpy.load(sys.argv[1]))
choose = jax.jit(lambda given: mask_ngrams.choose(**given, shares=(0.5, 0.3, 0.2)))
numpy.save(sys.argv[2], choose(given))
assert "tensorflow" not in sys.modules
"""


@pytest.mark.exhaustive
def test_jax_makes_the_same_choices(tmp_path):
    starts, candidates = long_rows(24)
    rng = np.random.default_rng(2)
    given = {
        "keys": rng.random(starts.shape, dtype=np.float32),
        "draws": rng.random(starts.shape, dtype=np.float32),
        "candidates": candidates,
        "starts": starts,
        "counts": rng.integers(1, 40, 24).astype(np.int32),
    }
    np.savez(tmp_path / "given.npz", **given)
    paths = [str(tmp_path / name) for name in ("given.npz", "chosen.npy")]
    subprocess.run(
        [sys.executable, "-c", ON_JAX, *paths],
        env={"PYTHONPATH": str(tests.ROOT)},
        check=True,
    )
    tensors = {name: keras.ops.convert_to_tensor(x) for name, x in given.items()}
    expected = mask_ngrams.choose(**tensors, shares=(0.5, 0.3, 0.2))
    np.testing.assert_array_equal(np.load(paths[1]), expected)


def test_a_run_is_held_to_its_n_grams(tmp_path, untraced):
    """One that noted none continues without any."""
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    records = make_records(tmp_path / "before", masking="dynamic")

    def train(records, **changes):
        given = flags(tmp_path, input_file=[records], **changes)
        run_pretraining.main(run_pretraining.Options(**given))

    train(records)
    settings = tmp_path / "output" / "run.json"
    noted = json.loads(settings.read_text())
    assert noted.pop("ngram") == 1
    settings.write_text(json.dumps(noted))
    train(records)  # it is finished, and not refused
    longer = make_records(tmp_path / "after", masking="dynamic", ngram=3)
    with pytest.raises(UserError, match="ngram was 1 and is now 3"):
        train(longer)
    with pytest.raises(UserError, match="with --ngram=3, but .* with 1; a run draws"):
        train(records, eval_input_file=[longer])
