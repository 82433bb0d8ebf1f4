"""run_ner.py: files, flags and models that are refused, in one line."""

import bz2
import dataclasses
import gzip

import numpy as np
import pytest

import run_ner
from training.storage import checkpoint
from training.storage.folder import Folder
from errors import UserError
from tests import jobs
from tests.ner import DEEP, flags, run, save_encoder, task_of, write_files


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


def refused(folder, message, **changes):
    jobs.check_refused(run, folder, message, **changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "dev.txt: contains no words"),
        ("\n\t\n-DOCSTART- O\n", "dev.txt: contains no words"),
        ("Pa B-PER\nb\n", "dev.txt:2: 1 column, but the first line has 2"),
        ("Pa B-PER\n\nb c O\n", "dev.txt:3: 3 columns, but the first line has 2"),
        ("Pa\nb\n", r"dev.txt:1: the column of the tag is that of the word \('Pa'\)"),
        (
            "Pa B-PER\nb NN\n",
            "dev.txt:2: 'NN' is not a tag of an entity; these are",
        ),
        ("Pa b-PER\n", "dev.txt:1: 'b-PER' is not a tag of an entity"),
        ("Pa B-PER\n\nb O\nX B-ORG\n", "dev.txt:4: entity type 'ORG' is not one of"),
        (b"Pa O\nb\xe9 O\n", r"dev.txt:2: not UTF-8 \(byte 0xe9"),
        (b"\xff\xfeP\x00", "dev.txt:1: not UTF-8"),
    ],
)
def test_broken_file_is_refused_in_one_line(folder, content, message):
    content = content if isinstance(content, bytes) else content.encode()
    (folder / "dev.txt").write_bytes(content)
    refused(folder, message, do_train=True, do_eval=True)


def test_a_model_whose_labels_have_no_names_asks_for_them(folder):
    task = task_of(folder, init_checkpoint="theirs")
    with pytest.raises(UserError, match="theirs: id2label .* pass --entity_types=X,Y"):
        task.restore({"head": "tagging"})  # what such a config.json says
    task = task_of(folder, init_checkpoint="theirs", entity_types=["LOC", "PER"])
    task.restore({"head": "tagging"})
    assert task.labels == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    with pytest.raises(UserError, match="the model's labels are O, B-X, I-X in this"):
        task.restore({"head": "tagging", "labels": ["O", "B-X", "I-X"]})


def all_outside(folder):
    (folder / "train.txt").write_text("a O\nb O\n" * 8)


def damaged_gzip(folder):
    packed = gzip.compress(b"Pa B-PER\n" * 1000)
    (folder / "dev.txt.gz").write_bytes(packed[: len(packed) // 2])


def no_separator(folder):
    text = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(text.replace("[SEP]", "SEP"))


def other_labels(folder):
    weights = save_encoder(folder)
    weights["output_weights"] = np.zeros((9, 16), np.float32)
    checkpoint.save(Folder.open(str(folder / "other")), 1, weights, keep=1)


@pytest.mark.parametrize(
    ("prepare", "changes", "message"),
    [
        (None, {"max_seq_length": 2}, "--max_seq_length=2: must be at least 3"),
        (None, {"dev_file": "nowhere.txt"}, "nowhere.txt"),
        (None, {"word_column": 4}, "dev.txt:3: 4 columns, but --word_column=4"),
        (None, {"word_column": 3}, "dev.txt:3: the column of the tag is that of the"),
        (None, {"tag_column": "1"}, "no tags are known; train first, or pass"),
        (None, {"tag_column": "lemma"}, "--tag_column=lemma: must be upos, xpos or a"),
        (None, {"entity_types": ["PER"]}, "dev.txt:.*: entity type 'LOC' is not one"),
        (None, {"entity_types": ["A", "A"]}, "--entity_types: A is repeated"),
        (None, {}, "no tags are known; train first, or pass --entity_types"),
        (all_outside, {"do_train": True}, "train.txt: contains no entities"),
        (damaged_gzip, {"dev_file": "dev.txt.gz"}, "dev.txt.gz:.*: the compressed"),
        (no_separator, {}, r"vocab.txt: no line is \[SEP\]"),
        (None, {"do_train": True, "features": "last"}, "--features=last: a frozen"),
        (None, {"features": "last", "lstm_size": 0}, "--lstm_size=0: must be from 1"),
        (
            save_encoder,
            {"entity_types": ["LOC", "PER"], "init_checkpoint": "{folder}/encoder"},
            "not in the checkpoint: output_bias, output_weights",
        ),
        (
            other_labels,
            {"do_train": True, "init_checkpoint": "{folder}/other"},
            r"output_weights is \[9,16\] in the checkpoint and \[5,16\] in the model",
        ),
    ],
)
def test_flags_that_do_not_fit_are_refused_in_one_line(
    folder, prepare, changes, message
):
    if prepare:
        prepare(folder)
    changes = {
        name: value.format(folder=folder) if isinstance(value, str) else value
        for name, value in ({"do_eval": True} | changes).items()
    }
    refused(folder, message, **changes)


@pytest.mark.parametrize("name", ["dev.conllu", "dev.conllu.gz", "dev.conllu.bz2"])
def test_packed_conllu_is_known_by_its_name(folder, name):
    pack = {".gz": gzip.compress, "bz2": bz2.compress}.get(name[-3:], bytes)
    (folder / name).write_bytes(pack(b"1\tPa\n"))
    message = f"{name}: is CoNLL-U; pass --tag_column=upos or xpos"
    refused(folder, message, do_eval=True, dev_file=name)


def test_features_of_more_layers_than_there_are_are_refused(folder):
    config = dataclasses.replace(DEEP, num_hidden_layers=3)
    (folder / "config.json").write_text(config.to_json_string())
    changes = {"do_eval": True, "features": "sum_last_four"}
    refused(folder, "config.json has only num_hidden_layers=3", **changes)


def test_labels_of_another_program_are_read_in_their_order_or_refused(folder):
    given = run_ner.Options(**flags(folder, do_predict=True))
    tagger = run_ner.Tagger(given, run_ner.TrainableModel(given).tokenizer)
    labels = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    tagger.restore({"head": "tagging", "labels": labels})
    assert tagger.scheme.types == ("LOC", "PER") and tagger.labels == labels
    swapped = ["O", "B-PER", "I-PER", "I-LOC", "B-LOC"]
    tagger = run_ner.Tagger(given, run_ner.TrainableModel(given).tokenizer)
    with pytest.raises(
        UserError, match="only reads O, B-PER, I-PER, B-LOC, I-LOC as entities: train"
    ):
        tagger.restore({"head": "tagging", "labels": swapped})
