"""run_classifier.py: Korean tasks by name, from files as their owners publish them."""

import json

import numpy as np
import pytest

from training import metrics
from tests import tiny
from tests.classifier import TINY, WORDS, run, task, write_lines
from tests.jobs import results
from training.finetuning.task import Predictions

NSMC = "id\tdocument\tlabel"
NLI = "sentence1\tsentence2\tgold_label"
STS = "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2"
# Files with their lines, or with the objects of their list, and what is read of the first.
FILES = {
    "nsmc": {
        "ratings_train.txt": [NSMC, '9\t막장 "개재밌음;;ㅋㅋ\t1', "8\t\t0"],
        "ratings_test.txt": [NSMC, "6\t넘 짧아요\t0"],
    },
    "kornli": {
        "multinli.train.ko.tsv": [NLI, '그가 "왔다.\t왔어요.\tneutral'],
        "snli_1.0_train.ko.tsv": [NLI, "개가 잔다.\t개가 뛴다.\tcontradiction"],
        "xnli.dev.ko.tsv": [NLI, "갔다.\t왔다.\tentailment"],
        "xnli.test.ko.tsv": [NLI, "봤다.\t왔다.\tneutral"],
    },
    "korsts": {
        "sts-train.tsv": [STS, "c\tM\t2012\t0001\t4.750\t말을 탄다.\t말을 타고 있다."],
        "sts-dev.tsv": [STS, "c\tM\t2012\t0002\t0.5\t양파를 자른다.\t두부를 자른다."],
        "sts-test.tsv": [STS, "c\tM\t2012\t0003\t1.8\t먹는다.\t달린다."],
    },
    "ynat": {
        f"ynat-v1.1_{split}.json": {
            "guid": f"ynat-v1_{split}_00000",
            "title": "5억원 무이자 융자는 되고",
            "predefined_news_category": "경제",
            "label": "사회",
            "annotations": {"annotators": ["18", "03"]},
        }
        for split in ("train", "dev")
    },
    "klue_nli": {
        f"klue-nli-v1.1_{split}.json": {
            "guid": f"klue-nli-v1_{split}_00000",
            "source": "airbnb",
            "premise": "흡연이 가능합니다.",
            "hypothesis": "흡연은 금지됩니다.",
            "gold_label": "contradiction",
            "author": "neutral",
        }
        for split in ("train", "dev")
    },
    "klue_sts": {
        f"klue-sts-v1.1_{split}.json": {
            "guid": f"klue-sts-v1_{split}_00000",
            "source": "airbnb-rtt",
            "sentence1": "친절하셨습니다.",
            "sentence2": "매우 친절했습니다.",
            "labels": {
                "label": 4.9,
                "real-label": 4.857142857142857,
                "binary-label": 1,
            },
        }
        for split in ("train", "dev")
    },
}
READ = {
    "nsmc": ('막장 "개재밌음;;ㅋㅋ', None, "1", "9"),
    "kornli": ('그가 "왔다.', "왔어요.", "neutral", "0"),
    "korsts": ("말을 탄다.", "말을 타고 있다.", 4.75, "0001"),
    "ynat": ("5억원 무이자 융자는 되고", None, "사회", "ynat-v1_train_00000"),
    "klue_nli": (
        "흡연이 가능합니다.",
        "흡연은 금지됩니다.",
        "contradiction",
        "klue-nli-v1_train_00000",
    ),
    "klue_sts": (
        "친절하셨습니다.",
        "매우 친절했습니다.",
        4.857142857142857,
        "klue-sts-v1_train_00000",
    ),
}


@pytest.fixture
def folder(tmp_path):
    tiny.write(tmp_path, WORDS, TINY)
    return tmp_path


def write(folder, name):
    for file, content in FILES[name].items():
        if isinstance(content, dict):  # indented, as KLUE has it
            content = [json.dumps([content] * 4, ensure_ascii=False, indent=4)]
        write_lines(folder / file, content)


@pytest.mark.parametrize("name", FILES)
def test_files_are_read_as_they_are_published(folder, name):
    write(folder, name)
    this = task(folder, name)
    assert tuple(this.read("train")[0]) == READ[name]
    assert this.read("dev")[0].label is not None
    assert this.read("test")[0].label is not None  # all are published with labels


def test_kornli_is_trained_on_both_of_its_files(folder):
    write(folder, "kornli")
    examples = task(folder, "KorNLI").read("train")
    assert [e.label for e in examples] == ["neutral", "contradiction"]
    (folder / "snli_1.0_train.ko.tsv").unlink()
    with pytest.raises(FileNotFoundError, match="snli_1.0_train.ko.tsv"):
        task(folder, "KorNLI").read("train")


SCORES = {
    "nsmc": {"accuracy"},
    "kornli": {"accuracy"},
    "korsts": {"spearman", "pearson"},
    "ynat": {"f1_macro", "accuracy"},
    "klue_nli": {"accuracy"},
    "klue_sts": {"pearson", "f1_of_alike"},
}


@pytest.mark.parametrize("name", FILES)
def test_official_scores_are_reported(folder, name):
    write(folder, name)
    this = task(folder, name)
    examples = this.read("dev")
    logits = np.eye(len(examples), len(this.labels.names or "1"), dtype=np.float32)
    numbers = np.arange(len(examples))
    predictions = Predictions("dev", examples, [], numbers, {"logits": logits})
    assert SCORES[name] <= this.score(predictions).keys()


def test_a_run_writes_them(folder, untraced):
    write(folder, "klue_sts")
    run(folder, "klue_sts", do_train=True, do_eval=True, train_batch_size=[1])
    assert {"eval_pearson", "eval_f1_of_alike"} <= results(folder).keys()


def test_alike_is_three_and_more_of_five():
    gold, predicted = [3.0, 2.9, 4.0, 0.0], [3.2, 3.0, 2.999, 1.0]
    # One of two alike is found, and one of two found is alike.
    assert metrics.FUNCTIONS["f1_of_alike"](gold, predicted) == 0.5
