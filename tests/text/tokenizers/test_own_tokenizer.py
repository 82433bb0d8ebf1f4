"""A new tokenizer is a file and a row: learned, read, in records, trained with, served."""

import json

import pytest

import build_vocab
import create_pretraining_data
import run_classifier
from serving.predictor import Predictor
from tests import jobs, tiny
from tests.inspection import inspect
from tests.pieces import check_graph, in_graph
from tests.programs import letters
from text.tokenizers.table import TOKENIZERS, TokenizerOptions

TEXT = (
    "The cat sat.\nOn the mat, it  sat.\n\nA dog came by.\nThe cat ran up\ta tree.\n"
    * 8
)


@pytest.fixture
def vocab_file(tmp_path, monkeypatch):
    monkeypatch.setitem(TOKENIZERS, "letters", letters.ROW)
    (tmp_path / "text.txt").write_text(TEXT)
    path = str(tmp_path / "letters.txt")
    flags = {"input_file": [str(tmp_path / "text.txt")], "output_file": path}
    build_vocab.main(build_vocab.Options(**flags))
    return path


def test_it_is_learned_and_read_and_its_graph_gives_the_same(vocab_file, tmp_path):
    tokenizer = TokenizerOptions().load_tokenizer(str(tmp_path))
    assert tokenizer.tokenize("a tŷ") == ["a", "t", "[UNK]"]
    texts = ["The cat", " tŷ\u3000a", "", "\ud83d\ude00 dog"]
    texts = [text.encode("utf-16", "surrogatepass").decode("utf-16") for text in texts]
    check_graph(tokenizer, in_graph(tokenizer, tmp_path), texts)


def test_its_records_keep_their_rules(vocab_file, tmp_path, capsys):
    records = str(tmp_path / "records.tfrecord")
    flags = {
        "input_file": [str(tmp_path / "text.txt")],
        "output_file": [records],
        "vocab_file": vocab_file,
        "max_seq_length": 64,
        "num_workers": 1,
        "do_whole_word_mask": True,
        "word_boundaries": "spaces",
    }
    create_pretraining_data.main(create_pretraining_data.Options(**flags))
    status, _ = inspect(records, capsys=capsys, vocab_file=vocab_file)
    assert status == 0


@pytest.mark.exhaustive
def test_a_model_is_trained_and_served_with_it(vocab_file, tmp_path, untraced):
    rows = [
        {"text": t, "label": str(i % 2)} for i, t in enumerate(TEXT.splitlines()[:8])
    ]
    for name in ("train", "dev"):
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    (tmp_path / "config.json").write_text(tiny.config().to_json_string())
    flags = jobs.flags(
        tmp_path,
        vocab_file=vocab_file,
        data_dir=str(tmp_path),
        max_seq_length=32,
        task_name="custom",
        text_a_column="text",
        train_file="train.jsonl",
        dev_file="dev.jsonl",
        do_train=True,
        do_eval=True,
        do_export=True,
    )
    jobs.run(run_classifier, flags)
    (answer,) = Predictor(str(tmp_path / "output")).predict([{"text": "The dog."}])
    assert answer["predicted"] in ("0", "1")
    assert (tmp_path / "output" / "letters.txt").exists()
