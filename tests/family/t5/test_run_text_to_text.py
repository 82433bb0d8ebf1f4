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
from errors import UserError
from family.t5 import as_text
from family.t5.task import TextToTextExample
from family.t5.tokenizer import FAMILY
from serving.predictor import Predictor
from tests import forked, jobs, served, squad, tiny
from tests.family.t5 import runs as text_to_text
from tests.family.t5 import t5
from tests.family.t5.runs import (
    TINY,
    flags,
    make_task,
    pairs,
    run,
    write_table,
)
from text.tokenizers.learning import sentencepiece_learning
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


@pytest.mark.exhaustive
def test_it_learns_to_write(trained):
    found = jobs.results(trained)
    assert found["eval_accuracy"] == found["eval_f1"] == 1.0
    assert 0 < found["eval_loss"] < 0.2
    expected = [
        {"index": f"q{number}", "input": text, "predicted": target}
        for number, (text, target) in enumerate(pairs())
    ]
    assert jobs.predictions(trained) == expected
    page = (trained / "output" / "mistakes.html").read_text()
    assert "<h3>0 mistakes in 12 answers</h3>" in page
    assert f"<title>{trained.name} (dev): output</title>" in page


@pytest.mark.exhaustive
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
    assert [answer["predicted"] for answer in jobs.predictions(tmp_path)] == expected


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


# --- run_text_to_text.py: files, flags and models that are refused, in one line ------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task_name": "xnli"}, "task_name=xnli: not one of cola, .*, squad"),
        ({"max_target_length": 1}, "--max_target_length=1: must be from 2"),
        ({"max_seq_length": 1}, "must be at least 2"),
        ({"distill_from": "teacher"}, "--distill_from has no effect on a model that"),
        ({"lstm_layers": 1}, "--lstm_layers has no effect"),
        ({"features": "mix"}, "--features has no effect"),
        ({"lm_loss_weight": 0.5}, "--lm_loss_weight has no effect"),
        (
            {"export_formats": ["onnx"], "do_export": True},
            "--export_formats has no effect on a model that",
        ),
        ({"task_name": "rte", "dev_file": "a"}, "--dev_file has no effect with .*=rte"),
        ({"target_column": "input"}, "--input_column and --target_column are both"),
        ({"task_name": "squad", "input_column": "a"}, "--input_column has no effect"),
        ({"task_name": "squad", "skip_bad_lines": True}, "--skip_bad_lines has no"),
        ({"do_predict": False}, "nothing to do"),
        (
            {"output_dir": "DATA", "test_file": "predictions.jsonl"},
            "predictions.jsonl: is also an input; choose another",
        ),
    ],
)
def test_flags(folder, changes, reason):
    given = {k: str(folder) if v == "DATA" else v for k, v in changes.items()}
    (folder / "predictions.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=reason):
        run_text_to_text.Options(**flags(folder, **{"do_predict": True} | given))


@pytest.mark.parametrize(
    ("name", "rows", "header", "reason"),
    [
        ("dev.tsv", [("a", "")], ("input", "target"), "dev.tsv:2: the target is empty"),
        ("dev.tsv", [("a", "b")], ("input", "answer"), "dev.tsv:1: has no column"),
        ("test.tsv", [("a", "b")], ("text", "target"), "test.tsv:1: has no column"),
        ("test.tsv", [], ("input", "target"), "test.tsv: contains no examples"),
        ("test.tsv", [("a",)], ("input", "target"), "test.tsv:2: 1 column, but the"),
    ],
)
def test_tables(folder, name, rows, header, reason):
    write_table(folder / name, rows, header)
    task = make_task(folder)
    with pytest.raises(UserError, match=reason):
        task.read(name.removesuffix(".tsv"))


def test_numbers_in_json_are_not_text(folder):
    (folder / "test.jsonl").write_text('{"input": 3}\n')
    task = make_task(folder, test_file="test.jsonl")
    with pytest.raises(UserError, match=r"test.jsonl:1: 'input' is 3, not text"):
        task.read("test")


def test_labels_and_answers(folder):
    (folder / "dev.tsv").write_text("sentence\tlabel\na\t2\n")
    task = make_task(folder, task_name="sst-2")
    with pytest.raises(
        UserError, match="dev.tsv:2: label '2' is not one of 0, 1; check"
    ):
        task.read("dev")
    asked = squad.shining(4, 1, impossible=True)
    (folder / "dev.json").write_text(json.dumps(asked))
    given = {"task_name": "squad", "dev_file": "dev.json"}
    with pytest.raises(UserError, match="has no answer; a model that writes text"):
        make_task(folder, do_eval=True, **given).read("dev")
    assert make_task(folder, **given).read("dev")
    asked = squad.one(answer={"text": " "})
    (folder / "train.json").write_text(json.dumps(asked))
    given = {"task_name": "squad", "train_file": "train.json"}
    with pytest.raises(UserError, match="train.json: question 'q': the target is"):
        make_task(folder, **given).read("train")
    with pytest.raises(UserError, match="ax has only a test set; train on MNLI"):
        make_task(folder, task_name="ax", do_train=True)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            tiny.config(),
            'only an encoder with a decoder writes text; set "architecture"',
        ),
        (dataclasses.replace(TINY, eos_token_id=1), "3, but eos_token_id is 1 in"),
        (dataclasses.replace(TINY, vocab_size=9), "tokens, more than vocab_size=9"),
        (dataclasses.replace(TINY, pad_token_id=1), "padding is 0, but pad_token_id"),
    ],
)
def test_networks(folder, config, reason):
    (folder / "config.json").write_text(config.to_json_string())
    with pytest.raises(UserError, match=reason):
        run(folder, do_train=True)


