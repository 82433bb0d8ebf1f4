"""run_squad.py: a SavedModel answers as Python does, whatever it is asked."""

import dataclasses
import json
import random

import pytest

import run_squad
import tests
from training.backend import tf
from training.run.settle import TrainableModel
from training.storage import checkpoint
from training.storage.folder import Folder
from serving import predictor
from tests import jobs, tiers
from tests import served as served_task
from tests.squad import OUTPUTS, TINY, flags, one, read, run, squad, write_files
from text.tasks.squad import Question
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece
from training.finetuning import finetune


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


GOLDEN = tests.GOLDEN / "squad"


def real_questions(version):
    content = json.loads((GOLDEN / f"{version}_dev.json").read_text("utf-8"))
    return [
        Question(question["id"], question["question"], context["context"], (), False)
        for article in content["data"]
        for context in article["paragraphs"]
        for question in context["qas"]
    ]


REAL = dataclasses.replace(
    TINY, vocab_size=30522, max_position_embeddings=128, initializer_range=0.3
)
VERSIONS = {
    "v1": {},
    "v2": {"version_2_with_negative": True, "null_score_diff_threshold": -3.0},
}


def real_flags(folder, version, **changes):
    own = {
        "vocab_file": str(GOLDEN / "uncased_vocab.txt"),
        "output_dir": str(folder / version),
        "max_seq_length": 128,
        "doc_stride": 40,
        "max_query_length": 12,
    }
    return flags(folder, do_predict=True, **own, **VERSIONS[version], **changes)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with a model, hardly trained, as version 2 predicts and exports it.

    dev.json has more than 200 real questions.
    """
    folder = write_files(tmp_path_factory.mktemp("exported"))
    merged = {e.id: e for version in VERSIONS for e in real_questions(version)}
    asked = squad(
        [
            {
                "context": e.context,
                "qas": [{"id": e.id, "question": e.question, "answers": []}],
            }
            for e in merged.values()
        ]
    )
    trained = one(answer={"text": "the house", "answer_start": 0})
    trained["data"][0]["paragraphs"][0]["context"] = "the house of the old"
    (folder / "dev.json").write_text(json.dumps(asked))
    (folder / "train.json").write_text(json.dumps(trained))
    (folder / "config.json").write_text(REAL.to_json_string())
    hardly = {"do_train": True, "train_batch_size": [1], "learning_rate": [1e-6]}
    given = real_flags(folder, "v2", do_export=True)
    with jobs.untraced():
        jobs.run(run_squad, given | hardly)
    return folder


@pytest.fixture(scope="module", params=tiers.cases(VERSIONS, ["v2"]))
def served(request, exported):
    return Served(exported, request.param)


class Served:
    """The task with the model of a run, asked in Python and through its export, which
    for version 1, whose answers alone differ, is not written.
    """

    def __init__(self, folder, version):
        self.version = version
        start = {} if version == "v2" else {"init_checkpoint": str(folder / "v2")}
        given = run_squad.Options(**real_flags(folder, version, **start))
        model = TrainableModel(given)
        self.task = run_squad.Squad(given, model.tokenizer)
        self.model = self.task.objective().network(REAL)
        weights = jobs.weights(folder, "v2")
        for variable in self.model.weights:
            variable.assign(weights[variable.path])
        if version == "v2":
            self.predictor = predictor.Predictor(str(folder / version))
        else:
            self.predictor = finetune.serve(self.task, model)

    def in_python(self, examples):
        return served_task.predictions(self.task, self.model, examples, "dev")

    def check(self, examples, predictions=None):
        """Holds what the graph answers to Python's, and returns it."""
        wanted = self.task.answers(predictions or self.in_python(examples))
        requests = [self.task.request(example) for example in examples]
        found = self.predictor.predict(requests, batch_size=1 + len(requests))
        assert len(found) == len(examples)
        for answer, other in zip(wanted, found, strict=True):
            assert answer == pytest.approx(other, abs=1e-4)
            assert answer["probability"] == pytest.approx(
                other["probability"], abs=1e-5
            )
        return found


