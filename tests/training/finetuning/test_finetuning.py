"""What all fine-tuning scripts share, shown with a task of one small file."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import sys
import time

import numpy as np
import pytest

import tests
from training import checkpoint, run_folder
from training.backend import tf
from tests import forked, jobs, tiny
from tests.jobs import results, weights
from tests.programs import parity
from text.errors import UserError
from text.files import local
from text.tokenizers.vocabulary import SPECIAL_TOKENS
from training.finetuning import experiment, finetune

TINY = tiny.config(vocab_size=8)


def write_files(folder):
    """The task's files, a vocabulary and a config."""
    rng = random.Random(1)
    for split, lines in (("train", 64), ("dev", 21), ("test", 10)):
        texts = [
            " ".join(rng.choices("ab", k=rng.randint(1, 30))) for _ in range(lines)
        ]
        (folder / f"{split}.txt").write_text("\n".join(texts) + "\n")
    tiny.write(folder, ["a", "b"], TINY)


def flags(folder, **changes):
    own = {
        "data_dir": str(folder),
        "max_seq_length": 40,
        "num_train_epochs": [3.0],
        "do_train": True,
    }
    return jobs.flags(folder, **own | changes)


def run(folder, **changes):
    jobs.run(parity, flags(folder, **changes))


def command(folder, **changes):
    return jobs.command("tests/programs/parity.py", flags(folder, **changes))


@pytest.fixture
def folder(tmp_path):
    write_files(tmp_path)
    return tmp_path


