"""SuperGLUE's tasks and RACE, from files as their owners publish them."""

import json

import numpy as np
import pytest

import run_swag
from training import metrics
from errors import UserError
from tests import swag, tiny
from tests.classifier import TINY, WORDS, run, task
from tests.jobs import results
from tests.swag import write_json_lines

# A line of train.jsonl, and what is read of it: texts, label, index.
LINES = {
    "BoolQ": (
        {"question": "is it", "passage": "It is.", "idx": 0, "label": True},
        [("is it", "It is.", "true", "0")],
    ),
    "CB": (
        {"premise": "A.", "hypothesis": "B", "label": "neutral", "idx": 0},
        [("A.", "B", "neutral", "0")],
    ),
    "superglue_rte": (
        {"premise": "A.", "hypothesis": "B", "label": "not_entailment", "idx": 0},
        [("A.", "B", "not_entailment", "0")],
    ),
    "WiC": (
        {
            "word": "place",
            "sentence1": "Do you come to my place?",
            "sentence2": "A place.",
            "idx": 0,
            "label": False,
            "start1": 18,
            "end1": 23,
            "version": 1.1,
        },
        [("place: Do you come to my place?", "A place.", "false", "0")],
    ),
    "MultiRC": (
        {
            "idx": 3,
            "version": 1.1,
            "passage": {
                "text": "Susan wanted a party.",
                "questions": [
                    {
                        "question": "Who?",
                        "idx": 7,
                        "answers": [
                            {"text": "Susan", "idx": 20, "label": 1},
                            {"text": "Tom", "idx": 21, "label": 0},
                        ],
                    },
                    {
                        "question": "What?",
                        "idx": 8,
                        "answers": [{"text": "a party", "idx": 22, "label": 1}],
                    },
                ],
            },
        },
        [
            ("Susan wanted a party.", "Who? Susan", "1", "3-7-20"),
            ("Susan wanted a party.", "Who? Tom", "0", "3-7-21"),
            ("Susan wanted a party.", "What? a party", "1", "3-8-22"),
        ],
    ),
}


@pytest.fixture
def folder(tmp_path):
    tiny.write(tmp_path, WORDS, TINY)
    return tmp_path


def unlabelled(value):
    """The same JSON without any label, as in test sets."""
    if isinstance(value, dict):
        return {k: unlabelled(v) for k, v in value.items() if k != "label"}
    return [unlabelled(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", LINES)
def test_files_are_read_as_they_are_published(folder, name):
    line, expected = LINES[name]
    for split in ("train", "val", "test"):
        written = unlabelled(line) if split == "test" else line
        write_json_lines(folder / f"{split}.jsonl", written)
    this = task(folder, name)
    assert list(map(tuple, this.read("train"))) == expected
    assert [e.label for e in this.read("test")] == [None] * len(expected)


def test_a_question_counts_if_all_its_answers_are_right():
    gold, questions = np.array([1, 0, 1, 1, 0]), ["0-0", "0-0", "0-1", "1-1", "1-1"]
    score = metrics.exact_questions
    assert score(gold, np.array([1, 0, 1, 1, 0]), questions) == 1
    assert score(gold, np.array([1, 1, 1, 1, 0]), questions) == pytest.approx(2 / 3)
    assert score(gold, np.array([0, 1, 1, 0, 1]), questions) == pytest.approx(1 / 3)


def test_multirc_is_scored_by_answer_and_by_question(folder, untraced):
    line, _ = LINES["MultiRC"]
    for split in ("train", "val", "test"):
        write_json_lines(folder / f"{split}.jsonl", *[line] * 2)
    run(folder, task_name="MultiRC", do_train=True, do_eval=True, train_batch_size=[3])
    scores = results(folder)
    assert 0 <= scores["eval_f1"] <= 1 and 0 <= scores["eval_exact_questions"] <= 1


@pytest.mark.parametrize("name", ["MultiRC", "WiC"])
def test_lines_of_another_task_are_refused(folder, name):
    write_json_lines(folder / "train.jsonl", {"text": "a", "label": 0})
    with pytest.raises(
        UserError, match=r"train.jsonl:1: is not a line of this task \("
    ):
        task(folder, name).read("train")


# --- Choices -------------------------------------------------------------------------


def read_choices(folder, **files):
    given = run_swag.Options(**swag.flags(folder, do_eval=True, **files))
    return run_swag.MultipleChoice(given, None).read("dev")


def test_copa_is_read_as_it_is_published(folder):
    line = {
        "premise": "My body cast a shadow.",
        "choice1": "The sun was rising.",
        "choice2": "The grass was cut.",
        "question": "cause",
        "label": 0,
        "idx": 0,
    }
    other = line | {"question": "effect", "label": 1}
    write_json_lines(folder / "val.jsonl", line, other)
    first, second = read_choices(folder, dev_file="val.jsonl")
    choices = ("The sun was rising.", "The grass was cut.")
    assert tuple(first) == ("My body cast a shadow.", "because", choices, 0)
    assert (second.start, second.label) == ("so", 1)
    write_json_lines(folder / "val.jsonl", line | {"question": "why"})
    with pytest.raises(
        UserError, match="val.jsonl:1: question is 'why'; it must be cau"
    ):
        read_choices(folder, dev_file="val.jsonl")


def test_race_is_read_as_it_is_published(folder):
    passage = {
        "article": "Ann sells fish.",
        "questions": ["Ann sells _ .", "Who is it?"],
        "options": [["fish", "books", "cars", "hats"], ["Ann", "Tom", "Eve", "Max"]],
        "answers": ["A", "C"],
        "id": "high1.txt",
    }
    for name in ("high/1.txt", "middle/2.txt"):
        (folder / "dev" / name).parent.mkdir(parents=True)
        (folder / "dev" / name).write_text(json.dumps(passage))
    first, second, *others = read_choices(folder, dev_file="dev")
    assert first.start == "" and first.label == 0
    assert first.choices[:2] == ("Ann sells fish .", "Ann sells books .")
    assert second.start == "Who is it?" and second.label == 2
    assert second.choices == ("Ann", "Tom", "Eve", "Max")
    assert others == [first, second]
    (folder / "dev" / "high" / "1.txt").write_text('{"article": "a"}')
    with pytest.raises(UserError, match=r"high/1.txt:1: is not a passage of RACE"):
        read_choices(folder, dev_file="dev")
    (folder / "empty").mkdir()
    with pytest.raises(UserError, match="empty: contains no .txt files, as RACE's"):
        read_choices(folder, dev_file="empty")
