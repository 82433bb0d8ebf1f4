"""run_classifier.py: the release's files and numbers, GLUE's layouts."""

import json
import os

import numpy as np
import pytest

import run_classifier
import tests
from training.backend import tf
from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source
from errors import UserError
from tests import jobs, tiny
from tests.classifier import TINY, WORDS, run, task, text, write_lines
from tests.jobs import results

ROOT = tests.ROOT
GOLDEN = ROOT / "tests" / "golden"


@pytest.fixture
def folder(tmp_path):
    tiny.write(tmp_path, WORDS, TINY)
    return tmp_path


# --- The release's numbers -----------------------------------------------------------


def test_features_and_outputs_equal_the_releases(tmp_path):
    examples = json.loads((GOLDEN / "classifier" / "examples.json").read_text())
    with np.load(GOLDEN / "classifier" / "outputs.npz") as file:
        expected = dict(file)
    with open(tmp_path / "dev.jsonl", "w") as file:
        for example in examples:
            file.write(json.dumps(example) + "\n")
    tensors = Source.open(str(GOLDEN / "checkpoint" / "bert_model.ckpt")).read()
    with np.load(GOLDEN / "classifier" / "head.npz") as file:
        tensors |= dict(file)
    (tmp_path / "model").mkdir()
    prefix = checkpoint.save(Folder.open(str(tmp_path / "model")), 1, tensors, keep=1)
    common = {
        "data_dir": str(tmp_path),
        "vocab_file": str(GOLDEN / "checkpoint" / "vocab.txt"),
        "bert_config_file": str(GOLDEN / "checkpoint" / "bert_config.json"),
        "output_dir": str(tmp_path / "output"),
        "init_checkpoint": prefix,
        "max_seq_length": 32,
        "dev_file": "dev.jsonl",
        "test_file": "dev.jsonl",
        "text_a_column": "text_a",
        "text_b_column": "text_b",
        "labels": ["0", "1", "2"],
    }
    singles = [i for i, example in enumerate(examples) if example["text_b"] is None]
    pairs = [i for i in range(len(examples)) if i not in singles]
    assert singles and pairs
    for some, text_b in ((singles, None), (pairs, "text_b")):
        with open(tmp_path / "dev.jsonl", "w") as file:
            for i in some:
                file.write(json.dumps(examples[i]) + "\n")
        run_classifier.main(
            run_classifier.Options(
                task_name="custom",
                do_eval=True,
                do_predict=True,
                **common | {"text_b_column": text_b},
            )
        )
        rows = tf.data.TFRecordDataset(str(tmp_path / "output" / "eval.tf_record"))
        for i, record in zip(some, rows.as_numpy_iterator(), strict=True):
            features = tf.train.Example.FromString(record).features.feature
            for name in ("input_ids", "input_mask", "segment_ids", "label_ids"):
                wanted = np.atleast_1d(expected[name][i]).tolist()
                assert list(features[name].int64_list.value) == wanted, (i, name)
            assert list(features["is_real_example"].int64_list.value) == [1]
        lines = (tmp_path / "output" / "test_results.tsv").read_text().splitlines()
        got = np.array([[float(x) for x in line.split("\t")] for line in lines])
        np.testing.assert_allclose(got, expected["probabilities"][some], atol=1e-5)
        loss = expected["per_example_loss"][some].mean()
        assert results(tmp_path)["eval_loss"] == pytest.approx(loss, abs=1e-5)


