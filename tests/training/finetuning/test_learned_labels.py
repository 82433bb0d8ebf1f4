"""What a model knows of its labels, against what files and flags say."""

import pytest

from errors import UserError
from text.tasks import glue
from training.finetuning import labels, learned_labels

NAMES = ["negative", "positive"]


def numbered(number=2, names=()):
    return labels.OneClass(tuple(map(str, range(number))), {}, names)


@pytest.mark.parametrize("separator", [None, ","])
def test_names_are_noted_and_come_back(separator):
    data = glue.TASKS["sst-2"]._replace(label_names=tuple(NAMES))
    made = labels.make(data, separator)
    state = learned_labels.state_of(made)
    assert state["labels"] == ("0", "1") and state["label_names"] == tuple(NAMES)
    again = labels.make(data._replace(labels=(), label_names=()), separator)
    state |= {"labels": ["0", "1"], "label_names": NAMES}  # as JSON has them
    learned_labels.take_up(again, state, custom=True)
    assert again.names == ("0", "1") and again.with_display_names.names == tuple(NAMES)
    # What is called as it is in files needs no other name.
    assert "label_names" not in learned_labels.state_of(numbered())


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (numbered(), NAMES),
        (numbered(3), ["no", "2 stars", "yes"]),
        (numbered(2, ("negative", "positive")), ["NEGATIVE", "POSITIVE"]),
        (numbered(2, ("negative", "positive")), ["bad", "good"]),
        (labels.make(glue.TASKS["mnli"], None), [n.upper() for n in glue.NLI_LABELS]),
        (labels.OneClass(("neg", "pos"), {}, tuple(NAMES)), NAMES),
        (labels.SeveralClasses(("0", "1"), ","), NAMES),
    ],
)
def test_names_of_another_program_go_by_number(made, names):
    values = made.names
    state = {"label_names": names}
    if isinstance(made, labels.SeveralClasses):
        state["several_labels"] = True
    learned_labels.take_up(made, state, custom=False)
    assert (made.names, made.with_display_names.names) == (values, tuple(names))


@pytest.mark.parametrize(
    ("made", "names", "hint"),
    [
        (numbered(), ["1", "0"], "0, 1; check.*folder$"),
        (
            numbered(2, tuple(NAMES)),
            ["Positive", "Negative"],
            "not for negative, positive; check --task_name and the model's folder$",
        ),
        (numbered(2, tuple(NAMES)), ["positive", "other"], "folder$"),
        (numbered(3), NAMES, "not for 0, 1, 2; check --task_name.*folder$"),
        (labels.OneClass(("no", "yes")), ["yes", "no"], "no, yes; check.*folder$"),
        (labels.OneClass(("no", "yes")), NAMES, "pass --label_names=negative,positive"),
        (
            labels.make(glue.TASKS["mnli"], None),
            ["CONTRADICTION", "NEUTRAL", "ENTAILMENT"],
            "not for contradiction, entailment, neutral; check.*folder$",
        ),
        (
            labels.make(glue.TASKS["rte"], None),
            ["yes", "no"],
            "folder; if these are names .* pass --label_names=yes,no$",
        ),
    ],
)
def test_names_that_may_mean_other_labels_are_refused(made, names, hint):
    with pytest.raises(UserError, match=f"trained for the labels {names[0]}.*{hint}"):
        learned_labels.take_up(made, {"label_names": names}, custom=False)


def test_files_of_a_run_must_have_its_labels():
    state = {"labels": NAMES}
    with pytest.raises(UserError, match="this order, not for 0, 1; check"):
        learned_labels.take_up(numbered(), state, custom=False)


def test_labels_that_only_the_model_knows_may_be_numbers_in_files():
    made = labels.OneClass(())
    learned_labels.take_up(made, {"label_names": NAMES}, custom=True)
    assert made.names == tuple(NAMES)
    assert [made.read(x, "") for x in ("0", 1, "negative")] == [*NAMES, "negative"]
    with pytest.raises(UserError, match="'2' is not one of negative, positive"):
        made.read("2", "dev.tsv:1")
    # These are not the numbers of the labels.
    made = labels.OneClass(())
    learned_labels.take_up(made, {"label_names": ["1", "2"]}, custom=True)
    assert made.read("1", "") == "1"


def test_names_equal_to_what_files_have_leave_those_that_are_known():
    made = numbered(2, tuple(NAMES))
    learned_labels.take_up(made, {"label_names": ["0", "1"]}, custom=False)
    assert made.with_display_names.names == tuple(NAMES)


def test_flags_have_the_last_word():
    made = numbered(2, ("bad", "good"))
    learned_labels.take_up(made, {"label_names": NAMES}, custom=True, named=True)
    assert made.with_display_names.names == ("bad", "good")


@pytest.mark.parametrize("made", [numbered(), labels.OneClass(())])
@pytest.mark.parametrize("names", [["x", "x"], ["x", " "]])
def test_names_that_tell_nothing_apart_are_refused(made, names):
    with pytest.raises(UserError, match="empty or repeated: x, .*; pass --label_names"):
        learned_labels.take_up(made, {"label_names": names}, custom=True)


def test_a_training_that_continues_keeps_the_names_of_the_same_labels():
    state = {"labels": ["0", "1"], "label_names": NAMES}
    made, others = numbered(), labels.OneClass(("a", "b"))
    for each in (made, others, labels.Number()):
        learned_labels.keep_names(each, state)
    assert made.with_display_names.names == tuple(NAMES)
    assert others.with_display_names.names == ("a", "b")
