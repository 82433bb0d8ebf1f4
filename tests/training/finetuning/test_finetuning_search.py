"""A search: every combination, the best of them, where it was broken off."""

import json
import shutil

import numpy as np
import pytest

from training.storage.folder import Folder
from errors import UserError
from tests.jobs import results, weights
from tests.programs import parity
from tests.training.finetuning.runs import RUNS, SEARCH, flags, run
from training.finetuning import experiment


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
    trials = [(trial.learning_rate, trial.seed) for trial in given.trials]
    assert trials == [(1e-3, 5), (1e-3, 6), (3e-3, 5), (3e-3, 6)]


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_search_whose_best_was_not_kept_trains_it_again(searched, capsys, untraced):
    before = weights(searched)
    for path in searched.glob("output/**/model.ckpt-*"):
        path.unlink()
    run(searched, **SEARCH)
    assert " again, because its weights were not kept" in capsys.readouterr().out
    for name, value in weights(searched).items():
        assert np.array_equal(before[name], value)


@pytest.mark.exhaustive
def test_degenerate_runs_are_named(searched, capsys, monkeypatch, untraced):
    monkeypatch.setattr(parity.Parity, "trivial_score", lambda self, examples: 1.0)
    run(searched, **SEARCH)
    assert "2 of 2 runs failed or did no better" in capsys.readouterr().out


@pytest.mark.exhaustive
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
    assert Folder.open(str(searched / "output")).steps == [4]
    (searched / "dev.txt").write_text("a a b\nb\n")
    scores = iter([0.8, 0.2, 0.8])
    run(searched, **SEARCH)
    assert "already finished: accuracy" not in capsys.readouterr().out
    assert Folder.open(str(searched / "output")).steps == [2]
    run(searched, do_train=False, do_eval=True)
    assert results(searched)["global_step"] == 2


@pytest.mark.exhaustive
def test_a_run_that_diverges_ends_no_search(folder, capsys, untraced):
    search = {"warmup_proportion": 0.0, "num_train_epochs": [0.5]}
    search["max_skipped_updates"] = 2
    run(folder, learning_rate=[1e30, 1e-3], do_eval=True, **search)
    said = capsys.readouterr().out
    assert "loss or gradient was not finite in 2 consecutive updates" in said
    assert "1 of 2 runs failed: rate1e+30" in said
    # Nor is there a mean of the two rates, which would say nothing about either.
    assert "best: rate0.001" in said and "deviation" not in said
    found = json.loads((folder / "output" / "search.json").read_text())
    assert found["best"].startswith("rate0.001") and results(folder)["eval_loss"] < 9
    assert [outcome["score"] is None for outcome in found["runs"]] == [True, False]
    # One that failed before is not tried again.
    shutil.copytree(folder / "output", folder / "o")
    (folder / "o" / "run.json").unlink()  # to go on with other rates
    with pytest.raises(UserError, match="all 2 runs failed; the last one: loss or"):
        run(folder, learning_rate=[1e30, 1e31], output_dir=str(folder / "o"), **search)
    assert "already finished: failed" in capsys.readouterr().out
