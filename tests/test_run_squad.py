"""run_squad.py as a user meets it: flags, files, scores, resuming, refusals."""

import contextlib
import dataclasses
import io
import json
import random
import shutil

import numpy as np
import pytest

import run_squad
import tests
from training import checkpoint
from training.backend import tf
from serving import forms, predictor
from tests import forked, jobs, tiny
from tests.jobs import results
from text.errors import UserError
from text.records.schema import Feature
from text.tasks.squad import Example
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece
from training.finetuning.experiment import Experiment
from training.finetuning.task import Predictions
from training.layouts import hugging_face

GOOD = ["gold", "silver", "ruby", "pearl"]
PLAIN = ["mud", "sand", "clay", "dust", "ash", "rock"]
WORDS = ["what", "shines", "?", ".", *GOOD, *PLAIN]
TINY = tiny.config(
    vocab_size=24,
    intermediate_size=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
TRAINED = ("/kernel", "/bias", "_weights", "_bias", "/gamma", "/beta", "_embeddings")
OUTPUTS = ("predictions.json", "nbest_predictions.json", "null_odds.json")


def squad(paragraphs):
    return {"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}


def one(**changes):
    """A file of one good question, with changes; None takes something away."""
    answer = {"text": "gold", "answer_start": 4} | changes.pop("answer", {})
    question = {"id": "q", "question": "what shines?"}
    question |= {"answers": [answer], "is_impossible": False} | changes
    drop_none = [
        {k: v for k, v in x.items() if v is not None} for x in (answer, question)
    ]
    question = drop_none[1]
    if question.get("answers") == [answer]:
        question["answers"] = [drop_none[0]]
    return squad([{"context": "mud gold dust", "qas": [question]}])


def shining(number, seed, *, impossible=False):
    """Questions whose answer is the one word, or pair of words, that shines."""
    rng = random.Random(seed)
    paragraphs = []
    for index in range(number):
        words = rng.choices(PLAIN, k=rng.randint(3, 40))
        question = {"id": f"{seed}-{index}", "question": "what shines?", "answers": []}
        if impossible:
            question["is_impossible"] = index % 3 == 0
        if not question.get("is_impossible"):
            place = rng.randrange(len(words))
            text = "  ".join(rng.choices(GOOD, k=rng.randint(1, 2)))
            words.insert(place, text)
            start = len(" ".join([*words[:place], ""]))
            question["answers"] = [{"text": text, "answer_start": start}]
        paragraphs.append({"context": " ".join(words) + ".", "qas": [question]})
    return squad(paragraphs)


def write_files(folder):
    tiny.write(folder, WORDS, TINY)
    (folder / "train.json").write_text(json.dumps(shining(48, 1)))
    (folder / "dev.json").write_text(json.dumps(shining(15, 2)))
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


def flags(folder, **changes):
    own = {
        "train_file": str(folder / "train.json"),
        "predict_file": str(folder / "dev.json"),
        "max_seq_length": 24,
        "doc_stride": 6,
        "max_query_length": 5,
        "learning_rate": [1e-2],
        "max_answer_length": 4,
    }
    return jobs.flags(folder, **own | changes)


def run(folder, **changes):
    jobs.run(run_squad, flags(folder, **changes))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder after a whole run; what it said is in said.txt."""
    folder = write_files(tmp_path_factory.mktemp("trained"))
    whole = {"do_train": True, "do_predict": True, "do_eval": True}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        run(folder, save_checkpoints_steps=2, **whole)
    (folder / "said.txt").write_text(said.getvalue())
    return folder


@pytest.fixture
def copy(trained, tmp_path):
    """One of one's own."""
    return shutil.copytree(trained, tmp_path / "copy")


def rows_are_made(folder, **changes):
    """Reads the training file and makes its rows, as a run does before it trains."""
    given = run_squad.Options(**flags(folder, do_train=True, **changes))
    tokenizer = WordPiece(Vocabulary.load(given.vocab_file))
    experiment = Experiment(run_squad.Squad(given, tokenizer), given)
    with contextlib.closing(experiment.sets):
        experiment.read(["train"])


def read(folder, name, output="output"):
    return json.loads((folder / output / name).read_text())


def contexts(content):
    return {
        question["id"]: paragraph["context"]
        for paragraph in content["data"][0]["paragraphs"]
        for question in paragraph["qas"]
    }


# --- What a run leaves ---------------------------------------------------------------


@pytest.mark.slow
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
    assert "what shines?" in (output / "mistakes.html").read_text()
    said = (trained / "said.txt").read_text()
    assert "train: 48 examples, " in said and "dev: 15 examples, " in said


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_resumed_run_ends_like_one_that_never_stopped(copy):
    output = copy / "output"
    straight = checkpoint.read(checkpoint.resolve(str(output)))
    predictions = (output / "nbest_predictions.json").read_text()
    for name in (
        "model.ckpt-6.index",
        "model.ckpt-6.data-00000-of-00001",
        "checkpoint",
    ):
        (output / name).unlink()
    (output / "nbest_predictions.json").unlink()
    run(copy, do_train=True, do_predict=True, save_checkpoints_steps=2)
    resumed = checkpoint.read(checkpoint.resolve(str(output)))
    assert straight.keys() == resumed.keys()
    for name in straight:
        assert np.array_equal(straight[name], resumed[name]), name
    assert (output / "nbest_predictions.json").read_text() == predictions


@pytest.mark.slow
def test_answers_do_not_depend_on_padding_and_batches(copy):
    """Nor on whether evaluation comes with training."""
    found = read(copy, "nbest_predictions.json")
    run(copy, do_predict=True, length_buckets=False, predict_batch_size=3)
    again = read(copy, "nbest_predictions.json")
    for id, spans in found.items():
        # The release's padding may take a place among the best starts and ends.
        assert spans[0]["text"] == again[id][0]["text"]
        assert spans[0]["start_logit"] == pytest.approx(
            again[id][0]["start_logit"], abs=1e-5
        )


@pytest.mark.slow
def test_it_learns(folder):
    run(folder, do_train=True, do_eval=True, num_train_epochs=[20.0])
    assert results(folder)["eval_f1"] > 80


@pytest.mark.slow
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


@pytest.mark.slow
def test_lost_and_long_answers_and_questions_are_counted(folder, capsys, caplog):
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


@pytest.mark.slow
def test_texts_without_tokens_and_any_script_are_answered(copy):
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "doc_stride, rows, lost", [(6, 4, 0), (15, 3, 0), (16, 2, 1), (128, 2, 1)]
)
def test_windows_that_may_not_overlap_are_said(
    copy, capsys, caplog, doc_stride, rows, lost
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
    said = f"--doc_stride={doc_stride}: windows of {doc_stride} tokens or fewer do not"
    assert caplog.text.count(said) == (doc_stride > 15)
    assert read(copy, "predictions.json")["q"] in text
    caplog.clear()
    rows_are_made(copy, doc_stride=doc_stride)
    assert caplog.text.count(said) == (doc_stride > 15)
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "train: 1 exa" in x)
    assert f", {rows} rows" in line
    assert ("1 answers not in any window" in line) == (lost == 1)


@pytest.mark.slow
def test_whole_numbers_as_ids_are_texts_in_the_answers(copy):
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


# --- Refusals ------------------------------------------------------------------------

TRAINING = {
    "truncated": ('{"data": [{"paragraphs"', "train.json:1: not JSON, or truncated"),
    "no JSON": ("question,answer\n", "train.json:1: not JSON"),
    "empty": ("", "train.json:1: not JSON"),
    "a list": ([], "train.json: has no 'data'; check that the file has SQuAD's layout"),
    "no data": ({"articles": []}, "has no 'data'"),
    "data": ({"data": {}}, "'data' is {}, not a list"),
    "no question": ({"data": []}, "train.json: contains no questions"),
    "no paragraphs": ({"data": [{}]}, r"data\[0\]: has no 'paragraphs'"),
    "no context": (
        squad([{"qas": []}]),
        r"data\[0\].paragraphs\[0\]: has no 'context'",
    ),
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
    "half a character": (
        one(question="\ud800"),
        "'question' contains half a character",
    ),
    "all lost": (
        squad(one(answer={"answer_start": 0})["data"][0]["paragraphs"] * 8),
        "none of 8 examples makes a row; 8 answers not found in their text and left out; ",
    ),
    "deep": ("[" * 100_000, "train.json:1: not JSON, or truncated"),
    "huge": ('{"data": [%s]}' % ("9" * 5000), "train.json:1: not JSON, or truncated"),
    "no batch": (one(), "1 training examples do not fill a batch"),
}


def refused(folder, message, **changes):
    """Holds a run to one line, and to leaving earlier results alone."""
    output = folder / "output"
    output.mkdir(exist_ok=True)
    for name in (*OUTPUTS, "eval_results.txt", "eval_results.json"):
        (output / name).write_text(f"earlier {name}")
    with pytest.raises(UserError, match=message) as caught:
        run(folder, **changes)
    assert "\n" not in str(caught.value)
    for name in (*OUTPUTS, "eval_results.txt", "eval_results.json"):
        assert (output / name).read_text() == f"earlier {name}"
    left = {path.name for path in output.iterdir()}
    assert not [name for name in left if "writing" in name or "tmp" in name]


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
        ({}, "nothing to do; pass at least one of --do_train"),
        ({"do_train": True, "train_file": None}, "--do_train needs --train_file"),
        ({"do_predict": True, "predict_file": None}, "needs --predict_file"),
        (
            {"do_train": True, "eval_every_steps": 2, "predict_file": None},
            "--eval_every_steps, --early_stopping_patience and a search need",
        ),
        ({"do_predict": True, "doc_stride": 0}, "--doc_stride=0: must be at least 1"),
        (
            {"do_predict": True, "max_query_length": 21},
            "--max_seq_length=24: must be at",
        ),
        ({"do_predict": True, "max_query_length": 0}, "--max_query_length=0: must be"),
        ({"do_predict": True, "n_best_size": 0}, "--n_best_size=0: must be at least 1"),
        ({"do_predict": True, "max_answer_length": 0}, "--max_answer_length=0: must"),
        (
            {"do_predict": True, "null_score_diff_threshold": float("nan")},
            "--null_score_diff_threshold=nan",
        ),
        ({"do_predict": True, "max_seq_length": 41}, "max_position_embeddings=40"),
        ({"do_predict": True}, "contains no checkpoint to evaluate"),
    ],
)
def test_flags_that_do_not_fit_are_refused(folder, changes, message):
    refused(folder, message, **changes)


