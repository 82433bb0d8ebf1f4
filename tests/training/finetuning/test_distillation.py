"""A classifier's students: their teachers, kept answers, resumed runs, what they leave."""

import dataclasses
import json
import pathlib
import shutil
import sys

import numpy as np
import pytest

import tests
from training.storage import exported
from training.storage.folder import Folder
from training.storage.source import Source
from errors import UserError
from tests import conversion, distillation, forked, jobs, samples, tiers
from tests.distillation import TRAINED
from training.finetuning import teacher

# Losses of all kinds, for which the teacher is asked about every batch.
EVERY_LOSS = {
    "hard_weight": 0.5,
    "distill_loss": "kl",
    "distill_temperature": 2.0,
    "distill_hidden_weight": 1.0,
    "distill_attention_weight": 1.0,
}
ONE_UPDATE = {"num_train_epochs": [0.4]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A classifier's files and its teacher."""
    made = distillation.write("single", tmp_path_factory.mktemp("single"))
    with jobs.untraced():
        distillation.teach(made)
    return made


pytestmark = pytest.mark.usefixtures("untraced")


def check_same(weights, expected, **tolerance):
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        if tolerance:
            np.testing.assert_allclose(weights[name], value, err_msg=name, **tolerance)
        else:
            assert np.array_equal(weights[name], value), name


# --- The teacher ---------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_teacher_of_any_form_gives_the_same_student(files):
    expected = files.run("of_folder")
    jobs.run(files.kind.script, files.flags | {"do_export": True})
    hugging_face = str(files.folder / "hugging_face")
    conversion.convert(files.teacher, hugging_face, layout="hugging_face")
    for name, path in {
        "of_prefix": f"{files.teacher}/model.ckpt-3",
        "of_export": f"{files.teacher}/export",
        "of_hugging_face": hugging_face,
    }.items():
        check_same(files.run(name, distill_from=path), expected)


def test_a_live_teacher_gives_nearly_the_same_student(files):
    """Its batches are padded otherwise than those in which it is asked once."""
    kept, live = files.run("kept"), files.run("live", distill_live=True)
    check_same(live, kept, atol=1e-6)


def asked(files, capsys, **changes):
    """Whether a run that starts over asks the teacher about the training set."""
    Folder.open(str(files.folder / "asking")).drop_all()
    capsys.readouterr()
    files.run("asking", **ONE_UPDATE | changes)
    return "asking the teacher about train" in capsys.readouterr().out


def of_another_teacher(files):
    second = str(files.folder / "second")
    distillation.teach(files, output_dir=second, seed=2, **ONE_UPDATE)
    return {"distill_from": second}


CHANGES = {
    "text": lambda files: {"train_file": "dev.jsonl"},
    "length": lambda files: {"max_seq_length": 24},
    "teacher": of_another_teacher,
    "tokenizer": lambda files: {"do_lower_case": False},
}


@pytest.mark.parametrize(
    "names", tiers.cases(["teacher", "text length tokenizer"], ["teacher"])
)
def test_the_teacher_is_asked_once_and_again_if_anything_changes(files, capsys, names):
    """One thing after the other."""
    assert asked(files, capsys)
    assert not asked(files, capsys)
    changes = {}
    for name in names.split():
        changes |= CHANGES[name](files)
        assert asked(files, capsys, **changes), name
    assert not asked(files, capsys, **changes)


SPOILED = {
    # As a killed run leaves an older note.
    "cut": lambda kept: kept.write_bytes(kept.read_bytes()[:-1]),
    "gone": lambda kept: kept.unlink(),
    "note": lambda kept: pathlib.Path(f"{kept}.json").write_text("{"),
}


@pytest.mark.parametrize("damage", tiers.cases(SPOILED, ["cut"]))
def test_damaged_answers_are_asked_again(files, capsys, damage):
    kept = files.folder / "asking" / "teacher" / "answers.tf_record"
    asked(files, capsys)
    content = kept.read_bytes()
    SPOILED[damage](kept)
    assert asked(files, capsys)
    assert kept.read_bytes() == content
    assert not asked(files, capsys)


def test_a_teacher_decides_on_text_and_network_and_the_student_on_rows(files):
    noted = {"do_lower_case": False, "lstm_layers": 1, "max_seq_length": 8}
    given = files.kind.script.Options(**files.given(lstm_layers=2))
    asked = teacher._teacher_flags(
        given, noted | {"labels": ["x"], "train_file": "other"}
    )
    assert (asked.do_lower_case, asked.lstm_layers) == (False, 1)
    assert asked.max_seq_length == given.max_seq_length
    assert (asked.labels, asked.train_file) == (given.labels, given.train_file)


def test_a_student_may_be_evaluated_and_exported_with_explanations(files):
    kinds = dict.fromkeys(("do_train", "do_eval", "do_export"), True)
    explained = files.given(**kinds, export_attributions=True)
    for given in (explained, files.given(**kinds, export_precision="int8")):
        asked = teacher._teacher_flags(files.kind.script.Options(**given), {})
        assert (asked.do_eval, asked.do_export) == (True, False)


def test_a_teacher_that_reads_another_vocabulary_is_another_teacher(files):
    """Also if nothing next to its weights notes which one it was trained with."""
    bare = files.folder / "bare"
    bare.mkdir()
    source = pathlib.Path(files.teacher)
    for path in (*source.glob("model.ckpt-*"), source / "bert_config.json"):
        shutil.copy(path, bare)
    tokens = (source / "vocab.txt").read_text().split()
    (bare / "vocab.txt").write_text("\n".join(tokens) + "\n")
    given = {"distill_from": Source.open(files.teacher).prefix}
    given["distill_from"] = given["distill_from"].replace(str(source), str(bare))
    files.run("bare_student", **given, **ONE_UPDATE)
    (bare / "vocab.txt").write_text(
        "\n".join([*tokens[:5], *reversed(tokens[5:])]) + "\n"
    )
    with pytest.raises(UserError, match="teacher has changed"):
        files.run("bare_student", **given, **ONE_UPDATE)


# --- Training ------------------------------------------------------------------------


def test_a_killed_student_ends_with_the_same_bits(files):
    given = EVERY_LOSS | {"save_checkpoints_steps": 1}
    expected = files.run("straight", **given)
    with jobs.dying(1):
        files.run("killed", **given)
    check_same(files.run("killed", **given), expected)
    assert "distillation/projection/kernel" in expected


def without_dropout(files):
    changes = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    files.configure(**changes)
    return {"bert_config_file": str(files.folder / "student.json")}


@pytest.mark.exhaustive
def test_two_replicas_two_hosts_and_accumulation_train_the_same_student(tmp_path):
    """In processes of their own: one may hold a single MirroredStrategy."""
    files = distillation.write("single", tmp_path)
    distillation.teach(files)
    without_dropout(files)
    given = EVERY_LOSS | {"learning_rate": [1e-3], "do_eval": True}
    expected = files.run("one", **given)
    program = str(tests.ROOT / "tests" / "programs" / "on_two_cpus.py")
    both = {"distribution": "mirrored", "gradient_accumulation_steps": 2}
    flags = files.given("replicas", **given, **both)
    line = jobs.command("run_classifier.py", flags)[1:]
    done = forked.finished([sys.executable, program, *line])
    assert done.returncode == 0, done.stderr
    assert "on 2 devices" in done.stdout
    check_same(jobs.weights(tmp_path, "replicas"), expected, atol=1e-5)
    loss, expected = (
        jobs.results(tmp_path, n)["eval_loss"] for n in ("replicas", "one")
    )
    assert loss == pytest.approx(expected, abs=1e-5)
    # Hosts share the answers that the first one keeps.
    expected = files.run("asked")
    flags = files.given("hosts", **TRAINED, distribution="multi_worker")
    line = jobs.command("run_classifier.py", flags)
    for host in forked.hosts_finished({"worker": [line, line]}):
        assert host.returncode == 0, host.stderr
    check_same(jobs.weights(tmp_path, "hosts"), expected, atol=1e-5)
    assert (tmp_path / "hosts" / "teacher" / "answers.tf_record").exists()


@pytest.mark.exhaustive
def test_students_and_teachers_of_other_networks(files):
    """Another architecture, which then teaches, and BiLSTM layers."""
    size = json.loads((files.folder / "config.json").read_text())["vocab_size"]
    for name, config in samples.collect("CONFIGS").items():
        path = files.folder / f"{name}.json"
        changes = {"vocab_size": size}
        changes |= {} if config.pad_token_id is None else {"pad_token_id": 0}
        path.write_text(dataclasses.replace(config, **changes).to_json_string())
        files.run(name, bert_config_file=str(path), **ONE_UPDATE)
        teacher = str(files.folder / name)
        files.run(f"taught_by_{name}", distill_from=teacher, **ONE_UPDATE)
    weights = files.run("lstm", lstm_layers=1, lstm_size=4, **ONE_UPDATE)
    assert any("lstm" in name for name in weights)


# --- What a student leaves -----------------------------------------------------------


@pytest.mark.exhaustive
def test_a_search_of_students_stops_early_and_exports_the_best(files, capsys):
    """With its own projection while it trains, which the export has not."""
    files.run(
        "searched",
        **distillation.WHOLE,
        do_export=True,
        distill_hidden_weight=1.0,
        learning_rate=[1e-3, 1e-2],
        early_stopping_patience=1,
    )
    assert "teacher: dev: " in capsys.readouterr().out
    output = files.folder / "searched"
    unpacked = files.folder / "unpacked"
    exported.unpack(str(output / "export"), Folder.open(str(unpacked)))
    weights, trained = jobs.weights(files.folder, "unpacked"), jobs.weights(output, "")
    check_same(weights, {name: trained[name] for name in weights})
    assert "distillation/projection/kernel" in trained.keys() - weights.keys()
    jobs.check_export(files.folder, "searched")
    # Later, it is a classifier as any other.
    before = jobs.results(files.folder, "searched")
    flags = {"do_train": False, "do_eval": True, "distill_from": None}
    jobs.run(files.kind.script, files.given("searched", **flags))
    after = jobs.results(files.folder, "searched")
    assert after == pytest.approx(before)
    # A damaged export teaches nobody.
    (vocabulary,) = (output / "export" / "text" / "1" / "assets").iterdir()
    vocabulary.write_bytes(vocabulary.read_bytes()[:-2])
    with pytest.raises(
        UserError, match=f"{vocabulary.name}: is damaged or was changed"
    ):
        exported.unpack(str(output / "export"), Folder.open(str(unpacked)))


def test_a_run_goes_on_with_its_own_teacher_and_weights_alone(files):
    files.run("begun", **ONE_UPDATE)
    second = str(files.folder / "another")
    distillation.teach(files, output_dir=second, seed=3, **ONE_UPDATE)
    for changes, message in (
        ({"distill_from": second}, "teacher has changed"),
        ({"distill_weight": 2.0}, "distill_weight was 1.0 and is now 2.0"),
        ({"hard_weight": 0.5}, "hard_weight was 0.0 and is now 0.5"),
        ({"distill_live": True}, "distill_live was False and is now True"),
        ({"distill_from": None}, "teacher has changed"),
    ):
        with pytest.raises(UserError, match=message):
            files.run("begun", **ONE_UPDATE | changes)
    files.run("begun", **ONE_UPDATE)  # the same again
