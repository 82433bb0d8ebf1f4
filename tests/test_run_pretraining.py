"""run_pretraining.py as a user meets it: flags, files, refusals, exports."""

import dataclasses
import json
import os
import signal

import numpy as np
import pytest

import run_pretraining
import tests
from training.backend import tf
from training.run import loop
from training.storage.folder import FOUND, Folder
from training.storage.source import Source
from errors import UserError
from modeling.architectures.bert import BertConfig
from tests import jobs, tiers
from tests.pretraining import RECORDS, ROOT, TINY, flags, metrics, results, run
from text.records import framing

GOLDEN = os.path.join(ROOT, "tests", "golden", "checkpoint")

LEFT = [
    FOUND,
    "bert_config.json",
    "checkpoint",
    "curves.png",
    "eval",
    "eval_results.txt",
    "metrics.jsonl",
    "model.ckpt-4.data-00000-of-00001",
    "model.ckpt-4.index",
    "model.ckpt-6.data-00000-of-00001",
    "model.ckpt-6.index",
    "run.json",
]
RESULTS = [
    "global_step",
    "loss",
    "masked_lm_accuracy",
    "masked_lm_loss",
    "next_sentence_accuracy",
    "next_sentence_loss",
]


def test_run_leaves_what_the_release_left(tmp_path, capsys, untraced):
    run(
        tmp_path,
        do_eval=True,
        eval_input_file=[RECORDS],
        eval_every_steps=4,
        eval_batch_size=100,
        log_every_steps=2,
    )
    output = tmp_path / "output"
    assert [
        p.name for p in sorted(output.iterdir()) if "tfevents" not in p.name
    ] == LEFT
    found = results(tmp_path)
    assert list(found) == RESULTS
    assert found["global_step"] == "6"
    parts = float(found["masked_lm_loss"]) + float(found["next_sentence_loss"])
    assert float(found["loss"]) == pytest.approx(parts, rel=1e-5)
    rows = metrics(tmp_path)
    assert [(row["step"], row["kind"]) for row in rows] == [
        (2, "train"),
        (4, "train"),
        (4, "eval"),
        (6, "train"),
        (6, "eval"),
    ]
    assert rows[-1]["loss"] == pytest.approx(float(found["loss"]))
    saved = Source.open(str(output / "model.ckpt-6")).read()
    assert saved["global_step"] == 6
    assert saved["cls/seq_relationship/output_weights/adam_v"].shape == (2, 8)
    assert BertConfig.from_json_file(str(output / "bert_config.json")) == TINY

    # The same command again has nothing to do, and says so. What a run did not come to,
    # because it was killed behind its last checkpoint, is made up for.
    curves = (output / "curves.png").read_bytes()
    (output / "curves.png").unlink()
    capsys.readouterr()
    run(tmp_path)
    assert "already finished: 6 updates done" in capsys.readouterr().out
    assert (output / "curves.png").read_bytes() == curves
    # Evaluation alone; a flag of the training does not matter to it.
    run(tmp_path, do_train=False, do_eval=True, max_eval_steps=2, train_batch_size=7)
    assert results(tmp_path)["global_step"] == "6"
    with pytest.raises(UserError, match="seed was 12345 and is now 7"):
        run(tmp_path, seed=7)
    # The second phase starts from these weights, at step 0 and without slots.
    (tmp_path / "second").mkdir()
    run(
        tmp_path / "second",
        init_checkpoint=str(output),
        do_train=False,
        do_eval=True,
        eval_batch_size=100,
    )
    second = results(tmp_path / "second")
    assert second == found | {"global_step": "0"}