# Runs that several tests begin with, each with a copy of its own. The short ones are not
# traced, and neither are those that are compared with them.
STOPS = {
    "early_stopping_patience": 9,
    "num_train_epochs": [2.0],
    "train_batch_size": [16],
}
SEARCH = {"num_train_epochs": [0.25, 0.5]}
RUNS = {
    "trained": {"do_eval": True, "do_predict": True},
    "stopped": STOPS,
    "searched": SEARCH | {"do_eval": True},
}


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Maps a name of RUNS to a folder after that run, and to what it said."""
    made = {}

    def folder_after(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            write_files(folder)
            # As this says, whichever test is the first to want it.
            untraced = tf.config.functions_run_eagerly()
            tf.config.run_functions_eagerly(name != "trained")
            with open(folder / "said", "w") as file, contextlib.redirect_stdout(file):
                run(folder, **RUNS[name])
            tf.config.run_functions_eagerly(untraced)
            said = folder / "said"
            made[name] = folder, said.read_text()
            said.unlink()
        return made[name]

    return folder_after


@pytest.fixture
def trained(once, tmp_path):
    """A folder with a finished run, evaluated and asked."""
    return shutil.copytree(once("trained")[0], tmp_path, dirs_exist_ok=True)


@pytest.fixture
def stopped(once, tmp_path):
    """One with a run of early stopping, that never stopped."""
    return shutil.copytree(once("stopped")[0], tmp_path, dirs_exist_ok=True)


@pytest.fixture
def searched(once, tmp_path):
    """One with a search, whose best was evaluated."""
    return shutil.copytree(once("searched")[0], tmp_path, dirs_exist_ok=True)


@pytest.mark.slow
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
    assert "train: 64 examples, 64 rows" in once("trained")[1]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_resumed_run_ends_with_the_same_bits(folder):
    """Dropout on, buckets on, early stopping on; resumed several times."""
    changes = {
        "num_train_epochs": [6.0],
        "save_checkpoints_steps": 7,
        "early_stopping_patience": 4,
        "eval_every_steps": 10,
        "iterations_per_loop": 3,
    }
    run(folder, output_dir=str(folder / "straight"), do_eval=True, **changes)
    expected, numbers = weights(folder, "straight"), results(folder, "straight")
    for step in (7, 28):  # before the first evaluation, and after two
        with jobs.dying(step):
            run(folder, do_eval=True, **changes)
    run(folder, do_eval=True, **changes)
    got = weights(folder)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(got[name], value), name
    assert results(folder) == numbers


@pytest.mark.slow
def test_other_settings_do_not_go_on_in_the_same_folder(trained):
    with pytest.raises(UserError, match="learning_rate was 0.001 and is now 0.002"):
        run(trained, learning_rate=[2e-3])
    (trained / "train.txt").write_text("a b\n" * 64)
    with pytest.raises(UserError, match="training_examples has changed"):
        run(trained)


@pytest.mark.slow
def test_finished_run_says_so_and_keeps_its_weights(trained, capsys):
    before = weights(trained)
    (trained / "output" / "curves.png").unlink()
    run(trained)
    assert "already finished: 24 updates are done" in capsys.readouterr().out
    assert (trained / "output" / "curves.png").exists()
    for name, value in weights(trained).items():
        assert np.array_equal(before[name], value)


@pytest.mark.slow
def test_search_records_every_run_and_keeps_the_best(searched, once, capsys, untraced):
    summary = json.loads((searched / "output" / "search.json").read_text())
    scores = {o["name"]: o["score"] for o in summary["runs"]}
    assert len(scores) == 2
    assert summary["mean"] == pytest.approx(np.mean(list(scores.values())))
    assert summary["deviation"] == pytest.approx(np.std(list(scores.values()), ddof=1))
    assert scores[summary["best"]] == max(scores.values())
    assert results(searched)["eval_accuracy"] == max(scores.values())
    assert "with only 64 training examples" in once("searched")[1]
    # Only the best run's weights stay, in its own folder and in output_dir.
    kept = sorted(p.parent.name for p in searched.glob("output/**/model.ckpt-*.index"))
    assert kept == sorted(["output", summary["best"]])
    # A second start trains nothing and ends the same.
    before = weights(searched)
    run(searched, **RUNS["searched"])
    said = capsys.readouterr().out
    assert said.count("already finished: accuracy") == 2 and "updates" not in said
    assert json.loads((searched / "output" / "search.json").read_text()) == summary
    for name, value in weights(searched).items():
        assert np.array_equal(before[name], value)


def test_search_tries_every_combination_with_every_seed(folder):
    changes = {"learning_rate": [1e-3, 3e-3], "num_trials": 2, "seed": 5}
    given = parity.Options(**flags(folder, **changes))
    trials = [
        (trial.learning_rate, trial.seed) for trial in finetune.every_trial(given)
    ]
    assert trials == [(1e-3, 5), (1e-3, 6), (3e-3, 5), (3e-3, 6)]


@pytest.mark.slow
def test_search_goes_on_where_it_was_broken_off(folder, once, monkeypatch, untraced):
    straight = weights(once("searched")[0])
    calls = []
    original = experiment.Experiment.train

    def train(self, *arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        original(self, *arguments)

    monkeypatch.setattr(experiment.Experiment, "train", train)
    with pytest.raises(KeyboardInterrupt):
        run(folder, **SEARCH)
    run(folder, **SEARCH)
    assert len(calls) == 3  # the first trial was not repeated
    got = weights(folder)
    for name, value in straight.items():
        assert np.array_equal(got[name], value)


@pytest.mark.slow
def test_search_whose_best_was_not_kept_trains_it_again(searched, capsys, untraced):
    before = weights(searched)
    for path in searched.glob("output/**/model.ckpt-*"):
        path.unlink()
    run(searched, **SEARCH)
    assert " again, because its weights were not kept" in capsys.readouterr().out
    for name, value in weights(searched).items():
        assert np.array_equal(before[name], value)


@pytest.mark.slow
def test_evaluations_of_an_abandoned_run_are_forgotten(folder, once, untraced):
    best = folder / "output" / "best"
    best.mkdir(parents=True)
    checkpoint.save(str(best), 99, weights(once("trained")[0]), keep=1)
    (folder / "output" / "evaluations.json").write_text('[{"step": 99, "score": 9.0}]')
    run(folder, num_train_epochs=[0.25], do_eval=True)
    assert results(folder)["global_step"] == 2
    assert not run_folder.steps(str(best))
    run(folder, do_train=False, do_eval=True)
    assert results(folder)["global_step"] == 2


@pytest.mark.slow
def test_rows_that_were_removed_are_made_again(trained):
    record = trained / "output" / "train.tf_record"
    whole = record.read_bytes()
    for damage in (record.unlink, lambda: record.write_bytes(whole[:-20])):
        damage()
        run(trained)
        assert record.read_bytes() == whole


@pytest.mark.slow
def test_degenerate_runs_are_named(searched, capsys, monkeypatch, untraced):
    monkeypatch.setattr(parity.Parity, "trivial_score", lambda self, examples: 1.0)
    run(searched, **SEARCH)
    assert "2 of 2 runs failed or did no better" in capsys.readouterr().out


@pytest.mark.slow
def test_early_stopping_keeps_the_best_evaluation(
    folder, capsys, monkeypatch, untraced
):
    scores = iter([0.1, 0.5, 0.3, 0.2, 0.4, 0.9])
    monkeypatch.setattr(
        parity.Parity, "score", lambda self, predictions: {"accuracy": next(scores)}
    )
    changes = {
        "early_stopping_patience": 3,
        "eval_every_steps": 1,
        "save_checkpoints_steps": 100,
    }
    run(folder, **changes)
    said = capsys.readouterr().out
    assert "the best of 5 evaluations was at step 2" in said
    assert run_folder.steps(str(folder / "output")) == [5]
    assert run_folder.steps(str(folder / "output" / "best")) == [2]
    assert weights(folder, "output/best")["global_step"] == 2
    # Started again it does not train on, and answers with the best weights.
    run(folder, **changes, do_eval=True)
    assert "already finished: 5 updates" in capsys.readouterr().out
    assert results(folder)["eval_accuracy"] == 0.9


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


@pytest.mark.slow
def test_after_a_resume_the_best_is_that_of_the_run(
    folder, capsys, monkeypatch, untraced
):
    """Scores need not repeat, as on another number of devices."""
    scores = iter([0.80, 0.78, 0.85, None, 0.79, 0.77, 0.5])

    def score(self, predictions):
        if (accuracy := next(scores)) is None:
            raise Killed
        return {"accuracy": accuracy}

    monkeypatch.setattr(parity.Parity, "score", score)
    changes = {
        "num_train_epochs": [0.5],
        "early_stopping_patience": 9,
        "eval_every_steps": 1,
        "save_checkpoints_steps": 2,
    }
    with pytest.raises(Killed):
        run(folder, **changes)
    best = folder / "output" / "best"
    assert run_folder.steps(str(best)) == [1, 3]
    run(folder, do_eval=True, **changes)
    assert "the best of 4 evaluations was at step 1" in capsys.readouterr().out
    assert run_folder.steps(str(best)) == [1]
    assert weights(folder)["global_step"] == 1
    numbers = results(folder)
    assert numbers["global_step"] == 1
    monkeypatch.undo()
    one = {"init_checkpoint": str(best / "model.ckpt-1"), "do_train": False}
    run(folder, do_eval=True, output_dir=str(folder / "one"), **one)
    assert results(folder, "one")["eval_loss"] == numbers["eval_loss"]


@pytest.mark.slow
def test_early_stopping_is_held_to_what_it_depends_on(stopped, once, untraced):
    with pytest.raises(UserError, match="eval_every_steps was 0 and is now 2;"):
        run(stopped, eval_every_steps=2, **STOPS)
    (stopped / "dev.txt").write_text("a b\n")
    with pytest.raises(UserError, match="dev_examples has changed"):
        run(stopped, **STOPS)
    # Without it, evaluations decide nothing; and earlier versions did not note them.
    plain = shutil.copytree(once("trained")[0] / "output", stopped / "plain")
    run(stopped, eval_every_steps=4, output_dir=str(plain))
    path = stopped / "output" / "run.json"
    began = json.loads(path.read_text())
    for name in ("eval_every_steps", "dev_examples"):
        del began[name]
    path.write_text(json.dumps(began))
    run(stopped, **STOPS)


# --- Nothing of the user's is lost ---------------------------------------------------


def users(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_an_output_dir_may_be_the_users_own_folder(folder, capsys, untraced):
    """As README's my/, with vocabulary, config and data in it."""
    (folder / "bert_config.json").write_text(TINY.to_json_string().replace(" ", ""))
    (folder / "eval_results.txt").write_text("of a paper")
    (folder / "metrics.jsonl").write_text("of something else")
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
    after = users(folder)
    renamed = ("bert_config.json", "eval_results.txt", "metrics.jsonl")
    for path, content in before.items():
        kept = f"{path}.kept-1" if path.name in renamed else str(path)
        assert after[pathlib.Path(kept)] == content
    assert len(list(folder.glob("*.kept-*"))) == 3
    said = capsys.readouterr().err
    assert all(f"{folder / name} was not made by" in said for name in renamed)


