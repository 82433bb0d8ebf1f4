"""Small runs of run_classifier.py, for its tests."""

import json

import numpy as np

import run_classifier
from tests import jobs, tiny
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece

WORDS = "the a cat dog sat ran on under mat hat red blue".split()
TINY = tiny.config(max_position_embeddings=32)


def text(rng):
    return " ".join(rng.choice(WORDS, size=rng.integers(1, 8)))


def options(folder, task_name, **changes):
    own = {
        "task_name": task_name,
        "data_dir": str(folder),
        "max_seq_length": 32,
        "num_train_epochs": [2.0],
    }
    return run_classifier.Options(**jobs.flags(folder, **own | changes))


def task(folder, task_name, **changes):
    tokenizer = WordPiece(Vocabulary.load(str(folder / "vocab.txt")))
    given = options(
        folder, task_name, do_train=changes.pop("do_train", True), **changes
    )
    return run_classifier.Classifier(given, tokenizer)


def run(folder, task_name, **changes):
    run_classifier.main(options(folder, task_name, **changes))


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))


def custom(folder, ending, labels, number=24):
    """train, dev and test of one format; the test set has no labels."""
    rng = np.random.default_rng(0)
    for split in ("train", "dev", "test"):
        rows = [(text(rng), labels[i % len(labels)]) for i in range(number)]
        if split == "test":
            rows = [(a,) for a, _ in rows]
        if ending == "jsonl":
            names = ("text", "label")
            lines = [json.dumps(dict(zip(names, row, strict=False))) for row in rows]
        else:
            separator = "\t" if ending == "tsv" else ","
            lines = [separator.join(("text", "label")[: len(rows[0])])]
            lines += [separator.join(map(str, row)) for row in rows]
        write_lines(folder / f"{split}.{ending}", lines)
    return {f"{split}_file": f"{split}.{ending}" for split in ("train", "dev", "test")}
