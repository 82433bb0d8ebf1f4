"""run_pretraining.py with a teacher: what a student learns, resuming, refusals."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest

import run_pretraining
from training.run import loop
from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source
from errors import UserError
from modeling.objectives import masked_lm, tasks
from tests import jobs, samples
from tests.conversion import convert
from tests.pretraining import RECORDS, TINY, flags, metrics, results
from tests.records import VOCAB_FILE, make_records
from training.pretraining.word_teacher import WordTeacher

TEACHER = dataclasses.replace(TINY, num_hidden_layers=2)
CONFIGS = samples.collect("WORD_TEACHERS")
SIZES = {
    "vocab_size": 3000,
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 64,
}
RECIPE = {
    "distill_temperature": 2.0,
    "distill_weight": 5.0,
    "hard_weight": 2.0,
    "distill_cosine_weight": 1.0,
}


def write(folder, network, config=TINY, **noted):
    """The weights of a network as a checkpoint, with its config."""
    folder.mkdir(exist_ok=True)
    weights = {v.path: v.numpy() for v in network.weights}
    checkpoint.save(Folder.open(str(folder)), 0, weights, keep=1)
    (folder / "bert_config.json").write_text(config.to_json_string())
    if noted:
        (folder / "run.json").write_text(json.dumps({"max_seq_length": 64} | noted))
    return str(folder)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """The flags of a student, and a teacher with more layers."""
    folder = tmp_path_factory.mktemp("given")
    network = masked_lm.MaskedLM().network(TEACHER, seed=3)
    teacher = write(folder / "teacher", network, TEACHER)
    shutil.copy(VOCAB_FILE, folder / "teacher" / "vocab.txt")
    return {
        "objective": "masked_lm",
        "input_file": [make_records(folder, masking="dynamic")],
        "distill_from": teacher,
        "num_train_steps": 4,
        "save_checkpoints_steps": 2,
        "log_every_steps": 2,
        **RECIPE,
    }


def run(folder, **given):
    folder.mkdir(exist_ok=True)
    jobs.run(run_pretraining, flags(folder, **given))


def test_a_student_reports_resumes_and_is_told_from_others(
    given, tmp_path, capsys, untraced
):
    whole = given | {"do_eval": True, "max_eval_steps": 2}
    run(tmp_path / "whole", **whole)
    said = capsys.readouterr().out
    assert "the teacher, " in said and "note: " not in said
    for row in metrics(tmp_path / "whole"):
        losses = (row[n] for n in ("distill_loss", "masked_lm_loss", "cosine_loss"))
        total = sum(f * x for f, x in zip((5, 2, 1), losses, strict=True))
        assert row["loss"] == pytest.approx(total, rel=1e-5)
        assert 0 <= row["agreement"] < 0.1 and 0.5 < row["cosine_loss"] < 1.5
    # Evaluations measure the task alone, and do not need the teacher.
    found = results(tmp_path / "whole")
    assert list(found) == [
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WordTeacher, "distill", None)
        run(tmp_path / "whole", **whole | {"do_train": False, "distill_from": "gone"})
    assert results(tmp_path / "whole") == found
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    jobs.forget_after(2, tmp_path / "killed")
    run(tmp_path / "killed", **whole)
    assert "continuing from step 2" in capsys.readouterr().out
    expected = jobs.weights(tmp_path / "whole")
    assert {name.split("/")[0] for name in expected} == {
        "bert",
        "cls",
        "global_step",
        "training",
    }
    for name, value in jobs.weights(tmp_path / "killed").items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    for changes, message in (
        ({"distill_weight": 4.0}, "distill_weight was 5.0 and is now 4.0"),
        ({"distill_tokens": "masked"}, "distill_tokens was 'all' and is now"),
        ({"distill_temperature": 3.0}, "distill_temperature was"),
    ):
        with pytest.raises(UserError, match=message):
            run(tmp_path / "whole", **whole | changes)
    without = {name: x for name, x in whole.items() if name not in RECIPE}
    with pytest.raises(UserError, match="teacher has changed"):
        run(tmp_path / "whole", **without | {"distill_from": None})
    network = masked_lm.MaskedLM().network(TEACHER, seed=4)
    other = write(tmp_path / "other", network, TEACHER)
    with pytest.raises(UserError, match="teacher has changed"):
        run(tmp_path / "whole", **whole | {"distill_from": other})


def test_a_run_that_noted_no_teacher_had_none(tmp_path, untraced):
    run(tmp_path, num_train_steps=2)
    path = tmp_path / "output" / "run.json"
    noted = json.loads(path.read_text())
    earlier = {
        name: value
        for name, value in noted.items()
        if not name.startswith(("distill", "hard", "teacher"))
    }
    assert len(noted) - len(earlier) == 11
    path.write_text(json.dumps(earlier))
    run(tmp_path, num_train_steps=2)
    network = masked_lm.MaskedLM().network(TINY, seed=3)
    teacher = write(tmp_path / "teacher", network)
    with pytest.raises(UserError, match="hard_weight was 0.0 .*teacher has changed"):
        run(tmp_path, num_train_steps=2, distill_from=teacher, hard_weight=1.0)


@pytest.mark.exhaustive
def test_a_student_learns_what_a_teacher_in_another_layout_expects(
    tmp_path, capsys, untraced
):
    """On records that nothing describes, in bfloat16, wider than the student."""
    wide = dataclasses.replace(TINY, hidden_size=16)
    network = masked_lm.MaskedLM().network(wide, seed=3)
    folder = write(tmp_path / "wide", network, wide)
    convert(folder, tmp_path / "theirs", layout="hugging_face")
    run(
        tmp_path,
        objective="masked_lm",
        distill_from=str(tmp_path / "theirs"),
        distill_hidden_weight=1.0,
        distill_tokens="masked",
        dtype="mixed_bfloat16",
        gradient_accumulation_steps=2,
        num_train_steps=4,
        num_warmup_steps=1,
        learning_rate=2e-2,
        log_every_steps=1,
    )
    assert "note: nothing says which vocabulary the teacher had" in (
        capsys.readouterr().out
    )
    rows = metrics(tmp_path)
    # The words of a random teacher are nearly all equally probable.
    assert all(0 < row["distill_loss"] < 0.1 for row in rows)
    assert rows[-1]["hidden_loss"] < rows[0]["hidden_loss"]
    saved = Source.open(str(tmp_path / "output")).read()
    assert saved["distillation/projection/kernel"].shape == (8, 16)


@pytest.mark.exhaustive
def test_a_trial_says_what_it_does_not_count(given, tmp_path, capsys, untraced):
    run(tmp_path, **given, dry_run=True)
    said = capsys.readouterr().out
    assert "time and memory include the teacher; weights and operations do not" in said
    assert not (tmp_path / "output").exists()


# --- Refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"distill_from": None},
            "--distill_temperature has no effect without --distill_from",
        ),
        (
            {"distill_from": None, "distill_tokens": "masked"} | dict.fromkeys(RECIPE),
            "--distill_tokens has no effect without --distill_from",
        ),
        ({"distill_from": "nowhere"}, "nowhere: no such checkpoint"),
        ({"distill_cosine_weight": -1.0}, "--distill_cosine_weight=-1.0: must be at"),
        (
            {"objective": "masked_lm_next_sentence", "hard_weight": 0.0},
            "have no next_sentence_labels|nothing teaches the head",
        ),
        (
            {
                "distill_attention_weight": 1.0,
                "config": dataclasses.replace(TINY, num_attention_heads=4),
            },
            "the student has 4 attention heads, the teacher 2; they must be equal",
        ),
        (
            {"config": dataclasses.replace(TINY, vocab_size=3001)},
            "vocab_size is 3001, but the teacher's is 3000",
        ),
    ],
)
def test_flags_that_do_not_fit_a_teacher_are_refused(given, tmp_path, changes, message):
    changed = {n: x for n, x in (given | changes).items() if x is not None}
    with pytest.raises(UserError, match=message):
        run(tmp_path, **changed)


def refused(folder, given, teacher, message, **changes):
    with pytest.raises(UserError, match=message):
        run(folder, **given | {"distill_from": teacher} | changes)


def test_teachers_that_do_not_fit_are_refused(given, tmp_path):
    network = masked_lm.MaskedLM().network(TINY)
    folder = write(tmp_path / "teacher", network)
    # Another vocabulary: in the file next to the weights, or noted by the teacher's run.
    tokens = pathlib.Path(VOCAB_FILE).read_text().splitlines()
    other = tmp_path / "teacher" / "vocab.txt"
    other.write_text("\n".join(reversed(tokens)) + "\n")
    vocabulary = "the teacher's vocabulary differs from the records'; write"
    refused(tmp_path, given, folder, f"vocab.txt: {vocabulary}")
    other.unlink()
    noted = tmp_path / "teacher" / "text.json"
    noted.write_text(json.dumps({"vocab_sha256": "f" * 64}))
    refused(tmp_path, given, folder, f"text.json: {vocabulary}")
    content = pathlib.Path(given["distill_from"], "vocab.txt").read_text()
    other.write_text(content)
    noted.write_text("{}")
    refused(tmp_path, given, folder, "also --output_dir; a student", output_dir=folder)
    (tmp_path / "teacher" / "bert_config.json").unlink()
    refused(tmp_path, given, folder, "there is no bert_config.json or config.json")
    headless = tasks.Classification(2).network(TINY)
    folder = write(tmp_path / "headless", headless)
    refused(tmp_path, given, folder, "has no masked-LM head .*; pass the output_dir of")
    short = dataclasses.replace(TINY, max_position_embeddings=32)
    folder = write(tmp_path / "short", masked_lm.MaskedLM().network(short), short)
    refused(tmp_path, given, folder, "max_position_embeddings=32 of the teacher")
    one = dataclasses.replace(TINY, type_vocab_size=1)
    folder = write(tmp_path / "one", masked_lm.MaskedLM().network(one), one)
    refused(tmp_path, given, folder, "type_vocab_size=1, less than the student's 2")
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_teacher_of_another_architecture_is_loaded_whole(given, tmp_path, name):
    """No segments, other names, and nothing but answers to compare.

    GPT's masked-LM head has no variables.
    """
    config = dataclasses.replace(CONFIGS[name], **SIZES)
    network = masked_lm.MaskedLM().network(config, seed=3)
    folder = write(tmp_path / "teacher", network, config)
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Trainer, "train", lambda self, *_: made.append(self))
        changes = {"distill_cosine_weight": 0.0, "distill_from": folder}
        run(tmp_path, **given | changes)
    (trainer,) = made
    loaded = trainer.objective._make_teacher()
    for mine, theirs in zip(loaded.weights, network.weights, strict=True):
        if "pooler" not in mine.path:
            np.testing.assert_array_equal(mine.numpy(), theirs.numpy(), mine.path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CONFIGS)
def test_a_student_of_another_architecture_learns(given, tmp_path, name):
    given_id = {} if CONFIGS[name].pad_token_id is None else {"pad_token_id": 0}
    config = dataclasses.replace(CONFIGS[name], **SIZES, **given_id)
    path = tmp_path / "student.json"
    path.write_text(config.to_json_string())
    changes = {"bert_config_file": str(path), "distill_cosine_weight": 0.0}
    run(tmp_path, **given | changes | {"learning_rate": 1e-2, "num_train_steps": 20})
    first, *_, last = [row["loss"] for row in metrics(tmp_path)]
    assert last < 0.75 * first


def test_records_without_a_description_are_no_obstacle(given, tmp_path, capsys):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Trainer, "train", lambda *_: None)
        run(tmp_path, **given | {"input_file": [RECORDS]})
    assert "which vocabulary the records had, so only vocab_size=3000" in (
        capsys.readouterr().out
    )
