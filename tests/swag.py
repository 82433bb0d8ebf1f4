"""Small files and runs of run_swag.py, for its tests."""

import csv
import json
import random

import pytest

import run_swag
from tests import jobs, tiny
from text.tokenizers.vocabulary import SPECIAL_TOKENS

WORDS = [*"abcdefgh", "she", "."]
TINY = tiny.config(vocab_size=len(SPECIAL_TOKENS) + len(WORDS))
COLUMNS = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
ENDINGS = ["ending0", "ending1", "ending2", "ending3"]


def swag_lines(count, seed, labelled=True):
    """As SWAG's files; only the right ending ends."""
    rng = random.Random(seed)
    lines = [[*COLUMNS, *ENDINGS, *(["label"] if labelled else [])]]
    for number in range(count):
        endings = rng.sample("abcdefgh", 4)
        label = rng.randrange(4)
        endings[label] += " ."
        sent1 = " ".join(rng.choices("abcdefgh", k=rng.randint(1, 5)))
        line = [number, "v1", number, f"{sent1} She", sent1, "She", "gold", *endings]
        lines.append(line + [label] * labelled)
    return lines


def write_csv(path, lines):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(lines)


def write_files(folder):
    """SWAG's three files, a vocabulary and a config."""
    write_csv(folder / "train.csv", swag_lines(64, seed=1))
    write_csv(folder / "val.csv", swag_lines(21, seed=2))
    write_csv(folder / "test.csv", swag_lines(10, seed=3, labelled=False))
    tiny.write(folder, WORDS, TINY)
    return folder


def flags(folder, **changes):
    own = {"data_dir": str(folder), "max_seq_length": 24}
    return jobs.flags(folder, **own | changes)


def run(folder, **changes):
    jobs.run(run_swag, flags(folder, **changes))


def write_json_lines(path, *objects):
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))


WHOLE = {"do_train": True, "do_eval": True, "do_predict": True}


def objects(count, seed):
    """Two to five choices; one key more than is needed."""
    rng = random.Random(seed)
    for number in range(count):
        choices = rng.sample("abcdefgh", rng.randint(2, 5))
        label = rng.randrange(len(choices))
        yield {
            "id": number,
            "context": f"{choices[label]} {choices[label]}",
            "start": "she",
            "choices": choices,
            "label": label,
        }


def write_json_files(folder):
    write_json_lines(folder / "train.jsonl", *objects(32, seed=1))
    dev = list(objects(12, seed=2))
    write_json_lines(folder / "dev.jsonl", *dev)
    # A training set with five choices, a test set with two and three.
    short = [e | {"choices": e["choices"][:3], "label": None} for e in dev]
    write_json_lines(folder / "test.jsonl", *short)
    return folder


def check_same(answers, expected):
    assert len(answers) == len(expected) > 0
    for answer, other in zip(answers, expected, strict=True):
        chances = answer["probabilities"]
        assert chances == pytest.approx(other["probabilities"], abs=1e-5)
        if not chances:
            assert answer["predicted"] == other["predicted"]
            continue
        # If two are equally probable up to rounding, either may be the best.
        assert chances[answer["predicted"]] == max(chances)
        assert chances[other["predicted"]] == pytest.approx(max(chances), abs=1e-5)
