"""extract_features.py: what is refused or fails leaves what is there."""

import gzip
import itertools
import json
import os
import shutil

import numpy as np
import pytest

from training.queries import text_features
from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source
from errors import UserError
from tests.features import GOLDEN, MODEL, run, write
from training.queries.text_features import FeatureExtractor


def without_encoder(folder):
    heads = {"cls/predictions/output_bias": np.zeros(3000, np.float32)}
    return {
        "init_checkpoint": checkpoint.save(
            Folder.open(str(folder / "heads")), 1, heads, 1
        )
    }


def not_finite(folder):
    weights = Source.open(str(MODEL / "bert_model.ckpt")).read()
    weights["bert/encoder/layer_1/output/dense/bias"][3] = np.nan
    return {
        "init_checkpoint": checkpoint.save(
            Folder.open(str(folder / "nan")), 1, weights, 1
        )
    }


def cut_checkpoint(folder):
    for path in MODEL.glob("bert_model.*"):
        shutil.copy(path, folder)
    data = folder / "bert_model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100_000])
    return {"init_checkpoint": str(folder / "bert_model.ckpt")}


def released(folder):
    """A model under the name of one that was trained on cased text."""
    directory = folder / "cased_L-12_H-768_A-12"
    shutil.copytree(MODEL, directory)
    return {"init_checkpoint": str(directory / "bert_model.ckpt")}


def file_with(name, content, flag):
    def make(folder):
        (folder / name).write_bytes(content)
        return {flag: str(folder / name)}

    return make


def larger_vocabulary(folder):
    content = (MODEL / "vocab.txt").read_bytes()
    more = "".join(f"extra{i}\n" for i in range(100)).encode()
    return file_with("vocab.txt", content + more, "vocab_file")(folder)


def output_is_input(folder):
    return {"input_file": write(folder, "a"), "output_file": str(folder / "texts.txt")}


def output_is_read(folder):
    """The vocabulary that is found next to the weights."""
    for path in (GOLDEN / "checkpoint").glob("[bv]*"):
        shutil.copy(path, folder)
    return {"init_checkpoint": str(folder), "output_file": str(folder / "vocab.txt")}


def output_under_a_file(folder):
    (folder / "file").write_text("")
    return {"output_file": str(folder / "file" / "output")}


def another_config(folder):
    config = json.loads((MODEL / "bert_config.json").read_text())
    content = json.dumps(config | {"intermediate_size": 128}).encode()
    return file_with("config.json", content, "bert_config_file")(folder)


def other_heads(folder):
    config = json.loads((MODEL / "bert_config.json").read_text())
    content = json.dumps(config | {"num_attention_heads": 1}).encode()
    return file_with("other.json", content, "bert_config_file")(folder)


