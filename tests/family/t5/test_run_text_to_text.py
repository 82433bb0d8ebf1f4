"""run_text_to_text.py as a user meets it: it learns to write, and is scored and served."""

import dataclasses
import json
import re
import shutil
import sys

import numpy as np
import pytest

import predict
import run_text_to_text
import tests
from family.t5 import as_text
from family.t5.task import TextToTextExample
from serving.predictor import Predictor
from tests import forked, jobs
from tests.family.t5 import runs as text_to_text
from tests.family.t5 import t5
from tests.family.t5.runs import (
    TINY,
    answers,
    flags,
    make_task,
    pairs,
    run,
    write_table,
)
from training.finetuning.task import Predictions

GOLDEN = tests.GOLDEN / "squad"
WHOLE = {"do_train": True, "do_eval": True, "do_predict": True}


@pytest.fixture
def folder(tmp_path):
    return text_to_text.write_files(tmp_path)


# --- Whole runs ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder after a whole run that learned what to say, with an export."""
    folder = text_to_text.write_files(tmp_path_factory.mktemp("trained"))
    run(folder, num_train_epochs=[50.0], do_export=True, **WHOLE)
    return folder


def test_it_learns_to_write(trained):
    found = jobs.results(trained)
    assert found["eval_accuracy"] == found["eval_f1"] == 1.0
    assert 0 < found["eval_loss"] < 0.2
    expected = [
        {"index": f"q{number}", "input": text, "predicted": target}
        for number, (text, target) in enumerate(pairs())
    ]
    assert answers(trained) == expected
    page = (trained / "output" / "mistakes.html").read_text()
    assert "<h3>0 mistakes in 12 answers</h3>" in page
    assert f"<title>{trained.name} (dev): output</title>" in page


def test_an_export_writes_the_same(trained, tmp_path):
    model = Predictor(str(trained / "output"))
    assert model.description["form"] == "text"
    requests = [{"input": text} for text, _ in pairs()]
    expected = [{"predicted": target} for _, target in pairs()]
    assert model.predict(requests) == expected
    assert model.predict(requests[:1]) == expected[:1]
    assert model.predict([]) == []
    given = {
        "model_dir": str(trained / "output"),
        "input_file": str(trained / "dev.tsv"),
        "output_file": str(tmp_path / "answers.jsonl"),
    }
    jobs.run(predict, given)
    lines = (tmp_path / "answers.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"input": text, "target": target, "predicted": target}
        for text, target in pairs()
    ]


@pytest.mark.exhaustive
def test_evaluation_alone_gives_the_same(trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "copy")
    run(copy, do_eval=True)
    assert jobs.results(copy) == jobs.results(trained)
    # Cut after two tokens, answers of three are wrong.
    run(copy, do_eval=True, max_target_length=2, max_seq_length=7)
    assert jobs.results(copy)["eval_accuracy"] == pytest.approx(2 / 3)


@pytest.mark.exhaustive
def test_searches_and_early_stopping(folder, untraced):
    run(
        folder,
        num_trials=2,
        early_stopping_patience=1,
        eval_every_steps=1,
        eval_batch_size=12,
        max_target_length=3,
        do_train=True,
        do_eval=True,
    )
    found = json.loads((folder / "output" / "search.json").read_text())
    assert found["metric"] == "accuracy" and found["trivial"] == 1 / 12
    assert (folder / "output" / "eval_results.txt").exists()


@pytest.mark.parametrize("version", t5.VERSIONS)
def test_a_model_of_hugging_face_writes_what_it_writes_there(
    tmp_path, version, untraced
):
    words = [f"w{number}" for number in range(5, 64)]
    tokens = ["[PAD]", "[SEP]", "[UNK]", "[CLS]", "[MASK]", *words]
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    golden = t5.golden(f"{version}/outputs.npz")
    inputs = [" ".join(tokens[id] for id in row if id > 1) for row in golden["in_ids"]]
    write_table(tmp_path / "test.tsv", [(text,) for text in inputs], ["input"])
    run(
        tmp_path,
        do_predict=True,
        init_checkpoint=str(t5.GOLDEN / version),
        bert_config_file=str(t5.GOLDEN / version / "config.json"),
        max_seq_length=24,
        max_target_length=golden["greedy"].shape[1] - 1,
    )
    rows = [row[1:].tolist() for row in golden["greedy"]]  # after what it begins with
    rows = [row[: row.index(1)] if 1 in row else row for row in rows]
    expected = [" ".join(tokens[id] for id in row) for row in rows]
    assert [answer["predicted"] for answer in answers(tmp_path)] == expected


