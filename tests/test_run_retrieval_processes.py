"""run_retrieval.py in processes of its own: replicas, micro-batches, a kill."""

import sys

import numpy as np
import pytest

import tests
from training.storage.source import Source
from tests import forked, jobs
from tests.vectors import flags, run, scored_pairs, write_files, write_table

ON_TWO_CPUS = str(tests.ROOT / "tests" / "programs" / "on_two_cpus.py")


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


def weights(folder, name):
    return Source.open(str(folder / name)).read()


def on_two_cpus(folder, **changes):
    line = jobs.command("run_retrieval.py", flags(folder, **changes))
    done = forked.finished([sys.executable, ON_TWO_CPUS, *line[1:]])
    assert done.returncode == 0, done.stderr
    assert "on 2 devices" in done.stdout


# One with XLA, which meets the loss alone: test_vector_losses.py compiles the other.
LOSSES = {
    "in_batch_negatives": {"symmetric": True, "xla": True},
    "cosent": {"train_kind": "scored_pairs", "train_file": "scored.tsv"},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("loss", LOSSES)
def test_replicas_and_micro_batches_compare_all_rows_of_an_update(folder, loss):
    write_table(folder / "scored.tsv", scored_pairs(64, seed=5))
    given = LOSSES[loss] | {
        "do_train": True,
        "loss": loss,
        "score_range": [0.0, 3.0],
        "train_batch_size": [16],
        "learning_rate": [1e-2],
        "matryoshka_sizes": [4, 8],
        "projection_size": 12,
    }
    with jobs.untraced():
        run(folder, output_dir=str(folder / "one"), **given)
        parts = {"output_dir": str(folder / "parts"), "gradient_accumulation_steps": 4}
        run(folder, **parts, **given)
    on_two_cpus(
        folder,
        output_dir=str(folder / "two"),
        distribution="mirrored",
        gradient_accumulation_steps=2,
        **given,
    )
    expected = weights(folder, "one")
    for other in ("parts", "two"):
        got = weights(folder, other)
        assert got.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, atol=1e-5, err_msg=name)
