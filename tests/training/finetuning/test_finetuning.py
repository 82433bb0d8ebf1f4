"""What all fine-tuning scripts share, shown with a task of one small file."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import types

import numpy as np
import pytest

from training.storage import checkpoint
from training.storage.folder import PARTS, Folder
from errors import UserError
from files import local
from tests import jobs
from tests.jobs import results, weights
from tests.training.finetuning.runs import STOPS, TINY, run
from text.tokenizers.vocabulary import SPECIAL_TOKENS
from training.finetuning import experiment, finetune
from training.finetuning.task import Judgement


def test_a_new_task_is_one_file(trained, once):
    output = trained / "output"
    values = results(trained)
    assert values["global_step"] == 24  # 64 / 8 * 3
    assert values["loss"] == values["eval_loss"]
    lines = (output / "eval_results.txt").read_text().splitlines()
    assert [line.split(" = ")[0] for line in lines] == sorted(values)
    assert len((output / "parity.txt").read_text().splitlines()) == 10
    for name in ("train", "eval", "predict"):
        assert (output / f"{name}.tf_record").exists()
    assert "train: 64 texts, 64 rows" in once("trained")[1]


def test_evaluation_without_training_takes_what_was_trained(trained):
    before = results(trained)
    (trained / "output" / "eval_results.json").unlink()
    run(trained, do_train=False, do_eval=True)
    assert results(trained) == before
    run(
        trained,
        do_train=False,
        do_eval=True,
        init_checkpoint=str(trained / "output"),
        output_dir=str(trained / "elsewhere"),
    )
    assert results(trained, "elsewhere")["eval_loss"] == before["eval_loss"]
    with pytest.raises(UserError, match="contains no checkpoint to evaluate"):
        run(trained, do_train=False, do_eval=True, output_dir=str(trained / "new"))


def test_predictions_are_those_of_single_rows_whatever_the_batches(trained):
    one = (trained / "output" / "parity.txt").read_text(), results(trained)
    for changes in (
        {"eval_batch_size": 5, "predict_batch_size": 3},
        {"eval_batch_size": 1, "predict_batch_size": 1, "length_buckets": False},
    ):
        run(trained, do_train=False, do_eval=True, do_predict=True, **changes)
        other = (trained / "output" / "parity.txt").read_text(), results(trained)
        assert other[0] == one[0]
        assert other[1]["eval_accuracy"] == one[1]["eval_accuracy"]
        assert other[1]["eval_loss"] == pytest.approx(one[1]["eval_loss"], abs=1e-6)


def test_training_rows_are_made_again_only_when_something_changed(folder, monkeypatch):
    record = folder / "output" / "train.tf_record"
    # They are made before it.
    monkeypatch.setattr(experiment.Experiment, "train", lambda *given: None)

    def made(**changes):
        before = record.stat().st_mtime_ns if record.exists() else 0
        run(folder, num_train_epochs=[1.0], **changes)
        return record.stat().st_mtime_ns != before

    assert made()
    assert not made()
    assert made(max_seq_length=38)
    assert made(do_lower_case=False, max_seq_length=38)
    text = (folder / "train.txt").read_text()
    (folder / "train.txt").write_text(text.replace("b", "a", 1))
    assert made(do_lower_case=False, max_seq_length=38)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "b", "a"]) + "\n")
    assert made(do_lower_case=False, max_seq_length=38)
    assert not made(do_lower_case=False, max_seq_length=38)


def test_resumed_run_ends_with_the_same_bits(folder, untraced):
    """Dropout on, buckets on, early stopping on; resumed several times."""
    changes = {
        "num_train_epochs": [1.0],
        "save_checkpoints_steps": 2,
        "early_stopping_patience": 4,
        "eval_every_steps": 3,
        "iterations_per_loop": 2,
    }
    run(folder, output_dir=str(folder / "straight"), do_eval=True, **changes)
    expected, numbers = weights(folder, "straight"), results(folder, "straight")
    for step in (2, 6):  # before the first evaluation, and after two
        with jobs.dying(step):
            run(folder, do_eval=True, **changes)
    run(folder, do_eval=True, **changes)
    got = weights(folder)
    jobs.check_same_bits(got, expected)
    assert results(folder) == numbers


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "compiled", [False, pytest.param(True, marks=pytest.mark.exhaustive)]
)
def test_xla_pads_further_and_learns_the_same(folder, capsys, compiled):
    """Compiling takes a while; without it, only batches differ."""
    nothing = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = dataclasses.replace(TINY, **nothing)
    (folder / "config.json").write_text(config.to_json_string())
    changes = {"num_train_epochs": [0.5], "log_every_steps": 1, "do_eval": True}
    with jobs.untraced():
        run(folder, output_dir=str(folder / "without"), **changes)
    assert "4 updates of 8 rows\n" in capsys.readouterr().out
    with contextlib.nullcontext() if compiled else jobs.untraced():
        run(folder, xla=True, **changes)
    line = "4 updates of 8 rows, padded to 32 tokens: 1 program to compile\n"
    assert line in capsys.readouterr().out
    expected, found = (
        [json.loads(line)["loss"] for line in path.read_text().splitlines()]
        for path in (folder / name / "metrics.jsonl" for name in ("without", "output"))
    )
    assert len(found) == 4
    assert found == pytest.approx(expected, abs=1e-5)
    loss = results(folder, "without")["eval_loss"]
    assert results(folder)["eval_loss"] == pytest.approx(loss, abs=1e-5)


def test_finished_run_says_so_and_keeps_its_weights(trained, capsys):
    before = weights(trained)
    (trained / "output" / "curves.png").unlink()
    run(trained)
    assert "already finished: 24 updates done" in capsys.readouterr().out
    assert (trained / "output" / "curves.png").exists()
    for name, value in weights(trained).items():
        assert np.array_equal(before[name], value)


def test_evaluations_of_an_abandoned_run_are_forgotten(folder, once, untraced):
    output = Folder.open(str(folder / "output"))
    checkpoint.save(output.child("best"), 99, weights(once("trained")[0]), keep=1)
    output.write("evaluations.json", '[{"step": 99, "score": 9.0}]')
    run(folder, num_train_epochs=[0.25], do_eval=True)
    assert results(folder)["global_step"] == 2
    assert not Folder.open(str(folder / "output" / "best")).steps
    run(folder, do_train=False, do_eval=True)
    assert results(folder)["global_step"] == 2


@pytest.mark.exhaustive
def test_early_stopping_is_held_to_what_it_depends_on(stopped, once, untraced):
    with pytest.raises(UserError, match="eval_every_steps was 0 and is now 2;"):
        run(stopped, eval_every_steps=2, **STOPS)
    (stopped / "dev.txt").write_text("a b\n")
    with pytest.raises(UserError, match="dev_examples has changed"):
        run(stopped, **STOPS)
    # Without it, evaluations decide nothing.
    plain = shutil.copytree(once("trained")[0] / "output", stopped / "plain")
    run(stopped, eval_every_steps=4, output_dir=str(plain))


# --- Nothing of the user's is lost ---------------------------------------------------


def users(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_output_dir_may_be_the_users_own_folder(folder, untraced):
    """As README's my/, with the vocabulary and data in it."""
    prompts = folder / "writing-prompts"
    prompts.mkdir()
    for split in ("train", "dev", "test"):
        (prompts / f"{split}.txt").write_text("a b\nb\n" * 16)
    (folder / "writing-style-notes.md").write_text("mine")
    before = users(folder)
    here = {"output_dir": str(folder), "data_dir": str(prompts)}
    here |= {"bert_config_file": str(folder / "config.json"), "do_eval": True}
    here["train_batch_size"] = [16]
    with pytest.raises(UserError, match="contains no checkpoint to evaluate"):
        run(folder, do_train=False, **here)
    assert users(folder) == before
    for epochs in (1.0, 2.0):
        (folder / "run.json").unlink(missing_ok=True)
        run(folder, num_train_epochs=[epochs], **here)
    assert users(folder).items() >= before.items()


