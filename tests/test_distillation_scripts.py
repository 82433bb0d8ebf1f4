"""Every fine-tuning script trains a student of a teacher, and compares them."""

import json
import re

import numpy as np
import pytest

from training.backend import tf
from errors import UserError
from tests import distillation, jobs, swag
from tests.distillation import KINDS, TRAINED, WHOLE


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """Maps a kind to its files and teacher; each test's students have other names."""
    return distillation.taught_by(tmp_path_factory.mktemp)


@pytest.fixture(autouse=True)
def _quick(untraced, monkeypatch):
    """Speeds are not looked at."""
    monkeypatch.setattr("training.finetuning.comparison._ROUNDS", 1)


WRITTEN = {"spans": "predictions.json", "tags": "predictions.txt"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_script_trains_a_student_and_compares_it(kind, taught, capsys):
    """With unlabeled rows; the student without its teacher trains on the others."""
    files = taught(kind)
    before = jobs.weights(files.folder)

    files.run(**WHOLE, distill_compare=True, unlabeled_file=[str(files.train)])
    said = capsys.readouterr().out
    report = files.report()
    teacher, student, alone = report["models"]
    names = [model["model"] for model in report["models"]]
    assert names == ["teacher", "student", "without the teacher"]
    assert student["parameters"] == alone["parameters"] < teacher["parameters"]
    assert "teacher_kl" in student or "teacher_difference" in student
    assert student.keys() == alone.keys() > teacher.keys()
    for model in report["models"]:
        assert np.isfinite(model[report["metric"]]) and model["texts_per_second"] > 0
    assert student[report["metric"]] == pytest.approx(
        jobs.results(files.folder, "student")[f"eval_{report['metric']}"]
    )
    assert (files.folder / "student" / WRITTEN.get(kind, "predictions.jsonl")).exists()
    page = (files.folder / "student" / "distillation.html").read_text()
    assert all(name in page for name in names)
    # The lines say whose they are.
    examples = student["training_examples"]
    assert f" teacher: train: {examples} examples" in said
    assert f" without the teacher: train: {examples // 2} examples" in said
    assert re.search(rf"^[\d:]+ train: {examples} examples", said, re.M)
    after = jobs.weights(files.folder)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["single", "choice", "spans", "tags"])
def test_a_student_needs_no_labels(kind, taught, capsys):
    """Only rows whose labels are not read; what needs labels is left out, and says so."""
    files = taught(kind)
    only = {"train_file": "", "unlabeled_file": [str(files.train)]}
    given = TRAINED | {"distill_compare": True, "num_train_epochs": [0.4]}
    files.run("only", **only, **given)
    names = [model["model"] for model in files.report("only")["models"]]
    assert names == ["teacher", "student"]
    said = capsys.readouterr().out
    assert "the student without its teacher cannot be trained: --" in said
    number = files.report("only")["models"][1]["training_examples"]
    assert f" teacher: train: {number} examples" in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["single", "choice"])
def test_a_training_set_needs_no_labels(kind, taught, capsys):
    files = taught(kind)
    path = files.folder / f"unlabeled{files.train.suffix}"
    if kind == "single":
        lines = map(json.loads, files.train.read_text().splitlines())
        path.write_text("".join(f'{{"text": "{line["text"]}"}}\n' for line in lines))
    else:
        swag.write_csv(path, swag.swag_lines(64, seed=1, labelled=False))
    given = {"train_file": path.name, "num_train_epochs": [0.4]}
    files.run("unlabeled", **given)
    with pytest.raises(UserError, match="label"):
        files.run("labels_needed", hard_weight=1.0, **given)


@pytest.mark.slow
def test_a_student_needs_no_questions_to_answer(taught):
    """SQuAD's training alone."""
    taught("spans").run("trained", predict_file=None, num_train_epochs=[0.2])


def input_ids(path):
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    features = (tf.train.Example.FromString(record).features for record in records)
    return [list(f.feature["input_ids"].int64_list.value) for f in features]


@pytest.mark.slow
def test_a_teacher_answers_the_students_rows_whatever_its_own_were(taught):
    """An export notes how its teacher cut rows; the student's are cut by its flags."""
    files = taught("spans")
    own = {"output_dir": str(files.folder / "short"), "max_query_length": 1}
    distillation.teach(files, **own, do_export=True, num_train_epochs=[0.4])
    kept = []
    for name, teacher in (("of_folder", "short"), ("of_export", "short/export")):
        given = {"distill_from": str(files.folder / teacher), "max_query_length": 12}
        files.run(name, **given, num_train_epochs=[0.4])
        asked = files.folder / name / "teacher"
        kept.append((asked / "answers.tf_record").read_bytes())
        rows = [
            input_ids(folder / "train.tf_record")
            for folder in (asked, files.folder / name)
        ]
        assert rows[0] == rows[1]
    assert kept[0] == kept[1]
