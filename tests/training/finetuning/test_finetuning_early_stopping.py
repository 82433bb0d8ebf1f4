"""Early stopping: which evaluation is the best, and who gets its checkpoint."""

import itertools

import pytest

from training.storage.folder import Folder
from training.storage.source import Source
from errors import UserError
from tests.jobs import results, weights
from tests.killed import Killed
from tests.programs import parity
from tests.training.finetuning.runs import run


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
    assert Folder.open(str(folder / "output")).steps == [5]
    assert Folder.open(str(folder / "output" / "best")).steps == [2]
    assert weights(folder, "output/best")["global_step"] == 2
    # Started again it does not train on, and answers with the best weights.
    run(folder, **changes, do_eval=True)
    assert "already finished: 5 updates" in capsys.readouterr().out
    assert results(folder)["eval_accuracy"] == 0.9


@pytest.mark.exhaustive
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
    assert Folder.open(str(best)).steps == [1, 3]
    run(folder, do_eval=True, **changes)
    assert "the best of 4 evaluations was at step 1" in capsys.readouterr().out
    assert Folder.open(str(best)).steps == [1]
    assert weights(folder)["global_step"] == 1
    numbers = results(folder)
    assert numbers["global_step"] == 1
    monkeypatch.undo()
    one = {"init_checkpoint": str(best / "model.ckpt-1"), "do_train": False}
    run(folder, do_eval=True, output_dir=str(folder / "one"), **one)
    assert results(folder, "one")["eval_loss"] == numbers["eval_loss"]


@pytest.mark.exhaustive
def test_who_names_a_run_gets_the_best_that_early_stopping_kept(
    folder, monkeypatch, untraced
):
    scores = itertools.chain([0.5, 0.1], itertools.repeat(0.0))
    monkeypatch.setattr(
        parity.Parity, "score", lambda self, predictions: {"accuracy": next(scores)}
    )
    run(folder, early_stopping_patience=1, eval_every_steps=1)
    assert Folder.open(str(folder / "output")).steps == [2]
    there = {"do_train": False, "do_eval": True, "output_dir": str(folder / "there")}
    loss = []
    for source in ("output", "output/best"):
        run(folder, init_checkpoint=str(folder / source), **there)
        loss.append(results(folder, "there")["eval_loss"])
    last = Source.open(str(folder / "output" / "model.ckpt-2")).read()
    assert loss[0] == loss[1]
    assert weights(folder)["global_step"] == 1 and last["global_step"] == 2
    # Also where the run left nothing else, and where there is no best any more.
    Folder.open(str(folder / "output")).drop_all()
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
