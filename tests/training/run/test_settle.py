"""What the files next to weights or records know need not be passed as flags."""

import dataclasses
import json
import os
import pathlib

import pytest

import build_vocab
import fill_mask
import run_classifier
import run_pretraining
from training.pretraining import pretrain
from training.run import settle
from training.storage.folder import CONFIG, TASK, TEXT
from errors import UserError
from tests import pretraining, records, tiny
from text.records.record_set import RecordSet

WORDS = ["The", "the", "caf\u00e9", "cafe"]
KNOWN = {"do_lower_case": False, "strip_accents": False, "split_cjk": False}


def hugging_face(folder, **said):
    """The folder of a cased model, whose weights are not read."""
    folder.mkdir()
    tiny.write(folder, WORDS, tiny.config(vocab_size=9))
    (folder / "model.safetensors").touch()
    said = {"tokenizer_class": "BertTokenizer", "do_lower_case": False} | said
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return str(folder)


def run_of(folder, noted=KNOWN, name=TEXT):
    """The output_dir of a run at step 5, without the weights themselves."""
    folder.mkdir()
    tiny.write(folder, WORDS, tiny.config(vocab_size=9))
    (folder / "config.json").rename(folder / CONFIG)
    (folder / "model.ckpt-5.index").touch()
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-5"\n')
    (folder / name).write_text(json.dumps(noted))
    return str(folder)


def options(tmp_path, **flags):
    flags = {"output_dir": str(tmp_path / "new"), "do_eval": True} | flags
    return run_classifier.Options(task_name="cola", data_dir="glue", **flags)


def settings(tokenizer):
    return {k: v for k, v in tokenizer.settings.items() if k in KNOWN}


def test_a_hugging_face_folder_is_enough(tmp_path):
    folder = hugging_face(tmp_path / "a", tokenize_chinese_chars=False)
    given = options(tmp_path, init_checkpoint=folder)
    found = settle.TrainableModel(given).flags
    assert found.vocab_file == os.path.join(folder, "vocab.txt")
    assert found.bert_config_file == os.path.join(folder, "config.json")
    assert settle.TrainableModel(found).flags == found
    tokenizer = settle.TrainableModel(given).tokenizer
    assert settings(tokenizer) == KNOWN
    assert tokenizer.tokenize("The caf\u00e9") == ["The", "caf\u00e9"]


def test_a_folder_of_transformers_5_is_enough(tmp_path):
    """It has a tokenizer.json, and no vocab.txt."""
    path = hugging_face(tmp_path / "a", tokenize_chinese_chars=False)
    given = options(tmp_path, init_checkpoint=path)
    content = settle.TrainableModel(given).tokenizer.hugging_face().json
    (tmp_path / "a" / "vocab.txt").unlink()
    (tmp_path / "a" / "tokenizer.json").write_text(content)
    said = {"tokenizer_class": "TokenizersBackend"}
    (tmp_path / "a" / "tokenizer_config.json").write_text(json.dumps(said))
    tokenizer = settle.TrainableModel(given).tokenizer
    assert settings(tokenizer) == KNOWN
    assert tokenizer.tokenize("The caf\u00e9") == ["The", "caf\u00e9"]


@pytest.mark.parametrize("name", [TEXT, TASK])
def test_the_folder_of_a_run_is_enough(tmp_path, name):
    folder = run_of(tmp_path / "a", name=name)
    for flags in ({"init_checkpoint": folder}, {"output_dir": folder}):
        given = settle.TrainableModel(options(tmp_path, **flags)).flags
        assert given.bert_config_file == os.path.join(folder, CONFIG)
        assert settings(settle.TrainableModel(given).tokenizer) == KNOWN


def test_a_run_knows_more_than_where_it_began(tmp_path):
    began = hugging_face(tmp_path / "a")
    folder = run_of(tmp_path / "b")
    given = options(tmp_path, init_checkpoint=began, output_dir=folder)
    given = settle.TrainableModel(given).flags
    assert given.vocab_file == os.path.join(folder, "vocab.txt")
    assert given.split_cjk is False


@pytest.mark.parametrize("make", [hugging_face, run_of])
def test_only_a_contradiction_is_refused(tmp_path, make):
    folder = make(tmp_path / "a")
    _ = settle.TrainableModel(
        options(tmp_path, init_checkpoint=folder, do_lower_case=False)
    ).tokenizer
    other = options(tmp_path, init_checkpoint=folder, do_lower_case=True)
    with pytest.raises(UserError, match="pass --do_lower_case=false"):
        _ = settle.TrainableModel(other).tokenizer


