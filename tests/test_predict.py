"""predict.py as a user meets it: files and pipes of every format, order, refusals."""

import gzip
import io
import json
import os
import re
import shutil

import pytest

import predict
from errors import UserError
from tests import exports
from tests.prediction import asker


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return exports.maker(tmp_path_factory)


@pytest.fixture
def answer(exported, capsysbinary, monkeypatch):
    return asker(exported, capsysbinary, monkeypatch)


def test_lines_are_texts(answer):
    assert answer("label", "a good day\r\n\nʇɐɔ 🐈\n".encode()) == [
        {
            "text_a": "a good day",
            "predicted": "positive",
            "probabilities": {"negative": 0.1, "positive": 0.9},
        },
        {
            "text_a": "",
            "predicted": "negative",
            "probabilities": {"negative": 0.8, "positive": 0.2},
        },
        {
            "text_a": "ʇɐɔ 🐈",
            "predicted": "negative",
            "probabilities": {"negative": 0.8, "positive": 0.2},
        },
    ]


def test_lines_are_words_where_the_model_takes_words(answer):
    (row,) = answer("tags", b"Ada  met Bob .\n")
    assert row["words"] == ["Ada", "met", "Bob", "."]
    assert row["tags"] == ["B-PER", "O", "B-PER", "O"]


def test_lines_are_characters_where_the_model_takes_characters(
    tmp_path, capsysbinary, monkeypatch
):
    folder = exports.write(tmp_path, "word_tags", characters=True)
    ask = asker(lambda form: folder, capsysbinary, monkeypatch)
    (row,) = ask("word_tags", " 가 B\t다\n".encode())
    assert row["words"] == ["가", " ", "B", " ", "다"]
    assert row["tags"] == ["NOUN", "NOUN", "PROPN", "NOUN", "NOUN"]