def test_a_run_does_not_replace_the_weights_it_starts_from(stopped):
    Folder.open(str(stopped / "output")).drop_all()
    before = users(stopped / "output")
    best = str(stopped / "output" / "best")
    with pytest.raises(
        UserError, match="best: is in --output_dir, where the run's own"
    ):
        run(stopped, init_checkpoint=best, seed=3)
    assert users(stopped / "output") == before


def test_a_checkpoint_that_does_not_fit_costs_nothing(stopped):
    (stopped / "output").rename(stopped / "earlier")
    config = dataclasses.replace(TINY, hidden_size=8)
    (stopped / "config.json").write_text(config.to_json_string())
    with pytest.raises(UserError, match="check --bert_config_file"):
        run(stopped, init_checkpoint=str(stopped / "earlier" / "best"))
    assert not users(stopped / "output")


def test_an_evaluation_leaves_alone_what_a_training_is_writing(trained):
    name = local.temporary_name(str(trained / "output" / "model.ckpt-38"))
    name = name.replace(f"~{os.getpid()}", f"~{os.getppid()}")  # which runs
    parts = [pathlib.Path(name + part) for part in PARTS]
    parts.append(trained / "output" / "model.ckpt-37.data-00000-of-00001")
    for path in parts:
        path.write_text("half")
    run(trained, do_train=False, do_eval=True)
    assert [path.read_text() for path in parts] == ["half"] * 3
    run(trained)  # only one training at a time: the last was killed
    assert [path.exists() for path in parts] == [True, True, False]


