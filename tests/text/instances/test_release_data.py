"""What we make of a text is distributed as what the release made of it."""

import numpy as np
import pytest

from tests.text.generation.settings import VOCAB_FILE, make_settings
from tests.text.generation.test_generation import GOLDEN, read
from text.generation.generate import generate
from text.instances.table import RowOptions
from text.records import encoding, framing
from text.tokenizers.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("no_fsync")

NUM_SEEDS = 14


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
    schema = (
        RowOptions(max_seq_length=64, max_predictions_per_seq=10)
        .make_instances()
        .schema()
    )
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


def furthest(golden, samples):
    """The statistic in which golden lies furthest from samples, in their deviations."""
    distances = {}
    for name, value in golden.items():
        mean = np.mean([sample[name] for sample in samples])
        deviation = np.std([sample[name] for sample in samples], ddof=1)
        distances[name] = abs(value - mean) / max(deviation, 1e-9)
    return max(distances.items(), key=lambda item: item[1])


KINDS = {False: "pretraining.tfrecord", True: "pretraining_wwm.tfrecord"}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """What we make, by whether words are masked as a whole."""
    folder = tmp_path_factory.mktemp("right")
    return {kind: list(samples(folder, kind, NUM_SEEDS)) for kind in KINDS}


@pytest.mark.parametrize("whole_words", KINDS)
def test_the_data_is_the_release_s(right, whole_words):
    golden = golden_statistics(KINDS[whole_words])
    name, distance = furthest(golden, right[whole_words])
    assert distance < 3.5, name
