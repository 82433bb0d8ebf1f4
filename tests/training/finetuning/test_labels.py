"""Kinds of labels: what files may hold, what is predicted, what constant answers score."""

import unicodedata

import numpy as np
import pytest

from training import metrics
from training.backend import tf
from errors import UserError
from training.finetuning import labels

LOGITS = np.array([[2.0, -1.0, 0.5], [-3.0, -0.4, -2.0]], np.float32)
KINDS = {
    "number": labels.Number(),
    "label": labels.OneClass(("no", "yes", "maybe")),
    "labels": labels.SeveralClasses(("no", "yes", "maybe"), "|"),
}


def logits_of(kind):
    return LOGITS[:, :1] if kind == "number" else LOGITS


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_what_is_predicted_and_what_is_served(kind):
    made = KINDS[kind]
    answers = made.answers(logits_of(kind))
    served = made.serve(tf.constant(logits_of(kind)))
    served = {name: values.numpy() for name, values in served.items()}
    predicted = made.predict(logits_of(kind))
    for row, answer in enumerate(answers):
        told = served["predicted"][row]
        if kind == "number":
            assert answer["predicted"] == told == predicted[row]
            continue
        names = [name.decode() for name in served["labels"][row]]
        chances = dict(zip(names, served["probabilities"][row], strict=True))
        assert answer["probabilities"] == pytest.approx(chances)
        if kind == "label":
            assert answer["predicted"] == told.decode() == made.names[predicted[row]]
        else:
            chosen = [name.decode() for name in told if name]
            assert answer["predicted"] == chosen
            assert made.encode([chosen]).tolist() == [predicted[row].tolist()]


def test_values_of_files_become_labels():
    one = labels.OneClass(("1", "b"), relabel={"B.": "b"})
    assert [one.read(x, "f:1") for x in (1, 1.0, " 1 ", "b", "B.")] == [*"111", *"bb"]
    several = KINDS["labels"]
    assert several.read("yes| no|", "f:1") == ("yes", "no")
    assert several.read(["maybe"], "f:1") == ("maybe",)
    assert several.read("", "f:1") == several.read([], "f:1") == ()
    assert several.encode([("maybe", "no"), ()]).tolist() == [[1, 0, 1], [0, 0, 0]]
    assert labels.Number((0, 5)).read(" 2.5", "f:1") == 2.5


@pytest.mark.parametrize(
    ("made", "value", "message"),
    [
        (KINDS["label"], 1.5, "f:7: label 1.5 is neither text nor a whole number"),
        (KINDS["label"], "  ", "f:7: has no label; add one"),
        (KINDS["label"], "x", "f:7: label 'x' is not one of no, yes, maybe;"),
        (KINDS["labels"], 3, "f:7: 3 is neither a list of labels nor text"),
        (KINDS["labels"], ["yes", "x"], "f:7: label 'x' is not one of"),
        (KINDS["number"], "1e39", "label '1e39' is not a number within the range of"),
        (labels.Number((0, 5)), 5.5, "f:7: label 5.5 is not a number from 0 to 5"),
    ],
)
def test_other_values_are_refused_with_their_place(made, value, message):
    with pytest.raises(UserError, match=message):
        made.read(value, "f:7")


def test_names_are_learned_in_order_and_must_differ():
    made = labels.OneClass(())
    made.learn(["b", "a", "b"], "train.tsv")
    assert made.names == ("a", "b")
    assert made.encode(["b", "a"]).tolist() == [1, 0]
    with pytest.raises(UserError, match=r"train.tsv: all labels are \['b'\]; at least"):
        labels.OneClass(()).learn(["b", "b"], "train.tsv")


@pytest.mark.parametrize(
    "made",
    [
        labels.OneClass(("0", "1", "2"), {}, ("no", "yes", "maybe")),
        labels.SeveralClasses(("0", "1", "2"), ",", ("no", "yes", "maybe")),
    ],
)
def test_people_read_other_names_than_files_have(made):
    """The numbers are the same, and so is everything that files say."""
    shown, form = made.with_display_names, made.form
    for mine, theirs in zip(made.answers(LOGITS), shown.answers(LOGITS), strict=True):
        assert list(mine["probabilities"]) == ["0", "1", "2"]
        assert list(theirs["probabilities"]) == ["no", "yes", "maybe"]
        assert [*mine["probabilities"].values()] == [*theirs["probabilities"].values()]
        assert shown.read(mine["predicted"], "") == KINDS[form].read(
            theirs["predicted"], ""
        )
    assert KINDS[form].answers(LOGITS) == shown.answers(LOGITS)
    assert shown.serve(tf.constant(LOGITS))["labels"][0].numpy().tolist() == [
        b"no",
        b"yes",
        b"maybe",
    ]


def test_every_label_has_a_name_of_its_own():
    message = "--label_names: 2 names for 3 labels; name each of a, b, c, in this order"
    with pytest.raises(UserError, match=message):
        labels.OneClass(("a", "b", "c"), {}, ("x", "y"))
    with pytest.raises(UserError, match=message):
        labels.OneClass((), {}, ("x", "y")).learn([*"cba"], "train.tsv")


def test_constant_answers_score_as_well_as_they_can():
    one = KINDS["label"]
    gold = one.encode(["yes", "yes", "no"])
    assert one.trivial_score(gold, "accuracy", metrics.accuracy) == 2 / 3
    # Where the most frequent class is not what scores best.
    scores = {0: 0.1, 1: 0.2, 2: 0.7}
    best = one.trivial_score(gold, "other", lambda gold, same: scores[same[0]])
    assert best == 0.7
    mean = KINDS["number"].trivial_score(
        np.array([1.0, 3.0]), "pearson", lambda gold, same: same.tolist()
    )
    assert mean == [2.0, 2.0]


def test_a_person_reads_what_is_true_and_predicted_and_the_loss():
    assert KINDS["number"].compare(2.0, {"predicted": 2.5}) == ("2", "2.500", 0.5)
    answer = {
        "predicted": "no",
        "probabilities": {"no": 0.5, "yes": 0.25, "maybe": 0.25},
    }
    gold, predicted, loss = KINDS["label"].compare("yes", answer)
    assert (gold, predicted) == ("yes", "no") and loss == pytest.approx(np.log(4))
    answer = {"predicted": [], "probabilities": {"no": 0.5, "yes": 0.25, "maybe": 0.5}}
    gold, predicted, loss = KINDS["labels"].compare(("maybe", "no"), answer)
    assert (gold, predicted) == ("no, maybe", "(no label)")
    assert loss == pytest.approx(np.log(2 * 2 / 0.75))


def test_labels_that_only_look_the_same_are_refused():
    letters = unicodedata.normalize("NFD", "정치")
    with pytest.raises(UserError, match="dev.tsv:2: label .* NFC and NFD"):
        labels.OneClass(("정치", "경제")).read(letters, "dev.tsv:2")
    with pytest.raises(UserError, match="train.tsv: label .* NFC and NFD"):
        labels.OneClass(()).learn(["정치", letters, "경제"], "train.tsv")