def test_a_vocabulary_that_is_too_large_is_refused(folder):
    with open(folder / "vocab.txt", "a") as file:
        file.writelines(f"word{i}\n" for i in range(20))
    refused(folder, "39 tokens, more than vocab_size=24", do_train=True)


@pytest.mark.slow
def test_scores_that_are_not_numbers_are_refused(copy):
    tensors = checkpoint.read(checkpoint.resolve(str(copy / "output")))
    tensors["cls/squad/output_bias"] = np.full(2, np.nan, np.float32)
    checkpoint.save(str(copy / "spoilt"), 6, tensors, keep=1)
    for path in (copy / "output").glob("model.ckpt*"):
        path.unlink()
    (copy / "output" / "checkpoint").unlink()
    spoilt = str(copy / "spoilt")
    refused(copy, "not finite", do_predict=True, init_checkpoint=spoilt)


@pytest.mark.slow
def test_a_missing_file_is_one_line_on_the_command_line(folder):
    given = flags(folder, do_train=True, train_file=str(folder / "absent.json"))
    done = forked.finished(jobs.command("run_squad.py", given))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("run_squad.py: error: ") and "absent.json" in line


@pytest.mark.slow
def test_a_model_of_hugging_face_answers_without_a_pooler(copy):
    """They leave out what no answer depends on."""
    expected = (copy / "output" / "predictions.json").read_bytes()
    tensors = checkpoint.newest(str(copy / "output"))[1]
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


