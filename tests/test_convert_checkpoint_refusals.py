"""convert_checkpoint.py: models, vocabularies and flags that are refused."""

import numpy as np
import pytest

from errors import UserError
from tests.conversion import (
    CLASSIFIER,
    GOLDEN,
    RELEASED,
    SPAN,
    TOKENS,
    convert,
    made,
    of_golden,
)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "nothing to do; pass --show"),
        ({"show": True, "compare_with": RELEASED}, "pass one of them"),
        (
            {"layout": "hugging_face", "keep_optimizer": True},
            "no effect with --layout=hugging_face; it is for --layout=rel",
        ),
        ({"input": ["missing"]}, "missing: no such checkpoint"),
        ({"input": [RELEASED, "."]}, "cannot be averaged with|no state file"),
        ({"output_dir": str(GOLDEN)}, "is not empty"),
        ({"max_position_embeddings": 5}, "the model already has 128"),
        ({"add_words_file": "missing.txt"}, "missing.txt"),
        ({"bert_config_file": "missing.json"}, "missing.json: no such file"),
    ],
)
def test_refusals(tmp_path, flags, message):
    output = {} if flags == {} else {"output_dir": str(tmp_path / "new")}
    with pytest.raises((UserError, OSError), match=message):
        convert(**{"input": [RELEASED]} | output | flags)
    assert not (tmp_path / "new").exists()


LAYER = "bert.encoder.layer.1.output.dense.bias"
DENSE = {"classifier.dense.weight": np.zeros((4, 4), np.float32)}


@pytest.mark.parametrize(
    ("kind", "change", "config", "flags", "message"),
    [
        ("pretraining", {}, {"num_hidden_layers": 1}, {}, "contains bert/encoder/laye"),
        ("pretraining", {}, {"num_hidden_layers": 3}, {}, "not in the checkpoint:"),
        ("pretraining", {}, {"vocab_size": 1201}, {}, r"_embeddings is \[1200,48\]"),
        ("pretraining", {LAYER: None}, {}, {}, "not in the checkpoint: bert/encoder/"),
        ("pretraining", DENSE, {}, {}, "contains classifier.dense.weight"),
        ("pretraining", {}, {}, {"head": "tagging"}, "has no output_weights"),
        ("sequence_classification", {}, {}, {"head": "choice"}, "a head for choice ha"),
        (
            "token_classification",
            {"classifier.bias": None},
            {},
            {},
            "a head for tagging has a bias",
        ),
        (
            "sequence_classification",
            {},
            {"id2label": {"0": "x", "1": "y"}},
            {},
            r"2 labels are known \(x, y\), but the head has 3",
        ),
        (
            "sequence_classification",
            {},
            {"id2label": ["x", "y", "z"]},
            {},
            "config.json: id2label must have a label for each",
        ),
    ],
)
def test_models_that_do_not_fit_are_refused(
    tmp_path, kind, change, config, flags, message
):
    source = of_golden(
        tmp_path / "source",
        kind,
        lambda tensors: {k: v for k, v in (tensors | change).items() if v is not None},
        **config,
    )
    output = tmp_path / "new"
    with pytest.raises(UserError, match=message):
        convert(source, output, layout="hugging_face", **flags)
    assert not output.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("task.json", "[1, 2", "task.json:1: not JSON"),
        ("task.json", "[1, 2]", "task.json: is a JSON list"),
        ("task.json", '{"labels": ["a"]}', "1 labels are known"),
        ("task.json", '{"do_lower_case": false}', "pass --do_lower_case=false"),
        ("vocab.txt", "\n".join([*TOKENS, *"abcdef"]), "16 tokens, more than vocab_s"),
        ("bert_config.json", "{", "bert_config.json:1: not JSON"),
    ],
)
def test_what_stands_beside_and_does_not_fit_is_refused(
    tmp_path, name, content, message
):
    made(tmp_path, CLASSIFIER)
    (tmp_path / name).write_text(content)
    output = tmp_path / "new"
    there = {"output_dir": str(output), "layout": "hugging_face"}
    with pytest.raises(UserError, match=message):
        convert(tmp_path, do_lower_case=True, **there)
    assert not output.exists()


def test_a_tokenizer_of_another_case_is_not_written(tmp_path):
    made(tmp_path / "a", SPAN)
    there = {"output_dir": str(tmp_path / "b"), "layout": "hugging_face"}
    convert(tmp_path / "a", do_lower_case=False, **there)
    there["output_dir"] = str(tmp_path / "c")
    with pytest.raises(UserError, match="pass --do_lower_case=false"):
        convert(tmp_path / "b", do_lower_case=True, **there)
    assert not (tmp_path / "c").exists()
    convert(tmp_path / "b", **there)  # which knows it
    for name in ("vocab.txt", "tokenizer_config.json", "config.json"):
        contents = [(tmp_path / folder / name).read_bytes() for folder in "bc"]
        assert contents[0] == contents[1]


def test_word_that_is_always_split_is_refused(tmp_path):
    made(tmp_path, SPAN)
    (tmp_path / "words.txt").write_text("covid-19\n")
    with pytest.raises(UserError, match=r"words.txt:1: 'covid-19' is always split"):
        convert(tmp_path, tmp_path / "new", add_words_file=str(tmp_path / "words.txt"))
