"""run_classifier.py: files, labels and flags that are refused, in one line."""

import pytest

from training.storage.folder import Folder
from errors import UserError
from tests import tiny
from tests.classifier import TINY, WORDS, run, task, write_lines


@pytest.fixture
def folder(tmp_path):
    tiny.write(tmp_path, WORDS, TINY)
    return tmp_path


def test_numbers_beyond_the_scale_of_the_task_are_refused(folder):
    write_lines(folder / "train.tsv", ["sentence1\tsentence2\tscore", "a\tb\t5.1"])
    with pytest.raises(UserError, match="train.tsv:2: label '5.1' is not a number"):
        task(folder, "STS-B").read("train")


@pytest.mark.parametrize(
    ("ending", "label", "shown"),
    [
        ("jsonl", "9" * 300, "9" * 40),
        ("jsonl", "true", "True"),
        ("jsonl", "[1.5]", r"\[1.5\]"),
        ("tsv", "1_000", "'1_000'"),
        ("tsv", "١٢", "'١٢'"),
        ("tsv", "1,5", "'1,5'"),
        ("tsv", "inf", "'inf'"),
        ("tsv", "", "''"),
    ],
)
def test_what_only_python_takes_for_a_number_is_refused(folder, ending, label, shown):
    content = (
        f'{{"text": "a", "label": {label}}}' if ending == "jsonl" else f"a\t{label}"
    )
    header = [] if ending == "jsonl" else ["text\tlabel"]
    write_lines(folder / f"train.{ending}", [*header, content])
    this = task(folder, "custom", label_kind="number", train_file=f"train.{ending}")
    allowed = "within the range of float32"
    message = rf"train.{ending}:\d: label {shown} is not a number {allowed}$"
    with pytest.raises(UserError, match=message):
        this.read("train")


def test_many_labels_make_no_long_refusal(folder):
    this = task(folder, "custom", labels=[f"l{i}" for i in range(30_000)])
    with pytest.raises(
        UserError, match="trained for the labels m0, .*, m19, .* in"
    ) as e:
        this.restore({"labels": [f"m{i}" for i in range(30_000)]})
    assert len(str(e.value)) < 400


GOOD = "text\tlabel\na cat\tx\nthe dog\ty\n"


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        ("", {}, "train.tsv: the file is empty"),
        ("text\tlabel\n", {}, "train.tsv: contains no examples"),
        (
            "a\tb\nc\td\n",
            {},
            "train.tsv:1: has no column 'label', only 'a', 'b'; check",
        ),
        ("text\tlabel\na\n", {}, "train.tsv:2: 1 column, but the first line has 2"),
        ("text\tlabel\na\tx\tz\n", {}, "train.tsv:2: 3 columns, but the first line"),
        ("text\ttext\na\tx\n", {}, "train.tsv:1: 2 columns have the name 'text'"),
        ("text\tlabel\na\tx\nb\tx\n", {}, "all labels are ['x']"),
        ("text\tlabel\na\t\nb\tx\n", {}, "train.tsv:2: has no label; add one"),
        (GOOD, {"labels": ["x", "z"]}, "train.tsv:3: label 'y' is not one of x, z"),
        (GOOD, {"label_kind": "number"}, "train.tsv:2: label 'x' is not a number"),
        ("text\tlabel\na\tnan\n", {"label_kind": "number"}, "train.tsv:2: label"),
        ("text\tlabel\na\t1e300\n", {"label_kind": "number"}, "train.tsv:2: label"),
        (GOOD, {"train_file": "none.tsv"}, "none.tsv"),
        (GOOD, {"label_column": "text"}, "--text_a_column and --label_column are both"),
        (GOOD, {"text_b_column": "label"}, "--text_b_column and --label_column are bo"),
        (GOOD, {"text_b_column": "text"}, "--text_a_column and --text_b_column are bo"),
        (GOOD, {"text_b_column": "other"}, "train.tsv:1: has no column 'other'"),
        (b"text\tlabel\na\xff\tx\n", {}, "train.tsv:2: not UTF-8"),
        ('{"text": "a", "label": "x"}\n{"te', {}, "train.jsonl:2: not JSON"),
        ("[1, 2]\n", {}, "train.jsonl:1: not a JSON object"),
        ('{"text": 3, "label": "x"}\n', {}, "train.jsonl:1: 'text' is 3, not text"),
        (
            '{"text": "a", "label": {"x": 1}}\n',
            {"label_kind": "several"},
            "train.jsonl:1: {'x': 1} is neither a list of labels nor text",
        ),
        ('{"text": "a", "label": true}\n', {}, "train.jsonl:1: label True is neither"),
        ('{"text": "a", "label": null}\n', {}, "train.jsonl:1: label None is neither"),
        (GOOD, {"labels": ["x", "y", "x"]}, "--labels: x is repeated"),
        (GOOD, {"label_names": ["a", "a"]}, "--label_names: a is repeated"),
        (GOOD, {"label_names": ["a"]}, "--label_names: 1 names for 2 labels; name"),
        (
            GOOD,
            {"task_name": "MNLI", "label_names": ["no", "yes"]},
            "2 names for 3 labels; name each of contradiction, entailment, neutral, in",
        ),
        (
            GOOD,
            {"task_name": "STS-B", "label_names": ["no", "yes"]},
            "--label_names: this task predicts a number, not labels; remove it",
        ),
        (
            GOOD,
            {"label_kind": "several", "label_separator": ""},
            "--label_separator: must not be empty",
        ),
        (
            GOOD,
            {"label_separator": ";"},
            "--label_separator has no effect with --label_kind=single",
        ),
        (
            GOOD,
            {"label_kind": "number", "labels": ["0", "1"]},
            "--labels has no effect with --label_kind=number",
        ),
        (GOOD, {"task_name": "AX", "do_eval": True}, "has only a test set"),
        (GOOD, {"seed": 2**31 - 1, "num_trials": 2}, "must be below 2147483648"),
        ('text,label\nred,y\n"a cat,x\nb,y\n', {}, "train.csv:3: the row that begins"),
        ("text,label\na\rb,y\n", {}, "train.csv:2: a carriage return within a line"),
        (
            GOOD,
            {"task_name": "CoLA", "labels": ["1", "0"]},
            "--labels has no effect with --task_name=CoLA",
        ),
        (GOOD, {"task_name": "sst"}, "--task_name=sst: not one of cola"),
        (GOOD, {"max_seq_length": 2}, "--max_seq_length=2: must be at least 3"),
        (GOOD, {"do_train": False, "do_eval": True}, "no labels are known, because"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder, content, changes, message):
    ending = "tsv"
    if isinstance(content, str) and content.startswith(("{", "[")):
        ending = "jsonl"
    elif isinstance(content, str) and content.startswith("text,"):
        ending = "csv"
    content = content if isinstance(content, bytes) else content.encode()
    (folder / f"train.{ending}").write_bytes(content)
    (folder / "dev.tsv").write_text(GOOD)
    output = folder / "output"
    Folder.open(str(output)).claim()
    (output / "eval_results.txt").write_text("of an earlier run\n")
    changes = {"task_name": "custom", "train_file": f"train.{ending}"} | changes
    changes.setdefault("do_train", True)
    with pytest.raises((UserError, OSError)) as error:
        run(folder, **changes)
    assert message in str(error.value)
    assert (output / "eval_results.txt").read_text() == "of an earlier run\n"
    assert not list(output.glob("model.ckpt*"))