def test_command_of_the_2018_readme_runs(folder):
    rng = np.random.default_rng(0)
    head = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    for name, number in (("train", 32), ("dev", 9)):
        lines = [f"{i % 2}\t1\t2\t{text(rng)}\t{text(rng)}" for i in range(number)]
        write_lines(folder / f"{name}.tsv", head + lines)
    write_lines(
        folder / "test.tsv",
        ["index\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        + [f"{i}\t1\t2\t{text(rng)}\t{text(rng)}" for i in range(5)],
    )
    given = {
        "task_name": "MRPC",
        "do_train": "true",
        "do_eval": "true",
        "do_predict": "true",
        "data_dir": folder,
        "vocab_file": f"{folder}/vocab.txt",
        "bert_config_file": f"{folder}/config.json",
        "max_seq_length": 32,
        "train_batch_size": 8,
        "learning_rate": "2e-5",
        "num_train_epochs": "3.0",
        "output_dir": f"{folder}/output/",
    }
    # A sound run on CPUs leaves stderr empty. The default holds back what TensorFlow says
    # of a missing GPU; a user's choice may not.
    env = jobs.ENVIRONMENT | {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
    done = jobs.finished(jobs.command("run_classifier.py", given), env=env)
    assert (done.returncode, done.stderr) == (0, "")
    names = os.listdir(folder / "output")
    for name in (
        "eval_results.txt",
        "test_results.tsv",
        "train.tf_record",
        "eval.tf_record",
        "predict.tf_record",
        "checkpoint",
        "model.ckpt-12.index",
        "mistakes.html",
    ):
        assert name in names
    assert (folder / "output" / "curves.png").read_bytes().startswith(b"\x89PNG")
    lines = (folder / "output" / "test_results.tsv").read_text().splitlines()
    assert len(lines) == 5
    for line in lines:
        assert sum(map(float, line.split("\t"))) == pytest.approx(1.0)
    keys = [
        line.split(" = ")[0]
        for line in (folder / "output" / "eval_results.txt").read_text().splitlines()
    ]
    assert keys == ["eval_accuracy", "eval_f1", "eval_loss", "global_step", "loss"]
    lines = (folder / "output" / "MRPC.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 6
    page = (folder / "output" / "mistakes.html").read_text()
    assert "<title>MRPC (dev): output</title>" in page
    assert all(line.split("\t")[1] in ("0", "1") for line in lines[1:])


# --- GLUE's layouts ------------------------------------------------------------------

# A header, one line for training and one for the test set, and what they are read as.
LAYOUTS = {
    "CoLA": (None, 'gj04\t1\t\tHe "sat.', "index\tsentence", "7\tA cat"),
    "SST-2": ("sentence\tlabel", 'a "b \t1', "index\tsentence", "0\tA cat"),
    "STS-B": (
        "index\tgenre\tsentence1\tsentence2\tscore",
        "0\tx\ta cat\tthe cat\t4.25",
        "index\tgenre\tsentence1\tsentence2",
        "0\tx\ta cat\tthe cat",
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "9\t1\t2\ta cat\tthe cat\t0",
        "id\tquestion1\tquestion2",
        "3\ta cat\tthe cat",
    ),
    "QNLI": (
        "index\tquestion\tsentence\tlabel",
        "0\ta cat\tthe cat\tnot_entailment",
        "index\tquestion\tsentence",
        "3\ta cat\tthe cat",
    ),
    "RTE": (
        "index\tsentence1\tsentence2\tlabel",
        "0\ta cat\tthe cat\tentailment",
        "index\tsentence1\tsentence2",
        "3\ta cat\tthe cat",
    ),
    "WNLI": (
        "index\tsentence1\tsentence2\tlabel",
        "0\ta cat\tthe cat\t1",
        "index\tsentence1\tsentence2",
        "3\ta cat\tthe cat",
    ),
}
READ = {
    "CoLA": ('He "sat.', None, "1"),
    "SST-2": ('a "b ', None, "1"),
    "STS-B": ("a cat", "the cat", 4.25),
    "QQP": ("a cat", "the cat", "0"),
    "QNLI": ("a cat", "the cat", "not_entailment"),
    "RTE": ("a cat", "the cat", "entailment"),
    "WNLI": ("a cat", "the cat", "1"),
}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_glue_layouts_are_read(folder, name, ending):
    header, line, test_header, test_line = LAYOUTS[name]
    lines = ([header] if header else []) + [line, line]
    content = "\ufeff" + ending.join(lines) + ending
    (folder / "train.tsv").write_bytes(content.encode())
    (folder / "test.tsv").write_bytes(f"{test_header}{ending}{test_line}".encode())
    this = task(folder, name)
    examples = this.read("train")
    assert len(examples) == 2
    assert examples[0][:3] == READ[name]
    (example,) = this.read("test")
    assert example.label is None
    assert example.text_b == (READ[name][1] and "the cat")
    assert example.index == test_line.split("\t")[0]


# ClassLabel names of Hugging Face's data set "glue" where files have numbers.
GLUE_NAMES = {
    "CoLA": ("unacceptable", "acceptable"),
    "SST-2": ("negative", "positive"),
    "MRPC": ("not_equivalent", "equivalent"),
    "QQP": ("not_duplicate", "duplicate"),
    "WNLI": ("not_entailment", "entailment"),
}


@pytest.mark.parametrize("name", GLUE_NAMES)
def test_names_of_glues_labels_are_known(folder, name):
    this = task(folder, name)
    expected = {"labels": ("0", "1"), "label_names": GLUE_NAMES[name]}
    assert this.state() == expected
    assert this.description().items() >= expected.items()
    # Nothing that identifies a run has changed.
    assert this.settings() == {"labels": ("0", "1"), "both_orders": False}


def test_mnli_has_two_of_each_and_ax_its_answers(folder, untraced):
    header = "index\tsentence1\tsentence2\tlabel1\tgold_label"
    for name in ("train", "dev_matched", "dev_mismatched"):
        write_lines(
            folder / f"{name}.tsv",
            [header]
            + [
                f"{i}\ta cat\tthe dog\tneutral\t{label}"
                for i, label in enumerate(
                    ["neutral", "entailment", "contradiction", "neutral"] * 4
                )
            ],
        )
    for name in ("test_matched", "test_mismatched", "diagnostic"):
        write_lines(
            folder / f"{name}.tsv",
            ["index\tsentence1\tsentence2", "5\ta cat\tthe dog", "6\tred\tblue"],
        )
    run(folder, "MNLI", do_train=True, do_eval=True, do_predict=True)
    output = folder / "output"
    values = results(folder)
    assert {"eval_accuracy", "eval_dev_mismatched_accuracy"} <= values.keys()
    for name in ("test_results.tsv", "test_results_test_mismatched.tsv"):
        assert len((output / name).read_text().splitlines()[0].split("\t")) == 3
    for name in ("MNLI-m.tsv", "MNLI-mm.tsv"):
        lines = (output / name).read_text().splitlines()
        assert [line.split("\t")[0] for line in lines] == ["index", "5", "6"]
        assert lines[1].split("\t")[1] in ("neutral", "entailment", "contradiction")
    run(
        folder,
        "AX",
        do_predict=True,
        init_checkpoint=str(output),
        output_dir=str(folder / "ax"),
    )
    assert len((folder / "ax" / "AX.tsv").read_text().splitlines()) == 3
    with pytest.raises(UserError, match="has only a test set"):
        run(folder, "AX", do_train=True)


def test_xnli_takes_one_language(folder):
    (folder / "multinli").mkdir()
    write_lines(
        folder / "multinli" / "multinli.train.zh.tsv",
        ["premise\thypo\tlabel", "a cat\tthe dog\tcontradictory"],
    )
    write_lines(
        folder / "xnli.dev.tsv",
        [
            "language\tgold_label\tsentence1\tsentence2",
            "ar\tneutral\ta\tb",
            "zh\tentailment\tc\td",
        ],
    )
    this = task(folder, "XNLI")
    assert this.read("train")[0].label == "contradiction"
    assert [example.text_a for example in this.read("dev")] == ["c"]
