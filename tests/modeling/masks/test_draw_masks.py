"""Masks drawn in training: their rules, and that nothing but row and seed decides them."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inspect_records
import run_pretraining
import tests
from training.storage import checkpoint
from training.storage.folder import Folder
from errors import UserError
from modeling.masks.draw_masks import DrawMasks
from tests import jobs
from tests.pretraining import RECORDS, flags, results
from tests.records import make_records
from text.instances.masking import prediction_counts
from text.instances.table import RowOptions

VOCAB_FILE = str(tests.GOLDEN / "checkpoint" / "vocab.txt")
WIDTH, MOST, CLS, SEP, MASK, FIRST = 32, 6, 1, 2, 3, 10


SETTINGS = {
    "counts": prediction_counts(np.arange(WIDTH + 1), 0.15),
    "max_predictions_per_seq": MOST,
    "mask_share": 0.8,
    "random_share": 0.1,
    "whole_words": False,
    "vocab_size": 1000,
    "mask_id": MASK,
    "special_ids": (CLS, SEP),
}


def masks(prob=0.15, **changes):
    counts = {"counts": prediction_counts(np.arange(WIDTH + 1), prob)}
    return DrawMasks(**SETTINGS | counts | changes)


def rows(lengths, first=0, seed=0):
    """Rows of random ids with [SEP] in the middle and at the end."""
    rng = np.random.default_rng(seed)
    lengths = np.asarray(lengths)
    ids = rng.integers(FIRST, 1000, (len(lengths), WIDTH)).astype(np.int32)
    columns = np.arange(WIDTH)
    ids[:, 0] = CLS
    at = np.arange(len(lengths))
    ids[at, lengths // 2] = SEP
    ids[at, lengths - 1] = SEP
    mask = columns < lengths[:, None]
    starts = (rng.random(ids.shape) < 0.6) & mask & (ids >= FIRST)
    starts |= (ids >= FIRST) & np.roll(ids < FIRST, 1, axis=1) & mask
    return {
        "input_ids": np.where(mask, ids, 0).astype(np.int32),
        "input_mask": mask.astype(np.int32),
        "word_starts": starts.astype(np.int32),
        "row_numbers": np.arange(first, first + len(lengths), dtype=np.int32),
    }


def prepared(objective, batch, seed=5):
    made = objective(
        {name: keras.ops.convert_to_tensor(x) for name, x in batch.items()}, seed
    )
    return {name: keras.ops.convert_to_numpy(x) for name, x in made.items()}


LENGTHS = st.lists(st.integers(5, WIDTH), min_size=1, max_size=9)


@given(
    LENGTHS, st.booleans(), st.sampled_from([0.01, 0.15, 0.5, 1.0]), st.integers(0, 9)
)
def test_every_row_keeps_the_rules(lengths, whole_words, prob, seed):
    batch = rows(lengths, seed=seed)
    made = prepared(masks(prob=prob, whole_words=whole_words), batch, seed)
    weights, positions = made["masked_lm_weights"], made["masked_lm_positions"]
    wanted = np.minimum(prediction_counts(np.array(lengths), prob), MOST)
    wanted = np.minimum(wanted, np.array(lengths) - 3)
    for row, count in enumerate(wanted.tolist()):
        number = int(weights[row].sum())
        chosen = positions[row, :number]
        assert weights[row].tolist() == [1] * number + [0] * (MOST - number)
        assert (np.diff(chosen) > 0).all() and not positions[row, number:].any()
        originals = batch["input_ids"][row, chosen]
        assert (originals >= FIRST).all()
        assert made["masked_lm_ids"][row].tolist() == [
            *originals.tolist(),
            *[0] * (MOST - number),
        ]
        others = np.setdiff1d(np.arange(WIDTH), chosen)
        np.testing.assert_array_equal(
            made["input_ids"][row, others], batch["input_ids"][row, others]
        )
        if not whole_words:
            assert number == count
            continue
        words = np.cumsum(batch["word_starts"][row] | (batch["input_ids"][row] < FIRST))
        for word in set(words[chosen].tolist()):
            assert set(np.flatnonzero(words == word)) <= set(chosen.tolist())
        # A word is passed over only if there was no room for it.
        taken = set(words[chosen].tolist())
        free = [
            int((words == w).sum())
            for w in set(words[batch["input_ids"][row] >= FIRST].tolist()) - taken
        ]
        assert number <= count and all(n > count - number for n in free)


@pytest.mark.parametrize("whole_words", [False, True])
def test_masks_do_not_depend_on_how_rows_are_divided(whole_words):
    lengths = np.random.default_rng(0).integers(8, WIDTH + 1, 24)
    batch = rows(lengths)
    objective = masks(whole_words=whole_words)
    whole = prepared(objective, batch)
    for part in (slice(0, 8), slice(5, 24, 3)):
        some = prepared(objective, {name: x[part] for name, x in batch.items()})
        for name, values in some.items():
            np.testing.assert_array_equal(values, whole[name][part], err_msg=name)
    again = {**batch, "row_numbers": batch["row_numbers"] + 24}  # the next epoch
    assert (prepared(objective, again)["input_ids"] != whole["input_ids"]).any()
    other_seed = prepared(objective, batch, seed=6)
    assert (other_seed["input_ids"] != whole["input_ids"]).any()


def test_shares_and_positions_are_as_likely_as_they_should_be():
    number = 20_000
    batch = rows([WIDTH] * number)
    made = prepared(masks(), batch)
    picked = made["masked_lm_positions"][made["masked_lm_weights"] > 0]
    assert len(picked) == 5 * number  # of 32 tokens, 15 % are 4.8
    counts = np.bincount(picked, minlength=WIDTH)
    text = [c for c in range(WIDTH) if c not in (0, WIDTH // 2, WIDTH - 1)]
    assert counts.sum() == counts[text].sum()
    expected = len(picked) / len(text)
    chi_square = ((counts[text] - expected) ** 2 / expected).sum()
    assert chi_square < 70  # 28 degrees of freedom: once in 40,000 seeds
    shown = np.take_along_axis(made["input_ids"], made["masked_lm_positions"], 1)
    shown, originals = (x[:, :5].ravel() for x in (shown, made["masked_lm_ids"]))
    is_mask, is_kept = shown == MASK, shown == originals
    shares = [is_mask.mean(), is_kept.mean(), (~is_mask & ~is_kept).mean()]
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.005)
    # Random tokens are any of the vocabulary, specials among them.
    random = shown[~is_mask & ~is_kept]
    assert random.min() < 3 and random.max() > 996
    assert (
        abs(np.bincount(random // 100, minlength=10) / len(random) - 0.1).max() < 0.02
    )


def test_pairs_of_tokens_are_chosen_independently():
    batch = rows([WIDTH] * 20_000)
    made = prepared(masks(), batch)
    chosen = np.zeros((20_000, WIDTH))
    np.put_along_axis(chosen, made["masked_lm_positions"][:, :5], 1, axis=1)
    text = [c for c in range(WIDTH) if chosen[:, c].any()]
    correlation = np.corrcoef(chosen[:, text].T)
    # Of five places among 29, one taken leaves fewer for each other.
    off = correlation[~np.eye(len(text), dtype=bool)]
    assert abs(off - -1 / (len(text) - 1)).max() < 0.035
    # And rows, as epochs, know nothing of each other.
    both = (chosen[:-1] * chosen[1:])[:, text].sum(axis=1)
    assert both.mean() == pytest.approx(25 / 29, abs=0.03)


ON_JAX = """
import os, sys
os.environ["KERAS_BACKEND"] = "jax"
import jax, numpy
from modeling.masks.draw_masks import DrawMasks
batch = dict(numpy.load(sys.argv[1]))
for whole_words, made in zip((False, True), sys.argv[3:]):
    draw = DrawMasks(whole_words=whole_words, **eval(sys.argv[2]))
    prepare = jax.jit(lambda batch: draw(batch, 5))
    numpy.savez(made, **prepare(batch))