def test_released_checkpoint_is_evaluated(tmp_path, capsys, untraced):
    config = BertConfig.from_json_file(os.path.join(GOLDEN, "bert_config.json"))
    # The eight records whose losses in the release are known.
    first_eight = [
        data for _, data in zip(range(8), framing.read(RECORDS), strict=False)
    ]
    (tmp_path / "eight").write_bytes(framing.frame(first_eight))
    run(
        tmp_path,
        config=config,
        input_file=[str(tmp_path / "eight")],
        do_train=False,
        do_eval=True,
        init_checkpoint=os.path.join(GOLDEN, "bert_model.ckpt"),
    )
    assert "62 of 62 variables matched" in capsys.readouterr().out
    with np.load(os.path.join(GOLDEN, "model_outputs.npz")) as file:
        expected = dict(file)
    for name in ("masked_lm_loss", "next_sentence_loss"):
        assert float(results(tmp_path)[name]) == pytest.approx(
            float(expected[name]), abs=1e-5
        )


# --- Refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"do_train": False}, "nothing to do"),
        ({"train_batch_size": 0}, "--train_batch_size=0: must be from 1"),
        ({"seed": -1}, "--seed=-1: must be at least 0"),
        ({"learning_rate": float("nan")}, "--learning_rate=nan: must be a finite"),
        ({"eval_every_steps": 5}, "--eval_every_steps needs --eval_input_file"),
        ({"use_tpu": True, "tpu_name": "t"}, "cannot read or write local files"),
        (
            {"distribution": "tpu", "tpu_name": "t", "input_file": ["gs://a"]},
            "output: the TPU 't' runs on other machines",
        ),
    ],
)
def test_flags_that_make_no_sense_are_refused(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        run_pretraining.Options(**flags(tmp_path, **changes))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"max_seq_length": 65}, "--max_seq_length=65 is more than max_position"),
        ({"max_seq_length": 32}, "record 1 has 64 values of input_ids, not 32"),
        ({"max_predictions_per_seq": 9}, "10 values of masked_lm_positions,"),
        ({"config": dataclasses.replace(TINY, vocab_size=50)}, "in input_ids; whole"),
        (
            {"config": dataclasses.replace(TINY, type_vocab_size=1)},
            "has 1 in segment_ids; whole numbers from 0 to 0",
        ),
        ({"gradient_accumulation_steps": 3}, "8 is not divisible by 1 replicas x 3"),
        ({"distribution": "multi_worker"}, "TF_CONFIG is None"),
        ({"do_train": False, "do_eval": True}, "contains no checkpoint to evaluate"),
        ({"input_file": ["nowhere*"]}, "nowhere\\*: no file matches"),
    ],
)
def test_records_and_config_that_contradict_are_refused(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        run(tmp_path, **changes)


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"max_seq_length": 128},
            "max_seq_length=128, not 64; pass --max_seq_length=128",
        ),
        ({"max_predictions_per_seq": 20}, "max_predictions_per_seq=20, not 10"),
        ({"vocab_size": 3001}, "vocabulary of 3001 tokens, more than vocab_size=3000"),
        ({"vocab_sha256": "other"}, "records of 2 different vocabularies"),
        ({"max_seq_length": None, "vocab_size": 9999}, "vocabulary of 9999 tokens"),
    ],
)
def test_description_that_contradicts_is_refused(tmp_path, changes, message):
    files = []
    for name, more in (("a", {}), ("b", changes)):
        files.append(tmp_path / name)
        files[-1].symlink_to(RECORDS)
        description = {
            "outputs": [{"file": name, "instances": 838}],
            "max_seq_length": 64,
            "max_predictions_per_seq": 10,
            "vocab_size": 2941,
            "vocab_sha256": "one",
        }
        described = tmp_path / f"{name}.description.json"
        merged = {k: v for k, v in (description | more).items() if v is not None}
        described.write_text(json.dumps(merged))
    with pytest.raises(UserError, match=message):
        run(tmp_path, input_file=[str(file) for file in files])


