"""run_squad.py as a user meets it: files, scores, windows, resuming, other models."""

import contextlib
import io
import json
import shutil

import numpy as np
import pytest

import run_squad
from training.backend import tf
from training.run.settle import TrainableModel
from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source
from tests import jobs
from tests.jobs import results
from tests.squad import (
    GOOD,
    OUTPUTS,
    TINY,
    TRAINED,
    WORDS,
    flags,
    read,
    refused,
    run,
    shining,
    squad,
    write_files,
)
from text.records.schema import Feature
from text.tokenizers.vocabulary import SPECIAL_TOKENS
from training.finetuning.experiment import Experiment
from training.interchange import hugging_face


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder after a whole run; what it said is in said.txt."""
    folder = write_files(tmp_path_factory.mktemp("trained"))
    whole = {"do_train": True, "do_predict": True, "do_eval": True}
    said = io.StringIO()
    with contextlib.redirect_stdout(said), jobs.untraced():
        run(folder, save_checkpoints_steps=2, **whole)
    (folder / "said.txt").write_text(said.getvalue())
    return folder


@pytest.fixture
def copy(trained, tmp_path):
    """One of one's own."""
    return shutil.copytree(trained, tmp_path / "copy")


def rows_are_made(folder, **changes):
    """Reads the training file and makes its rows, as a run does before it trains.

    Returns:
        of what the run warns.
    """
    given = run_squad.Options(**flags(folder, do_train=True, **changes))
    model = TrainableModel(given)
    experiment = Experiment(run_squad.make(model), model)
    with contextlib.closing(experiment.sets):
        experiment.read(["train"])
    return [*experiment.task.warnings()]


def contexts(content):
    return {
        question["id"]: paragraph["context"]
        for paragraph in content["data"][0]["paragraphs"]
        for question in paragraph["qas"]
    }


# --- What a run leaves ---------------------------------------------------------------


def test_a_run_leaves_what_the_release_left_and_scores(trained):
    output = trained / "output"
    texts = contexts(json.loads((trained / "dev.json").read_text()))
    predictions = read(trained, "predictions.json")
    nbest = read(trained, "nbest_predictions.json")
    assert list(predictions) == list(nbest) == list(texts)
    for id, spans in nbest.items():
        assert predictions[id] == spans[0]["text"]
        assert all(span["text"] in texts[id] for span in spans)
        assert sum(span["probability"] for span in spans) == pytest.approx(1)
        assert list(spans[0]) == ["text", "probability", "start_logit", "end_logit"]
    assert not (output / "null_odds.json").exists()
    values = results(trained)
    assert set(values) == {
        *("eval_exact", "eval_f1", "eval_total", "eval_loss", "loss", "global_step")
    }
    assert (values["eval_total"], values["global_step"]) == (15, 6)
    lines = (output / "eval_results.txt").read_text().splitlines()
    written = {name: float(value) for name, value in (x.split(" = ") for x in lines)}
    assert written == pytest.approx(values)
    page = (output / "mistakes.html").read_text()
    assert "what shines?" in page and "<title>dev.json (dev): output</title>" in page
    said = (trained / "said.txt").read_text()
    assert "train: 48 examples, " in said and "dev: 15 examples, " in said


def test_records_are_the_release_s(trained):
    path = str(trained / "output" / "train.tf_record")
    spec = {
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids"), 24),
        **dict.fromkeys(("unique_ids", "start_positions", "end_positions"), 1),
        "is_impossible": 1,
    }
    schema = tuple(Feature(name, "int64", size) for name, size in spec.items())
    parsed = [
        tf.io.parse_single_example(
            serialized,
            {f.name: tf.io.FixedLenFeature([f.length], f.dtype) for f in schema},
        )
        for serialized in tf.data.TFRecordDataset(path)
    ]
    ids = [int(row["unique_ids"][0]) for row in parsed]
    assert ids == list(range(10**9, 10**9 + len(parsed)))
    assert len(parsed) > 48
    tokens = [*SPECIAL_TOKENS, *WORDS]
    answers = []
    for row in parsed:
        size = int(tf.reduce_sum(row["input_mask"]))
        words = [tokens[id] for id in row["input_ids"].numpy()[:size]]
        assert words[:5] == ["[CLS]", "what", "shines", "?", "[SEP]"]
        assert row["segment_ids"].numpy().tolist() == [0] * 5 + [1] * (size - 5) + [
            0
        ] * (24 - size)
        start, end = int(row["start_positions"][0]), int(row["end_positions"][0])
        if start:
            answers.append(words[start : end + 1])
        else:
            assert end == 0
    assert len(answers) >= 48
    assert all(set(answer) <= set(GOOD) for answer in answers)


