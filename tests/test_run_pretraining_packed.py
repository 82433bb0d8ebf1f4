"""Pre-training on packed documents: resumed, evaluated, exported; refused where it must."""

import dataclasses
import re
import shutil

import numpy as np
import pytest

import fill_mask
import run_pretraining
from training.storage import checkpoint
from errors import UserError
from modeling import block_attention
from tests import jobs, pretraining
from tests.records import VOCAB_FILE, make_records
from tests.relatives import CONFIGS


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    given = {"instances": "packed", "dupe_factor": 1, "do_whole_word_mask": True}
    return make_records(folder, masking="dynamic", **given)


@pytest.fixture(scope="module")
def static_records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("static")
    given = {"instances": "packed", "do_whole_word_mask": True, "max_seq_length": 64}
    return make_records(folder, **given)


@pytest.mark.exhaustive
def test_a_killed_run_ends_with_the_same_bits(
    tmp_path, capsys, untraced, records, monkeypatch
):
    """With dropout, in blocks, whole words that are masked in training."""
    monkeypatch.setattr(block_attention, "_LONGEST_SQUARE", 32)
    monkeypatch.setattr(block_attention, "_WIDEST", 16)
    given = {
        "input_file": [records],
        "objective": "masked_lm",
        "vocab_file": VOCAB_FILE,
    }
    pretraining.run_twice(tmp_path, capsys, save_checkpoints_steps=2, **given)


@pytest.mark.exhaustive
def test_what_is_trained_is_evaluated_exported_and_fills_masks(
    tmp_path, capsys, untraced, static_records
):
    pretraining.run(
        tmp_path,
        input_file=[static_records],
        objective="masked_lm",
        vocab_file=VOCAB_FILE,
        do_eval=True,
        eval_batch_size=100,
        do_export=True,
        num_train_steps=2,
    )
    assert float(pretraining.results(tmp_path)["masked_lm_loss"]) > 0
    assert list((tmp_path / "output" / "export").rglob("saved_model.pb"))
    capsys.readouterr()
    options = fill_mask.Options(
        init_checkpoint=str(tmp_path / "output"), text="the [MASK] is here", top_k=2
    )
    fill_mask.main(options)
    assert "[MASK]: " in capsys.readouterr().out


@pytest.mark.exhaustive
@pytest.mark.skipif("electra" not in CONFIGS, reason="family/electra is not there")
def test_replaced_tokens_are_found_in_packed_rows(tmp_path, untraced, records):
    config = dataclasses.replace(CONFIGS["electra"], vocab_size=3000)
    pretraining.run(
        tmp_path,
        config=config,
        input_file=[records],
        objective="replaced_tokens",
        generator_hidden_size=0.5,
        num_train_steps=2,
        do_eval=True,
        eval_batch_size=100,
    )
    assert float(pretraining.results(tmp_path)["disc_loss"]) > 0


def refusal(folder, monkeypatch, **changes):
    def strategy(flags):
        raise AssertionError("devices were taken")

    monkeypatch.setattr(run_pretraining.Options, "strategy", strategy)
    with pytest.raises(UserError) as caught:
        jobs.run(run_pretraining, pretraining.flags(folder, **changes))
    [line] = str(caught.value).splitlines()
    return line


UNABLE = [k for k, c in CONFIGS.items() if "documents" not in c.capabilities]
OBJECTIVES = {
    "t5": "span_corruption",
    "xlnet": "permuted",
    "elmo": "bidirectional_lm",
}


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name in UNABLE])
def test_an_encoder_that_sees_the_whole_row_refuses(
    tmp_path, monkeypatch, records, name
):
    changes = {"config": CONFIGS[name], "objective": OBJECTIVES[name]}
    line = refusal(tmp_path, monkeypatch, input_file=[records], **changes)
    reason = (
        f"with the architecture '{name}', tokens see all documents of a row, "
        ".*--instances=packed; use records of another kind, or an architecture of .*bert"
    )
    assert re.search(f"config.json: {reason}", line)
    # Nor can it teach one that does not.
    shutil.copy(tmp_path / "config.json", tmp_path / "bert_config.json")
    checkpoint.write_bundle(str(tmp_path / "model.ckpt"), {"a": np.zeros(1)})
    changes = {"objective": "masked_lm", "distill_from": str(tmp_path / "model.ckpt")}
    line = refusal(tmp_path, monkeypatch, input_file=[records], **changes)
    assert re.search(f"^--distill_from=.*model.ckpt: {reason}", line)


def test_losses_of_whole_rows_are_refused(tmp_path, monkeypatch, records):
    flags = {"distill_from": str(tmp_path), "distill_cls_weight": 1.0}
    given = {"input_file": [records], "objective": "masked_lm", **flags}
    line = refusal(tmp_path, monkeypatch, **given)
    assert line.startswith("--distill_cls_weight=1.0: compares whole rows")


def test_packed_rows_without_their_description_are_refused(tmp_path, static_records):
    """Else tokens would see other documents."""
    first = static_records.replace("*", "00000-of-00002")
    alone = shutil.copy(first, tmp_path / "alone.tfrecord")
    with pytest.raises(UserError, match="have position_ids, but no description"):
        pretraining.run(tmp_path, input_file=[str(alone)], objective="masked_lm")


def test_a_window_larger_than_the_row_sees_its_documents(tmp_path, untraced, records):
    config = CONFIGS.get("modern_bert")
    if not config:
        pytest.skip("family/modern_bert is not there")
    config = dataclasses.replace(config, vocab_size=3000, local_attention=1000)
    given = {"config": config, "objective": "masked_lm", "num_train_steps": 1}
    pretraining.run(tmp_path, input_file=[records], **given)
