"""What we make of a text is distributed as what the release made of it."""

import random

import numpy as np
import pytest

from tests import reference_pairs
from tests.text.generation.settings import VOCAB_FILE, make_settings
from tests.text.generation.test_generation import GOLDEN, read
from text.generation.run import generate
from text.instances import pairs, static_masks
from text.instances.kinds import RowOptions
from text.records import encoding, framing
from text.tokenizers.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("no_fsync")

NUM_SEEDS = 14
# Of a wrong rule; of one that moves little, as many as of ours.
NUM_WRONG_SEEDS = 4
SUBTLE = ("nothing is put back", "a lone sentence is left out")


def statistics(batch):
    """What describes a set of records of 64 tokens; any wrong rule should move some."""
    lengths = batch["input_mask"].sum(axis=1)
    b = batch["segment_ids"].sum(axis=1) - 1
    a = lengths - b - 3
    is_random = batch["next_sentence_labels"][:, 0] == 1
    is_full = lengths == 64
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    counts = np.bincount(rows, minlength=len(lengths))
    positions = batch["masked_lm_positions"][rows, slots]
    labels = batch["masked_lm_ids"][rows, slots]
    now = batch["input_ids"][rows, positions]
    vocabulary = Vocabulary.load(VOCAB_FILE)
    goes_on = vocabulary.is_continuation

    originals = batch["input_ids"].copy()
    originals[rows, positions] = labels
    chosen = np.zeros(originals.shape, bool)
    chosen[rows, positions] = True
    joined = goes_on[originals[:, 1:]]  # to the token before
    values = {
        "records": len(lengths),
        "full": is_full.mean(),
        "length": lengths.mean(),
        "random": is_random[is_full].mean(),
        "a = b + 1": (is_full & (a == b + 1)).mean(),
        "b = a + 1": (is_full & (b == a + 1)).mean(),
        "predictions": counts.mean(),
        "spread of predictions": counts.std(),
        "masks": (now == vocabulary.mask_id).mean(),
        "kept": (now == labels).mean(),
        "continuations": goes_on[labels].mean(),
        "words chosen as a whole": (
            (chosen[:, 1:] & chosen[:, :-1])[joined].sum()
            / max(1, (chosen[:, 1:] | chosen[:, :-1])[joined].sum())
        ),
        "places": positions.mean(),
    }
    # Among full records, as one short document more or less moves much.
    for name, some in (("random", is_random & is_full), ("next", ~is_random & is_full)):
        values |= {f"a, {name}": a[some].mean(), f"spread, {name}": (a - b)[some].std()}
    return values


def golden_statistics(name):
    schema = RowOptions(max_seq_length=64, max_predictions_per_seq=10).make().schema()
    examples = list(framing.read(str(GOLDEN / "pretraining" / name)))
    batch, faults = encoding.decode(examples, schema)
    assert not faults
    return statistics(batch)


def samples(folder, whole_words, num_seeds):
    """Statistics of what we make of the same text, seed by seed."""
    for seed in range(num_seeds):
        settings = make_settings(
            folder,
            input_files=(str(GOLDEN / "pretraining" / "corpus.txt"),),
            do_whole_word_mask=whole_words,
            max_seq_length=64,
            max_predictions_per_seq=10,
            random_seed=seed,
        )
        generate(settings, overwrite=True)
        yield statistics(read(settings))


def furthest(golden, samples, scattered):
    """The statistic in which golden lies furthest from samples.

    Its distance is in standard deviations, those of the last.
    """
    distances = {}
    for name, value in golden.items():
        mean = np.mean([sample[name] for sample in samples])
        deviation = np.std([sample[name] for sample in scattered], ddof=1)
        distances[name] = abs(value - mean) / max(deviation, 1e-9)
    return max(distances.items(), key=lambda item: item[1])


KINDS = {False: "pretraining.tfrecord", True: "pretraining_wwm.tfrecord"}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """What we make, by whether words are masked as a whole."""
    folder = tmp_path_factory.mktemp("right")
    return {kind: list(samples(folder, kind, NUM_SEEDS)) for kind in KINDS}


