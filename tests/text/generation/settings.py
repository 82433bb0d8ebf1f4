"""A short text, and what makes records of it."""

import tests
from text.generation.settings import Settings

VOCAB_FILE = str(tests.GOLDEN / "checkpoint" / "vocab.txt")
TEXT = "\n\n".join(
    "\n".join(f"The {n} of document {d} says that it is so." for n in range(9))
    for d in range(12)
)


def make_settings(folder, **changed):
    """Settings for a text file in the folder."""
    given = {
        "input_files": (str(folder / "text.txt"),),
        "output_files": (str(folder / "out.tfrecord"),),
        "vocab_file": VOCAB_FILE,
        "do_lower_case": True,
        "strip_accents": True,
        "split_cjk": True,
        "max_seq_length": 24,
        "max_predictions_per_seq": 4,
        "random_seed": 1,
        "dupe_factor": 2,
    }
    return Settings(**(given | changed))


def made_in(folder):
    """Names and contents of what a run leaves."""
    paths = (path for path in folder.iterdir() if path.name != "text.txt")
    return {path.name: path.read_bytes() for path in paths}