@pytest.mark.slow
@pytest.mark.parametrize("patience", [0, 9])
def test_a_run_may_begin_from_what_lies_in_its_own_folder(
    folder, once, patience, monkeypatch, untraced
):
    """best/ of somebody else; and, with patience, of an early-stopped run of ours, killed
    when it had a best of its own and no checkpoint.
    """
    output, best = folder / "output", folder / "output" / "best"
    if patience:
        shutil.copytree(once("stopped")[0] / "output", output)
        run_folder.drop_all(str(output))
    else:
        shutil.copytree(once("trained")[0] / "output", best)
    (step,) = run_folder.steps(str(best))
    prefix = str(best / f"model.ckpt-{step}")
    before = checkpoint.read(prefix)
    again = {"init_checkpoint": str(best), "num_train_epochs": [0.25], "seed": 3}
    again |= {"early_stopping_patience": patience, "eval_every_steps": 1}
    if patience:
        scores = iter([0.5])
        with monkeypatch.context() as patch, pytest.raises(StopIteration):
            patch.setattr(
                parity.Parity, "score", lambda *given: {"accuracy": next(scores)}
            )
            run(folder, **again)
        assert 1 in run_folder.steps(str(best))
    run(folder, **again)
    for name, value in checkpoint.read(prefix).items():
        assert np.array_equal(before[name], value)
    straight = str(folder / "straight")
    run(folder, **again | {"init_checkpoint": prefix, "output_dir": straight})
    for name, value in weights(folder, "straight").items():
        assert np.array_equal(weights(folder)[name], value)
    run(folder, do_train=False, do_eval=True)
    assert results(folder)["global_step"] == weights(folder)["global_step"] <= 2