@pytest.mark.slow
def test_a_checkpoint_of_another_task_is_refused(copy):
    prefix = checkpoint.resolve(str(copy / "output"))
    tensors = checkpoint.read(prefix)
    head = "cls/squad/output_weights"
    other = {
        "output_weights" if name == head else name: v for name, v in tensors.items()
    }
    checkpoint.save(str(copy / "other"), 6, other, keep=1)
    refused(
        copy,
        head,
        do_predict=True,
        init_checkpoint=str(copy / "other"),
        output_dir=str(copy / "output2"),
    )


# --- Serving -------------------------------------------------------------------------

GOLDEN = tests.GOLDEN / "squad"


def real_questions(version):
    content = json.loads((GOLDEN / f"{version}_dev.json").read_text("utf-8"))
    return [
        Example(question["id"], question["question"], context["context"], (), False)
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
    """A folder with a model, hardly trained, as both versions predict and export it.

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
    given = real_flags(folder, "v1", do_export=True)
    jobs.run(run_squad, given | hardly)
    given = real_flags(folder, "v2", do_export=True)
    jobs.run(run_squad, given | {"init_checkpoint": str(folder / "v1")})
    return folder


@pytest.fixture(scope="module", params=VERSIONS)
def served(exported, request):
    return Served(exported, request.param)


class Served:
    """The task with the model of a run, asked in Python and through its export."""

    def __init__(self, folder, version):
        self.version = version
        given = run_squad.Options(**real_flags(folder, version))
        tokenizer = WordPiece(Vocabulary.load(given.vocab_file))
        self.task = run_squad.Squad(given, tokenizer)
        self.length = given.max_seq_length
        model = self.task.objective().network(REAL)
        weights = jobs.weights(folder, "v1")
        for variable in model.variables:
            variable.assign(weights[variable.path])
        self.network = tf.function(model)
        self.loaded = tf.saved_model.load(str(folder / version / "export/text/1"))
        self.serve = self.loaded.signatures["serving_default"]

    def in_python(self, examples):
        """Rows are padded to the full length, each batch by itself."""
        numbers, rows = [], []
        for number, example in enumerate(examples):
            rows += self.task.featurize(example, "dev")
            numbers += [number] * (len(rows) - len(numbers))
        batch = np.zeros((3, len(rows), self.length), np.int32)
        for place, row in enumerate(rows):
            size = len(row.input_ids)
            batch[:, place, :size] = row.input_ids, np.ones(size), row.segment_ids
        names = "input_ids", "input_mask", "segment_ids"
        outputs = [
            self.network(dict(zip(names, batch[:, first : first + 50], strict=True)))
            for first in range(0, len(rows), 50)
        ]
        logits = {
            name: np.concatenate([part[name] for part in outputs] or [np.zeros((0, 1))])
            for name in ("start_logits", "end_logits")
        }
        notes = [row.notes for row in rows]
        return Predictions("dev", examples, notes, np.array(numbers), logits)

    def in_graph(self, examples):
        requests = [self.task.request(example) for example in examples]
        outputs = self.serve(
            **{
                name: tf.constant([r[name] for r in requests], tf.string)
                for name in self.task.inputs
            }
        )
        outputs = {name: values.numpy() for name, values in outputs.items()}
        return forms.answers(self.task.form, outputs, requests)

    def check(self, examples, predictions=None):
        """Holds what the graph answers to Python's, and returns it."""
        wanted = self.task.answers(predictions or self.in_python(examples))
        found = self.in_graph(examples)
        assert len(found) == len(examples)
        for answer, other in zip(wanted, found, strict=True):
            assert answer == pytest.approx(other, abs=1e-4)
            assert answer["probability"] == pytest.approx(
                other["probability"], abs=1e-5
            )
        return found


@pytest.mark.slow
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
    served.task.write_predictions(predictions, str(tmp_path))
    written = json.loads((tmp_path / "predictions.json").read_text())
    lists = json.loads((tmp_path / "nbest_predictions.json").read_text())
    for example, answer in zip(examples, served.task.answers(predictions), strict=True):
        if [other.id for other in examples].count(example.id) == 1:
            assert written[example.id] == answer["answer"]
            (entry,) = (e for e in lists[example.id] if e["text"] == answer["answer"])
            assert entry["probability"] == answer["probability"]
            assert entry["start_logit"] + entry["end_logit"] == answer["score"]


@pytest.mark.slow
def test_a_graph_answers_whatever_it_is_asked(served):
    assert served.check([]) == []
    version_2 = served.version == "v2"
    # Once a megabyte; what follows the windows alone differs, so else it may be less.
    size = 10**6 if version_2 else 10**4
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
    examples = [Example(str(i), *pair, (), False) for i, pair in enumerate(pairs)]
    answers = served.check(examples)
    nothing = {"answer": "" if version_2 else "empty", "start": 0, "end": 0}
    nothing |= {"probability": 1.0, "score": 0.0} | (
        {"null_odds": 0.0} if version_2 else {}
    )
    assert answers[:3] == [nothing] * 3
    served.check(examples[:2])
    broken = served.serve(
        question=tf.constant([b"\xff\xc3", b"who?"]),
        context=tf.constant([b"the house", b"the \xe2\x82 house\xff"]),
    )
    for answer in broken["answer"].numpy():
        answer.decode()


@pytest.mark.slow
def test_no_answer_depends_on_what_else_is_asked(folder):
    """Padding is as a batch has it, and never among the best starts and ends."""
    config = dataclasses.replace(TINY, initializer_range=0.5)
    (folder / "config.json").write_text(config.to_json_string())
    given = run_squad.Options(**flags(folder, do_predict=True))
    tokenizer = WordPiece(Vocabulary.load(given.vocab_file))
    model = run_squad.Squad(given, tokenizer).objective().network(config, seed=1)
    weights = {variable.path: variable.numpy() for variable in model.variables}
    checkpoint.save(str(folder / "random"), 1, weights, keep=1)
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


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_an_export_answers_what_the_script_predicts(exported, version):
    merged = {e.id: e for each in VERSIONS for e in real_questions(each)}
    served = predictor.Predictor(str(exported / version))
    requests = [{"question": e.question, "context": e.context} for e in merged.values()]
    answers = dict(zip(merged, served.predict(requests), strict=True))
    assert len(answers) > 200
    predictions, lists = (read(exported, name, version) for name in OUTPUTS[:2])
    for id, answer in answers.items():
        assert answer["answer"] == predictions[id]
        (entry,) = (entry for entry in lists[id] if entry["text"] == answer["answer"])
        assert answer["probability"] == pytest.approx(entry["probability"], abs=1e-5)
    if version == "v2":
        odds = {id: answer["null_odds"] for id, answer in answers.items()}
        assert odds == pytest.approx(read(exported, OUTPUTS[2], version), abs=1e-4)
        assert 20 < sum(not text for text in predictions.values()) < len(answers) - 20