def test_a_resumed_run_ends_like_one_that_never_stopped(copy, untraced):
    output = copy / "output"
    straight = Source.open(str(output)).read()
    predictions = (output / "nbest_predictions.json").read_text()
    for name in (
        "model.ckpt-6.index",
        "model.ckpt-6.data-00000-of-00001",
        "checkpoint",
    ):
        (output / name).unlink()
    (output / "nbest_predictions.json").unlink()
    run(copy, do_train=True, do_predict=True, save_checkpoints_steps=2)
    resumed = Source.open(str(output)).read()
    jobs.check_same_bits(straight, resumed)
    assert (output / "nbest_predictions.json").read_text() == predictions


def test_it_learns(folder):
    run(folder, do_train=True, do_eval=True, num_train_epochs=[20.0])
    assert results(folder)["eval_f1"] > 80


@pytest.mark.exhaustive
def test_it_learns_when_there_is_no_answer(folder):
    for name, seed, number in (("train.json", 1, 96), ("dev.json", 2, 30)):
        content = shining(number, seed, impossible=True)
        (folder / name).write_text(json.dumps(content))
    run(
        folder,
        do_train=True,
        do_eval=True,
        do_predict=True,
        num_train_epochs=[20.0],
        version_2_with_negative=True,
        null_score_diff_threshold=-3.0,
    )
    values = results(folder)
    assert values["eval_best_f1"] > 80
    assert (values["eval_HasAns_total"], values["eval_NoAns_total"]) == (20, 10)
    predictions, odds = read(folder, "predictions.json"), read(folder, "null_odds.json")
    nbest = read(folder, "nbest_predictions.json")
    assert list(predictions) == list(odds) == list(nbest)
    for id, text in predictions.items():
        assert (text == "") == (odds[id] > -3.0)
        assert "" in [span["text"] for span in nbest[id]]
    stored = read(folder, "null_threshold.json")
    assert stored == {
        "null_score_diff_threshold": values["eval_best_f1_thresh"],
        **{k: values[f"eval_{k}"] for k in ("best_exact", "best_exact_thresh")},
        **{k: values[f"eval_{k}"] for k in ("best_f1", "best_f1_thresh")},
    }
    # The threshold that was found gives the score that was promised.
    threshold = stored["null_score_diff_threshold"]
    version_2 = {
        "version_2_with_negative": True,
        "null_score_diff_threshold": threshold,
    }
    run(folder, do_eval=True, **version_2)
    assert results(folder)["eval_f1"] == pytest.approx(values["eval_best_f1"])


# --- Odd but legal -------------------------------------------------------------------


def test_lost_and_long_answers_and_questions_are_counted(
    folder, capsys, caplog, untraced
):
    def question(id, text, start, *more, asked="what shines?"):
        answers = [{"text": text, "answer_start": start}, *more]
        return {"id": id, "question": asked, "answers": answers}

    long = " ".join(["gold"] * 20)
    qas = [
        question("good", "gold", 4),
        question("lost", "gold", 0),
        question("second", "gold", 0, {"text": "gold", "answer_start": 4}),
        question("asked", "gold", 4, asked="what " * 9),
    ]
    paragraphs = [
        {"context": "mud gold dust", "qas": qas},
        {"context": f"mud {long} dust", "qas": [question("long", long, 4)]},
    ]
    (folder / "train.json").write_text(json.dumps(squad(paragraphs)))
    rows_are_made(folder, verbose_logging=True)
    said = capsys.readouterr().out
    (line,) = (line for line in said.splitlines() if "train: " in line)
    assert "train: 5 examples, 5 rows" in line
    assert "1 answers not found in their text and left out" in line
    assert "1 answers not in any window" in line
    assert "1 questions cut to --max_query_length" in line
    assert "lost: answer not in its text" in caplog.text and "good" not in caplog.text


def test_texts_without_tokens_and_any_script_are_answered(copy, untraced):
    texts = ["", " \n", "mud\0 \ud55c\uad6d\uc5b4 \U0001f600 gold\u0301 \u7d4c\u4e16"]
    asked = [
        {"context": text, "qas": [{"id": f"{i}", "question": "" if i else "?"}]}
        for i, text in enumerate(texts)
    ]
    (copy / "dev.json").write_text(json.dumps(squad(asked)))
    run(copy, do_predict=True)
    found = read(copy, "predictions.json")
    assert found["0"] == found["1"] == "empty"
    assert found["2"] and found["2"] in texts[2]
    run(copy, do_predict=True, version_2_with_negative=True)
    found = read(copy, "predictions.json")
    assert found["0"] == found["1"] == ""
    assert read(copy, "null_odds.json")["0"] == 0
    assert not (copy / "output" / "null_threshold.json").exists()