@pytest.mark.slow
def test_a_checkpoint_that_does_not_fit_costs_nothing(stopped):
    run_folder.drop_all(str(stopped / "output"))
    config = dataclasses.replace(TINY, hidden_size=8)
    (stopped / "config.json").write_text(config.to_json_string())
    before = users(stopped / "output")
    with pytest.raises(UserError, match="check --bert_config_file"):
        run(stopped, init_checkpoint=str(stopped / "output" / "best"))
    assert users(stopped / "output") == before


@pytest.mark.slow
def test_an_evaluation_leaves_alone_what_a_training_is_writing(trained):
    name = local.temporary_name(str(trained / "output" / "model.ckpt-38"))
    name = name.replace(f"~{os.getpid()}", f"~{os.getppid()}")  # which runs
    parts = [pathlib.Path(name + part) for part in run_folder.PARTS]
    parts.append(trained / "output" / "model.ckpt-37.data-00000-of-00001")
    for path in parts:
        path.write_text("half")
    for changes in ({"do_train": False, "do_eval": True}, {}):
        run(trained, **changes)
        assert [path.read_text() for path in parts] == ["half"] * 3


@pytest.mark.slow
def test_beside_a_training_evaluations_run_and_another_training_is_refused(folder):
    """The one that was there first saves often, and ends as if it had been alone."""
    often = {"num_train_epochs": [10.0], "save_checkpoints_steps": 2}
    often |= {"iterations_per_loop": 2, "keep_checkpoint_max": 3}
    with open(folder / "said", "w") as said, open(folder / "errors", "w") as errors:
        process = forked.Process(command(folder, **often), stdout=said, stderr=errors)
    while " updates of " not in (folder / "said").read_text():
        assert process.poll() is None
        time.sleep(0.01)
    # It has no checkpoint yet, so another seed would not be refused for being another.
    holder = f"in use by process {process.pid} on {local.host()}, since"
    with pytest.raises(UserError, match=re.escape(holder)) as raised:
        run(folder, seed=2, do_eval=True, **often)
    assert "\n" not in str(raised.value)
    output = folder / "output"
    while process.poll() is None and not run_folder.steps(str(output)):
        time.sleep(0.01)
    beside = 0
    while process.poll() is None:
        with jobs.untraced():
            run(folder, do_train=False, do_eval=True, do_predict=True)
        beside += 1
    assert (process.returncode, (folder / "errors").read_text()) == (0, "")
    assert beside
    assert json.loads((output / "run.json").read_text())["seed"] == 12345
    run(folder, output_dir=str(folder / "straight"), **often)
    for name, value in weights(folder, "straight").items():
        assert np.array_equal(weights(folder)[name], value)
    lines = {
        name: len((folder / name / "metrics.jsonl").read_text().splitlines())
        for name in ("output", "straight")
    }
    assert lines["output"] == lines["straight"]
    assert results(folder) and (output / "parity.txt").exists()


