"""run_swag.py as a user meets it: both formats, choices, results, a kill."""

import gzip
import json
import shutil

import numpy as np
import pytest

import run_swag
from training.backend import tf
from training.storage.source import Source
from modeling.architectures.bert import BertEncoder
from serving import predictor
from tests import jobs
from tests.jobs import results
from tests.swag import (
    TINY,
    WHOLE,
    WORDS,
    check_same,
    flags,
    run,
    swag_lines,
    write_csv,
    write_files,
    write_json_files,
    write_json_lines,
)
from text.tokenizers.vocabulary import SPECIAL_TOKENS


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


SAVED = {"save_checkpoints_steps": 10, "log_every_steps": 5}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The same after a whole run."""
    folder = write_files(tmp_path_factory.mktemp("trained"))
    with jobs.untraced():
        run(folder, learning_rate=[1e-2], num_train_epochs=[6.0], **SAVED, **WHOLE)
    return folder


class ByHand:
    """Probabilities from the encoder alone, one choice after the other."""

    def __init__(self, path):
        self.weights = Source.open(str(path)).read()
        assert "output_bias" not in self.weights
        encoder = BertEncoder(TINY)
        for variable in encoder.weights:
            variable.assign(self.weights[variable.path])
        self.encoder = tf.function(encoder, reduce_retracing=True)

    def __call__(self, context, starts_and_choices):
        ids = {word: n for n, word in enumerate([*SPECIAL_TOKENS, *WORDS])}
        scores = []
        for text in starts_and_choices:
            a = ["[CLS]", *context.split(), "[SEP]"]
            b = [*text.lower().split(), "[SEP]"]
            outputs = self.encoder(
                {
                    "input_ids": tf.constant([[ids[word] for word in a + b]]),
                    "segment_ids": tf.constant([[0] * len(a) + [1] * len(b)]),
                }
            )
            pooled = outputs["pooled_output"].numpy()[0]
            scores.append(float(pooled @ self.weights["output_weights"][0]))
        odds = np.exp(np.array(scores) - max(scores))
        return odds / odds.sum()


# --- Runs ----------------------------------------------------------------------------


@pytest.mark.without_family
def test_swag_from_training_to_answers(trained):
    output = trained / "output"
    names = {path.name for path in output.iterdir() if "tfevents" not in path.name}
    assert names >= {
        "bert_config.json",
        "eval_results.json",
        "eval_results.txt",
        "mistakes.html",
        "model.ckpt-48.index",  # 64 / 8 * 6
        "predictions.jsonl",
        "test_results.tsv",
    }
    lines = (output / "eval_results.txt").read_text().splitlines()
    keys = [line.split(" = ")[0] for line in lines]
    assert keys == ["eval_accuracy", "eval_loss", "global_step", "loss"]
    assert results(trained)["eval_accuracy"] > 0.8  # by chance 0.25
    predicted = jobs.predictions(trained)
    assert len(predicted) == 10
    assert list(predicted[0]) == [
        "context",
        "start",
        "choices",
        "predicted",
        "probabilities",
    ]
    table = [
        [float(cell) for cell in line.split("\t")]
        for line in (output / "test_results.tsv").read_text().splitlines()
    ]
    assert table == [answer["probabilities"] for answer in predicted]


@pytest.mark.exhaustive
def test_numbers_are_those_of_the_encoder_asked_choice_by_choice(
    json_trained, folder, untraced
):
    errs = str(json_trained / "output")  # trained on few examples, of another kind
    given = {"do_eval": True, "do_predict": True, "test_file": "val.csv"}
    run(folder, init_checkpoint=errs, **given)
    by_hand = ByHand(errs)
    right, losses = 0, []
    for answer in jobs.predictions(folder):
        texts = [f"She {choice}" for choice in answer["choices"]]
        expected = by_hand(answer["context"], texts)
        np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
        assert answer["predicted"] == expected.argmax()
        right += expected.argmax() == answer["gold"]
        losses.append(-np.log(expected[answer["gold"]]))
    assert 0 < right < 21
    assert results(folder)["eval_accuracy"] == pytest.approx(right / 21)
    assert results(folder)["eval_loss"] == pytest.approx(np.mean(losses), abs=1e-5)


@pytest.mark.exhaustive
def test_evaluation_alone_and_the_page_of_mistakes(json_trained, tmp_path, untraced):
    copy = shutil.copytree(json_trained, tmp_path / "copy")
    before = results(copy)
    run(copy, do_eval=True, **JSON_FILES)
    assert results(copy) == before
    page = (copy / "output" / "mistakes.html").read_text()
    wrong = round(12 * (1 - before["eval_accuracy"]))
    assert f"All {wrong} mistakes in 12 answers" in page
    assert f"<title>{copy.name} (dev): output</title>" in page
    assert "0: she" in page and "<th>probabilities</th>" in page


@pytest.mark.exhaustive
def test_search_names_runs_no_better_than_one_answer(folder, untraced):
    right = [line[-1] for line in swag_lines(21, seed=2)[1:]]
    run(folder, do_train=True, num_trials=2, learning_rate=[1e-9])
    found = json.loads((folder / "output" / "search.json").read_text())
    assert found["trivial"] == max(map(right.count, right)) / 21
    assert found["metric"] == "accuracy"


# --- Choices -------------------------------------------------------------------------


@pytest.fixture
def json_folder(folder):
    return write_json_files(folder)


JSON_FILES = {
    "train_file": "train.jsonl",
    "dev_file": "dev.jsonl",
    "test_file": "test.jsonl",
}


@pytest.fixture(scope="module")
def json_trained(tmp_path_factory):
    """The same after a whole run with an export."""
    folder = write_files(tmp_path_factory.mktemp("json_trained"))
    with jobs.untraced():
        run(write_json_files(folder), do_export=True, **WHOLE, **JSON_FILES)
    return folder


def test_choices_that_are_not_there_count_for_nothing(json_trained):
    by_hand = ByHand(json_trained / "output")
    lines = (json_trained / "output" / "test_results.tsv").read_text().splitlines()
    numbers = set()
    for answer, line in zip(jobs.predictions(json_trained), lines, strict=True):
        numbers.add(len(answer["choices"]))
        assert len(answer["probabilities"]) == len(answer["choices"])
        assert len(line.split("\t")) == len(answer["choices"])
        assert sum(answer["probabilities"]) == pytest.approx(1.0)
        texts = [f"she {choice}" for choice in answer["choices"]]
        expected = by_hand(answer["context"], texts)
        np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
    assert numbers == {2, 3}
    assert 0 <= results(json_trained)["eval_loss"] < 3


def test_endings_that_are_empty_at_the_end_of_a_line_are_no_choices(folder):
    lines = swag_lines(21, seed=2)
    lines[1][-3:] = ["", "", 1]
    write_csv(folder / "val.csv", lines)
    given = run_swag.Options(**flags(folder, do_eval=True))
    task = run_swag.MultipleChoice(given, run_swag.TrainableModel(given).tokenizer)
    examples = task.read("dev")
    assert len(examples[0].choices) == 2 and examples[0].label == 1
    assert len(examples[1].choices) == 4
    assert task.layout(examples, 16).num_choices == 4


def test_csv_takes_quotes_line_breaks_and_any_number_of_endings(folder):
    (folder / "val.csv").write_bytes(
        b"\xef\xbb\xbfsent1,sent2,ending0,ending1,ending2,ending3,ending4,ending5,"
        b"ending6,ending7,ending8,ending9,ending10,label\r\n"
        b'"a, ""b""\r\nc",,a,b,c,d,e,f,g,h,a,b,right,10\r\n'
    )
    task = run_swag.MultipleChoice(
        run_swag.Options(**flags(folder, do_eval=True)), None
    )
    (example,) = task.read("dev")
    assert example.context == 'a, "b"\r\nc'
    assert example.start == ""
    assert example.choices[10] == "right" and example.label == 10


def test_packed_files_are_read(json_folder):
    packed = gzip.compress((json_folder / "dev.jsonl").read_bytes())
    (json_folder / "dev.jsonl.gz").write_bytes(packed)
    packed = gzip.compress((json_folder / "val.csv").read_bytes())
    (json_folder / "val.csv.gz").write_bytes(packed)
    for name, number in (("dev.jsonl.gz", 12), ("val.csv.gz", 21)):
        given = run_swag.Options(**flags(json_folder, do_eval=True, dev_file=name))
        assert len(run_swag.MultipleChoice(given, None).read("dev")) == number


def test_long_choices_are_cut_and_counted(trained, folder, capsys, untraced):
    long = {"context": "a " * 30, "choices": ["b", "c " * 30], "label": 0}
    short = {"context": "a", "choices": ["b", "c"], "label": 0}
    write_json_lines(folder / "dev.jsonl", long, short)
    model = str(trained / "output")
    run(folder, do_eval=True, dev_file="dev.jsonl", init_checkpoint=model)
    assert "1 were cut to --max_seq_length" in capsys.readouterr().out


# --- Kills ---------------------------------------------------------------------------


def test_an_export_answers_as_the_run_that_made_it(json_trained):
    """Sets differ in their number of choices."""
    expected = jobs.predictions(json_trained)
    names = ("context", "start", "choices")
    exported = predictor.Predictor(str(json_trained / "output"))
    requests = [{name: answer[name] for name in names} for answer in expected]
    check_same(exported.predict(requests), expected)
    # As in the files of the task, the start may be left out.
    with_empty = [request | {"start": ""} for request in requests]
    for request in requests:
        del request["start"]
    assert exported.predict(requests) == exported.predict(with_empty)