# --- Tasks ---------------------------------------------------------------------------


def predictions(task, split, examples, texts, length=6):
    """What a model gives that writes these texts."""
    vocabulary = task.tokenizer.vocabulary
    ids = np.full((len(texts), length), vocabulary.pad_id)
    for row, text in zip(ids, texts, strict=True):
        new = [*task.tokenizer.encode(text), vocabulary.end_id][:length]
        row[: len(new)] = new
    outputs = {"output_ids": ids}
    notes = [None] * len(texts)
    return Predictions(split, examples, notes, np.arange(len(texts)), outputs)


@pytest.fixture
def golden(folder):
    """Flags for a vocabulary in which all texts have tokens."""
    return {
        "vocab_file": str(GOLDEN / "uncased_vocab.txt"),
        "max_target_length": 16,
        "max_seq_length": 40,
    }


def write_glue(folder, name, header, *lines):
    content = ["\t".join(header), *("\t".join(line) for line in lines)]
    (folder / name).write_text("".join(f"{line}\n" for line in content))


def test_glue_is_scored_like_a_classifier(folder, golden):
    header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    lines = [[label, "1", "2", "It rains.", "It is wet."] for label in "11001"]
    write_glue(folder, "dev.tsv", header, *lines)
    write_glue(folder, "test.tsv", ["index", *header[1:]], *lines)
    task = make_task(folder, task_name="MRPC", **golden)
    examples = task.read("dev")
    (row,) = task.featurize(examples[0], "dev")
    assert task.tokenizer.vocabulary.text_of(row.input_ids) == (
        "mrpc sentence1 : it rains . sentence2 : it is wet ."
    )
    texts = ["equivalent", "not_equivalent", "not_equivalent", "perhaps", "other"]
    # Any other text is wrong: the fourth is a false "1", and the fifth a missed one.
    found = task.score(predictions(task, "dev", examples, texts))
    assert found == pytest.approx({"accuracy": 0.4, "f1": 0.4, "other_texts": 0.4})
    judged = task.judge(predictions(task, "dev", examples, texts))
    assert [j.predicted for j in judged[:2]] == ["equivalent", "not_equivalent"]
    assert judged[3].predicted == "(another text)" and "perhaps" in judged[3].text
    assert task.trivial_score(examples) == 0.6
    found = predictions(task, "test", task.read("test"), texts)
    files = task.prediction_files(found)
    assert files.keys() == {"predictions.jsonl", "MRPC.tsv"}
    server = files["MRPC.tsv"].split()[2:]
    assert server[1::2] == ["1", "0", "0", "0", "0"]
    first = json.loads(files["predictions.jsonl"].splitlines()[0])
    assert first["sentence1"] == "It rains." and first["label"] == "1"


def test_numbers_are_read_back(folder, golden):
    header = ["index", "sentence1", "sentence2", "score"]
    scores = ["0.0", "1.1", "2.5", "5.0"]
    write_glue(folder, "dev.tsv", header, *(["0", "a", "b", s] for s in scores))
    task = make_task(folder, task_name="sts-b", **golden)
    examples = task.read("dev")
    texts = ["0.0", "1.2", "2.4", "none"]
    found = task.score(predictions(task, "dev", examples, texts))
    gold, read = [0.0, 1.1, 2.5, 5.0], [0.0, 1.2, 2.4, as_text.WRONG_NUMBER]
    assert found["pearson"] == pytest.approx(np.corrcoef(gold, read)[0, 1])
    judged = task.judge(predictions(task, "dev", examples, texts))
    assert [j.predicted == j.gold for j in judged] == [True, True, True, False]