@pytest.mark.slow
def test_who_names_a_run_gets_the_best_that_early_stopping_kept(
    folder, monkeypatch, untraced
):
    scores = itertools.chain([0.5, 0.1], itertools.repeat(0.0))
    monkeypatch.setattr(
        parity.Parity, "score", lambda self, predictions: {"accuracy": next(scores)}
    )
    run(folder, early_stopping_patience=1, eval_every_steps=1)
    assert run_folder.steps(str(folder / "output")) == [2]
    there = {"do_train": False, "do_eval": True, "output_dir": str(folder / "there")}
    loss = []
    for source in ("output", "output/best"):
        run(folder, init_checkpoint=str(folder / source), **there)
        loss.append(results(folder, "there")["eval_loss"])
    last = checkpoint.read(str(folder / "output" / "model.ckpt-2"))
    assert loss[0] == loss[1]
    assert weights(folder)["global_step"] == 1 and last["global_step"] == 2
    # Also where the run left nothing else, and where there is no best any more.
    run_folder.drop_all(str(folder / "output"))
    run(folder, do_train=False, do_eval=True)
    assert results(folder)["eval_loss"] == loss[0]
    # What is beside the run holds for its best.
    with pytest.raises(
        UserError, match="task.json: the model was trained with another --do_lower"
    ):
        run(
            folder,
            init_checkpoint=str(folder / "output" / "best"),
            do_lower_case=False,
            **there,
        )


@pytest.mark.slow
def test_a_run_that_goes_on_without_early_stopping_has_no_best(stopped, untraced):
    assert run_folder.best_of(str(stopped / "output"))
    (stopped / "output" / "run.json").unlink()
    run(stopped, num_train_epochs=[3.0], train_batch_size=[16])
    assert not run_folder.best_of(str(stopped / "output"))
    assert weights(stopped)["global_step"] == 12


@pytest.mark.slow
def test_a_folder_may_be_called_best(folder, once):
    best = str(folder / "runs" / "best")
    shutil.copytree(once("trained")[0] / "output", best)
    (folder / "runs" / "vocab.txt").write_text("of something else\n")
    there = {"do_train": False, "do_eval": True, "output_dir": str(folder / "there")}
    run(folder, init_checkpoint=best, **there)
    with pytest.raises(UserError, match="best/task.json: the model was trained with"):
        run(folder, init_checkpoint=best, do_lower_case=False, **there)


