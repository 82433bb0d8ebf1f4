"""run_text_to_text.py: files, flags and models that are refused, in one line."""

import dataclasses
import json

import pytest

import run_text_to_text
from errors import UserError
from tests import jobs, squad, tiny
from tests.family.t5 import runs as text_to_text
from tests.family.t5.runs import TINY, flags, make_task, run, write_table


@pytest.fixture
def folder(tmp_path):
    return text_to_text.write_files(tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task_name": "xnli"}, "task_name=xnli: not one of cola, .*, squad"),
        ({"max_target_length": 1}, "--max_target_length=1: must be from 2"),
        ({"max_seq_length": 1}, "must be at least 2"),
        ({"distill_from": "teacher"}, "--distill_from has no effect on a model that"),
        ({"lstm_layers": 1}, "--lstm_layers has no effect"),
        ({"features": "mix"}, "--features has no effect"),
        ({"lm_loss_weight": 0.5}, "--lm_loss_weight has no effect"),
        ({"export_formats": ["onnx"]}, "--export_formats has no effect"),
        ({"task_name": "rte", "dev_file": "a"}, "--dev_file has no effect with .*=rte"),
        ({"target_column": "input"}, "--input_column and --target_column are both"),
        ({"task_name": "squad", "input_column": "a"}, "--input_column has no effect"),
        ({"task_name": "squad", "skip_bad_lines": True}, "--skip_bad_lines has no"),
        ({"do_predict": False}, "nothing to do"),
        (
            {"output_dir": "DATA", "test_file": "predictions.jsonl"},
            "predictions.jsonl: is also an input; choose another",
        ),
    ],
)
def test_flags(folder, changes, reason):
    given = {k: str(folder) if v == "DATA" else v for k, v in changes.items()}
    (folder / "predictions.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=reason):
        run_text_to_text.Options(**flags(folder, **{"do_predict": True} | given))


@pytest.mark.parametrize(
    ("name", "rows", "header", "reason"),
    [
        ("dev.tsv", [("a", "")], ("input", "target"), "dev.tsv:2: the target is empty"),
        ("dev.tsv", [("a", "b")], ("input", "answer"), "dev.tsv:1: has no column"),
        ("test.tsv", [("a", "b")], ("text", "target"), "test.tsv:1: has no column"),
        ("test.tsv", [], ("input", "target"), "test.tsv: contains no examples"),
        ("test.tsv", [("a",)], ("input", "target"), "test.tsv:2: 1 column, but the"),
    ],
)
def test_tables(folder, name, rows, header, reason):
    write_table(folder / name, rows, header)
    task = make_task(folder)
    with pytest.raises(UserError, match=reason):
        task.read(name.removesuffix(".tsv"))


def test_numbers_in_json_are_not_text(folder):
    (folder / "test.jsonl").write_text('{"input": 3}\n')
    task = make_task(folder, test_file="test.jsonl")
    with pytest.raises(UserError, match=r"test.jsonl:1: 'input' is 3, not text"):
        task.read("test")


def test_labels_and_answers(folder):
    (folder / "dev.tsv").write_text("sentence\tlabel\na\t2\n")
    task = make_task(folder, task_name="sst-2")
    with pytest.raises(
        UserError, match="dev.tsv:2: label '2' is not one of 0, 1; check"
    ):
        task.read("dev")
    asked = squad.shining(4, 1, impossible=True)
    (folder / "dev.json").write_text(json.dumps(asked))
    given = {"task_name": "squad", "dev_file": "dev.json"}
    with pytest.raises(UserError, match="has no answer; a model that writes text"):
        make_task(folder, do_eval=True, **given).read("dev")
    assert make_task(folder, **given).read("dev")
    asked = squad.one(answer={"text": " "})
    (folder / "train.json").write_text(json.dumps(asked))
    given = {"task_name": "squad", "train_file": "train.json"}
    with pytest.raises(UserError, match="train.json: question 'q': the target is"):
        make_task(folder, **given).read("train")
    with pytest.raises(UserError, match="ax has only a test set; train on MNLI"):
        make_task(folder, task_name="ax", do_train=True)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            tiny.config(),
            'only an encoder with a decoder writes text; set "architecture"',
        ),
        (dataclasses.replace(TINY, eos_token_id=1), "3, but eos_token_id is 1 in"),
        (dataclasses.replace(TINY, vocab_size=9), "tokens, more than vocab_size=9"),
        (dataclasses.replace(TINY, pad_token_id=1), "padding is 0, but pad_token_id"),
    ],
)
def test_networks(folder, config, reason):
    (folder / "config.json").write_text(config.to_json_string())
    with pytest.raises(UserError, match=reason):
        run(folder, do_train=True)


def test_an_encoder_alone_is_no_start(folder, untraced):
    from training.storage import checkpoint
    from modeling.architectures.table import make_encoder

    weights = {v.path: v.numpy() for v in make_encoder(TINY).weights}
    prefix = str(folder / "model.ckpt-best")
    checkpoint.write_bundle(prefix, weights)
    with pytest.raises(UserError, match="decoder/"):
        run(folder, do_train=True, init_checkpoint=prefix)
    run(folder, do_train=True, init_checkpoint=prefix, init_encoder_only=True)
    assert jobs.weights(folder)
