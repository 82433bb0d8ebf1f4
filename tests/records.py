"""Small runs of create_pretraining_data.py, for its tests."""

import pathlib
import sys

import create_pretraining_data
import tests
from create_pretraining_data import Options
from tests import jobs
from text.records import encoding, framing

ROOT = tests.ROOT
VOCAB_FILE = str(tests.GOLDEN / "checkpoint" / "vocab.txt")
CORPUS = tests.GOLDEN / "pretraining" / "corpus.txt"
TEXT = "The first one.\nThe second is here.\n\nAnother has two.\nThis is it.\n"
STATEMENTS = "\n\n".join(
    "\n".join(f"the {n} of document {d} says that it is so ." for n in range(3 + d % 5))
    for d in range(40)
)


def make(**changed):
    """Runs the script in this process; returns all records as arrays."""
    given = {
        "input_file": ["text.txt"],
        "output_file": ["out.tfrecord"],
        "vocab_file": VOCAB_FILE,
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "num_workers": 1,
    }
    given |= changed
    options = Options(**given)
    create_pretraining_data.main(options)
    paths = create_pretraining_data._output_files(given["output_file"], False)
    schema = options.make_instances().schema()
    examples = [example for path in paths for example in framing.read(path)]
    batch, faults = encoding.decode(examples, schema)
    assert not faults
    return batch


def make_records(folder, text=STATEMENTS, **changes) -> str:
    """Runs the script on a longer text; returns the pattern of its records."""
    (folder / "text.txt").write_text(text)
    given = {
        "input_file": [str(folder / "text.txt")],
        "output_file": [str(folder / "records@2")],
        "vocab_file": VOCAB_FILE,
        "max_seq_length": 64,
        "max_predictions_per_seq": 10,
        "dupe_factor": 2,
        "num_workers": 1,
    }
    create_pretraining_data.main(Options(**given | changes))
    return f"{folder}/records-*"


def start(*flags, program=ROOT / "create_pretraining_data.py", **options):
    """Starts the script in a process group of its own."""
    line = [sys.executable, str(program), f"--vocab_file={VOCAB_FILE}", *flags]
    return jobs.started(line, **options)


def write(name, content):
    pathlib.Path(name).write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