@pytest.mark.slow
def test_best_of_a_search_is_what_is_found_though_an_earlier_one_was_longer(
    searched, monkeypatch, capsys, untraced
):
    """As where the dev set was corrected in between: no outcome of before is believed."""
    scores = iter([0.1, 0.9])
    monkeypatch.setattr(
        parity.Parity, "score", lambda self, predictions: {"accuracy": next(scores)}
    )
    (searched / "dev.txt").write_text("a\n" * 20)
    run(searched, **SEARCH)
    assert run_folder.steps(str(searched / "output")) == [4]
    (searched / "dev.txt").write_text("a a b\nb\n")
    scores = iter([0.8, 0.2, 0.8])
    run(searched, **SEARCH)
    assert "already finished: accuracy" not in capsys.readouterr().out
    assert run_folder.steps(str(searched / "output")) == [2]
    run(searched, do_train=False, do_eval=True)
    assert results(searched)["global_step"] == 2


@pytest.mark.slow
def test_a_run_that_diverges_ends_no_search(folder, capsys, untraced):
    search = {"warmup_proportion": 0.0, "num_train_epochs": [0.5]}
    search["max_skipped_updates"] = 2
    run(folder, learning_rate=[1e30, 1e-3], do_eval=True, **search)
    said = capsys.readouterr().out
    assert "loss or gradient was not finite in 2 consecutive updates" in said
    assert "over 1 runs" in said and "1 of 2 runs failed: rate1e+30" in said
    found = json.loads((folder / "output" / "search.json").read_text())
    assert found["best"].startswith("rate0.001") and results(folder)["eval_loss"] < 9
    assert [outcome["score"] is None for outcome in found["runs"]] == [True, False]
    # One that failed before is not tried again.
    name = found["runs"][0]["name"]
    shutil.copytree(folder / "output" / "runs" / name, folder / "o" / "runs" / name)
    with pytest.raises(
        UserError, match="all 2 runs failed; the last one: loss or grad"
    ):
        run(folder, learning_rate=[1e30, 1e31], output_dir=str(folder / "o"), **search)
    assert "already finished: failed" in capsys.readouterr().out


@pytest.mark.slow
def test_a_refused_run_changes_nothing(trained):
    before = users(trained / "output")
    (trained / "train.txt").write_text("b a\n" * 64)
    (trained / "dev.txt").write_text("b a\n" * 9)
    with pytest.raises(UserError, match="training_examples has changed; choose"):
        run(trained, do_eval=True)
    with pytest.raises(UserError, match="max_seq_length was 40 and is now 38"):
        run(trained, do_eval=True, max_seq_length=38)
    assert users(trained / "output") == before


@pytest.mark.slow
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


@pytest.mark.slow
def test_answers_are_held_to_the_task_that_was_trained(trained):
    path = trained / "output" / "task.json"
    path.write_text(path.read_text().replace('"Parity"', '"Tagger"'))
    with pytest.raises(UserError, match="of the task Tagger, not Parity"):
        run(trained, do_train=False, do_eval=True)


def test_an_export_that_a_task_has_no_answers_for_is_refused_at_once(folder):
    with pytest.raises(UserError, match="--do_export: Parity does not define"):
        run(folder, do_export=True)
    assert not (folder / "output").exists()


@pytest.mark.slow
def test_without_an_interval_early_stopping_evaluates_each_epoch(stopped):
    history = json.loads((stopped / "output" / "evaluations.json").read_text())
    assert [evaluation["step"] for evaluation in history] == [4, 8]


@pytest.mark.slow
def test_scores_that_are_not_finite_are_refused(trained):
    tensors = weights(trained)
    tensors["output_bias"] = np.array([np.nan, 0.0], np.float32)
    checkpoint.save(str(trained / "output"), 24, tensors, keep=1)
    (trained / "output" / "eval_results.txt").unlink()
    with pytest.raises(UserError, match="logits are not finite"):
        run(trained, do_train=False, do_eval=True)
    assert not (trained / "output" / "eval_results.txt").exists()


