"""predict.py with a model of vectors: arrays, indexes, nearest texts, kills, refusals."""

import json
import pathlib
import shutil

import h5py
import numpy as np
import pytest

import predict
from errors import UserError
from files import unfinished
from tests import exports
from tests.killed import Killed
from tests.prediction import asker, dying_at_a_note
from text.tasks import retrieval_files

TYPES = ("float32", "float16", "int8", "binary")
RANDOM = np.random.default_rng(0)
TEXTS = [
    "".join(RANDOM.choice([*exports.LETTERS, " "], RANDOM.integers(1, 40)))
    for _ in range(300)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return exports.write(
        tmp_path_factory.mktemp("model"), "vector", similarity="cosine"
    )


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.tsv"
    lines = [f"p{i}\t{text}\n" for i, text in enumerate(TEXTS)]
    path.write_text("_id\ttext\n" + "".join(lines))
    return str(path)


@pytest.fixture(scope="module")
def vectors(model, rows, tmp_path_factory):
    """The vectors of all texts, float32."""
    path = tmp_path_factory.mktemp("vectors") / "vectors.npy"
    write(model, rows, output_file=str(path))
    return np.load(path)


def write(model, rows, **flags):
    flags = {"batch_size": 1, **flags}  # so that there are several parts
    predict.main(predict.Options(model_dir=model, input_file=rows, **flags))


def written_index(model, rows, tmp_path, kind="float32"):
    folder = str(tmp_path / f"index_{kind}")
    write(model, rows, write_index=folder, vector_type=kind)
    return folder


@pytest.fixture
def ask(model, capsysbinary, monkeypatch):
    return asker(lambda _: model, capsysbinary, monkeypatch)


@pytest.mark.parametrize("kind", TYPES)
def test_files_of_vectors(model, rows, vectors, tmp_path, kind):
    """The same numbers in every format, in the order of the rows."""
    paths = [tmp_path / f"vectors.{form}" for form in ("npy", "h5", "jsonl")]
    for path in paths:
        write(model, rows, output_file=str(path), vector_type=kind)
    array = np.load(paths[0])
    with h5py.File(paths[1]) as file:
        assert np.array_equal(file["vectors"], array)
    lines = [json.loads(line) for line in paths[2].read_text().splitlines()]
    assert [(line["_id"], line["text"]) for line in lines[:1]] == [("p0", TEXTS[0])]
    written = np.array([line["vector"] for line in lines])
    assert np.array_equal(written.astype(array.dtype), array)
    assert [path.name for path in sorted(tmp_path.iterdir())] == sorted(
        path.name for path in paths
    )
    expected = {
        "float32": vectors,
        "float16": vectors.astype(np.float16),
        "int8": np.rint(vectors * (127 / np.abs(vectors).max(axis=1, keepdims=True))),
        "binary": np.packbits(vectors > 0, axis=1),
    }
    assert np.array_equal(array, expected[kind])
    width = {"float32": 64, "float16": 32, "int8": 16, "binary": 2}[kind]
    assert array.nbytes == len(TEXTS) * width


@pytest.mark.parametrize("output", ["vectors.npy", "vectors.h5", "v.jsonl", "index"])
@pytest.mark.parametrize("after_the_note", [True, False])
def test_killed_and_continued_the_bytes_are_the_same(
    model, rows, tmp_path, output, after_the_note, capsys
):
    flag = "output_file" if "." in output else "write_index"
    write(model, rows, **{flag: str(tmp_path / f"whole_{output}")})
    path = tmp_path / output
    with dying_at_a_note(after_the_note):
        write(model, rows, **{flag: str(path)})
    assert not path.exists()
    with pytest.raises(UserError, match="vector_type 'float32', not 'int8'"):
        write(model, rows, **{flag: str(path)}, vector_type="int8")
    if after_the_note:
        other = tmp_path / "other.tsv"
        content = pathlib.Path(rows).read_text()
        other.write_text(content.replace(f"p100\t{TEXTS[100]}", "p100\tanother"))
        with pytest.raises(UserError, match="other rows than the first 128"):
            write(model, str(other), **{flag: str(path)})
        other.unlink()
    capsys.readouterr()
    write(model, rows, **{flag: str(path)})
    assert contents(path) == contents(tmp_path / f"whole_{output}")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [output, f"whole_{output}"]
    )


