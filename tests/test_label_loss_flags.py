"""--class_weights, --label_smoothing and --focal_gamma, as users pass them."""

import json

import pytest

import run_classifier
from errors import UserError
from tests import classifier, jobs, ner, tiny

LOSS = {
    "class_weights": ["balanced"],
    "label_smoothing": 0.1,
    "focal_gamma": 2.0,
}


@pytest.fixture
def folder(tmp_path):
    tiny.write(tmp_path, classifier.WORDS, classifier.TINY)
    return tmp_path


def loss_of(task):
    """What the training's loss is told, once the files are read."""
    task.read("train")
    return task.flags.label_loss(task.labels.names, task.training_labels)


def test_balanced_weights_are_scikit_learns(folder):
    files = classifier.custom(folder, "tsv", ["x", "y", "x", "x"])
    task = classifier.task(folder, "custom", class_weights=["balanced"], **files)
    weights = loss_of(task)["weights"]
    assert weights == pytest.approx([24 / (2 * 18), 24 / (2 * 6)])
    # A label of --labels that no example has takes no share.
    task = classifier.task(
        folder, "custom", class_weights=["balanced"], labels=["w", "y", "x"], **files
    )
    assert loss_of(task)["weights"][1:] == pytest.approx([24 / (2 * 6), 24 / (2 * 18)])


def test_having_and_not_having_a_label_are_balanced(folder):
    files = classifier.custom(folder, "tsv", ["x", "x,y", "", "x"])
    task = classifier.task(
        folder,
        "custom",
        class_weights=["balanced"],
        label_kind="several",
        **files,
    )
    loss = loss_of(task)
    assert loss["weights"] == pytest.approx([24 / (2 * 18), 24 / (2 * 6)])
    assert loss["negative_weights"] == pytest.approx([24 / (2 * 6), 24 / (2 * 18)])


def test_weights_are_of_the_labels_in_their_order(folder):
    files = classifier.custom(folder, "tsv", ["x", "y"])
    task = classifier.task(folder, "custom", class_weights=["1", "2.5"], **files)
    assert loss_of(task)["weights"] == [1.0, 2.5]
    assert task.labels.names == ("x", "y")


def test_weights_of_tags_count_words(tmp_path):
    ner.write_files(tmp_path)
    task = ner.task_of(tmp_path, class_weights=["balanced"])
    sentences = task.read("train")
    weights = task.flags.label_loss(task.labels, task.training_labels)["weights"]
    total = sum(len(one.words) for one in sentences)
    outside = sum(tag == "O" for one in sentences for tag in one.tags)
    assert weights[0] == pytest.approx(total / (len(task.labels) * outside))


@pytest.mark.exhaustive
def test_a_killed_run_goes_on_with_the_same_loss(tmp_path, folder, capsys):
    files = classifier.custom(folder, "tsv", ["x"] * 7 + ["y"], number=160)
    changes = files | {"task_name": "custom", "data_dir": str(folder)}
    changes |= {"num_train_epochs": [1.25], "save_checkpoints_steps": 20}
    changes["length_buckets"] = False  # a shape for all: it is traced once
    changes |= LOSS | {"gradient_accumulation_steps": 2, "dtype": "mixed_bfloat16"}

    def run(source, **more):
        flags = {"max_seq_length": 32, "do_train": True, **changes, **more}
        jobs.run(run_classifier, jobs.flags(source, **flags))

    run(folder, do_eval=True)
    other = tmp_path / "other"
    other.mkdir()
    jobs.check_goes_on(run, folder, other, capsys)
    note = json.loads((folder / "output" / "run.json").read_text())
    assert {name: note[name] for name in LOSS} == LOSS
    with pytest.raises(UserError, match="class_weights"):
        run(folder, class_weights=["1", "2"])


REFUSED = {
    "for 2 labels; give one for each of x, y, in this order": {
        "class_weights": ["1", "2", "3"]
    },
    "must be balanced, or a number above 0": {"class_weights": ["1", "-2"]},
    "=1e39,1: .* above 0 for each label, from 1e-6 to 1e6": {
        "class_weights": ["1e39", "1"]
    },
    "=x,y: must be balanced, or a number above 0": {"class_weights": ["x", "y"]},
    "label_smoothing=1.0: must be at least 0 and below 1": {"label_smoothing": 1.0},
    "predicts a number, not labels": {"focal_gamma": 2.0, "label_kind": "number"},
    "has no effect with --hard_weight=0": {"focal_gamma": 2.0, "distill_from": "x"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused_in_a_line(folder, message):
    labels = ["1", "2"] if "number" in message else ["x", "y"]
    files = classifier.custom(folder, "tsv", labels)
    with pytest.raises(UserError, match=message) as error:
        classifier.run(folder, "custom", do_train=True, **files, **REFUSED[message])
    assert "\n" not in str(error.value)


def test_too_few_weights_for_a_known_task_are_refused_before_a_file_is_read(folder):
    with pytest.raises(UserError, match="class_weights: 2 for 3 labels"):
        classifier.options(folder, "MNLI", do_train=True, class_weights=["1", "2"])