@pytest.mark.slow
def test_head_of_another_size_is_refused_and_can_be_left_behind(folder, once, untraced):
    tensors = weights(once("trained")[0])
    tensors["output_bias"] = np.zeros(3, np.float32)
    tensors["output_weights"] = np.zeros((3, 16), np.float32)
    checkpoint.save(str(folder / "three"), 8, tensors, keep=1)
    changes = {
        "init_checkpoint": str(folder / "three"),
        "output_dir": str(folder / "next"),
        "num_train_epochs": [0.25],
    }
    with pytest.raises(UserError, match=r"output_bias is \[3\] in the checkpoint"):
        run(folder, **changes)
    run(folder, init_encoder_only=True, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_train": False}, "nothing to do; pass at least one of --do_train"),
        ({"train_batch_size": [8, 0]}, "--train_batch_size=0: must be at least 1"),
        ({"learning_rate": [-1.0]}, "--learning_rate=-1.0: must be above 0"),
        ({"num_train_epochs": [float("nan")]}, "--num_train_epochs=nan: must be above"),
        ({"warmup_proportion": 1.5}, "--warmup_proportion=1.5: must be from 0 to 1"),
        ({"num_trials": 0}, "--num_trials=0"),
        ({"max_seq_length": 41}, "more than max_position_embeddings=40"),
        ({"train_batch_size": [1000]}, "64 training examples do not fill a batch"),
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


@pytest.mark.slow
def test_two_replicas_and_accumulation_fine_tune_as_one_device(folder):
    """In processes of their own: one may hold a single MirroredStrategy."""
    config = dataclasses.replace(
        TINY, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    (folder / "config.json").write_text(config.to_json_string())
    given = {"do_eval": True, "num_train_epochs": [1.0]}
    run(folder, output_dir=str(folder / "one"), **given)
    program = str(tests.ROOT / "tests" / "programs" / "on_two_cpus.py")
    script = command(folder, distribution="mirrored", **given)[1:]
    done = forked.finished([sys.executable, program, *script])
    assert done.returncode == 0, done.stderr
    assert "on 2 devices" in done.stdout
    accumulated = str(folder / "accumulated")
    run(folder, gradient_accumulation_steps=4, output_dir=accumulated, **given)
    expected = weights(folder, "one")
    for name in ("output", "accumulated"):
        got = weights(folder, name)
        for key, value in expected.items():
            np.testing.assert_allclose(got[key], value, atol=1e-5, err_msg=key)
        assert results(folder, name)["eval_loss"] == pytest.approx(
            results(folder, "one")["eval_loss"], abs=1e-5
        )


@pytest.mark.slow
def test_two_hosts_fine_tune_as_one(folder):
    config = dataclasses.replace(
        TINY, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    (folder / "config.json").write_text(config.to_json_string())
    changes = {
        "do_eval": True,
        "do_predict": True,
        "early_stopping_patience": 3,
        "learning_rate": [1e-3, 2e-3],
        "num_train_epochs": [1.0],
        "eval_every_steps": 4,
    }
    run(folder, output_dir=str(folder / "one"), **changes)
    line = command(folder, distribution="multi_worker", **changes)
    chief, second = forked.hosts_finished({"worker": [line, line]})
    for host in (chief, second):
        assert host.returncode == 0, host.stderr
    assert "on 2 devices" in chief.stdout
    assert second.stdout == ""  # it computes and says nothing
    expected, got = weights(folder, "one"), weights(folder)
    for key, value in expected.items():
        np.testing.assert_allclose(got[key], value, atol=1e-5, err_msg=key)
    for name in ("parity.txt",):
        one = (folder / "one" / name).read_text()
        assert (folder / "output" / name).read_text() == one