def test_a_run_that_goes_on_without_early_stopping_has_no_best(stopped, untraced):
    assert Folder.open(str(stopped / "output")).best
    (stopped / "output" / "run.json").unlink()
    run(stopped, num_train_epochs=[3.0], train_batch_size=[16])
    assert not Folder.open(str(stopped / "output")).best
    assert weights(stopped)["global_step"] == 12


def test_a_folder_may_be_called_best(folder, once):
    best = str(folder / "runs" / "best")
    shutil.copytree(once("trained")[0] / "output", best)
    (folder / "runs" / "vocab.txt").write_text("of something else\n")
    there = {"do_train": False, "do_eval": True, "output_dir": str(folder / "there")}
    run(folder, init_checkpoint=best, **there)
    with pytest.raises(UserError, match="best/task.json: the model was trained with"):
        run(folder, init_checkpoint=best, do_lower_case=False, **there)


def test_a_refused_run_changes_nothing(trained):
    before = users(trained / "output")
    (trained / "train.txt").write_text("b a\n" * 64)
    (trained / "dev.txt").write_text("b a\n" * 9)
    with pytest.raises(UserError, match="training_examples has changed; choose"):
        run(trained, do_eval=True)
    with pytest.raises(UserError, match="max_seq_length was 40 and is now 38"):
        run(trained, do_eval=True, max_seq_length=38)
    assert users(trained / "output") == before


def test_answers_are_held_to_the_network_that_was_trained(trained):
    for changes, message in (
        (
            {"num_attention_heads": 4},
            "num_attention_heads is 4, but 2 in .*bert_config",
        ),
        ({"hidden_act": "relu"}, "hidden_act is 'relu', but 'gelu'"),
    ):
        config = dataclasses.replace(TINY, **changes)
        (trained / "other.json").write_text(config.to_json_string())
        with pytest.raises(UserError, match=message):
            run(
                trained,
                do_train=False,
                do_eval=True,
                bert_config_file=str(trained / "other.json"),
            )
    # What concerns training alone may differ.
    config = dataclasses.replace(TINY, hidden_dropout_prob=0.5)
    (trained / "other.json").write_text(config.to_json_string())
    other = {"bert_config_file": str(trained / "other.json")}
    run(trained, do_train=False, do_eval=True, **other)


