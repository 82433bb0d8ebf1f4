"""Flags and vocabularies that every task refuses, before anything is written."""

import pytest

from errors import UserError
from tests.training.finetuning.runs import run
from text.tokenizers.vocabulary import SPECIAL_TOKENS


def test_an_export_that_a_task_has_no_answers_for_is_refused_at_once(folder):
    with pytest.raises(UserError, match="--do_export: Parity does not define"):
        run(folder, do_export=True)
    assert not (folder / "output").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_train": False}, "nothing to do; pass at least one of --do_train"),
        ({"train_batch_size": [8, 0]}, "--train_batch_size=0: must be from 1"),
        ({"learning_rate": [-1.0]}, "--learning_rate=-1.0: must be above 0"),
        ({"num_train_epochs": [float("nan")]}, "--num_train_epochs=nan: must be a"),
        ({"warmup_proportion": 1.5}, "--warmup_proportion=1.5: must be from 0 to 1"),
        ({"num_trials": 0}, "--num_trials=0"),
        ({"max_seq_length": 41}, "more than max_position_embeddings=40"),
        (
            {"train_batch_size": [1000]},
            "64 training examples in 3 epochs: not enough for a batch",
        ),
        ({"vocab_file": "missing.txt"}, "missing.txt"),
        ({"bert_config_file": "missing.json"}, "missing.json"),
        ({"init_checkpoint": "missing"}, "missing: no such checkpoint"),
        ({"gradient_accumulation_steps": 3}, "train_batch_size=8 is not divisible"),
    ],
)
def test_bad_flags_are_refused_before_anything_is_written(folder, changes, message):
    with pytest.raises((UserError, OSError), match=message):
        run(folder, **changes)
    assert not list(folder.glob("output/model.ckpt*"))
    assert not (folder / "output" / "eval_results.txt").exists()


def test_vocabulary_larger_than_the_model_is_refused(folder):
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *"abcdefgh"]) + "\n")
    with pytest.raises(UserError, match="13 tokens, more than vocab_size=8"):
        run(folder)
