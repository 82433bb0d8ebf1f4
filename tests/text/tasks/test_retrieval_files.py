"""Collections as in BEIR, as tables and as TREC's files; what is refused."""

import json

import pytest

from errors import UserError
from text.tasks import retrieval_files

PASSAGES = [
    {"_id": "p1", "title": "Cats", "text": "They sleep."},
    {"_id": "p2", "title": "", "text": "Dogs bark."},
    {"_id": "p3", "text": "Nothing."},
]
QUERIES = [{"_id": "q1", "text": "cats?"}, {"_id": "q2", "text": "dogs?"}]
PAIRS = "query-id\tcorpus-id\tscore\nq1\tp1\t2\nq1\tp3\t0\n"


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(lines(PASSAGES))
    (tmp_path / "queries.jsonl").write_text(lines(QUERIES))
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text(PAIRS)
    return tmp_path


def read(folder):
    return retrieval_files.read_collection(str(folder), "test.tsv")


def test_a_folder_of_beir(folder):
    collection = read(folder)
    assert collection.queries == {"q1": "cats?"}  # the split does not mention q2
    assert collection.passages == {
        "p1": "Cats They sleep.",
        "p2": "Dogs bark.",
        "p3": "Nothing.",
    }
    assert collection.relevant == {"q1": {"p1": 2, "p3": 0}}


def test_tables_and_pairs_of_trec(folder):
    expected = read(folder)
    (folder / "corpus.jsonl").unlink()
    (folder / "queries.jsonl").unlink()
    cells = [(p["_id"], p.get("title", ""), p["text"]) for p in PASSAGES]
    table = "".join("\t".join(each) + "\n" for each in cells)
    (folder / "corpus.tsv").write_text("id\ttitle\ttext\n" + table)
    (folder / "queries.tsv").write_text("id\ttext\nq1\tcats?\n")
    (folder / "qrels" / "test.tsv").write_text("q1\t0\tp1\t2\nq1\t0\tp3\t0\n")
    assert read(folder) == expected


def test_a_query_is_found_among_the_passages_by_its_text_or_its_id(folder):
    """As ArguAna has them; what is relevant is another text."""
    more = [
        {"_id": "q1", "title": "Cats", "text": "cats?"},
        {"_id": "p9", "text": "dogs?"},
    ]
    (folder / "corpus.jsonl").write_text(lines([*PASSAGES, *more]))
    (folder / "qrels" / "test.tsv").write_text(f"{PAIRS}q2\tp2\t1\n")
    assert read(folder).own_passages() == {"q1": {"q1"}, "q2": {"p9"}}
    (folder / "qrels" / "test.tsv").write_text(f"{PAIRS}q2\tp9\t1\n")
    assert read(folder).own_passages() == {"q1": {"q1"}}
    # Numbers of pairs are not ids that both sides share.
    pairs = retrieval_files.TextCollection({"0": "b"}, {"0": "a b"}, {"0": {}})
    assert pairs.own_passages() == {}


def test_a_line_of_a_run_has_six_columns_whatever_the_run_is_called():
    (line,) = retrieval_files.run_lines({"q": {"p": 0.5}}, "my pairs")
    assert line == "q Q0 p 1 0.5 my_pairs\n"
    (line,) = retrieval_files.run_lines({"q": {"p": 0.5}}, "")
    assert len(line.split()) == 6


REFUSALS = {
    "a query without a relevant passage": (
        "qrels/test.tsv",
        PAIRS + "q2\tp1\t0\n",
        "the query 'q2' has no relevant passage",
    ),
    "no such query": (
        "qrels/test.tsv",
        PAIRS + "q9\tp1\t1\n",
        "test.tsv:4: there is no query with the id 'q9'",
    ),
    "no such passage": (
        "qrels/test.tsv",
        PAIRS + "q2\tp9\t1\n",
        "test.tsv:4: there is no passage with the id 'p9'",
    ),
    "a pair twice": ("qrels/test.tsv", PAIRS + "q1\tp1\t1\n", "test.tsv:4: .* line 2"),
    "no whole number": ("qrels/test.tsv", PAIRS + "q2\tp1\t0.5\n", "score is '0.5'"),
    "another column": ("qrels/test.tsv", "a\tb\nq1\tp1\n", "no column 'query-id'"),
    "an id twice": (
        "corpus.jsonl",
        lines([*PASSAGES, PASSAGES[0]]),
        "corpus.jsonl:4: the id 'p1' is also that of line 1",
    ),
    "an id with a space": ("queries.jsonl", '{"_id": "q 1", "text": "a"}\n', "spaces"),
    "no text": ("corpus.jsonl", '{"_id": "p1", "text": " "}\n', "text is empty"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_line(folder, name):
    path, content, message = REFUSALS[name]
    (folder / path).write_text(content)
    with pytest.raises(UserError, match=message) as error:
        read(folder)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(folder):
    (folder / "qrels" / "test.tsv").unlink()
    with pytest.raises(UserError, match="qrels/test.tsv: no such file"):
        read(folder)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(UserError, match="no queries.jsonl and no queries.tsv"):
        read(folder)
