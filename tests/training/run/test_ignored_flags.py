"""Flags that would need a training are not ignored where a run has its weights already."""

import json

import pytest

import run_classifier
import run_pretraining
from training.run.settle import TrainableModel
from errors import UserError
from tests import tiny
from training.run.run import Run

NOTED = {
    "init_checkpoint": "base",
    "lora_rank": 2,
    "lora_alpha": None,
    "hard_weight": 0.0,
}
NOTED |= {"lora_targets": ["query", "value"], "freeze_layers": None, "focal_gamma": 0.0}
NOTED |= {"learning_rate": 5e-5, "train_batch_size": 32, "seed": 12345}
NOTED |= {"distill_weight": 1.0}
LORA = {"lora_rank": 2, "init_checkpoint": "base"}


@pytest.fixture
def check(tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    (output / "model.ckpt-5.index").touch()
    (output / "run.json").write_text(json.dumps(NOTED))
    tiny.write(output, "abc", tiny.config(vocab_size=9))

    def check(script=run_classifier, **flags):
        flags = {
            "do_eval": True,
            "output_dir": str(output),
            "max_seq_length": 8,
        } | flags
        if script is run_classifier:
            flags |= {"task_name": "mrpc", "data_dir": str(tmp_path)}
        else:
            flags |= {"input_file": ["records"]}
        model = TrainableModel(script.Options(**flags))
        Run(model, None, None, model.folder).check()

    return check


@pytest.mark.parametrize("way", ["do_eval", "do_predict", "do_export"])
def test_what_the_run_began_with_may_be_left_out_or_passed_again(check, tmp_path, way):
    alone = {"do_eval": False, way: True}
    check(**alone)
    check(**alone, **LORA, lora_targets=["query", "value"])
    # Rates and batches change no weight without a training; as in the release's commands.
    check(**alone, learning_rate=[1e-3], train_batch_size=[8], num_train_epochs=[9.0])
    # The weights themselves.
    for path in ("output", "output/model.ckpt-5"):
        check(**alone, init_checkpoint=str(tmp_path / path))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"init_checkpoint": "other"}, "init_checkpoint was 'base' and is now 'other'"),
        (LORA | {"lora_rank": 3}, "lora_rank was 2 and is now 3"),
        (LORA | {"lora_alpha": 8.0}, "lora_alpha was None and is now 8.0"),
        (LORA | {"lora_targets": ["key"]}, "lora_targets was .* and is now .'key'."),
        ({"freeze_layers": 0}, "freeze_layers was None and is now 0"),
        ({"focal_gamma": 2.0}, "focal_gamma was 0.0 and is now 2.0"),
        (
            {"distill_from": "x", "distill_weight": 2.0},
            "distill_weight was 1.0 and is no",
        ),
    ],
)
def test_what_would_be_ignored_is_refused(check, flags, message):
    with pytest.raises(UserError, match=message) as refused:
        check(**flags)
    assert "without --do_train these have no effect" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_another_checkpoint_of_the_run_is_not_ignored_either(check, tmp_path):
    (tmp_path / "output" / "model.ckpt-3.index").touch()
    (tmp_path / "output" / "checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt-5"\n'
    )
    check(init_checkpoint=str(tmp_path / "output" / "model.ckpt-5"))
    with pytest.raises(UserError, match="is now '.*model.ckpt-3'"):
        check(init_checkpoint=str(tmp_path / "output" / "model.ckpt-3"))
    with pytest.raises(UserError, match="model.ckpt-9: no such checkpoint"):
        check(init_checkpoint=str(tmp_path / "output" / "model.ckpt-9"))


@pytest.mark.parametrize("script", [run_classifier, run_pretraining])
def test_whole_weights_need_no_other_checkpoint(check, script, tmp_path, capsys):
    """The release's commands pass one; it may have been moved."""
    (tmp_path / "output" / "run.json").write_text(
        json.dumps({"init_checkpoint": "base"})
    )
    check(script, init_checkpoint="base")
    assert not capsys.readouterr().err
    check(script, init_checkpoint="moved/base")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: --init_checkpoint=moved/base is not read: ")
