"""run_pretraining.py on permuted tokens, with memory."""

import types

import pytest

import fill_mask
import tests
from errors import UserError
from family.xlnet.encoder import XlnetConfig
from tests import jobs, tiny
from tests.pretraining import metrics, results, run, run_on, run_twice
from tests.records import make_records

MODEL = tests.GOLDEN / "sentencepiece" / "xlnet.model"
CONFIG = XlnetConfig(600, 16, 1, 2, 8, 16, "gelu", True)
BERT = tiny.config(vocab_size=600, max_position_embeddings=64)
GIVEN = {
    "config": CONFIG,
    "objective": "permuted",
    "optimizer": "xlnet_adam",
    "weight_decay": 0.0,
    "min_lr_ratio": 0.01,
    "num_train_steps": 4,
    "save_checkpoints_steps": 2,
}


def contiguous(folder, rows):
    """Records whose rows continue each other, and the flags to train on them."""
    records = make_records(
        folder,
        vocab_file=str(MODEL),
        instances="contiguous",
        rows_per_batch=rows,
        masking="dynamic",
        do_whole_word_mask=True,
        dupe_factor=1,
    )
    return {"input_file": [records], "train_batch_size": rows}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Records of two rows a batch."""
    return contiguous(tmp_path_factory.mktemp("pairs"), 2)


def test_rows_train_with_memory_and_go_on(tmp_path, untraced, capsys):
    given = GIVEN | contiguous(tmp_path, 4) | {"mem_len": 32}
    whole = tmp_path / "whole"
    whole.mkdir()
    run(whole, do_eval=True, max_eval_steps=2, **given)
    expected = run_on(tmp_path, capsys, 2, **given)
    assert expected["training/memory"].shape == (4, 1, 32, 16)
    assert expected["training/memory"].any(axis=-1).all()
    assert 6 < metrics(whole)[-1]["permuted_lm_loss"] < 7  # ln 600 = 6.4
    assert float(results(whole)["perplexity"]) > 100
    with pytest.raises(UserError, match="mem_len was 32 and is now 16"):
        run(whole, **given | {"mem_len": 16})
    with pytest.raises(UserError, match="permuted, which does not fill masks"):
        jobs.run(
            fill_mask,
            {
                "init_checkpoint": str(whole / "output"),
                "vocab_file": str(MODEL),
                "text": "a <mask>",
            },
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_batch_size": 8}, "a batch has 2; pass --train_batch_size=2"),
        ({"do_export": True, "vocab_file": str(MODEL)}, "--objective=permuted has no"),
        ({"config": BERT}, "'bert' has no second stream"),
        ({"mask_alpha": 0}, "--mask_alpha=0: must be at least 1"),
        ({"mem_len": -1}, "--mem_len=-1: must be from 0"),
        ({"objective": "masked_lm", "mem_len": 8}, "it is for --objective=permuted"),
        (
            {"optimizer": "lamb"},
            "--lr_schedule=bert, that of --optimizer=lamb, does not have it, only to_ratio",
        ),
        (
            {"lr_schedule": "cosine"},
            "--lr_schedule=cosine does not have it, only to_ratio, cosine_to_ratio",
        ),
        ({"min_lr_ratio": 1.0}, "--min_lr_ratio=1.0: must be at least 0 and below 1"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, pairs, change, message):
    with pytest.raises(UserError, match=message):
        run(tmp_path, **GIVEN | pairs | change)
    assert not (tmp_path / "output").exists()


def test_memory_needs_records_that_continue_each_other(tmp_path):
    kind = {"instances": "full_sentences", "masking": "dynamic", "dupe_factor": 1}
    records = make_records(tmp_path, **kind)
    config = XlnetConfig(3000, 16, 1, 2, 8, 16, "gelu", True)
    given = GIVEN | {"config": config, "input_file": [records], "mem_len": 8}
    with pytest.raises(UserError, match="write them with --instances=contiguous"):
        run(tmp_path, **given)
    for description in tmp_path.glob("*.description.json"):
        description.unlink()
    with pytest.raises(UserError, match="are masked, as there is no description that"):
        run(tmp_path, **given)


@pytest.mark.exhaustive
def test_memory_is_carried_over_parts_of_a_batch(tmp_path, untraced, capsys):
    given = GIVEN | contiguous(tmp_path, 4)
    given |= {"num_train_steps": 3, "gradient_accumulation_steps": 2, "mem_len": 8}
    expected = run_twice(tmp_path, capsys, **given)
    assert expected["training/memory"].any(axis=-1).all()


def test_memory_is_for_one_device(tmp_path, pairs, monkeypatch):
    two = types.SimpleNamespace(num_replicas_in_sync=2)
    monkeypatch.setattr("training.run.distribution.make", lambda kind, **_: two)
    given = GIVEN | pairs | {"mem_len": 8, "distribution": "mirrored"}
    with pytest.raises(UserError, match="--mem_len=8: memory is for one device"):
        run(tmp_path, **given)
    assert not (tmp_path / "output").exists()
