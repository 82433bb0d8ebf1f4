"""What a command must not replace: what it reads, and parts of what scripts wrote."""

import json
import os

import pytest

from errors import UserError
from files import protected
from text.records import descriptions
from text.tokenizers.table import TOKENIZERS


def lay_out(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if name.endswith(".json") else "")
    return folder


@pytest.fixture
def folders(tmp_path):
    """Folders of every kind, each with answers.jsonl, which somebody else wrote."""
    run = ("run.json", "vocab.txt", "metrics.jsonl", ".found~bert~names")
    lay_out(tmp_path / "run", *run, "answers.jsonl")
    release = ("m.ckpt.index", "m.ckpt.data-00000-of-00001", "m.ckpt.meta")
    text = ("vocab.txt", "bert_config.json", "answers.jsonl", "answers.hdf5")
    lay_out(tmp_path / "release", *release, *text)
    theirs = ("model.safetensors", "config.json", "tokenizer.json", "merges.txt")
    lay_out(tmp_path / "theirs", *theirs, "answers.jsonl")
    lay_out(tmp_path / "vocabulary", "vocab.json", "merges.txt", "answers.jsonl")
    learned = lay_out(tmp_path / "learned", "own.txt", "own.txt.text.json")
    lay_out(learned, "answers.jsonl")
    (learned / "own.txt.text.json").write_text('{"vocab_sha256": "00"}')
    saved = ("saved_model.pb", "assets/vocab.txt", "variables/variables.index")
    export = [f"text/1/{name}" for name in saved]
    export += ["export.json", "model.onnx", "answers.jsonl"]
    lay_out(tmp_path / "export", *export)
    names = ("x-0", "x-1", "report.html", "answers.jsonl")
    records = lay_out(tmp_path / "records", *names)
    outputs = [{"file": name, "instances": 1} for name in ("x-0", "x-1")]
    descriptions.Description(outputs).write(f"{records}/x-0{descriptions.SUFFIX}")
    return tmp_path


PARTS = [
    ("run/metrics.jsonl", "the run in"),
    ("run/vocab.txt", "the model in"),
    ("run/.found~bert~names", "the run in"),
    ("release/vocab.txt", "the model in"),
    ("release/bert_config.json", "the model in"),
    ("release/m.ckpt.index", "the model in"),
    ("release/m.ckpt.meta", "the model in"),
    ("theirs/model.safetensors", "the model in"),
    ("theirs/tokenizer.json", "the model in"),
    ("export/export.json", "the export in"),
    ("export/model.onnx", "the export in"),
    ("export/text/1/assets/vocab.txt", "the export in"),
    ("export/text/1/saved_model.pb", "the export in"),
    ("learned/own.txt", "the vocabulary"),
    ("learned/own.txt.text.json", "the vocabulary"),
    ("records/x-1", "the records of"),
    ("records/x-0.description.json", "the records of"),
]


@pytest.mark.parametrize(("name", "whole"), PARTS)
def test_parts_are_refused_however_they_are_spelled(folders, monkeypatch, name, whole):
    monkeypatch.chdir(folders / "records")
    os.symlink(folders / name, "link")
    for path in (str(folders / name), f"../{name}", "./link"):
        with pytest.raises(UserError) as error:
            protected.refuse([path], [])
        assert str(error.value).startswith(f"{path}: is a part of {whole} {folders}")


def test_what_a_command_wrote_before_is_replaced_again(folders):
    paths = [str(path) for path in folders.glob("*/answers*")]
    assert len(paths) == 8
    paths += [f"{folders}/records/report.html", f"{folders}/new.txt", "/dev/null"]
    # A vocabulary without weights, too, but not by what reads the vocabulary.
    protected.refuse([*paths, f"{folders}/vocabulary/merges.txt"], [])
    for read in ("vocabulary", "vocabulary/vocab.json"):
        with pytest.raises(UserError, match="merges.txt: is a part of the model in"):
            protected.refuse(
                [f"{folders}/vocabulary/merges.txt"], [f"{folders}/{read}"]
            )
    protected.refuse(paths, [str(path) for path in folders.iterdir()])


@pytest.mark.parametrize("what", ["records", "vocabulary"])
def test_what_writes_records_or_a_vocabulary_may_replace_them(folders, what):
    path = {"records": "records/x-1", "vocabulary": "learned/own.txt"}[what]
    may = {f"replaces_{what}": True}
    protected.refuse([f"{folders}/{path}"], [], **may)
    with pytest.raises(UserError, match="the model in"):
        protected.refuse([f"{folders}/run/vocab.txt"], [], **may)


def test_an_input_is_known_by_other_names(folders, monkeypatch):
    text = folders / "text.txt"
    text.write_text("a")
    os.link(text, folders / "hard")
    os.symlink(text, folders / "soft")
    monkeypatch.chdir(folders / "run")
    for name in ("../text.txt", "../run/../text.txt", "../hard", "../soft"):
        with pytest.raises(UserError, match=f"{name}: is also an input"):
            protected.refuse([name], [None, "", str(text)])


def test_the_vocabularies_of_all_tokenizers_are_known(folders):
    for kind in TOKENIZERS.values():
        path = folders / "theirs" / kind.vocabulary_file
        path.write_text("")
        with pytest.raises(UserError, match="is a part of the model"):
            protected.refuse([str(path)], [])


def test_damaged_files_of_ours_protect_nothing_and_harm_nothing(folders):
    damaged = ("records/x-0.description.json", "learned/own.txt.text.json")
    for content in ("", "[[", "7", json.dumps({"outputs": [7, {}]})):
        for name in damaged:
            (folders / name).write_text(content)
        outputs = ("records/x-1", "learned/own.txt")
        protected.refuse([f"{folders}/{name}" for name in outputs], [])