@pytest.mark.parametrize(
    "doc_stride, rows, lost", [(6, 4, 0), (15, 3, 0), (16, 2, 1), (128, 2, 1)]
)
def test_windows_that_may_not_overlap_are_said(
    copy, capsys, doc_stride, rows, lost, untraced
):
    """As the release's command lines have them, with --doc_stride left at 128.

    Behind the three tokens of the question a window has 18 of the text's 34; behind the
    five of the longest one 16.
    """
    text = " ".join(["mud"] * 15 + ["gold"] * 4 + ["mud"] * 15)
    answer = {"text": " ".join(["gold"] * 4), "answer_start": 60}
    question = {"id": "q", "question": "what shines?", "answers": [answer]}
    content = squad([{"context": text, "qas": [question]}])
    for name in ("train.json", "dev.json"):
        (copy / name).write_text(json.dumps(content))
    run(copy, do_predict=True, doc_stride=doc_stride)
    said = f" warning: --doc_stride={doc_stride}: windows of {doc_stride} tokens or"
    assert capsys.readouterr().out.count(said) == (doc_stride > 15)
    assert read(copy, "predictions.json")["q"] in text
    assert len(rows_are_made(copy, doc_stride=doc_stride)) == (doc_stride > 15)
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "train: 1 exa" in x)
    assert f", {rows} rows" in line
    assert ("1 answers not in any window" in line) == (lost == 1)


def test_whole_numbers_as_ids_are_texts_in_the_answers(copy, untraced):
    """What json.dumps makes of them as keys; the numbers that scores need stay."""
    content = shining(3, 2)
    paragraphs = content["data"][0]["paragraphs"]
    for id, paragraph in zip((7, -1, 10**30), paragraphs, strict=True):
        paragraph["qas"][0]["id"] = id
    for name in ("train.json", "dev.json"):
        (copy / name).write_text(json.dumps(content))
    rows_are_made(copy)
    run(copy, do_predict=True, do_eval=True)
    for name in OUTPUTS[:2]:
        assert list(read(copy, name)) == ["7", "-1", str(10**30)]
    assert results(copy)["eval_total"] == 3


def test_scores_that_are_not_numbers_are_refused(copy, untraced):
    tensors = Source.open(str(copy / "output")).read()
    tensors["cls/squad/output_bias"] = np.full(2, np.nan, np.float32)
    checkpoint.save(Folder.open(str(copy / "spoilt")), 6, tensors, keep=1)
    for path in (copy / "output").glob("model.ckpt*"):
        path.unlink()
    (copy / "output" / "checkpoint").unlink()
    spoilt = str(copy / "spoilt")
    refused(copy, "not finite", do_predict=True, init_checkpoint=spoilt)


def test_a_model_of_hugging_face_answers_without_a_pooler(copy, untraced):
    """They leave out what no answer depends on."""
    expected = (copy / "output" / "predictions.json").read_bytes()
    tensors = checkpoint.newest(Folder.open(str(copy / "output")))[1]
    weights = {k: v for k, v in tensors.items() if k.endswith(TRAINED)}
    kept = {k: v for k, v in weights.items() if "/pooler/" not in k}
    theirs, head = str(copy / "theirs"), str(copy / "no_head")
    hugging_face.write(theirs, kept, TINY)
    other = {"do_predict": True, "output_dir": str(copy / "other")}
    run(copy, **other, init_checkpoint=theirs)
    assert (copy / "other" / "predictions.json").read_bytes() == expected
    encoder = {k: v for k, v in weights.items() if k.startswith("bert/")}
    hugging_face.write(head, encoder, TINY)
    refused(copy, "not in the checkpoint: cls/squad", **other, init_checkpoint=head)


def test_a_checkpoint_of_another_task_is_refused(copy, untraced):
    prefix = Source.open(str(copy / "output")).prefix
    tensors = Source.open(prefix).read()
    head = "cls/squad/output_weights"
    other = {
        "output_weights" if name == head else name: v for name, v in tensors.items()
    }
    checkpoint.save(Folder.open(str(copy / "other")), 6, other, keep=1)
    refused(
        copy,
        head,
        do_predict=True,
        init_checkpoint=str(copy / "other"),
        output_dir=str(copy / "output2"),
    )