def test_questions_are_scored_as_in_squads_script(folder, golden):
    task = make_task(
        folder,
        task_name="squad",
        data_dir=str(GOLDEN),
        dev_file="v1_dev.json",
        **golden,
    )
    examples = task.read("dev")
    right = [task.target(example) for example in examples]
    found = task.score(predictions(task, "dev", examples, right, length=60))
    assert found["exact"] > 90 and found["total"] == len(examples) == 137
    written = predictions(task, "dev", examples, right, length=60)
    answers = json.loads(task.prediction_files(written)["predictions.json"])
    assert answers.keys() == {example.index for example in examples}
    texts = {"question": "q", "context": "A Well-known text."}
    example = TextToTextExample(texts, ("well-known",), "7")
    written = predictions(task, "dev", [example], ["well - known"])
    answers = json.loads(task.prediction_files(written)["predictions.json"])
    assert answers == {"7": "Well-known"}
    assert task.score(written) == {"exact": 100.0, "f1": 100.0, "total": 1}
    assert task.judge(written)[0].error == 0.0
    # There, "wellknown" is one word, and this is not half of it.
    written = predictions(task, "dev", [example], ["known"])
    assert task.score(written)["f1"] == 0.0


def test_both_sets_of_mnli_are_read_and_its_columns_named(folder, golden):
    task = make_task(folder, task_name="mnli", **golden)
    assert task.eval_sets == ("dev_matched", "dev_mismatched")
    assert task.columns == {"premise": "sentence1", "hypothesis": "sentence2"}
    assert set(task.inputs) == {"premise", "hypothesis"}
    header = ["index", "sentence1", "sentence2", "gold_label"]
    write_glue(folder, "dev_matched.tsv", header, ["0", "P.", "H.", "neutral"])
    (example,) = task.read("dev_matched")
    assert task.wording.input(example.texts) == "mnli hypothesis: H. premise: P."


# --- Rows ----------------------------------------------------------------------------


def test_what_is_cut_is_said_and_targets_are_no_longer_than_needed(
    folder, capsys, untraced
):
    write_table(
        folder / "train.tsv", [("say red " * 9, "red blue"), ("say zzz", "zzz")]
    )
    run(folder, do_train=True, train_batch_size=[2], max_target_length=2)
    said = capsys.readouterr().out
    assert re.search(
        r"train: 2 examples, 2 rows; 1 inputs were cut to --max_seq_", said
    )
    assert "; 1 targets contain unknown tokens; 1 targets were cut to --max_" in said
    task = make_task(folder, max_target_length=30)
    assert task.layout(task.read("dev"), 8).shape("target_ids") == (8,)


def test_a_run_goes_on_with_its_settings_only(folder, untraced):
    run(folder, do_train=True)
    with pytest.raises(run_text_to_text.UserError, match="max_target_length was 6 and"):
        run(folder, do_train=True, max_target_length=7)


def test_rows_end_with_the_end_and_begin_with_text(folder):
    task = make_task(folder)
    (row,) = task.featurize(TextToTextExample({"input": "say red"}, "red", "0"), "dev")
    tokens = task.tokenizer.vocabulary.tokens
    assert [tokens[id] for id in row.input_ids] == ["say", "red", "[SEP]"]
    assert [tokens[id] for id in row.labels["target_ids"]] == ["red", "[SEP]"]
    (row,) = task.featurize(TextToTextExample({"input": "say red"}, None, "0"), "test")
    assert row.labels == {"target_ids": [], "target_mask": []}
    assert flags(folder)["max_seq_length"] == 8


def test_targets_without_tokens_are_counted(folder):
    task = make_task(folder)
    for target in ("\u200b", "red"):
        list(task.featurize(TextToTextExample({"input": "say"}, target, "0"), "dev"))
    lost = "targets are empty, because the vocabulary drops them"
    assert [name for name, number in task.counts.items() if number] == [lost]
    assert task.counts[lost] == 1


# --- Devices -------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_two_replicas_accumulation_and_xla_write_as_one_device(folder):
    config = dataclasses.replace(TINY, hidden_size=16, num_hidden_layers=1)
    (folder / "config.json").write_text(config.to_json_string())
    given = {"num_train_epochs": [2.0], "do_train": True, "do_predict": True}
    run(folder, output_dir=str(folder / "one"), **given)
    program = str(tests.ROOT / "tests" / "programs" / "on_two_cpus.py")
    line = jobs.command("run_text_to_text.py", flags(folder, **given))
    line = [sys.executable, program, *line[1:], "--distribution=mirrored"]
    line += ["--gradient_accumulation_steps=2", "--xla"]
    done = forked.finished(line)
    assert done.returncode == 0, done.stderr
    assert "on 2 devices" in done.stdout
    expected, found = jobs.weights(folder, "one"), jobs.weights(folder)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, atol=1e-5, err_msg=key)
    written = (folder / "output" / "predictions.jsonl").read_text()
    assert written == (folder / "one" / "predictions.jsonl").read_text()
