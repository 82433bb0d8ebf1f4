"""Small runs of tests/programs/parity.py, a task of one file."""

import random

from tests import jobs, tiny
from tests.programs import parity

TINY = tiny.config(vocab_size=8)


def write_files(folder):
    """The task's files, a vocabulary and a config."""
    rng = random.Random(1)
    for split, lines in (("train", 64), ("dev", 21), ("test", 10)):
        texts = [
            " ".join(rng.choices("ab", k=rng.randint(1, 30))) for _ in range(lines)
        ]
        (folder / f"{split}.txt").write_text("\n".join(texts) + "\n")
    tiny.write(folder, ["a", "b"], TINY)


def flags(folder, **changes):
    own = {
        "data_dir": str(folder),
        "max_seq_length": 40,
        "num_train_epochs": [3.0],
        "do_train": True,
    }
    return jobs.flags(folder, **own | changes)


def run(folder, **changes):
    jobs.run(parity, flags(folder, **changes))


def command(folder, **changes):
    return jobs.command("tests/programs/parity.py", flags(folder, **changes))


# What tests begin with. The short runs are not traced, and neither are those that are
# compared with them.
STOPS = {
    "early_stopping_patience": 9,
    "num_train_epochs": [2.0],
    "train_batch_size": [16],
}
SEARCH = {"num_train_epochs": [0.25, 0.5]}
RUNS = {
    "trained": {"do_eval": True, "do_predict": True},
    "stopped": STOPS,
    "searched": SEARCH | {"do_eval": True},
}
