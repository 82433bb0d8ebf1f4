"""run_squad.py with KorQuAD 1.0 and KLUE-MRC: files as published, and their own scores."""

import json

import pytest

import run_squad
from tests import tiny
from tests.jobs import results
from tests.squad import TINY, flags, run, shining, write_files
from text.tasks import squad
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece

CONTEXT = "스타벅스는 시애틀에서 시작했다."
ANSWER = {"text": "시애틀", "answer_start": 6}
KORQUAD = {
    "version": "KorQuAD_v1.0_dev",
    "data": [
        {
            "paragraphs": [
                {
                    "qas": [{"answers": [ANSWER], "id": "6-0-0", "question": "어디?"}],
                    "context": CONTEXT,
                }
            ],
            "title": "스타벅스",
        }
    ],
}
QUESTION = {"question": "어디?", "question_type": 1, "is_impossible": False}
NONE = {"question_type": 3, "is_impossible": True, "answers": []}
KLUE = {
    "version": "v1.1",
    "data": [
        {
            "title": "스타벅스",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        QUESTION | {"answers": [ANSWER], "guid": "klue-mrc-v1_dev_0"},
                        QUESTION
                        | NONE
                        | {"plausible_answers": [ANSWER], "guid": "klue-mrc-v1_dev_1"},
                    ],
                }
            ],
            "news_category": "경제",
            "source": "hankyung",
        }
    ],
}


def write(folder, content):
    path = folder / "dev.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_questions_without_an_answer_are_read_as_klue_has_them(tmp_path):
    first, second = squad.read_to_answer(write(tmp_path, KLUE))
    assert first == ("klue-mrc-v1_dev_0", "어디?", CONTEXT, (("시애틀", 6),), False)
    assert second == ("klue-mrc-v1_dev_1", "어디?", CONTEXT, (), True)


@pytest.mark.parametrize(
    "content, given, name, metric",
    [
        (KORQUAD, {}, "characters", "f1"),
        (KLUE, {"version_2_with_negative": True}, "rouge_w", "best_rouge_w"),
        (KORQUAD, {"answer_score": "words"}, "words", "f1"),
        (shining(1, 1), {}, "words", "f1"),
    ],
)
def test_the_data_set_decides_how_answers_are_scored(
    tmp_path, content, given, name, metric
):
    tiny.write(tmp_path, ["어디"], TINY)
    given = flags(
        tmp_path, predict_file=write(tmp_path, content), do_eval=True, **given
    )
    tokenizer = WordPiece(Vocabulary.load(given["vocab_file"]))
    task = run_squad.Squad(run_squad.Options(**given), tokenizer)
    assert task.answer_score is run_squad.squad_metrics.ANSWER_SCORES[name]
    assert task.metric == metric


def test_a_run_reports_klues_own_score(tmp_path, untraced):
    folder = write_files(tmp_path)
    content = shining(9, 2, impossible=True)
    for paragraph in content["data"][0]["paragraphs"]:
        for question in paragraph["qas"]:
            question["guid"] = question.pop("id")
    path = write(folder, content)
    given = {"train_file": path, "predict_file": path, "num_train_epochs": [1.0]}
    given |= {"version_2_with_negative": True, "do_predict": True}
    run(folder, do_train=True, do_eval=True, train_batch_size=[2], **given)
    assert {"eval_rouge_w", "eval_NoAns_rouge_w", "eval_best_rouge_w"} <= set(
        results(folder)
    )
    answers = json.loads((folder / "output" / "predictions.json").read_text())
    assert sorted(answers) == sorted(f"2-{number}" for number in range(9))
    threshold = json.loads((folder / "output" / "null_threshold.json").read_text())
    assert threshold["null_score_diff_threshold"] == threshold["best_rouge_w_thresh"]