ROWS = [
    {"id": "7", "question": "cat", "context": 'a "cat", here'},
    {"id": "8", "question": "dog", "context": "none"},
]
FORMATS = {
    "tsv": 'id\tcontext\tquestion\n7\ta "cat", here\tcat\n8\tnone\tdog\n',
    "csv": 'id,context,question\r\n7,"a ""cat"", here",cat\r\n\n8,none,dog\n',
    "jsonl": "".join(f"{json.dumps(row)}\n\n" for row in ROWS),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_of_every_format(answer, tmp_path, form, packed):
    """Its name says which; what the model does not take is passed on."""
    path = tmp_path / f"rows.{form}{'.gz' if packed else ''}"
    content = FORMATS[form].encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    assert len(content.splitlines()) > 2
    for rows in (
        answer("span", input_file=str(path)),
        answer("span", content, input_format=form),
    ):
        assert [row["start"] for row in rows] == [3, 0]
        assert [row["answer"] for row in rows] == ["cat", ""]
        names = ROWS[0].keys()
        assert [{name: row[name] for name in names} for row in rows] == ROWS


def test_csv_cells_may_hold_lines(answer):
    rows = answer("label", b'text_a\n"good\nday"\nbad\n', input_format="csv")
    assert [row["text_a"] for row in rows] == ["good\nday", "bad"]


def test_columns_may_be_named_as_in_training(exported, tmp_path, capsysbinary):
    folder = shutil.copytree(exported("label"), tmp_path / "export")
    known = json.loads((folder / "export.json").read_text())
    exports.describe(folder, known | {"columns": {"text_a": "review"}})

    def answer(content):
        (tmp_path / "rows.tsv").write_text(content)
        rows = str(tmp_path / "rows.tsv")
        predict.main(predict.Options(model_dir=str(folder), input_file=rows))
        return json.loads(capsysbinary.readouterr().out)

    assert answer("review\tother\ngood\tx\n")["predicted"] == "positive"
    assert answer("review\ttext_a\ngood\tbad\n")["predicted"] == "positive"
    assert answer("other\ttext_a\nbad\tgood\n")["predicted"] == "positive"
    with pytest.raises(
        UserError, match="rows.tsv:1: has no column 'text_a', only 'title'"
    ):
        answer("title\ngood\n")


def test_lists_come_as_json(answer):
    row = {"context": "c", "endings": ["a", "bbb"], "gold": 1}
    (answered,) = answer("choice", json.dumps(row).encode(), input_format="jsonl")
    assert answered == {**row, "predicted": 1, "probabilities": [0.25, 0.75]}


def test_answers_keep_the_order_and_batches_pad_little(answer, monkeypatch):
    """The model of this form answers with the longest text of the batch."""
    monkeypatch.setattr(predict, "_WINDOW", 3)
    sizes = [5, 900, 6, 901, 5, 7] + [2, 800] * 2 + [900]
    stdin = "".join(f"{'x' * size}\n" for size in sizes).encode()
    rows = answer("number", stdin, batch_size=2)
    assert [len(row["text_a"]) for row in rows] == sizes
    longest = [row["predicted"] for row in rows]
    # Windows of six rows, sorted, in twos; of each the longer one.
    assert longest == [5, 901, 7, 901, 5, 7, 2, 800, 2, 800, 900]


def test_answers_to_a_file(answer, tmp_path):
    path = tmp_path / "answers.jsonl"
    assert answer("label", b"good\n", output_file=str(path)) == []
    assert json.loads(path.read_text())["predicted"] == "positive"
    assert [p.name for p in path.parent.iterdir()] == ["answers.jsonl"]


def test_answers_to_a_pipe_with_a_name(answer, tmp_path):
    """As to /dev/null: it stays what it is."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        answer("label", b"good\n", output_file=str(path))
        assert path.is_fifo()
        assert json.loads(os.read(reader, 1000))["predicted"] == "positive"
    finally:
        os.close(reader)


def test_answers_to_a_link(answer, tmp_path):
    """As /dev/stdout is one: it goes on leading where it led."""
    link, target = tmp_path / "link", tmp_path / "answers.jsonl"
    link.symlink_to(target)
    for _ in range(2):
        answer("label", b"good\n", output_file=str(link))
        assert link.is_symlink()
        assert json.loads(target.read_text())["predicted"] == "positive"


def test_no_rows_no_answers(answer):
    assert answer("label", b"") == []
    assert answer("label", b"text_a\n", input_format="tsv") == []


def write(path, content):
    path.write_bytes(content)
    return str(path)


BAD_FILES = [
    ("label", "a.txt", b"good\n\xff\n", "a.txt:2: not UTF-8"),
    ("label", "a.jsonl", b'{"text_a": "a"}\n{"text_a": 3}\n', "a.jsonl:2: text_a is"),
    ("label", "a.jsonl", b"{}\n", "a.jsonl:1: has no text_a; expected an object with"),
    ("label", "a.jsonl", b"[]\n", "a.jsonl:1: the list is empty"),
    ("label", "a.jsonl", b'\n{"text_a": "a"\n', "a.jsonl:2: not JSON: "),
    ("label", "a.jsonl", b'{"text_a": "a", "b": NaN}', "a.jsonl:1: not JSON: NaN is"),
    ("label", "a.jsonl", b'{"text_a": "\\ud800"}', "a.jsonl:1: not JSON: "),
    ("label", "a.jsonl", b'{"text_a": "", "b\\ud800": ""}', "a.jsonl:1: not JSON: "),
    ("label", "a.jsonl", b"[" * 100_000, "a.jsonl:1: not JSON: "),
    ("label", "a.tsv", b"text\tid\na\tb\n", "a.tsv:1: has no column 'text_a', only"),
    ("label", "a.tsv", b"text_a\tid\na\tb\na\n", "a.tsv:3: 1 column, but the first"),
    ("label", "a.tsv", b"text_a\ttext_a\na\tb\n", "a.tsv:1: 2 columns have the name"),
    ("label", "a.csv", b'text_a\na\n"b\nc\n', "a.csv:3: the row that begins here is"),
    (
        "label",
        "a.jsonl",
        b'{"text_a": ""}\n{"text_a": "", "predicted": 1}',
        "a.jsonl:2: predicted is also a name in the answer",
    ),
    ("span", "a.tsv", b"question\tcontext\tanswer\na\tb\tc\n", "a.tsv:1: answer is"),
    (
        "label",
        "a.jsonl",
        b'{"text_a": ""}\n{"text_a": "", "b": [{"c": -1e999}]}',
        "a.jsonl:2: cannot be written as JSON: ",
    ),
    ("span", "a.txt", b"a\n", "a line is not enough because the model takes an"),
    ("tags", "a.csv", b"words\na\n", "a table cannot contain lists"),
]


@pytest.mark.parametrize("form", ["lines", "jsonl", "csv"])
def test_a_line_longer_than_the_limit_is_refused(exported, tmp_path, form):
    rows = {
        "lines": "a good day\n" + "x" * 1_000_001,
        "jsonl": '{"text_a": "a"}\n{"text_a": "' + "x" * 1_000_001 + '"}',
        "csv": "text_a\n" + "x" * 1_000_001,
    }
    options = predict.Options(
        model_dir=exported("label"),
        input_file=write(tmp_path / "rows", rows[form].encode()),
        input_format=form,
        max_line_mb=1,
    )
    with pytest.raises(UserError, match="rows:2: the line is longer than --max_line_m"):
        predict.main(options)


@pytest.mark.parametrize(("form", "name", "content", "message"), BAD_FILES)
def test_bad_files_are_refused_before_any_answer(
    exported, tmp_path, capsysbinary, monkeypatch, form, name, content, message
):
    monkeypatch.setattr(predict, "_WINDOW", 1)
    path = write(tmp_path / name, content)
    output = tmp_path / "answers.jsonl"
    output.write_text("of yesterday\n")
    for output_file in (None, str(output)):
        options = predict.Options(
            model_dir=exported(form),
            input_file=path,
            output_file=output_file,
            batch_size=1,
        )
        with pytest.raises(UserError) as error:
            predict.main(options)
        assert message in str(error.value)
    assert capsysbinary.readouterr().out == b""
    assert output.read_text() == "of yesterday\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, output.name])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "--batch_size=0: must be from 1"),
        ({"serve": 70_000}, "--serve=70000: must be at least 0 and below"),
        ({"serve": 0, "input_file": "a"}, "has no effect with --serve"),
        ({"serve": 0, "output_file": "a"}, "has no effect with --serve"),
    ],
)
def test_flags_that_cannot_be(changes, message):
    with pytest.raises(UserError, match=message):
        predict.Options(model_dir="m", **changes)


def test_files_that_cannot_be(exported, tmp_path):
    def main(**changes):
        predict.main(predict.Options(model_dir=exported("label"), **changes))

    path = write(tmp_path / "a.txt", b"good\n")
    with pytest.raises(UserError, match="is also an input"):
        main(input_file=path, output_file=path)
    part = os.path.join(exported("label"), "export.json")
    with pytest.raises(UserError, match="export.json: is a part of the export in"):
        main(input_file=path, output_file=part)
    absent = tmp_path / "absent"
    with pytest.raises(UserError, match="there is no folder .*absent; create it"):
        main(input_file=path, output_file=str(absent / "a.jsonl"))
    assert not absent.exists()
    with pytest.raises(UserError, match="is not a regular file"):
        main(input_file=str(tmp_path))
    with pytest.raises(FileNotFoundError):
        main(input_file=str(tmp_path / "missing"))


def test_at_the_end_it_says_how_fast_it_was(exported, tmp_path, capsys, monkeypatch):
    path = write(tmp_path / "a.txt", b"good\nbad\n")
    predict.main(predict.Options(model_dir=exported("label"), input_file=path))
    assert re.fullmatch(
        r"answering: 2 rows \(100%\), [\d,]+ rows?/s, took \d+s\n",
        capsys.readouterr().err,
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"good\n")))
    predict.main(predict.Options(model_dir=exported("label")))
    assert re.fullmatch(
        r"answering: 1 row, [\d,]+ rows?/s, took \d+s\n", capsys.readouterr().err
    )