assert "tensorflow" not in sys.modules
"""


@pytest.mark.exhaustive
def test_jax_draws_the_same_masks(tmp_path):
    batch = rows(np.random.default_rng(0).integers(8, WIDTH + 1, 24), first=-3)
    np.savez(tmp_path / "batch.npz", **batch)
    settings = SETTINGS | {"counts": SETTINGS["counts"].tolist()}
    del settings["whole_words"]
    paths = [str(tmp_path / name) for name in ("batch.npz", "tokens.npz", "words.npz")]
    subprocess.run(
        [sys.executable, "-c", ON_JAX, paths[0], repr(settings), *paths[1:]],
        env={"PYTHONPATH": str(tests.ROOT)},
        check=True,
    )
    for path, whole_words in zip(paths[1:], (False, True), strict=True):
        expected = prepared(masks(whole_words=whole_words), batch)
        found = dict(np.load(path))
        jobs.check_same_bits(found, expected)


def test_whole_words_need_to_know_where_words_start():
    assert masks(whole_words=True).features == ("word_starts",)
    assert masks().features == ()


# --- From a text to a model ----------------------------------------------------------


@pytest.mark.parametrize(
    "changes, features",
    [
        ({"dupe_factor": 1, "instances": "full_sentences"}, 3),
        ({"do_whole_word_mask": True}, 5),
    ],
)
def test_records_hold_no_masks_and_are_sound(tmp_path, capsys, changes, features):
    records = make_records(tmp_path, masking="dynamic", **changes)
    schema = (
        RowOptions(
            masking="dynamic",
            **{name: value for name, value in changes.items() if name != "dupe_factor"},
        )
        .make_instances()
        .schema()
    )
    assert len(schema) == features
    given = inspect_records.Options(input_file=[records], vocab_file=VOCAB_FILE)
    assert inspect_records.main(given) == 0
    shown = capsys.readouterr().out
    assert "Predictions" not in shown and "to predict;" not in shown
    assert " document " in shown and "MASK" not in shown.split("\n", 1)[1]


def test_passes_that_would_be_equal_are_refused(tmp_path):
    with pytest.raises(UserError, match="--dupe_factor=2: .*use --dupe_factor=1"):
        make_records(tmp_path, masking="dynamic", instances="doc_sentences")


def train(folder, records, **changes):
    given = {"input_file": [records], "do_eval": True, "eval_batch_size": 100} | changes
    run_pretraining.main(run_pretraining.Options(**flags(folder, **given)))


def weights(folder):
    _, tensors = checkpoint.newest(Folder.open(str(folder / "output")))
    return {name: value for name, value in tensors.items() if "adam" not in name}


@pytest.mark.exhaustive
def test_a_run_learns_resumes_and_is_held_to_its_masks(tmp_path, untraced):
    records = make_records(tmp_path, masking="dynamic", do_whole_word_mask=True)
    for name in ("whole", "killed", "in parts"):
        (tmp_path / name).mkdir()
    train(tmp_path / "whole", records)
    found = results(tmp_path / "whole")
    assert float(found["masked_lm_loss"]) < 9 and "next_sentence_loss" in found
    with jobs.dying(4):
        train(tmp_path / "killed", records)
    train(tmp_path / "killed", records)
    assert results(tmp_path / "killed") == found
    expected = weights(tmp_path / "whole")
    for name, value in weights(tmp_path / "killed").items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    # Micro-batches see the same masks; only dropout differs.
    train(tmp_path / "in parts", records, gradient_accumulation_steps=2)
    loss = float(results(tmp_path / "in parts")["masked_lm_loss"])
    assert loss == pytest.approx(float(found["masked_lm_loss"]), rel=0.01)
    # The same rows with another recipe: the bytes are equal, the run is not.
    other = tmp_path / "other"
    other.mkdir()
    changed = make_records(
        other, masking="dynamic", do_whole_word_mask=True, masked_lm_prob=0.3
    )
    with pytest.raises(
        UserError, match=r"settings: masked_lm_prob was 0.15 and is now 0.3; choose"
    ):
        train(tmp_path / "whole", changed)
    with pytest.raises(UserError, match="--masked_lm_prob=0.3, but .* with 0.15; a"):
        train(tmp_path / "in parts", records, eval_input_file=[changed])


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_run_may_mask_another_share_than_its_records_say(tmp_path, untraced):
    """As if they had been made with that."""
    records = make_records(tmp_path, masking="dynamic")
    (tmp_path / "after").mkdir()
    more = {"masked_lm_prob": 0.3, "max_predictions_per_seq": 20}
    changed = make_records(tmp_path / "after", masking="dynamic", **more)
    train(tmp_path, records, **more)
    train(tmp_path / "after", changed, max_predictions_per_seq=20)
    jobs.check_same_bits(weights(tmp_path), weights(tmp_path / "after"))
    with pytest.raises(UserError, match="masked_lm_prob was 0.3 and is now 0.2;"):
        train(tmp_path, records, **more | {"masked_lm_prob": 0.2})
    with pytest.raises(UserError, match="--masked_lm_prob=0.3: has no effect, as no "):
        train(tmp_path, RECORDS, masked_lm_prob=0.3)
