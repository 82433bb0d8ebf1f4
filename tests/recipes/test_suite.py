"""Models fine-tuned for many tasks: what is planned, what is made of the scores."""

import json
import os
import shutil
import zipfile

import numpy as np
import pytest

from training.storage import checkpoint
from training.storage.source import read_config
from errors import UserError
from modeling.architectures.table import make_encoder
from recipes import suite
from recipes.comparisons import cells, submission, suite_page, suite_plan
from tests import tiny
from tests.recipes.plans import by_name, flag
from tests.recipes.test_ablations import InThisProcess
from text.tasks import glue

_PAIRS = "index\tsentence1\tsentence2\t{label}\n"
_GLUE_FILES = {
    "CoLA": ("train", "dev", "test"),
    "SST-2": ("train", "dev", "test"),
    "MRPC": ("train", "dev", "test"),
    "STS-B": ("train", "dev", "test"),
    "QQP": ("train", "dev", "test"),
    "MNLI": (
        *("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"),
    ),
    "QNLI": ("train", "dev", "test"),
    "RTE": ("train", "dev", "test"),
    "diagnostic": ("diagnostic",),
}


def write_model(folder):
    folder.mkdir()
    tiny.write(folder, ["a", "b"], tiny.config(vocab_size=7))
    encoder = make_encoder(read_config(str(folder)))
    weights = {variable.path: variable.numpy() for variable in encoder.weights}
    checkpoint.write_bundle(str(folder / "bert_model.ckpt"), weights)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model and empty files of all tasks; the working directory."""
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "small")
    for task, names in _GLUE_FILES.items():
        (tmp_path / "glue" / task).mkdir(parents=True)
        for name in names:
            (tmp_path / "glue" / task / f"{name}.tsv").write_text("")
    for name in ("squad/train-v1.1.json", "squad/dev-v1.1.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path


def given(**changes):
    flags = {"init_checkpoint": ["small"], "glue_dir": "glue", "output_dir": "out"}
    return suite.Options(**flags | changes)


def test_the_papers_search_for_every_task_and_its_own_settings_for_questions(folder):
    found = by_name(suite_plan.plan(given(tasks=["SQuAD:squad"])))
    tasks = [name.partition("/")[2] for name in found]
    assert tasks == "mnli cola sst-2 mrpc sts-b qqp qnli rte squad ax".split()
    searched = found["small/cola"]
    assert flag(searched, "learning_rate") == "5e-05,3e-05,2e-05"
    assert flag(searched, "train_batch_size") == "16,32"
    assert flag(searched, "num_train_epochs") == "2.0,3.0,4.0"
    assert flag(searched, "do_predict") == "true"
    assert flag(found["small/squad"], "learning_rate") == "5e-05"
    assert flag(found["small/squad"], "do_predict") == "false"
    assert flag(found["small/qqp"], "skip_bad_lines") == "true"
    assert flag(searched, "skip_bad_lines") is None
    quick = by_name(
        suite_plan.plan(given(quick=True, classifier_flags="--learning_rate=1"))
    )
    assert flag(quick["small/cola"], "num_train_epochs") == "3.0"
    assert flag(quick["small/cola"], "learning_rate") == "1"  # the last one counts


def test_the_page_says_what_is_trained_with_whichever_flag_says_so(folder):
    tasks = ["RTE:glue/RTE", "CoLA:glue/CoLA", "SQuAD:squad"]
    passed = "--num_train_epochs=1 --train_batch_size=8 --num_train_epochs=5"
    chosen = {"tasks": tasks, "glue_dir": None, "quick": True, "num_trials": 2}
    found = suite_plan.plan(given(**chosen, classifier_flags=passed)).facts
    assert found == {
        "RTE, CoLA": "train_batch_size 8, learning_rate 3e-05, num_train_epochs 5",
        "SQuAD": "train_batch_size 32, learning_rate 5e-05, num_train_epochs 3.0",
        "seeds of each": "2",
        "classifier": passed,
    }


def test_what_begins_with_mnli_waits_for_it(folder):
    found = by_name(suite_plan.plan(given(from_mnli=True)))
    mnli = found["small/mnli"]
    assert mnli.keeps_weights and not found["small/qnli"].keeps_weights
    for task in ("rte", "mrpc", "sts-b"):
        cell = found[f"small/{task}"]
        assert cell.needs == (mnli.name,)
        assert flag(cell, "init_checkpoint") == mnli.output
        assert flag(cell, "init_encoder_only") == "true"
    assert not found["small/qnli"].needs
    diagnostic = found["small/ax"]
    assert diagnostic.needs == (mnli.name,) and flag(diagnostic, "do_train") is None


def test_the_baseline_has_the_config_and_no_weights(folder):
    planned = suite_plan.plan(given(random_baseline=True))
    assert planned.models == ("small", "not_pretrained")
    cell = by_name(planned)["not_pretrained/rte"]
    assert flag(cell, "init_checkpoint") is None
    assert flag(cell, "vocab_file") == "small/vocab.txt"
    suite_plan.write_configs("out", planned)
    written = read_config("out/configs/not_pretrained.json")
    assert written == read_config("small")


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"init_checkpoint": ["none", "small"], "tasks": ["SQuAD:none", "x:glue"]},
            r"--tasks=SQuAD:none: none is not a folder; --tasks=x:glue: must be NAME:FOLDER"
            r".*; none: no such checkpoint",
        ),
        (
            {"glue_dir": "squad"},
            "^squad/CoLA is not a folder; .*; squad/MNLI is not a folder; .*; "
            "AX: squad/diagnostic/diagnostic.tsv is not there$",
        ),
        (
            {"glue_dir": "none", "tasks": ["SQuAD:none"]},
            "^--glue_dir=none: is not a folder; --tasks=SQuAD:none: none is not a folder$",
        ),
        (
            {"glue_dir": None, "tasks": ["AX:glue/diagnostic"]},
            "^AX needs MNLI in --tasks",
        ),
        ({"tasks": ["AX"]}, "--tasks=AX: must be NAME:FOLDER"),
        (
            {"init_checkpoint": ["bare"]},
            "^bare: contains no vocabulary; copy it there; bare: contains no config",
        ),
        (
            {"glue_dir": None, "tasks": ["MNLI:glue/MNLI"], "from_mnli": True},
            "--from_mnli has no effect without RTE, MRPC, STS-B",
        ),
        (
            {"swag_flags": "--seed=1"},
            "--swag_flags has no effect: no task is of run_swag",
        ),
        (
            {"init_checkpoint": ["small", "./small"]},
            "two models are named small; rename",
        ),
        (
            {"glue_dir": None, "tasks": ["RTE:glue/RTE"], "from_mnli": True},
            "--from_mnli needs MNLI in --tasks",
        ),
        ({"glue_dir": None}, "nothing to do; pass --tasks or --glue_dir"),
        ({"squad_flags": "--version_2", "tasks": ["SQuAD:squad"]}, None),
        ({"classifier_flags": "--do_train"}, "--do_train is set by the plan"),
        ({"init_checkpoint": []}, "--init_checkpoint= is empty"),
    ],
)
def test_all_that_is_missing_is_said_at_once(folder, changes, message):
    if message is None:  # scripts check their flags themselves
        suite_plan.plan(given(**changes))
        return
    (folder / "bare").mkdir()
    for part in (folder / "small").glob("*.ckpt.*"):
        shutil.copy(part, folder / "bare")
    with pytest.raises(UserError, match=message):
        suite_plan.plan(given(**changes))


def test_flags_that_do_not_fit_one_task_are_refused_before_any_runs(
    folder, monkeypatch
):
    monkeypatch.setattr(cells.subprocess, "Popen", InThisProcess)
    tasks = ["RTE:glue/RTE", "STS-B:glue/STS-B"]
    flags = given(glue_dir=None, tasks=tasks, classifier_flags="--calibrate")
    with pytest.raises(UserError, match="predicts a number, not labels"):
        suite.main(flags)
    assert not (folder / "out").exists()


def test_a_folder_of_others_is_left_alone(folder, monkeypatch):
    monkeypatch.setattr(cells, "check_flags", lambda *_: None)
    (folder / "out").mkdir()
    (folder / "out" / "mine").write_text("")
    with pytest.raises(UserError, match="did not make"):
        suite.main(given())
    assert [path.name for path in (folder / "out").iterdir()] == ["mine"]


# --- Scores --------------------------------------------------------------------------


def _finish(results, cell, scores):
    results.cells[cell] = {"results": scores}


def test_scores_are_means_over_the_seeds_of_the_best_setting(folder):
    results = suite_page.SuiteResults("out", suite_plan.plan(given()))
    _finish(results, "small/mrpc", {"eval_f1": 0.9, "eval_accuracy": 0.8})
    output = folder / "out/small/mrpc/output"
    output.mkdir(parents=True)
    runs = [
        # One seed is the best of all, and its setting is not.
        *(("rate1", 1, 0.70, 0.72), ("rate1", 2, 0.90, 0.92)),
        *(("rate2", 1, 0.84, 0.86), ("rate2", 2, 0.86, 0.88)),
    ]
    search = {
        "settings": {"rate1": {"mean": 0.80}, "rate2": {"mean": 0.85}},
        "runs": [
            {"name": f"{rate}-seed{seed}", "eval_accuracy": accuracy, "eval_f1": f1}
            for rate, seed, accuracy, f1 in runs
        ]
        + [{"name": "rate2-seed3", "score": None, "failed": "loss is not finite"}],
    }
    (output / "search.json").write_text(json.dumps(search))
    results.write()
    tables = json.loads((folder / "out/suite.json").read_text())["tables"]
    row = tables["GLUE"]["rows"][0]["here"]
    assert row["MRPC, F1"]["runs"] == [86, 88]
    assert row["CoLA, Matthews"]["mean"] is None and row["average"]["mean"] is None
    page = (folder / "out/suite.html").read_text()
    assert "87.0 ± 1.4 (2 of 3 runs)" in page and "BERT-Large" in page


def test_averages_are_the_papers_and_the_servers(folder):
    results = suite_page.SuiteResults("out", suite_plan.plan(given()))
    # Of the 2018 release's smallest model, and the accuracies and correlations that its
    # README has beside them.
    numbers = {
        "mnli": {"eval_accuracy": 70.2, "eval_dev_mismatched_accuracy": 70.3},
        "qqp": {"eval_f1": 62.2, "eval_accuracy": 83.4},
        "qnli": {"eval_accuracy": 81.5},
        "sst-2": {"eval_accuracy": 83.2},
        "cola": {"eval_matthews": 0.0},
        "sts-b": {"eval_spearman": 73.6, "eval_pearson": 74.3},
        "mrpc": {"eval_f1": 81.1, "eval_accuracy": 71.1},
        "rte": {"eval_accuracy": 57.2},
    }
    for task, scores in numbers.items():
        shares = {name: score / 100 for name, score in scores.items()}
        _finish(results, f"small/{task}", shares)
    (folder / "out/small").mkdir(parents=True)
    results.write()
    tables = json.loads((folder / "out/suite.json").read_text())["tables"]
    row = tables["GLUE"]["rows"][0]["here"]
    columns = [70.2, 70.3, 62.2, 81.5, 83.2, 0.0, 73.6, 81.1, 57.2]
    assert row["average"]["mean"] == pytest.approx(np.mean(columns))
    # With its 62.3 for WNLI, the server's score of this model is 64.2.
    with_wnli = (8 * row["as the server"]["mean"] + 62.3) / 9
    assert with_wnli == pytest.approx(64.2, abs=0.06)
    published = {row["label"]: row["numbers"] for row in tables["GLUE"]["published"]}
    averages = {name: numbers["average"] for name, numbers in published.items()}
    # As the paper prints them.
    assert averages == {"OpenAI GPT": 75.1, "BERT-Base": 79.6, "BERT-Large": 82.1}


# --- The answers to the test sets ----------------------------------------------------


def _answers(folder, changes=()):
    """Files of all tasks but WNLI; returns their folders."""
    folders = {}
    for name, expected in submission.FILES.items():
        if name == "WNLI.tsv":
            continue
        data = glue.TASKS[expected.task]
        answer = data.labels[-1] if data.labels else "3.250"
        lines = [f"{index}\t{answer}\n" for index in range(expected.size)]
        for at, line in dict(changes).get(name, {}).items():
            lines[at] = line
        (folder / expected.task).mkdir(exist_ok=True)
        (folder / expected.task / name).write_text(
            "".join(["index\tprediction\n", *lines])
        )
        folders[expected.task] = str(folder / expected.task)
    return folders


def test_the_zip_has_eleven_files_and_says_always_no_for_wnli(tmp_path):
    folders = _answers(tmp_path)
    path = tmp_path / "answers.zip"
    assert submission.write(str(path), folders) == []
    with zipfile.ZipFile(path) as archive:
        names = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm QNLI RTE WNLI AX".split()
        assert archive.namelist() == [f"{name}.tsv" for name in names]
        header, *lines = archive.read("WNLI.tsv").decode().splitlines()
        assert header == "index\tprediction" and len(lines) == 146
        assert {line.partition("\t")[2] for line in lines} == {"0"}
        own = (tmp_path / "qnli" / "QNLI.tsv").read_bytes()
        assert archive.read("QNLI.tsv") == own
    before = path.read_bytes()
    submission.write(str(path), folders)
    assert path.read_bytes() == before


def test_what_the_server_would_refuse_is_said(tmp_path):
    folders = _answers(tmp_path)
    with open(tmp_path / "rte" / "RTE.tsv", "a") as file:
        file.write("3000\tentailment\n")
    del folders["ax"]
    assert submission.write(str(tmp_path / "answers.zip"), folders) == [
        "RTE.tsv has 3,001 answers, and the server’s test set 3,000",
        "lacks AX.tsv; the server takes only all 11 files",
    ]


@pytest.mark.parametrize(
    "name, at, line",
    [
        ("CoLA.tsv", 5, "5\tacceptable\n"),
        ("CoLA.tsv", 5, "6\t1\n"),
        ("STS-B.tsv", 0, "0\t5.001\n"),
        ("STS-B.tsv", 0, "0\tnan\n"),
    ],
)
def test_an_answer_of_another_form_is_named(tmp_path, name, at, line):
    folders = _answers(tmp_path, {name: {at: line}})
    with pytest.raises(UserError, match=rf"{name}:{at + 2}: .* is not the answer {at}"):
        submission.write(str(tmp_path / "answers.zip"), folders)


# --- The whole -----------------------------------------------------------------------


def test_from_checkpoints_to_a_page_and_a_zip(folder, monkeypatch, untraced, capsys):
    monkeypatch.setattr(cells.subprocess, "Popen", InThisProcess)
    labels = ("entailment", "neutral", "contradiction")
    for path in (folder / "glue" / "MNLI").iterdir():
        rows = "".join(f"{i}\ta b\tb\t{labels[i % 3]}\n" for i in range(6))
        path.write_text(_PAIRS.format(label="gold_label") + rows)
    for path in (folder / "glue" / "RTE").iterdir():
        rows = "".join(f"{i}\ta\tb a\t{'not_' * (i % 2)}entailment\n" for i in range(6))
        path.write_text(_PAIRS.format(label="label") + rows)
    (folder / "glue/diagnostic/diagnostic.tsv").write_text(
        _PAIRS.format(label="label") + "0\ta\tb\t\n1\tb\ta\t\n"
    )
    chosen = {
        "glue_dir": None,
        "tasks": ["RTE:glue/RTE", "MNLI:glue/MNLI", "AX:glue/diagnostic"],
        "from_mnli": True,
        "quick": True,
        "classifier_flags": "--max_seq_length=16 --num_train_epochs=1 --train_batch_size=3",
    }
    assert suite.main(given(**chosen)) == 0
    said = capsys.readouterr().out
    assert "small/glue_submission.zip: MNLI-m.tsv has 6 answers" in said
    tables = json.loads((folder / "out/suite.json").read_text())["tables"]
    (row,) = (row["here"] for row in tables["GLUE"]["rows"])
    assert all(row[name]["runs"] for name in ("MNLI-m", "MNLI-mm", "RTE"))
    with zipfile.ZipFile(folder / "out/small/glue_submission.zip") as archive:
        assert set(archive.namelist()) == {
            *("MNLI-m.tsv", "MNLI-mm.tsv", "RTE.tsv", "AX.tsv", "WNLI.tsv")
        }
        answers = archive.read("AX.tsv").decode().splitlines()
        assert len(answers) == 3 and answers[1].partition("\t")[2] in labels
    kept = {os.fspath(path) for path in folder.glob("out/**/*.data-*")}
    assert kept and all("/mnli/output/" in path for path in kept)
    # Nothing is run again.
    monkeypatch.setattr(cells.subprocess, "Popen", None)
    assert suite.main(given(**chosen)) == 0