@pytest.mark.exhaustive
def test_a_run_goes_on_with_the_records_it_began_with_alone(tmp_path, capsys, untraced):
    golden = list(framing.read(RECORDS))
    output = tmp_path / "output"

    def train(examples=golden, folder=tmp_path, **changes):
        """From the checkpoint of step 4 on."""
        for file in output.glob("model.ckpt-6*"):
            file.unlink()
        (folder / "a").write_bytes(framing.frame(examples))
        run(tmp_path, input_file=[str(folder / "a")], **changes)
        return capsys.readouterr().out

    train()
    # Wherever they lie, and whatever is beside them.
    (tmp_path / "moved").mkdir()
    description = {"outputs": [{"file": "a", "instances": 838}]}
    (tmp_path / "moved" / "a.description.json").write_text(json.dumps(description))
    assert "continuing from step 4" in train(folder=tmp_path / "moved")
    others = [golden[1], golden[0], *golden[2:]]
    longer = [*golden[:-1], golden[-1] + golden[-1]]
    for changed in (others, longer):
        with pytest.raises(UserError, match="other settings: input_file has changed"):
            train(changed)


def broken_record(tmp_path, **features):
    """The golden records with one more, as their 839th, that has other features."""
    golden = list(framing.read(RECORDS))
    example = tf.train.Example.FromString(golden[0])
    for name, values in features.items():
        feature = example.features.feature[name]
        kind = "float_list" if name == "masked_lm_weights" else "int64_list"
        getattr(feature, kind).value[:] = values
    path = tmp_path / "records"
    path.write_bytes(framing.frame([*golden, example.SerializeToString()]))
    return str(path)


# An epoch of few updates.
BIG = {"train_batch_size": 300, "num_train_steps": 3}


def test_bad_record_met_while_training_is_named(tmp_path, untraced):
    path = broken_record(tmp_path, input_ids=[1, 2, 3])
    with pytest.raises(UserError, match="record 839 has 3 values of input_ids, not 64"):
        run(tmp_path, input_file=[path], **BIG)
    path = broken_record(tmp_path, input_ids=[3000] * 64)
    other = str(tmp_path / "other")
    with pytest.raises(UserError, match="record 839 has 3000 in input_ids"):
        run(tmp_path, input_file=[path], output_dir=other, **BIG)


@pytest.mark.parametrize(
    "changes",
    tiers.cases(
        [{"do_train": False}, {"eval_every_steps": 2}], [{"eval_every_steps": 2}]
    ),
)
def test_bad_record_met_while_evaluating_is_named(tmp_path, changes, capsys, untraced):
    path = broken_record(tmp_path, segment_ids=[2] * 64)
    changes = {"do_eval": True, "eval_input_file": [path]} | changes
    golden = {"config": BertConfig.from_json_file(f"{GOLDEN}/bert_config.json")}
    if not changes.get("do_train", True):
        changes |= {"init_checkpoint": f"{GOLDEN}/bert_model.ckpt"} | golden
    with pytest.raises(UserError, match="records: record 839 has 2 in segment_ids"):
        run(tmp_path, eval_batch_size=100, **changes)
    assert "searching 839 records for it" in capsys.readouterr().err


def test_weights_are_not_used_as_those_of_another_network(tmp_path):
    golden = BertConfig.from_json_file(os.path.join(GOLDEN, "bert_config.json"))
    for name, value in (
        ("hidden_act", "relu"),
        ("attention_direction", "left_to_right"),
        ("num_hidden_layers", 1),
    ):
        changes = {
            "config": dataclasses.replace(golden, **{name: value}),
            "init_checkpoint": f"{GOLDEN}/bert_model.ckpt",
        }
        with pytest.raises(
            UserError, match=f"{name} is {value!r}, but .*change_network"
        ):
            run(tmp_path, **changes)
        with pytest.raises(UserError, match="nowhere"):  # the next thing to be wrong
            run(tmp_path, change_network=True, input_file=["nowhere"], **changes)


def test_without_its_settings_a_run_still_does_not_change_its_network(
    tmp_path, untraced
):
    run(tmp_path, num_train_steps=2)
    (tmp_path / "output" / "run.json").unlink()
    other = dataclasses.replace(TINY, num_attention_heads=1)
    with pytest.raises(UserError, match="num_attention_heads is 1, but 2 in .*output"):
        run(tmp_path, config=other, num_train_steps=2)


@pytest.mark.parametrize("output_dir", ["config.json", "/proc/zz"])
def test_output_dir_that_cannot_be_made_is_named(tmp_path, output_dir):
    path = str(tmp_path / output_dir)
    with pytest.raises(UserError, match=f"{path}: cannot be read or written"):
        run(tmp_path, output_dir=path)