@pytest.mark.parametrize("output", ["vectors.npy", "index"])
def test_killed_as_it_begins_or_ends_it_needs_no_help(
    model, rows, tmp_path, monkeypatch, output
):
    flag = {"output_file" if "." in output else "write_index": str(tmp_path / output)}
    note = unfinished.Unfinished._write_note

    def die_after(function):
        def dying(*given):
            function(*given)
            raise Killed

        return dying

    monkeypatch.setattr(unfinished.Unfinished, "_write_note", die_after(note))
    with pytest.raises(Killed):
        write(model, rows, **flag)
    monkeypatch.setattr(unfinished.Unfinished, "_write_note", note)
    ends = ("shutil", "rmtree") if "." in output else ("os", "remove")
    with monkeypatch.context() as change, pytest.raises(Killed):
        change.setattr(getattr(unfinished, ends[0]), ends[1], die_after(lambda _: None))
        write(model, rows, **flag)
    found = contents(tmp_path / output)
    if output == "index":
        assert found.pop(unfinished._NOTE)
        flag = {"write_index": str(tmp_path / "again")}
    write(model, rows, **flag)
    (again,) = flag.values()
    assert contents(pathlib.Path(again)) == found
    assert not [*tmp_path.glob("*.unfinished")]


def contents(path):
    if path.is_file():
        return path.read_bytes()
    return {file.name: file.read_bytes() for file in path.iterdir()}


QUERIES = ["a big pack", "dog", "hello", ""]


@pytest.mark.parametrize("kind", TYPES)
def test_an_index_answers_with_the_nearest_rows(
    model, rows, vectors, tmp_path, ask, kind
):
    folder = written_index(model, rows, tmp_path, kind)
    stdin = "".join(f"{query}\n" for query in QUERIES).encode()
    answers = ask("vector", stdin, index=folder, neighbors=5)
    queries = np.array(
        [answer["vector"] for answer in ask("vector", stdin)], np.float32
    )
    scores = queries @ vectors.T
    for answer, query, own in zip(answers, QUERIES, scores, strict=True):
        assert answer["text"] == query
        found = [int(row["_id"][1:]) for row in answer["neighbors"]]
        assert [row["text"] for row in answer["neighbors"]] == [TEXTS[i] for i in found]
        # Rounded vectors may find another one that is as near.
        slack = {"float32": 1e-6, "float16": 1e-3, "int8": 0.01, "binary": 0.01}[kind]
        best = np.sort(own)[::-1][:5]
        assert np.allclose(own[found], best, atol=slack)
        given = [row["score"] for row in answer["neighbors"]]
        assert np.allclose(given, own[found], atol=slack)
        assert given == sorted(given, reverse=True)


def test_more_neighbors_than_rows_are_all_rows(model, rows, tmp_path, ask):
    folder = written_index(model, rows, tmp_path)
    (answer,) = ask("vector", b"dog\n", index=folder, neighbors=1000)
    assert len({row["_id"] for row in answer["neighbors"]}) == len(TEXTS)


def test_neighbors_in_another_order_after_reranking(model, rows, tmp_path, ask):
    folder = written_index(model, rows, tmp_path)
    rater = exports.write(tmp_path / "rater", "rating")
    (answer,) = ask("vector", b"dog\n", index=folder, neighbors=3, rerank_with=rater)
    (all_rows,) = ask("vector", b"dog\n", index=folder, neighbors=30)
    common = [
        sum(min(row["text"].count(x), "dog".count(x)) for x in "dog")
        for row in all_rows["neighbors"]
    ]
    order = sorted(range(30), key=lambda i: -common[i])[:3]
    assert [row["_id"] for row in answer["neighbors"]] == [
        all_rows["neighbors"][i]["_id"] for i in order
    ]
    assert [row["score"] for row in answer["neighbors"]] == [common[i] for i in order]


