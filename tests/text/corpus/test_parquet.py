"""Parquet files: row groups are shared, other columns stay unread, and what is refused."""

import re

import pytest

from errors import UserError
from text.corpus import formats, text_format
from text.corpus.formats import TextOptions
from text.files import sources

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

TEXTS = [f"The {n}. It is so.\n\nAnd more.\n" for n in range(40)]


@pytest.fixture
def write(tmp_path):
    """Writes columns, and returns the file."""

    def write(columns, **options):
        path = tmp_path / "text.parquet"
        parquet.write_table(pyarrow.table(columns), path, **options)
        return str(path)

    return write


def spans(path):
    files = [(path, sources.status(path))]
    cut = formats.pieces(files, "parquet", files[0][1].size)
    return [span for piece in cut for span in piece]


def read(path, **given):
    """The documents, each a list of sentences."""
    found = [[]]
    for span in spans(path):
        chosen = TextOptions(input_format="parquet", **given)
        for sentence in formats.read(span, chosen):
            if sentence is None:
                found.append([])
            else:
                found[-1].append(sentence)
    assert not found.pop()
    return found


def test_each_row_is_a_document(write):
    path = write({"text": TEXTS})
    assert read(path) == [[f"The {n}.", "It is so.", "And more."] for n in range(40)]
    categories = pyarrow.array(["One.", "Two.", "One."]).dictionary_encode()
    assert read(write({"text": categories})) == [["One."], ["Two."], ["One."]]
    large = pyarrow.array(["One."], pyarrow.large_string())
    assert read(write({"body": large}), text_column="body") == [["One."]]


def test_row_groups_are_shared(write, monkeypatch):
    path = write({"text": TEXTS}, row_group_size=7)
    whole = read(path)
    assert len(spans(path)) == 1
    monkeypatch.setattr(text_format, "PIECE_BYTES", 100)
    found = spans(path)
    assert [(span.start, span.stop) for span in found] == [
        *((n, n + 1) for n in range(5)),
        (5, None),
    ]
    assert sum(span.size for span in found) == sources.size(path)
    assert read(path) == whole


def test_other_columns_stay_unread(write):
    path = write({"text": TEXTS, "other": ["x" * 999 + str(n) for n in range(40)]})
    place = parquet.read_metadata(path).row_group(0).column(1).data_page_offset
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 200)
    assert len(read(path)) == 40
    with pytest.raises(UserError, match="is not a Parquet file that can be read"):
        read(path, text_column="other")


REFUSED = {
    "another column": (
        {"body": ["a"], "id": ["b"]},
        "no column 'text', only 'body', 'id'",
    ),
    "bytes": ({"text": [b"a"]}, "column 'text' is of type binary, not text"),
    "numbers": ({"text": [1]}, "column 'text' is of type int64, not text"),
    "nested": (
        {"text": [{"a": "b"}]},
        "column 'text' is of type struct<a: string>, not",
    ),
    "lists": ({"text": [["a"]]}, "column 'text' is of type list<.*>, not text"),
    "no text": ({"text": ["a", None]}, "row 2 has no text in column 'text'"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_text_is_refused(write, kind):
    columns, message = REFUSED[kind]
    path = write(columns)
    with pytest.raises(UserError, match=f"^{re.escape(path)}: .*{message}"):
        read(path)


@pytest.mark.parametrize("damage", [lambda x: x[: len(x) // 2], lambda x: b"text\n"])
def test_damage_is_one_line(write, damage):
    path = write({"text": TEXTS})
    with open(path, "r+b") as file:
        content = damage(file.read())
        file.seek(0)
        file.truncate()
        file.write(content)
    with pytest.raises(UserError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: is not a Parquet file")
    assert "\n" not in str(error.value)


def test_an_empty_table_has_no_documents(write):
    assert read(write({"text": pyarrow.array([], pyarrow.string())})) == []