def test_an_encoder_alone_is_no_start(folder, untraced):
    from training.storage import checkpoint
    from modeling.architectures.table import make_encoder

    weights = {v.path: v.numpy() for v in make_encoder(TINY).weights}
    prefix = str(folder / "model.ckpt-best")
    checkpoint.write_bundle(prefix, weights)
    with pytest.raises(UserError, match="decoder/"):
        run(folder, do_train=True, init_checkpoint=prefix)
    run(folder, do_train=True, init_checkpoint=prefix, init_encoder_only=True)
    assert jobs.weights(folder)


# --- run_text_to_text.py: a SavedModel writes as Python does, whatever it is asked ---


class Exported(served.Exported):
    """A model with random weights and T5's kind of vocabulary, in both forms."""

    def __init__(self, folder):
        text_to_text.write_files(folder)
        content = sentencepiece_learning.learn(
            iter((GOLDEN / "v1_dev.json").read_text("utf-8").split(",")),
            FAMILY.symbols,
            vocab_size=200,
            character_coverage=0.999,
            input_sentence_size=1000,
        )
        (folder / "spiece.model").write_bytes(content)
        task = make_task(
            folder,
            task_name="squad",
            data_dir=str(GOLDEN),
            dev_file="v1_dev.json",
            vocab_file=str(folder / "spiece.model"),
            max_seq_length=40,
        )
        # More rows than tokens, as the released models have; some will be written.
        size = len(task.tokenizer.vocabulary) + 28
        config = dataclasses.replace(TINY, vocab_size=size, eos_token_id=1)
        objective = task.objective().for_evaluation
        objective.check(config)
        model = objective.network(config, seed=3)
        super().__init__(task, model, folder, "dev")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return Exported(tmp_path_factory.mktemp("text"))


def test_a_saved_model_writes_as_the_script(exported):
    examples = [*exported.task.read("dev")[:60], *exported.task.samples()]
    expected = exported.in_python(examples)
    assert len({answer["predicted"] for answer in expected}) > 10
    assert exported.answers(examples) == expected
    # Whatever the batch.
    assert exported.answers(examples[:1]) == expected[:1]
    assert exported.answers(examples[30:37]) == expected[30:37]
    assert exported.answers([]) == []


def test_a_saved_model_has_an_answer_to_everything(exported):
    huge = "a" * 100_000, "b. " * 30_000
    pairs = [("", ""), huge, ("\0", "<extra_id_0> \u00a0 \ufffd"), ("a\x0bb", " ")]
    names = exported.task.wording.features
    examples = [
        TextToTextExample(dict(zip(names, pair, strict=True)), None, "")
        for pair in pairs
    ]
    expected = exported.in_python(examples)
    assert exported.answers(examples) == expected
    (odd,) = exported.served.answers([{"question": b"\xff", "context": b"caf\xe9"}])
    same = {"question": "\ufffd", "context": "caf\ufffd"}
    assert [odd] == exported.in_python([TextToTextExample(same, None, "")])
    assert json.dumps(odd)
