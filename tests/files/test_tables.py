"""Tables: what is said of columns that are missing or have the same name."""

import pytest

from errors import UserError
from files import inputs, tables


def test_columns_of_one_name_are_counted(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("row id\tText\tText\tb\tb\tb\n")
    with pytest.raises(UserError) as error:
        list(tables.read(str(path)))
    assert str(error.value) == (
        f"{path}:1: 2 columns have the name 'Text', 3 columns have the name 'b'; check "
        "that the first line is a header"
    )


@pytest.mark.parametrize(
    ("place", "columns", "said"),
    [
        ("a.csv:2", [" id ", "junk,with comma"], "only ' id ', 'junk,with comma'; che"),
        ("a.tsv:2", [0, 1], "only 0, 1; check"),
        ("a.csv:2", ["id;text"], "only 'id;text' (the file seems to be separated by"),
        ("a.csv:2", ["id\ttext"], r"be separated by '\t': rename it"),
        ("a.txt:2", ["id,text"], "be separated by ',': rename it to"),
        ("a.csv:2", ["id,text"], "only 'id,text'; check"),
        ("a.jsonl:2", ["id;text"], "only 'id;text'; check"),
    ],
)
def test_columns_are_quoted_where_one_is_missing(place, columns, said):
    with pytest.raises(UserError) as error:
        tables.cell(dict.fromkeys(columns), "label", place, "--label_column")
    assert said in str(error.value)
    assert str(error.value).endswith("; check --label_column")


def test_a_cell_longer_than_the_limit_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "MB", 20)
    path = tmp_path / "a.csv"
    path.write_text('text,label\na,b\n"never\n' + "closed\n" * 9)
    with pytest.raises(
        UserError, match="a.csv:3: .*an unclosed quote.*--max_line_mb=1;"
    ):
        list(tables.read(str(path), max_line_mb=1))
    path.write_text("text,label\n" + "a,b\n" * 9)  # each row counts for itself
    assert len(list(tables.read(str(path), max_line_mb=1))) == 9
    path.write_text('text,label\na,"b\n' + 'c"\na,"' * 9 + '"\n')
    assert len(list(tables.read(str(path), max_line_mb=1))) == 10


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_row_of_too_many_columns_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_text(("\t" if name == "a.tsv" else ",") * (1 << 16) + "\n")
    for header in (True, False):
        with pytest.raises(
            UserError, match=f"{name}:1: 65,537 columns, more than 65,536"
        ):
            list(tables.read(str(path), header))


def test_a_list_of_objects_is_read_like_one_a_line(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[\n  {\n    "a": {"b": {"c": 1}}\n  },\n\n  {"a": "]"}\n]\n')
    rows = list(tables.read(str(path)))
    assert rows == [(2, {"a": {"b": {"c": 1}}}), (6, {"a": "]"})]  # an editor's numbers
    assert tables.cell(rows[0][1], "a.b.c", "a.json:2", "--label_column") == 1
    with pytest.raises(UserError, match="a.json:6: has no column 'a.b.c', only 'a'"):
        tables.cell(rows[1][1], "a.b.c", "a.json:6", "--label_column")
    path.write_text('[\n  {"a": 1},\n  {"a": 1,}\n]')
    with pytest.raises(UserError, match="a.json:3: not JSON: "):
        list(tables.read(str(path)))
    path.write_text('[{"a": 1},\n7]')
    with pytest.raises(UserError, match="a.json:2: not a JSON object: 7"):
        list(tables.read(str(path)))