@pytest.mark.exhaustive
def test_ids_out_of_range_do_not_train_under_xla(tmp_path):
    path = broken_record(tmp_path, masked_lm_ids=[2**32] * 10)
    with pytest.raises(UserError, match="record 839 has 4294967296 in masked_lm_ids"):
        run(tmp_path, input_file=[path], xla=True, train_batch_size=839)


def test_batch_that_is_not_finite_is_saved_with_its_places(tmp_path, untraced):
    path = broken_record(tmp_path, masked_lm_weights=[float("nan")] * 10)
    with pytest.raises(UserError) as error:
        run(tmp_path, input_file=[path], max_skipped_updates=1, **BIG)
    with np.load(tmp_path / "output" / "skipped_batch.npz") as file:
        saved = dict(file)
    (bad,) = np.flatnonzero(saved["record_number"] == 839)
    assert np.isnan(saved["masked_lm_weights"][bad]).all()
    assert set(saved["record_file"]) == {path}
    assert saved["input_ids"].shape == (300, 64)
    assert "not finite in 1 consecutive update," in str(error.value)
    assert f"{path}: record {saved['record_number'][0]}" in str(error.value)


# --- The export ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_file": None}, "--do_export needs the --vocab_file"),
        ({"input_file": []}, "--do_train and --do_eval need --input_file"),
        ({"do_train": False, "input_file": []}, "contains no checkpoint to evaluate"),
        ({}, "made with a different vocabulary than .*; pass the vocab"),
        ({"do_lower_case": False}, "made with a different vocabulary than"),
        ({"config": dataclasses.replace(TINY, vocab_size=50)}, "more than vocab_size="),
    ],
)
def test_what_cannot_be_exported_is_refused_at_the_start(tmp_path, changes, message):
    (tmp_path / "a").symlink_to(RECORDS)
    description = {
        "outputs": [{"file": "a", "instances": 838}],
        "vocab_sha256": "other",
        "do_lower_case": True,
    }
    (tmp_path / "a.description.json").write_text(json.dumps(description))
    given = {"input_file": [str(tmp_path / "a")], "do_export": True}
    vocabulary = tests.GOLDEN / "checkpoint" / "vocab.txt"
    given["vocab_file"] = str(vocabulary)
    with pytest.raises(UserError, match=message):
        run(tmp_path, **given | changes)
    assert not list(tmp_path.glob("output/model.ckpt*"))


def test_an_export_without_records_does_not_say_that_it_reads_any(tmp_path, capsys):
    given = {"do_train": False, "do_export": True, "input_file": []}
    given["vocab_file"] = str(tests.GOLDEN / "checkpoint" / "vocab.txt")
    with pytest.raises(UserError, match="contains no checkpoint"):
        run(tmp_path, **given)
    assert "reading" not in capsys.readouterr().out


def test_what_a_terminated_run_has_learned_is_not_lost(
    tmp_path, capsys, monkeypatch, untraced
):
    """A machine gets SIGTERM before it is taken away."""
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    run(tmp_path / "whole")
    update, before = loop.Trainer.run_updates, signal.getsignal(signal.SIGTERM)

    def terminated(self, batches, count):
        if self.progress.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, batches, count)

    monkeypatch.setattr(loop.Trainer, "run_updates", terminated)
    unsaved = {"save_checkpoints_steps": 1000, "log_every_steps": 1}
    with pytest.raises(SystemExit) as ended:
        run(tmp_path / "killed", **unsaved)
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before
    said = capsys.readouterr().out
    (step,) = Folder.open(str(tmp_path / "killed" / "output")).steps
    assert 2 < step < 6 and f"model.ckpt-{step}\n" in said
    assert "terminated; the same command continues the run" in said
    monkeypatch.undo()
    run(tmp_path / "killed", **unsaved)
    assert f"continuing from step {step}" in capsys.readouterr().out
    expected = jobs.weights(tmp_path / "whole")
    jobs.check_same_bits(jobs.weights(tmp_path / "killed"), expected)
