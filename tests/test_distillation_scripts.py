"""Every fine-tuning script trains a student of a teacher, and prints the scores of both."""

import json
import re

import pytest

from training.backend import tf
from errors import UserError
from tests import distillation, jobs, swag, tiers
from tests.distillation import KINDS, TRAINED, WHOLE


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """Maps a kind to its files and teacher; each test's students have other names."""
    return distillation.taught_by(tmp_path_factory.mktemp)


pytestmark = pytest.mark.usefixtures("untraced")
WRITTEN = {"spans": "predictions.json", "tags": "predictions.txt"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_every_script_trains_a_student_and_prints_both_scores(kind, taught, capsys):
    """With unlabeled rows."""
    files = taught(kind)
    before = jobs.weights(files.folder)
    files.run(**WHOLE, unlabeled_file=[str(files.train)])
    said = capsys.readouterr().out
    of_teacher, own = (
        re.search(rf"^[\d:]+ {who}\w+: loss \S+, (.*)", said, re.M)[1].split(", ")
        for who in ("teacher: ", "")
    )
    # A line has as many scores as there is room for.
    assert of_teacher[0].split()[0] == own[0].split()[0]
    assert re.search(r"with the teacher: .*teacher_(kl|difference) [\d.e-]+", said)
    assert (files.folder / "student" / WRITTEN.get(kind, "predictions.jsonl")).exists()
    # The lines say whose they are; the first are of the teacher when it was trained.
    *_, examples = re.findall(r"^[\d:]+ train: ([\d,]+) examples", said, re.M)
    assert f" teacher: train: {examples} examples" in said
    after = jobs.weights(files.folder)
    jobs.check_same_bits(before, after)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["single", "choice", "spans", "tags"])
def test_a_student_needs_no_labels(kind, taught, capsys):
    """Only rows whose labels are not read."""
    files = taught(kind)
    only = {"train_file": "", "unlabeled_file": [str(files.train)]}
    files.run("only", **only, **TRAINED, num_train_epochs=[0.4])
    said = capsys.readouterr().out
    *_, number = re.findall(r"^[\d:]+ train: ([\d,]+) examples", said, re.M)
    assert f" teacher: train: {number} examples" in said


@pytest.mark.parametrize("kind", tiers.cases(["single", "choice"], ["single"]))
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


@pytest.mark.exhaustive
def test_a_student_needs_no_questions_to_answer(taught):
    """SQuAD's training alone."""
    taught("spans").run("trained", predict_file=None, num_train_epochs=[0.2])


def input_ids(path):
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    features = (tf.train.Example.FromString(record).features for record in records)
    return [list(f.feature["input_ids"].int64_list.value) for f in features]


@pytest.mark.exhaustive
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