def test_another_vocabulary_is_read_as_the_weights_were_trained(tmp_path):
    folder = run_of(tmp_path / "a")
    (tmp_path / "b").mkdir()
    tiny.write(tmp_path / "b", [*WORDS, "more"], tiny.config())
    path = str(tmp_path / "b" / "vocab.txt")
    given = options(tmp_path, init_checkpoint=folder, vocab_file=path)
    assert settings(settle.TrainableModel(given).tokenizer) == KNOWN


def test_what_nothing_knows_is_asked_for(tmp_path):
    with pytest.raises(UserError, match="--vocab_file, --bert_config_file required"):
        options(tmp_path)
    (tmp_path / "new").mkdir()  # it might contain a run
    with pytest.raises(UserError, match="--vocab_file is required if neither --init_"):
        _ = settle.TrainableModel(options(tmp_path)).tokenizer
    with pytest.raises(UserError, match="--bert_config_file is required if neither"):
        _ = settle.TrainableModel(options(tmp_path)).config
    folder = run_of(tmp_path / "a")
    os.remove(os.path.join(folder, "vocab.txt"))
    os.remove(os.path.join(folder, CONFIG))
    given = options(tmp_path, init_checkpoint=folder)
    with pytest.raises(UserError, match="a: contains no vocabulary; pass --vocab_file"):
        _ = settle.TrainableModel(given).tokenizer
    with pytest.raises(UserError, match="bert_config.json: no such file; pass --bert_"):
        _ = settle.TrainableModel(given).config


def test_a_hugging_face_folder_without_its_config_is_asked_for_it(tmp_path):
    folder = hugging_face(tmp_path / "a")
    os.remove(os.path.join(folder, "config.json"))
    message = "a/config.json: no such file; copy it .*, or pass --bert_config_file"
    with pytest.raises(UserError, match=message):
        _ = settle.TrainableModel(options(tmp_path, init_checkpoint=folder)).config


def test_korean_needs_no_flag(tmp_path, monkeypatch, capsys, untraced):
    """From text to a model that fills masks."""
    monkeypatch.chdir(tmp_path)
    text = "나는 영화를 본다\n그는 노래를 듣는다\n\n" * 20
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    build_vocab.main(
        build_vocab.Options(
            input_file=["text.txt"],
            output_file="vocab.txt",
            vocab_size=300,
        )
    )
    records.make(vocab_file="vocab.txt")
    config = dataclasses.replace(pretraining.TINY, vocab_size=300)
    flags = {"input_file": ["out.tfrecord"], "max_seq_length": 32, "config": config}
    pretraining.run(tmp_path, max_predictions_per_seq=5, **flags)
    noted = json.loads((tmp_path / "output" / TEXT).read_text())
    assert noted["strip_accents"] is False
    vocabulary = (tmp_path / "vocab.txt").read_bytes()
    assert (tmp_path / "output" / "vocab.txt").read_bytes() == vocabulary
    capsys.readouterr()
    asked = {"init_checkpoint": "output", "text": "나는 [MASK] 본다"}
    fill_mask.main(fill_mask.Options(top_k=1, **asked))
    assert "[MASK]: " in capsys.readouterr().out


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Records in the current folder, and flags of a pre-training on them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(records.TEXT)
    content = pathlib.Path(records.VOCAB_FILE).read_text(encoding="utf-8")
    (tmp_path / "vocab.txt").write_text(content, encoding="utf-8")
    records.make(vocab_file="vocab.txt", strip_accents=False)
    flags = pretraining.flags(tmp_path, input_file=["out.tfrecord"], max_seq_length=32)
    return run_pretraining.Options(**flags | {"max_predictions_per_seq": 5})


def test_records_know_their_vocabulary_and_its_flags(made):
    given = with_records(made)
    assert (given.vocab_file, given.strip_accents) == ("vocab.txt", False)
    os.rename("vocab.txt", "moved.txt")
    assert with_records(made).vocab_file is None
    os.mkdir("vocab.txt")  # without any vocabulary
    assert with_records(made).vocab_file is None
    os.rmdir("vocab.txt")
    given = with_records(dataclasses.replace(made, vocab_file="moved.txt"))
    assert given.strip_accents is False
    os.rename("moved.txt", "vocab.txt")
    with open("vocab.txt", "a") as file:
        file.write("another\n")
    assert with_records(made).vocab_file is None


def with_records(given):
    known = pretrain._known_model(given, RecordSet(given.input_file))
    return settle.TrainableModel(given, lambda: known).flags