BAD = {
    "no input": (
        lambda folder: {"input_file": str(folder / "nowhere.txt")},
        "no file matches '.*nowhere.txt'",
    ),
    "input is a folder": (lambda folder: {"input_file": str(folder)}, "is a folder"),
    "several inputs": (
        lambda folder: {"input_file": str(GOLDEN / "pretraining" / "*.tfrecord")},
        "tfrecord: matches 2 files; name one",
    ),
    "not UTF-8": (
        file_with("latin1.txt", b"one\ncaf\xe9\n", "input_file"),
        "latin1.txt:2: not UTF-8 .byte 0xe9",
    ),
    "damaged gzip": (
        file_with("texts.gz", gzip.compress(b"a\n" * 9999)[:-9], "input_file"),
        "texts.gz:.*: the compressed data is damaged",
    ),
    "empty input": (
        file_with("empty.txt", b"", "input_file"),
        "empty.txt: contains no text; write one per line",
    ),
    "no vocabulary": (
        lambda folder: {"vocab_file": str(folder / "nowhere.txt")},
        "nowhere.txt: no such file; pass the model's --vocab_file",
    ),
    "no vocabulary at all": (
        file_with("words.txt", b"one\ntwo\n", "vocab_file"),
        r"words.txt: no line is \[PAD\]",
    ),
    "larger vocabulary": (larger_vocabulary, "vocab.txt: 3041 tokens, more than"),
    "no config": (
        lambda folder: {"bert_config_file": str(folder / "nowhere.json")},
        "nowhere.json: no such file",
    ),
    "config is no JSON": (
        file_with("config.json", b"{", "bert_config_file"),
        "config.json:1: not JSON",
    ),
    "config of another model": (another_config, "check --bert_config_file:"),
    "config of another network": (
        other_heads,
        "other.json: num_attention_heads is 1, but 4 in .*use that file",
    ),
    "no checkpoint": (
        lambda folder: {"init_checkpoint": str(folder / "nowhere.ckpt")},
        "nowhere.ckpt: no such checkpoint",
    ),
    "checkpoint without encoder": (without_encoder, "not in the checkpoint: all"),
    "cut checkpoint": (cut_checkpoint, "the checkpoint is damaged or incomplete"),
    "checkpoint that diverged": (not_finite, "the features are not finite"),
    "layer too far back": (
        lambda folder: {"layers": [-1, -4]},
        "--layers=-1,-4: there is no layer -4; the model has 3, from 0 to 2",
    ),
    "layer too high": (lambda folder: {"layers": [3]}, "there is no layer 3"),
    "layer twice": (lambda folder: {"layers": [-1, -1]}, "each of them once"),
    "no layer": (lambda folder: {"layers": []}, "list at least one"),
    "too long": (
        lambda folder: {"max_seq_length": 129},
        "the model has only max_position_embeddings=128; pass --max_seq_length=128 or less",
    ),
    "too short": (
        lambda folder: {"max_seq_length": 2},
        "--max_seq_length=2: must be from 3 to",
    ),
    "windows with gaps": (
        lambda folder: {"doc_stride": 31},
        "--doc_stride=31: must be from 1 to 30",
    ),
    "HDF5 in a pipe": (
        lambda folder: {"output_file": "-"},
        "-: HDF5 can only be written to a file; name one",
    ),
    "no batch": (lambda folder: {"batch_size": 0}, "--batch_size=0: must be from 1 to"),
    "wrong case": (
        released,
        "cased_L-12_H-768_A-12 was trained on cased text; pass --do_lower_case=false",
    ),
    "output is input": (output_is_input, "texts.txt: is also an input"),
    "output is read": (output_is_read, "vocab.txt: is a part of the model in"),
    "output is a folder": (
        lambda folder: {"output_file": str(folder)},
        "is a folder; name a file in it",
    ),
    "output in no folder": (
        lambda folder: {"output_file": str(folder / "no" / "output")},
        "there is no folder .*no; create it",
    ),
    "output under a file": (output_under_a_file, "there is no folder .*file"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_leaves_what_is_there(tmp_path, name):
    change, message = BAD[name]
    (tmp_path / "output").write_text("earlier")
    changes = change(tmp_path)
    files = {path for path in tmp_path.rglob("*")}
    with pytest.raises(UserError, match=message):
        run(tmp_path, output_format="hdf5", **changes)
    assert (tmp_path / "output").read_text() == "earlier"
    assert {path for path in tmp_path.rglob("*")} == files


@pytest.mark.exhaustive
def test_failing_in_the_middle_keeps_what_was_there(tmp_path, monkeypatch):
    """Two batches come out, then the machine says no."""
    calls = itertools.count()
    encoder = FeatureExtractor.__call__

    def failing(self, batch):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return encoder(self, batch)

    monkeypatch.setattr(FeatureExtractor, "__call__", failing)
    monkeypatch.setattr(text_features, "_BATCHES_SORTED", 1)
    for output_format in ("json", "hdf5"):
        (tmp_path / "output").write_text("earlier")
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, batch_size=1, output_format=output_format)
        assert os.listdir(tmp_path) == ["output"]
        assert (tmp_path / "output").read_text() == "earlier"
        calls = itertools.count()
