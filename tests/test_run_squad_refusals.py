"""run_squad.py: files, flags and models that are refused, in one line."""

import json

import pytest

from tests import forked, jobs
from tests.squad import flags, one, refused, squad, write_files


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


TRAINING = {
    "truncated": ('{"data": [{"paragraphs"', "train.json:1: not JSON, or truncated"),
    "no JSON": ("question,answer\n", "train.json:1: not JSON"),
    "empty": ("", "train.json:1: not JSON"),
    "a list": ([], "train.json: has no 'data'; check that the file has SQuAD's layout"),
    "no data": ({"articles": []}, "has no 'data'"),
    "data": ({"data": {}}, "'data' is {}, not a list"),
    "no question": ({"data": []}, "train.json: contains no questions"),
    "no paragraphs": ({"data": [{}]}, r"data\[0\]: has no 'paragraphs'"),
    "no context": (squad([{"qas": []}]), r"data\[0\].paragraphs\[0\]: has no"),
    "no id": (one(id=None), r"qas\[0\]: has no 'id'"),
    "true as id": (one(id=True), r"'id' is true, not a string or an integer"),
    "half as id": (one(id=0.5), r"qas\[0\]: 'id' is 0.5, not a string or an integer"),
    "null as id": (
        squad([{"context": "mud", "qas": [{"id": None}]}]),
        "'id' is null, not a string or an integer",
    ),
    "no question text": (one(question=None), r"qas\[0\]: has no 'question'"),
    "answers": (one(answers="gold"), "'answers' is \"gold\", not a list"),
    "no answer": (one(answers=[]), "no answer to train on; .*--version_2_with"),
    "number as answer": (one(answers=[5]), r"answers\[0\]: has no 'text'"),
    "no answer text": (one(answer={"text": None}), r"answers\[0\]: has no 'text'"),
    "text start": (one(answer={"answer_start": "4"}), "'answer_start' is \"4\""),
    "no start": (one(answer={"answer_start": None}), "has no 'answer_start'"),
    "start behind": (one(answer={"answer_start": 10}), "answer_start is 10 for 'gold'"),
    "start before": (one(answer={"answer_start": -1}), "answer_start is -1"),
    "impossible": (one(is_impossible="no"), "'is_impossible' is \"no\", not true or"),
    "half a character": (one(question="\ud800"), "'question' contains half a"),
    "all lost": (
        squad(one(answer={"answer_start": 0})["data"][0]["paragraphs"] * 8),
        "none of 8 examples makes a row; 8 answers not found in their text and left out; ",
    ),
    "deep": ("[" * 100_000, "train.json:1: not JSON, or truncated"),
    "huge": ('{"data": [%s]}' % ("9" * 5000), "train.json:1: not JSON, or truncated"),
    "no batch": (one(), "1 training example in .* pass 1 or less"),
}


@pytest.mark.parametrize("case", TRAINING)
def test_a_bad_training_file_is_refused(folder, case):
    content, message = TRAINING[case]
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "train.json").write_text(text)
    refused(folder, message, do_train=True)
    assert not list((folder / "output").glob("model.ckpt*"))


def test_a_file_in_another_encoding_is_refused(folder):
    (folder / "dev.json").write_bytes('{"data": "\u00e9"}'.encode("latin-1"))
    refused(folder, "dev.json:1: not UTF-8", do_predict=True)


def test_an_id_twice_is_refused_where_answers_go_by_it(folder):
    place = r"data\[0\].paragraphs\[0\].qas\[0\]"
    for first, second in (("q", "q"), ("1", 1), (1, "1")):
        paragraphs = [one(id=id)["data"][0]["paragraphs"][0] for id in (first, second)]
        (folder / "dev.json").write_text(json.dumps(squad(paragraphs)))
        message = f"id '{first}' is also that of {place}, but answers are written by id"
        refused(folder, message, do_predict=True)


@pytest.mark.parametrize(
    "answers, message",
    [
        ([[], []], "no question has an answer to compare with; a test set"),
        ([["gold"], []], "1 questions have no answer, such as 'q1'"),
    ],
)
def test_what_has_no_answers_is_not_scored(folder, answers, message):
    qas = [
        {
            "id": f"q{i}",
            "question": "?",
            "answers": [{"text": text, "answer_start": 4} for text in texts],
        }
        for i, texts in enumerate(answers)
    ]
    content = squad([{"context": "mud gold", "qas": qas}])
    (folder / "dev.json").write_text(json.dumps(content))
    refused(folder, message, do_train=True, do_eval=True)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"do_train": True, "train_file": None}, "--do_train needs --train_file"),
        ({"do_predict": True, "predict_file": None}, "needs --predict_file"),
        (
            {"do_export": True, "export_precision": "int8", "predict_file": None},
            "--export_precision=int8 needs --predict_file, to compare the export",
        ),
        (
            {"do_train": True, "eval_every_steps": 2, "predict_file": None},
            "--eval_every_steps, --early_stopping_patience and a search need",
        ),
        ({"do_predict": True, "doc_stride": 0}, "--doc_stride=0: must be at least 1"),
        ({"do_predict": True, "max_query_length": 21}, "--max_seq_length=24: must be"),
        ({"do_predict": True, "max_query_length": 0}, "--max_query_length=0: must be"),
        ({"do_predict": True, "n_best_size": 0}, "--n_best_size=0: must be at least 1"),
        ({"do_predict": True, "max_answer_length": 0}, "--max_answer_length=0: must"),
        (
            {"do_predict": True, "null_score_diff_threshold": float("nan")},
            "--null_score_diff_threshold=nan",
        ),
        ({"do_predict": True}, "contains no checkpoint to evaluate"),
    ],
)
def test_flags_that_do_not_fit_are_refused(folder, changes, message):
    refused(folder, message, **changes)


def test_a_missing_file_is_one_line_on_the_command_line(folder):
    given = flags(folder, do_train=True, train_file=str(folder / "absent.json"))
    done = forked.finished(jobs.command("run_squad.py", given))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("run_squad.py: error: ") and "absent.json" in line