def test_answers_are_held_to_the_task_that_was_trained(trained):
    path = trained / "output" / "task.json"
    path.write_text(path.read_text().replace('"Parity"', '"Tagger"'))
    with pytest.raises(UserError, match="of the task Tagger, not Parity"):
        run(trained, do_train=False, do_eval=True)


def test_without_an_interval_early_stopping_evaluates_each_epoch(stopped):
    history = json.loads((stopped / "output" / "evaluations.json").read_text())
    assert [evaluation["step"] for evaluation in history] == [4, 8]


def test_scores_that_are_not_finite_are_refused(trained):
    tensors = weights(trained)
    tensors["output_bias"] = np.array([np.nan, 0.0], np.float32)
    checkpoint.save(Folder.open(str(trained / "output")), 24, tensors, keep=1)
    (trained / "output" / "eval_results.txt").unlink()
    with pytest.raises(UserError, match="logits are not finite"):
        run(trained, do_train=False, do_eval=True)
    assert not (trained / "output" / "eval_results.txt").exists()


def test_head_of_another_size_is_refused_and_can_be_left_behind(folder, once, untraced):
    tensors = weights(once("trained")[0])
    tensors["output_bias"] = np.zeros(3, np.float32)
    tensors["output_weights"] = np.zeros((3, 16), np.float32)
    checkpoint.save(Folder.open(str(folder / "three")), 8, tensors, keep=1)
    changes = {
        "init_checkpoint": str(folder / "three"),
        "output_dir": str(folder / "next"),
        "num_train_epochs": [0.25],
    }
    with pytest.raises(UserError, match=r"output_bias is \[3\] in the checkpoint"):
        run(folder, **changes)
    run(folder, init_encoder_only=True, **changes)


@pytest.mark.parametrize("predicted", ["a", "b"])
def test_mistakes_are_pointed_to_if_there_are_any(tmp_path, predicted):
    task = types.SimpleNamespace(
        eval_sets=["dev"],
        metric="accuracy",
        has_classes=True,
        has_percentages=False,
        title="title",
        judge=lambda predictions: [Judgement("text", "a", predicted, 0.5)],
        trivial_score=lambda examples: None,
    )
    said = []
    evaluated = types.SimpleNamespace(
        task=task,
        flags=types.SimpleNamespace(output_dir=str(tmp_path), explain_mistakes=0),
        folder=Folder.open(str(tmp_path)),
        score=lambda *_: (types.SimpleNamespace(examples=[]), {"loss": 0.5}),
        log=types.SimpleNamespace(say=said.append, scores=lambda *_: None),
        chief=True,
    )
    trainer = types.SimpleNamespace(progress=types.SimpleNamespace(step=1))
    finetune._evaluate(evaluated, trainer)
    assert (tmp_path / "mistakes.html").exists()
    assert any("the worst mistakes are in" in line for line in said) == (
        predicted == "b"
    )


def test_the_plan_says_what_an_epoch_counts_and_what_is_compiled():
    class Rows(list):
        def training_lengths(self, batch_size, **run):
            assert (batch_size, run) == (8, {"seed": 3, "num_batches": 1})
            return [16, 24, 32]

    def plan(rows, compiles=False):
        flags = types.SimpleNamespace(compiles=compiles)
        size = types.SimpleNamespace(num_examples=2, flags=flags)
        data = types.SimpleNamespace(file=Rows([None] * rows))
        return experiment.Experiment._plan(size, data, 8, seed=3, num_batches=1)

    assert plan(2) == "1 update of 8 rows"
    assert plan(2, compiles=True) == (
        "1 update of 8 rows, padded to 16, 24 or 32 tokens: 3 programs to compile"
    )
    assert plan(3) == (
        "1 update of 8 rows; an epoch counts the 2 examples, not the 3 rows made of them"
    )