@pytest.mark.exhaustive
def test_a_graph_answers_real_questions_as_python_does(served, tmp_path):
    examples = real_questions(served.version)
    predictions = served.in_python(examples)
    answers = served.check(examples, predictions)
    assert len({answer["answer"] for answer in answers}) > 30
    for example, answer in zip(examples, answers, strict=True):
        assert answer["answer"] == example.context[answer["start"] : answer["end"]]
    if served.version == "v2":
        assert 20 < sum(not answer["answer"] for answer in answers) < 120
    assert served.check(served.task.samples())
    # What is written for these questions is what is served.
    files = served.task.prediction_files(predictions)
    written, lists = (
        json.loads(files[f"{name}predictions.json"]) for name in ("", "nbest_")
    )
    for example, answer in zip(examples, served.task.answers(predictions), strict=True):
        if [other.id for other in examples].count(example.id) == 1:
            assert written[example.id] == answer["answer"]
            (entry,) = (e for e in lists[example.id] if e["text"] == answer["answer"])
            assert entry["probability"] == answer["probability"]
            assert entry["start_logit"] + entry["end_logit"] == answer["score"]


@pytest.mark.exhaustive
def test_a_graph_answers_whatever_it_is_asked(served, request):
    assert served.check([]) == []
    version_2 = served.version == "v2"
    # Once a megabyte; what follows the windows alone differs, so else it may be less.
    everything = request.config.getoption("everything")
    size = 10**6 if version_2 and everything else 10**4
    # Far apart, as it is the text that should be long, and not the test.
    words = (" " * 20).join(
        random.Random(1).choices(
            "the of in 1895 house was (old) built".split(), k=size // 20
        )
    )
    texts = ["", " \n", "\0", "\U0001f600", "a" * size, words]
    pairs = [("what?", text) for text in texts] + [
        (text, "the house") for text in texts
    ]
    assert len(texts[-1]) > size
    examples = [Question(str(i), *pair, (), False) for i, pair in enumerate(pairs)]
    answers = served.check(examples)
    nothing = {"answer": "" if version_2 else "empty", "start": 0, "end": 0}
    nothing |= {"probability": 1.0, "score": 0.0} | (
        {"null_odds": 0.0} if version_2 else {}
    )
    assert answers[:3] == [nothing] * 3
    served.check(examples[:2])
    broken = served.predictor._serve(
        question=tf.constant([b"\xff\xc3", b"who?"]),
        context=tf.constant([b"the house", b"the \xe2\x82 house\xff"]),
    )
    for answer in broken["answer"].numpy():
        answer.decode()


def test_no_answer_depends_on_what_else_is_asked(folder):
    """Padding is as a batch has it, and never among the best starts and ends."""
    config = dataclasses.replace(TINY, initializer_range=0.5)
    (folder / "config.json").write_text(config.to_json_string())
    given = run_squad.Options(**flags(folder, do_predict=True))
    tokenizer = WordPiece(Vocabulary.load(given.vocab_file))
    model = run_squad.Squad(given, tokenizer).objective().network(config, seed=1)
    weights = {variable.path: variable.numpy() for variable in model.weights}
    checkpoint.save(Folder.open(str(folder / "random")), 1, weights, keep=1)
    few = {"n_best_size": 5, "max_seq_length": 40}
    few |= {"init_checkpoint": str(folder / "random")}
    run(folder, do_predict=True, **few)
    lists = read(folder, "nbest_predictions.json")
    run(folder, do_predict=True, length_buckets=False, predict_batch_size=3, **few)
    again = read(folder, "nbest_predictions.json")
    for id, entries in lists.items():
        assert [e["text"] for e in entries] == [e["text"] for e in again[id]]
        assert [e["probability"] for e in entries] == pytest.approx(
            [e["probability"] for e in again[id]], abs=1e-5
        )


def test_an_export_answers_what_the_script_predicts(exported):
    merged = {e.id: e for each in VERSIONS for e in real_questions(each)}
    served = predictor.Predictor(str(exported / "v2"))
    requests = [{"question": e.question, "context": e.context} for e in merged.values()]
    answers = dict(zip(merged, served.predict(requests), strict=True))
    assert len(answers) > 200
    predictions, lists = (read(exported, name, "v2") for name in OUTPUTS[:2])
    for id, answer in answers.items():
        assert answer["answer"] == predictions[id]
        (entry,) = (entry for entry in lists[id] if entry["text"] == answer["answer"])
        assert answer["probability"] == pytest.approx(entry["probability"], abs=1e-5)
    odds = {id: answer["null_odds"] for id, answer in answers.items()}
    assert odds == pytest.approx(read(exported, OUTPUTS[2], "v2"), abs=1e-4)
    assert 20 < sum(not text for text in predictions.values()) < len(answers) - 20