@pytest.mark.slow
@pytest.mark.parametrize("whole_words", KINDS)
def test_the_data_is_the_release_s(right, whole_words):
    golden, ours = golden_statistics(KINDS[whole_words]), right[whole_words]
    name, distance = furthest(golden, ours, ours)
    assert distance < 3.5, name


def plan_as_oracle(mistake):
    """Plans with the oracle instead of text/instances/pairs.py."""

    def plan(sentences, documents, first, last, *, rng, **given):
        offsets = sentences[0 : len(sentences)].tolist()
        ends = documents[0 : len(documents)].tolist()
        as_tokens = [
            [list(range(offsets[s], offsets[s + 1])) for s in range(*span)]
            for span in zip(ends[:-1], ends[1:], strict=True)
        ]
        assert (first, last) == (0, len(as_tokens))
        made = reference_pairs.create_pairs(
            as_tokens,
            given["max_num_tokens"],
            given["short_seq_prob"],
            random.Random(int(rng.integers(1 << 30))),
            mistake,
        )
        rows = [(a[0], b[0], len(a), len(b), label) for a, b, label in made]
        return np.array(rows, pairs.PAIR), {"random_next": 0, "truncated_tokens": 0}

    return plan


def mask_as_oracle(mistake):
    """Masks with the oracle instead of text/instances/masking.py."""

    def mask(input_ids, candidates, lengths, word_starts, masking, vocabulary, rng):
        del lengths
        shape = (len(input_ids), masking.max_predictions_per_seq)
        batch = {
            "input_ids": input_ids.copy(),
            "masked_lm_positions": np.zeros(shape, np.int32),
            "masked_lm_ids": np.zeros(shape, np.int32),
            "masked_lm_weights": np.zeros(shape, np.float32),
        }
        is_continuation = vocabulary.is_continuation.tolist()
        python_rng = random.Random(int(rng.integers(1 << 30)))
        for row, ids in enumerate(input_ids):
            batch["input_ids"][row], chosen = reference_pairs.mask_row(
                ids.tolist(),
                candidates[row].tolist(),
                is_continuation,
                masked_lm_prob=masking.masked_lm_prob,
                max_predictions=masking.max_predictions_per_seq,
                whole_words=masking.whole_words,
                mask_id=vocabulary.mask_id,
                vocabulary_size=len(vocabulary),
                rng=python_rng,
                mistake=mistake,
            )
            batch["masked_lm_positions"][row, : len(chosen)] = chosen
            batch["masked_lm_ids"][row, : len(chosen)] = ids[chosen]
            batch["masked_lm_weights"][row, : len(chosen)] = 1.0
        return batch, np.zeros(3, np.int64)

    return mask


# What 838 records tell; the tests of pairs and of masking tell every mistake.
TOLD_BY_GOLDEN = (
    "nothing is put back",
    "labels swapped",
    "a lone sentence is left out",
    "a is split in the middle",
    "b takes the whole target",
    "a tie takes from a",
    "both sides are cut alike",
    "each token by itself",
    "specials do not count",
    "too few masks",
    "no random tokens",
    "pieces of a word apart",
    "a word too long ends the row",
    "a word too long is taken",
)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", TOLD_BY_GOLDEN)
def test_golden_would_tell_a_wrong_rule(right, tmp_path, monkeypatch, mistake):
    if mistake in reference_pairs.PAIR_MISTAKES:
        monkeypatch.setattr(pairs, "plan", plan_as_oracle(mistake))
    else:
        monkeypatch.setattr(static_masks, "mask", mask_as_oracle(mistake))
    whole_words = "word" in mistake
    golden = golden_statistics(KINDS[whole_words])
    num_seeds = NUM_SEEDS if mistake in SUBTLE else NUM_WRONG_SEEDS
    wrong = list(samples(tmp_path, whole_words, num_seeds))
    # Few samples would tell too little of how far they scatter.
    scattered = wrong if mistake in SUBTLE else right[whole_words]
    name, distance = furthest(golden, wrong, scattered)
    assert distance > 4, name
