"""Records to inspect with inspect_records.py, for its tests."""

import shutil

import numpy as np

import create_pretraining_data
import inspect_records
import tests
from text.instances.table import RowOptions
from text.records import encoding, framing
from text.tokenizers.vocabulary import Vocabulary

VOCAB = str(tests.GOLDEN / "checkpoint" / "vocab.txt")
VOCABULARY = Vocabulary.load(VOCAB)
CLS, SEP, MASK = VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.mask_id
SCHEMA = (
    RowOptions(max_seq_length=32, max_predictions_per_seq=6).make_instances().schema()
)


def write(folder):
    """Writes records of this project, and their description."""
    words = [w for w in VOCABULARY.tokens if w.isalpha()]
    rng = np.random.default_rng(1)
    documents = [
        "\n".join(" ".join(rng.choice(words, rng.integers(3, 12))) for _ in range(12))
        for _ in range(60)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    create_pretraining_data.main(
        create_pretraining_data.Options(
            input_file=[str(folder / "text.txt")],
            output_file=[str(folder / "part@2")],
            vocab_file=VOCAB,
            max_seq_length=32,
            max_predictions_per_seq=6,
            dupe_factor=4,
            num_workers=1,
        )
    )
    return folder


def copy_first(made, folder):
    """Copies what `write` wrote, without the second file; returns the first."""
    for path in made.glob("part-*"):
        shutil.copy(path, folder)
    (folder / "part-00001-of-00002").unlink()
    return folder / "part-00000-of-00002"


def inspect(*files, capsys, vocab_file=VOCAB, **flags):
    """Exit status and lines of the output."""
    given = inspect_records.Options(
        input_file=[str(file) for file in files], vocab_file=str(vocab_file), **flags
    )
    status = inspect_records.main(given)
    return status, capsys.readouterr().out.splitlines()


def decoded(path):
    examples = list(framing.read(str(path)))
    batch, faults = encoding.decode(examples, SCHEMA)
    assert not faults
    return batch


def rewrite(path, batch):
    path.write_bytes(framing.frame(encoding.encode(batch, SCHEMA)))
