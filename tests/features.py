"""Small runs of extract_features.py, for its tests."""

import json

import numpy as np

import extract_features
import tests
from extract_features import Options

ROOT = tests.ROOT
GOLDEN = ROOT / "tests" / "golden"
MODEL = GOLDEN / "checkpoint"
HUGGING_FACE = GOLDEN / "hf" / "pretraining"


def flags(folder, **changes):
    return {
        "input_file": str(GOLDEN / "features" / "input.txt"),
        "output_file": str(folder / "output"),
        "vocab_file": str(MODEL / "vocab.txt"),
        "bert_config_file": str(MODEL / "bert_config.json"),
        "init_checkpoint": str(MODEL / "bert_model.ckpt"),
        "layers": [-1, -2, -3],
        "max_seq_length": 32,
    } | changes


def run(folder, **changes):
    extract_features.main(Options(**flags(folder, **changes)))
    return folder / "output"


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(folder, *texts):
    path = folder / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return str(path)


def vectors(line):
    """float64 [layers, tokens, h] of one line of JSON."""
    features = line["features"]
    values = [[layer["values"] for layer in f["layers"]] for f in features]
    return np.array(values).transpose(1, 0, 2)


def assert_close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def keys_of(line):
    """Everything but the numbers."""
    return (
        list(line),
        line["linex_index"],
        [
            (list(f), f["token"], [(list(x), x["index"]) for x in f["layers"]])
            for f in line["features"]
        ],
    )


def numbers(count, seed=0):
    """Texts of 0 to 20 words, in no order of length."""
    words = ["one", "two", "three", "lobster", "puppeteer", "unaffable", ","]
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, rng.integers(20))) for _ in range(count)]
