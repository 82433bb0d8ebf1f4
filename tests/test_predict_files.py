"""predict.py from a file to a file: Parquet on either side, kills, refusals."""

import datetime
import decimal
import json

import numpy as np
import pytest

import predict
from errors import UserError
from tests import exports
from tests.killed import Killed
from tests.prediction import dying_at_a_note

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

RANDOM = np.random.default_rng(0)
TEXTS = [" ".join(RANDOM.choice(["good", "bad", "day"], 3)) for _ in range(300)]
# Values that JSON lacks, too.
COLUMNS = {
    "text_a": pyarrow.array(TEXTS).dictionary_encode(),
    "id": pyarrow.array(range(300), pyarrow.int32()),
    "when": pyarrow.array(range(300), pyarrow.timestamp("ns", "UTC")),
    "cost": pyarrow.array([decimal.Decimal("1.50"), None] * 150),
    "day": pyarrow.array([datetime.date(2020, 1, 2)] * 300),
    "notes": pyarrow.array([[{"by": "x"}], []] * 150),
    "share": pyarrow.array([float("nan"), 0.1] * 150),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return exports.maker(tmp_path_factory)


@pytest.fixture
def rows(tmp_path):
    """A file of several row groups."""
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table(COLUMNS), path, row_group_size=70)
    return path


def ask(model, rows, output, **flags):
    flags = {"batch_size": 1, **flags}  # so that there are several parts
    given = {"input_file": str(rows), "output_file": str(output)}
    predict.main(predict.Options(model_dir=model, **given, **flags))


def test_parquet_keeps_the_types_of_what_is_passed_through(exported, rows, tmp_path):
    ask(exported("label"), rows, tmp_path / "answers.parquet")
    found = parquet.read_table(tmp_path / "answers.parquet")
    for name, column in COLUMNS.items():
        if name == "text_a":
            column = column.dictionary_decode()
        assert found[name].type == column.type
        written = found[name].combine_chunks()
        assert written.to_string(window=300) == column.to_string(window=300)
    is_good = ["good" in text for text in TEXTS]
    names = ["positive" if good else "negative" for good in is_good]
    assert found["predicted"].to_pylist() == names
    positive = found["probabilities"].combine_chunks().field("positive")
    expected = np.where(is_good, np.float32(0.9), np.float32(0.2))
    assert (positive.to_numpy() == expected).all()


@pytest.mark.parametrize("form", exports.FORMS)
def test_every_answer_is_the_same_in_parquet_and_json(exported, tmp_path, form):
    texts = {"text": ["good [MASK]", "Ada", "ö"], "list": [["Ada", "good"], ["b"]] * 2}
    model = exported(form)
    described = predict.Predictor(model).parts
    names = [*described, "other"]
    columns = [*(texts[kind][:3] for kind in described.values()), [1, 2.5, None]]
    rows = tmp_path / "rows.jsonl"
    lines = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ask(model, rows, tmp_path / "answers.jsonl")
    ask(model, rows, tmp_path / "answers.parquet")
    found = parquet.read_table(tmp_path / "answers.parquet").to_pylist()
    lines = (tmp_path / "answers.jsonl").read_text().splitlines()
    for row, line in zip(found, map(json.loads, lines), strict=True):
        assert as_float32(row) == as_float32(line)


def as_float32(value):
    if isinstance(value, dict):
        return {name: as_float32(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_float32(each) for each in value]
    return np.float32(value) if isinstance(value, float) else value


@pytest.mark.parametrize("output", ["answers.jsonl", "answers.parquet"])
@pytest.mark.parametrize("after_the_note", [True, False])
def test_killed_and_continued_the_bytes_are_the_same(
    exported, rows, tmp_path, monkeypatch, output, after_the_note
):
    model, names = exported("label"), ["text_a", "id", "notes"]
    parquet.write_table(parquet.read_table(rows, columns=names), rows)
    ask(model, rows, tmp_path / f"whole_{output}")
    path = tmp_path / output
    with dying_at_a_note(after_the_note):
        ask(model, rows, path)
    assert not path.exists()
    with pytest.raises(UserError, match="was begun with batch_size 1, not 2"):
        ask(model, rows, path, batch_size=2)
    with pytest.raises(UserError, match="was begun with model"):
        ask(exported("labels"), rows, path)
    asked, window = [], predict.Predictor.predict

    def predicted(model, requests, batch_size=32):
        asked.append(len(requests))
        return window(model, requests, batch_size)

    monkeypatch.setattr(predict.Predictor, "predict", predicted)
    ask(model, rows, path)
    done = 128 if after_the_note else 0
    assert sum(asked) == 300 - done + (output == "answers.parquet")
    assert path.read_bytes() == (tmp_path / f"whole_{output}").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [output, rows.name, f"whole_{output}"]
    )


def test_killed_as_parquet_is_made_of_all_answers(
    exported, rows, tmp_path, monkeypatch
):
    model, path = exported("label"), tmp_path / "answers.parquet"
    ask(model, rows, tmp_path / "whole.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(parquet.ParquetWriter, "write_table", killed)
        with pytest.raises(Killed):
            ask(model, rows, path)
    ask(model, rows, path)
    assert path.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def killed(*_):
    raise Killed


def no_rows(path):
    parquet.write_table(parquet.read_table(path).slice(0, 0), path)


def other_kinds(path):
    path = path.with_suffix(".jsonl")
    path.write_text('{"text_a": "a", "b": 1}\n{"text_a": "a", "b": "c"}\n')
    return path


def no_text(path):
    table = parquet.read_table(path)
    texts = pyarrow.array([*TEXTS[:200], None, *TEXTS[201:]])
    parquet.write_table(table.set_column(0, "text_a", texts), path)


REFUSALS = {
    "no rows": (no_rows, {}, "rows.parquet: contains no rows"),
    "no text": (no_text, {}, "rows.parquet:201: text_a is null, not a string"),
    "no Parquet": (
        lambda path: path.write_bytes(b"PAR1 and nothing"),
        {},
        "rows.parquet: is not a Parquet file that can be read",
    ),
    "kinds": (other_kinds, {}, "column has values of several kinds"),
    "a type that JSON lacks": (
        lambda path: None,
        {"output_file": "answers.jsonl"},
        "rows.parquet: column 'when' is of type timestamp",
    ),
    "a pipe": (
        lambda path: None,
        {"input_file": "-", "input_format": "lines"},
        "Parquet is written from a file to a file",
    ),
    "Parquet from a pipe": (
        lambda path: None,
        {"input_file": "-", "input_format": "parquet"},
        "standard input: cannot be Parquet",
    ),
    "a name of the answer": (
        lambda path: parquet.write_table(
            parquet.read_table(path).rename_columns(
                ["text_a", "predicted", *list(COLUMNS)[2:]]
            ),
            path,
        ),
        {},
        "rows.parquet:1: predicted is also a name in the answer",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_one_line_and_leave_nothing(exported, rows, tmp_path, case):
    change, flags, message = REFUSALS[case]
    path = change(rows) if change is other_kinds else (change(rows), rows)[1]
    before = sorted(tmp_path.iterdir())
    output = tmp_path / flags.get("output_file", "answers.parquet")
    given = {"input_file": str(path), **flags, "output_file": str(output)}
    with pytest.raises(UserError, match=message) as error:
        predict.main(predict.Options(model_dir=exported("label"), **given))
    assert "\n" not in str(error.value)
    assert sorted(tmp_path.iterdir()) == before
