"""fill_mask.py: the words that a released model would put in."""

import io
import json
import os
import re

import numpy as np
import pytest

import fill_mask
import tests
from training.storage.source import Source
from errors import UserError
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece

GOLDEN = str(tests.GOLDEN / "checkpoint")
VOCAB = os.path.join(GOLDEN, "vocab.txt")


def fill(**changes):
    fill_mask.main(
        fill_mask.Options(
            **{
                "init_checkpoint": os.path.join(GOLDEN, "bert_model.ckpt"),
                "vocab_file": VOCAB,
                "text": "the [MASK] of the [MASK]",
            }
            | changes
        )
    )


def test_each_mask_gets_the_most_probable_tokens(capsys):
    fill(top_k=3)
    text, *lines = capsys.readouterr().out.splitlines()
    assert text == "the [MASK] of the [MASK]"
    vocabulary = Vocabulary.load(VOCAB)
    the, of = WordPiece(vocabulary).encode("the of")
    ids = [vocabulary.cls_id, the, vocabulary.mask_id, of, the]
    ids += [vocabulary.mask_id, vocabulary.sep_id]
    config = BertConfig.from_json_file(os.path.join(GOLDEN, "bert_config.json"))
    model = sentence_pairs.PretrainingModel(config)
    Source.open(os.path.join(GOLDEN, "bert_model.ckpt")).load(
        {v.path: v for v in model.weights}
    )
    batch = {"input_ids": np.array([ids]), "masked_lm_positions": np.array([[2, 5]])}
    logits = np.asarray(model(batch)["masked_lm_logits"])[0].astype(float)
    chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    assert len(lines) == 2
    for line, row in zip(lines, chances, strict=True):
        best = np.argsort(-row[: len(vocabulary)])[:3]
        wanted = [(vocabulary.tokens[id], f"{row[id]:.1%}") for id in best]
        assert re.findall(r"(\S+) ([\d.]+%)", line) == wanted


def test_lines_without_a_mask_are_passed_over_and_counted(capsys, monkeypatch):
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(b"no mask\n\na [MASK]\nnone here\n"))
    )
    fill(text=None)
    captured = capsys.readouterr()
    assert captured.out.startswith("a [MASK]\n")
    assert captured.err == "skipped 2 lines without [MASK]\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": "nothing to fill"}, r"no \[MASK\] in 'nothing to fill'"),
        ({"text": "[MASK]" + " the" * 200}, "has only 128 positions"),
        ({"init_checkpoint": "missing"}, "missing: no such checkpoint"),
        ({"bert_config_file": "missing.json"}, "missing.json: no such file"),
        ({"top_k": 0}, "--top_k=0: must be at least 1"),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(UserError, match=message):
        fill(**changes)


@pytest.mark.parametrize(
    ("key", "value"), [("hidden_act", "relu"), ("num_hidden_layers", 1)]
)
def test_a_config_of_another_network_than_the_weights_is_refused(tmp_path, key, value):
    config = json.loads((tests.GOLDEN / "checkpoint" / "bert_config.json").read_text())
    path = tmp_path / "other.json"
    path.write_text(json.dumps(config | {key: value}))
    with pytest.raises(UserError, match=f"other.json: {key} is {value!r}, but"):
        fill(bert_config_file=str(path))


def test_vocabulary_larger_than_the_model_is_refused(tmp_path):
    path = tmp_path / "vocab.txt"
    with open(VOCAB, encoding="utf-8") as file:
        path.write_text(file.read() + "\n".join(f"word{i}" for i in range(100)))
    with pytest.raises(UserError, match="3041 tokens, more than vocab_size=3000"):
        fill(vocab_file=str(path))