def test_a_title_comes_before_its_text(model, tmp_path, ask):
    """As in evaluations, with which the vectors must agree."""
    some = [
        {"_id": "1", "title": "Pack", "text": "a dog"},
        {"_id": "2", "text": "a pin"},
    ]
    some.append({"_id": "3", "title": "", "text": "map"})
    corpus, joined = tmp_path / "corpus.jsonl", tmp_path / "joined.txt"
    corpus.write_text("".join(f"{json.dumps(row)}\n" for row in some))
    texts = retrieval_files.read_texts(str(corpus)).values()
    joined.write_text("".join(f"{text}\n" for text in texts))
    arrays = []
    for number, path in enumerate((corpus, joined)):
        write(model, str(path), output_file=str(tmp_path / f"{number}.npy"))
        arrays.append(np.load(tmp_path / f"{number}.npy"))
    assert np.array_equal(*arrays)
    folder = written_index(model, str(corpus), tmp_path)
    rater = exports.write(tmp_path / "rater", "rating")
    (answer,) = ask("vector", b"ack\n", index=folder, rerank_with=rater)
    first, *_ = answer["neighbors"]
    assert (first["text"], first["score"]) == ("a dog", 3)
    corpus.write_text('{"text": "a", "title": 5}\n')
    with pytest.raises(UserError, match=r"corpus.jsonl:1: 'title' is 5, not text"):
        write(model, str(corpus), output_file=str(tmp_path / "new.npy"))


def test_an_approximate_search_finds_most(model, tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    from serving.search import approximate, exact, index

    monkeypatch.setattr(approximate, "FEWEST", 1)
    vectors = RANDOM.standard_normal((3000, 16)).astype(np.float32)
    folder = str(tmp_path / "index")
    index.write(
        folder,
        index.IndexDescription("digest", "model", 3000, 16, "int8"),
        iter({"text": str(i)} for i in range(3000)),
        lambda rows: vectors[[int(row["text"]) for row in rows]],
        32,
    )
    for _ in range(2):  # it writes the clusters, and reads them
        near = index.Index(folder).search(vectors[:50], 5, is_approximate=True)
        best = index.Index(folder).search(vectors[:50], 5)
        assert isinstance(near, exact.Nearest)
        assert (near.rows[:, 0] == np.arange(50)).mean() > 0.9
        both = zip(near.rows, best.rows, strict=True)
        assert np.mean([len({*found} & {*real}) for found, real in both]) > 4


REFUSALS = {
    "another model": ({"index": "INDEX", "model_dir": "OTHER"}, "by another model"),
    "no index": ({"index": "FOLDER"}, "is not an index"),
    "an index that exists": ({"write_index": "INDEX"}, "exists; remove it"),
    "a damaged index": ({"index": "DAMAGED"}, "vectors.npy: is missing or damaged"),
    "not of vectors": (
        {"write_index": "new", "model_dir": "LABEL"},
        "not with vectors",
    ),
    "not a reranker": ({"index": "INDEX", "rerank_with": "LABEL"}, "of pairs"),
    "a pipe": ({"input_file": "-", "output_file": "x.npy"}, "number of rows must be"),
    "lengths that count": ({"write_index": "new", "model_dir": "DOT"}, "the length"),
    "a type of nothing": ({"write_index": None}, "--vector_type=int8 is for"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_are_one_line(name, model, rows, tmp_path):
    folder = written_index(model, rows, tmp_path)
    shutil.copytree(folder, tmp_path / "damaged")
    array = (tmp_path / "damaged" / "vectors.npy").read_bytes()
    (tmp_path / "damaged" / "vectors.npy").write_bytes(array[:-1])
    (tmp_path / "folder").mkdir()
    values = {
        "INDEX": folder,
        "DAMAGED": str(tmp_path / "damaged"),
        "FOLDER": str(tmp_path / "folder"),
    }
    made = {
        "OTHER": ("vector", {"similarity": "cosine", "pooling": "max"}),
        "DOT": ("vector", {"similarity": "dot"}),
        "LABEL": ("label", {}),
    }
    changes, message = REFUSALS[name]
    for value in changes.values():
        if value in made:
            form, more = made[value]
            values[value] = exports.write(tmp_path / value.lower(), form, **more)
    flags = {"model_dir": model, "input_file": rows} | {
        key: values.get(value, value) for key, value in changes.items()
    }
    if "write_index" in flags:
        flags["vector_type"] = "int8"
    with pytest.raises(UserError, match=message) as error:
        predict.main(predict.Options(**flags))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "new").exists()
