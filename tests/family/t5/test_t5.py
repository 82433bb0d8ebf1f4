"""Pre-training a T5 with the scripts, and fine-tuning its encoder alone."""

import dataclasses
import re
import shutil

import numpy as np
import pytest

import build_vocab
import inspect_records
import run_classifier
from training.storage.source import Source
from errors import UserError
from family.t5.span_corruption import SpanCorruption
from family.t5.text_to_text import TextToText
from modeling.objectives.frozen_layers import FrozenLayers
from serving import predictor
from tests import jobs
from tests.family.t5 import runs as text_to_text
from tests.family.t5 import t5
from tests.pretraining import metrics, results, run, run_twice
from tests.records import STATEMENTS, VOCAB_FILE, make_records
from tests.relatives import classifier_files, classifier_flags, write_start

NUM_SENTINELS = 8
PRETRAINING = {
    "config": dataclasses.replace(t5.OF_RECORDS, vocab_size=3008),
    "objective": "span_corruption",
    "optimizer": "adafactor",
    "learning_rate": 0.01,
    "clip_norm": 0.0,
}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Records of a WordPiece vocabulary some of whose tokens are unused."""
    folder = tmp_path_factory.mktemp("records")
    vocabulary = folder / "vocab.txt"
    with open(VOCAB_FILE, encoding="utf-8") as file:
        unused = "".join(f"[unused{number}]\n" for number in range(NUM_SENTINELS))
        vocabulary.write_text(file.read() + unused, encoding="utf-8")
    records = make_records(
        folder,
        vocab_file=str(vocabulary),
        instances="full_sentences",
        masking="dynamic",
        dupe_factor=1,
    )
    return PRETRAINING | {"input_file": [records], "vocab_file": str(vocabulary)}


@pytest.mark.exhaustive
def test_a_killed_pre_training_ends_alike(given, tmp_path, untraced, capsys):
    given = given | {
        "config": dataclasses.replace(given["config"], hidden_size=128),
        "gradient_accumulation_steps": 2,
        "num_train_steps": 4,
        "save_checkpoints_steps": 2,
    }
    expected = run_twice(tmp_path, capsys, **given)
    assert {n.partition("_slot_")[2] for n in expected} == {"", "v", "vr", "vc"}
    assert {name.partition("/")[0] for name in expected} == {
        *("shared", "encoder", "decoder", "global_step", "training")
    }
    run(tmp_path / "whole", **given, do_train=False, do_eval=True)
    found = results(tmp_path / "whole")
    loss = float(found["target_loss"])
    assert found["loss"] == found["target_loss"] and 0 < loss < 40
    assert float(found["perplexity"]) == pytest.approx(np.exp(loss), rel=1e-3)
    assert "z_loss" not in found and 0 <= float(found["target_accuracy"]) <= 1
    assert metrics(tmp_path / "whole")[0]["z_loss"] > 0
    # The same command in another way is another run.
    for change, message in (
        ({"noise_density": 0.1}, "noise_density was 0.15 and is now 0.1"),
        ({"mean_noise_span_length": 8.0}, "mean_noise_span_length was 3.0 and is now"),
    ):
        with pytest.raises(UserError, match=message):
            run(tmp_path / "whole", **given, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_file": VOCAB_FILE}, "was made with a different vocabulary than"),
        (
            {"noise_density": 0.5, "mean_noise_span_length": 1.0},
            "rows of 64 tokens lose up to 31 spans, .* has only 8 tokens",
        ),
        ({"noise_density": 1.0}, "--noise_density=1.0: must be above 0 and below 1"),
        ({"mean_noise_span_length": 0.5}, "span_length=0.5: must be at least 1"),
        (
            {"objective": "masked_lm"},
            "'t5', a decoder predicts tokens; use --objective=span_corruption",
        ),
        ({"objective": "masked_lm", "noise_density": 0.5}, "it is for --objective=spa"),
        (
            {"config": dataclasses.replace(PRETRAINING["config"], eos_token_id=1)},
            'end with token 3, but eos_token_id is 1 .* set "eos_token_id": 3',
        ),
        (
            {"config": dataclasses.replace(PRETRAINING["config"], pad_token_id=9)},
            'padding is 0, but pad_token_id is 9 .* set "pad_token_id": 0',
        ),
        ({"do_export": True}, "cannot be written in one, as <extra_id"),
        ({"weight_decay": 0.1}, "--optimizer=adafactor does not have it"),
    ],
)
def test_what_it_cannot_learn_from_is_refused(given, tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        run(tmp_path, **given | change)
    assert not (tmp_path / "output").exists()


def test_a_vocabulary_that_is_gone_must_be_named(given, tmp_path):
    """As long as it is where the records were made, it need not be."""
    vocabulary = tmp_path / "vocab.txt"
    shutil.copy(given["vocab_file"], vocabulary)
    records = make_records(
        tmp_path,
        vocab_file=str(vocabulary),
        instances="full_sentences",
        masking="dynamic",
        dupe_factor=1,
    )
    vocabulary.unlink()
    changes = {"input_file": [records], "vocab_file": None}
    with pytest.raises(UserError, match="span_corruption needs --vocab_file"):
        run(tmp_path, **given | changes)


def test_without_unused_tokens_rows_behind_the_vocabulary_stand_for_spans(
    tmp_path, monkeypatch
):
    records = make_records(
        tmp_path, instances="full_sentences", masking="dynamic", dupe_factor=1
    )
    given = PRETRAINING | {"input_file": [records], "vocab_file": VOCAB_FILE}
    with open(VOCAB_FILE, encoding="utf-8") as file:
        size = sum(1 for _ in file)

    def made(objective, *_, tokens=None, width=0, **settings):
        if tokens:
            raise ValueError(f"{tokens.sentinels} and {tokens.end_id}, {width}")

    monkeypatch.setattr(SpanCorruption, "__init__", made)
    for more, message in (
        (0, "nused.* or raise vocab_size in the config by 100"),
        (3, rf"\({size + 2}, {size + 1}, {size}\) and 3, 64"),
    ):
        config = dataclasses.replace(given["config"], vocab_size=size + more)
        with pytest.raises(UserError, match=message):
            run(tmp_path, **given | {"config": config})


def test_masked_records_are_refused(given, tmp_path):
    given = {k: v for k, v in given.items() if k != "input_file"}
    with pytest.raises(UserError, match="are masked, .* write the records with --mask"):
        run(tmp_path, **given)


def test_another_network_is_refused(given, tmp_path):
    given = {k: v for k, v in given.items() if k != "config"}
    with pytest.raises(UserError, match='writes text; set "architecture": "t5"'):
        run(tmp_path, **given)


def _of_its_own_vocabulary(tmp_path, capsys):
    """Flags of a run of two updates: rows begin with text, and lose only what is text."""
    (tmp_path / "text.txt").write_text(STATEMENTS)
    vocabulary = str(tmp_path / "spiece.model")
    jobs.run(
        build_vocab,
        {
            "input_file": [str(tmp_path / "text.txt")],
            "output_file": vocabulary,
            "special_tokens": "t5",
            "vocab_size": 150,
            "heldout_share": 0.0,
        },
    )
    records = make_records(
        tmp_path,
        vocab_file=vocabulary,
        instances="full_sentences",
        masking="dynamic",
        dupe_factor=1,
    )
    inspected = inspect_records.Options(input_file=[records], vocab_file=vocabulary)
    assert inspect_records.main(inspected) == 0
    assert "no problems found" in capsys.readouterr().out
    config = dataclasses.replace(PRETRAINING["config"], vocab_size=256, eos_token_id=1)
    return PRETRAINING | {
        "config": config,
        "input_file": [records],
        "vocab_file": vocabulary,
        "num_train_steps": 2,
    }


@pytest.mark.exhaustive
def test_a_vocabulary_without_cls_is_tried_and_exported(tmp_path, untraced, capsys):
    given = _of_its_own_vocabulary(tmp_path, capsys)
    run(tmp_path, **given, dry_run=True)
    assert "weights; a checkpoint takes" in capsys.readouterr().out
    run(tmp_path, **given, do_export=True)
    model = predictor.Predictor(str(tmp_path / "output"))
    (answer,) = model.predict([{"text": "One <extra_id_0> two."}])
    assert isinstance(answer["predicted"], str)


def test_a_vocabulary_without_cls_from_records_to_a_writer(tmp_path, untraced, capsys):
    """Of a network that has learned to write, fine-tuning leaves nothing at random."""
    given, folder = _of_its_own_vocabulary(tmp_path, capsys), tmp_path
    run(folder, **given)
    vocabulary = given["vocab_file"]
    before = jobs.weights(folder)
    text_to_text.write_table(folder / "train.tsv", [("one of it", "so")] * 8)
    capsys.readouterr()
    text_to_text.run(
        folder,
        do_train=True,
        vocab_file=vocabulary,
        init_checkpoint=str(folder / "output"),
        output_dir=str(folder / "writer"),
    )
    said = capsys.readouterr().out
    assert re.search(r": (\d+) of \1 variables matched", said)
    after = jobs.weights(folder, "writer")
    shared = [n for n in before.keys() & after.keys() if n != "global_step"]
    assert {n.partition("/")[0] for n in shared} >= {"shared", "encoder", "decoder"}
    assert any(np.any(after[name] != before[name]) for name in shared)
    for name in shared:  # after one step
        np.testing.assert_allclose(after[name], before[name], atol=0.02, err_msg=name)


@pytest.mark.exhaustive
def test_the_encoder_alone_is_fine_tuned_and_exported(tmp_path, untraced):
    classifier_files(tmp_path)
    config = dataclasses.replace(t5.SMALL, eos_token_id=3)
    start, _ = write_start(tmp_path, config)
    given = classifier_flags(
        tmp_path,
        optimizer="adafactor_constant",
        layerwise_lr_decay=0.9,
        num_train_epochs=[1.0],
        **start,
    )
    jobs.run(
        run_classifier, given | {"do_train": True, "do_eval": True, "do_export": True}
    )
    found = Source.open(str(tmp_path / "output")).read()
    assert "output_weights_slot_v" in found
    assert not any(name.startswith("decoder/") for name in found)
    (answer,) = predictor.Predictor(str(tmp_path / "output" / "export")).predict(
        [{"text_a": "a b", "text_b": "b"}]
    )
    assert sum(answer["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)


def test_the_lower_half_of_a_t5_is_frozen():
    objective = FrozenLayers(TextToText(), 1)
    objective.check(text_to_text.TINY)
    paths = [v.path for v in objective.network(text_to_text.TINY).trainable_variables]
    for kept in ("shared/embedding", "encoder/block_000"):
        assert not any(kept in path for path in paths)
    for trained in ("encoder/block_001", "decoder/block_000"):
        assert any(trained in path for path in paths)
