"""run_swag.py: files, flags and models that are refused, in one line."""

import numpy as np
import pytest

from training.storage import checkpoint
from training.storage.folder import Folder
from tests import jobs
from tests.swag import run, swag_lines, write_csv, write_files, write_json_files


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


@pytest.fixture
def json_folder(folder):
    return write_json_files(folder)


def with_column(name, value, lines=None):
    """CSV lines in which the third line has another value in one column."""
    lines = lines or swag_lines(21, seed=2)
    lines[2][lines[0].index(name)] = value
    return lines


def without_column(name):
    lines = swag_lines(21, seed=2)
    place = lines[0].index(name)
    return [line[:place] + line[place + 1 :] for line in lines]


BROKEN_CSV = {
    "no sent1": (without_column("sent1"), r"val.csv:1: no column 'sent1' among"),
    "no sent2": (without_column("sent2"), r"val.csv:1: no column 'sent2' among"),
    "a gap": (without_column("ending1"), r"val.csv:1: no column 'ending1' among"),
    "no label column": (without_column("label"), r"val.csv:1: no label; only a test"),
    "label 4": (with_column("label", "4"), r"val.csv:3: label '4' is not one of the"),
    "label -1": (with_column("label", "-1"), r"val.csv:3: label '-1' is not one of"),
    "label gold": (with_column("label", "gold"), r"val.csv:3: label 'gold' is not"),
    "label 0_1": (with_column("label", "0_1"), r"val.csv:3: label '0_1' is not one of"),
    "label ١": (with_column("label", "١"), r"val.csv:3: label '١' is not one of"),
    "label missing": (with_column("label", ""), r"val.csv:3: no label"),
    "empty ending": (with_column("ending1", " "), r"val.csv:3: choice 1 is empty"),
    "label of an empty ending": (
        with_column("ending3", "", with_column("label", "3")),
        r"val.csv:3: label '3' is not one of the 3 choices",
    ),
    "ragged": ([*swag_lines(2, seed=2), ["1", "2"]], r"val.csv:4: 2 columns, but the"),
    "header twice": ([["sent1", "sent1"], ["a", "b"]], r"val.csv:1: 2 columns have"),
    "header only": (swag_lines(0, seed=2), r"val.csv: contains no examples"),
    "empty": ("", r"val.csv: the file is empty"),
    "cut off": ('sent1,sent2\n"a', r"val.csv:2: the row that begins here is not CSV"),
    "latin-1": (b"sent1\n\xe9", r"val.csv:2: not UTF-8 \(byte 0xe9"),
}


@pytest.mark.parametrize("name", BROKEN_CSV)
def test_broken_csv_is_refused_in_one_line(folder, name):
    content, message = BROKEN_CSV[name]
    path = folder / "val.csv"
    if isinstance(content, list):
        write_csv(path, content)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(folder, message, do_eval=True)


BROKEN_JSON = {
    "cut off": ('{"context": "a", "choi', r"dev.jsonl:2: not JSON: Unterminated"),
    "a list": ("[1, 2]", r"dev.jsonl:2: not a JSON object: \[1, 2\]"),
    "no choices": ('{"context": "a"}', r"dev.jsonl:2: no 'choices' among context"),
    "no context": ('{"choices": ["a", "b"]}', r"dev.jsonl:2: no 'context' among"),
    "choices a text": (
        '{"context": "a", "choices": "ab", "label": 0}',
        r"dev.jsonl:2: choices is 'ab', not a list",
    ),
    "one choice": (
        '{"context": "a", "choices": ["a"], "label": 0}',
        r"dev.jsonl:2: 1 choices; there must be at least two",
    ),
    "choice a number": (
        '{"context": "a", "choices": ["a", 7], "label": 0}',
        r"dev.jsonl:2: 7 is not text",
    ),
    "context null": (
        '{"context": null, "choices": ["a", "b"], "label": 0}',
        r"dev.jsonl:2: None is not text",
    ),
    "label true": (
        '{"context": "a", "choices": ["a", "b"], "label": true}',
        r"dev.jsonl:2: label True is not one of the 2 choices",
    ),
    "label 0.5": (
        '{"context": "a", "choices": ["a", "b"], "label": 0.5}',
        r"dev.jsonl:2: label 0.5 is not one of the 2 choices",
    ),
    "label a list": (
        '{"context": "a", "choices": ["a", "b"], "label": [1]}',
        r"dev.jsonl:2: label \[1\] is not one of the 2 choices",
    ),
    "no label": (
        '{"context": "a", "choices": ["a", "b"]}',
        r"dev.jsonl:2: no label; only a test set may omit it",
    ),
    "half a character": (
        r'{"context": "a", "choices": ["a", "\ud800"], "label": 0}',
        r"dev.jsonl:2: not JSON: has half of a surrogate pair",
    ),
}


@pytest.mark.parametrize("name", BROKEN_JSON)
def test_broken_json_is_refused_in_one_line(json_folder, name):
    line, message = BROKEN_JSON[name]
    path = json_folder / "dev.jsonl"
    path.write_text(path.read_text().splitlines()[0] + f"\n{line}\n")
    refused(json_folder, message, do_eval=True, dev_file="dev.jsonl")


def smaller_vocabulary(folder):
    (folder / "vocab.txt").write_text("\n".join(["[UNK]", "[SEP]", "a"]) + "\n")


def other_checkpoint(folder):
    """A model of another size in output_dir's place."""
    checkpoint.save(
        Folder.open(str(folder / "other")), 1, {"output_weights": np.zeros((2, 16))}, 1
    )


@pytest.mark.parametrize(
    ("prepare", "changes", "message"),
    [
        (None, {"max_seq_length": 4}, "--max_seq_length=4: must be at least 5"),
        (None, {"dev_file": "dev.csv"}, "dev.csv"),
        (None, {"output_dir": "{folder}/vocab.txt"}, "vocab.txt: cannot be"),
        (smaller_vocabulary, {}, r"\[CLS\]"),
        (
            other_checkpoint,
            {"init_checkpoint": "{folder}/other"},
            r"output_weights is \[2,16\] in the checkpoint and \[1,16\] in the model",
        ),
        (None, {}, "contains no checkpoint to evaluate"),
    ],
)
def test_flags_that_do_not_fit_are_refused_in_one_line(
    folder, prepare, changes, message
):
    if prepare:
        prepare(folder)
    changes = {
        name: value.format(folder=folder) if isinstance(value, str) else value
        for name, value in ({"do_eval": True} | changes).items()
    }
    refused(folder, message, **changes)


def refused(folder, message, **changes):
    jobs.check_refused(run, folder, message, **changes)
