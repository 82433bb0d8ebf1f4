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
from serving import request_bodies
from serving.predictor import Predictor
from serving.search import approximate, exact, index
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


@pytest.mark.exhaustive
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


def random_index(folder, kind):
    """Writes an index of random vectors, which it returns."""
    vectors = RANDOM.standard_normal((3000, 16)).astype(np.float32)
    index.write(
        folder,
        index.IndexDescription("digest", "model", 3000, 16, kind),
        iter({"text": str(i)} for i in range(3000)),
        lambda rows: vectors[[int(row["text"]) for row in rows]],
        32,
    )
    return vectors


def test_an_approximate_search_finds_most(tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(approximate, "FEWEST", 1)
    folder = str(tmp_path / "index")
    vectors = random_index(folder, "int8")
    for _ in range(2):  # it writes the clusters, and reads them
        near = index.Index(folder).search(vectors[:50], 5, is_approximate=True)
        best = index.Index(folder).search(vectors[:50], 5)
        assert isinstance(near, exact.Nearest)
        assert (near.rows[:, 0] == np.arange(50)).mean() > 0.9
        both = zip(near.rows, best.rows, strict=True)
        assert np.mean([len({*found} & {*real}) for found, real in both]) > 4
    clusters = tmp_path / "index" / "ivf.faiss"
    for content in (b"garbage", clusters.read_bytes()[:-4096]):
        clusters.write_bytes(content)
        with pytest.raises(UserError, match="ivf.faiss: is damaged; remove it, and"):
            index.Index(folder).search(vectors[:1], 5, is_approximate=True)


@pytest.mark.parametrize("kind", ["float16", "binary"])
def test_a_changed_index_is_refused_by_its_checksums(tmp_path, kind):
    vectors = random_index(str(tmp_path / "index"), kind)
    opened = index.Index(str(tmp_path / "index"))
    first, again = (opened.search(vectors[:9], 5) for _ in range(2))
    assert np.array_equal(first.scores, again.scores)
    searched = tmp_path / "index" / ("bits.npy" if kind == "binary" else "vectors.npy")
    for path in (searched, tmp_path / "index" / "row_lengths.npy"):
        content = path.read_bytes()
        path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
        with pytest.raises(UserError, match=f"{path.name}: is missing or damaged"):
            index.Index(str(tmp_path / "index")).search(vectors[:1], 5)


def test_a_prompt_has_a_default_that_depends_on_the_role(tmp_path, ask):
    """Files and requests need only a text; queries get one prompt and texts the other."""
    model = exports.write(tmp_path / "model", "prompted")
    texts, queries = ["dig", "cap", "fade"], ["a big pack", "dog"]
    rows = tmp_path / "rows.tsv"
    rows.write_text("".join(f"{text}\n" for text in ("text", *texts)))
    write(model, str(rows), write_index=str(tmp_path / "index"))
    questions = tmp_path / "questions.txt"
    questions.write_text("".join(f"{query}\n" for query in queries))
    output = tmp_path / "answers.jsonl"
    given = {"index": str(tmp_path / "index"), "output_file": str(output)}
    write(model, str(questions), **given)
    predictor = Predictor(model)
    expected = [
        predictor.vectors([{"text": text, "prompt": prompt} for text in some])
        for some, prompt in zip((queries, texts), exports.PROMPTS.values(), strict=True)
    ]
    for line, scores in zip(
        output.read_text().splitlines(), expected[0] @ expected[1].T, strict=True
    ):
        found = {row["text"]: row["score"] for row in json.loads(line)["neighbors"]}
        assert [found[text] for text in texts] == pytest.approx(list(scores), abs=1e-6)
    rows = [{"text": query} for query in queries]
    for key in ("instances", "inputs"):
        assert request_bodies.rows_of({key: [*queries]}, predictor)[0] == rows
    with pytest.raises(UserError, match="has no text; expected .* and perhaps prompt"):
        predictor.predict([{"prompt": "a"}])


def test_answers_continue_only_with_the_same_index_and_reranker(model, rows, tmp_path):
    folder, output = written_index(model, rows, tmp_path), str(tmp_path / "a.jsonl")
    queries = tmp_path / "queries.txt"
    queries.write_text("dog\n" * 128)
    rater = exports.write(tmp_path / "rater", "rating")
    flags = {"index": folder, "rerank_with": rater, "neighbors": 1, "batch_size": 32}
    with dying_at_a_note(after_it=True):
        write(model, str(queries), output_file=output, **flags)

    def refused(name, **changes):
        with pytest.raises(UserError, match=f"was begun with {name} "):
            write(model, str(queries), output_file=output, **flags | changes)

    refused("rerank_with", rerank_with=None)
    known = json.loads((tmp_path / "rater" / "export.json").read_text())
    exports.describe(tmp_path / "rater", known | {"task": "another"})
    refused("rerank_with")
    shutil.rmtree(folder)
    others = tmp_path / "others.tsv"
    others.write_text(pathlib.Path(rows).read_text().replace("p0\t", "q0\t"))
    write(model, str(others), write_index=folder, batch_size=32)
    refused("index")


def test_answers_continue_only_with_the_same_explain(rows, tmp_path):
    model = exports.write(tmp_path / "model", "label", explains=True)
    flags = {"input_format": "lines", "output_file": str(tmp_path / "a.jsonl")}
    with dying_at_a_note(after_it=True):
        write(model, rows, **flags)
    with pytest.raises(UserError, match="was begun with explain False, not True"):
        write(model, rows, explain=True, **flags)


def test_a_file_of_vectors_continues_only_in_its_width(
    model, rows, tmp_path, monkeypatch
):
    monkeypatch.setattr(exports, "LETTERS", exports.LETTERS[:8])
    narrow = exports.write(tmp_path / "narrow", "vector", similarity="cosine")
    output = str(tmp_path / "vectors.npy")
    with dying_at_a_note(after_it=True):
        write(model, rows, output_file=output)
    with pytest.raises(UserError, match="was begun with dimensions 16, not 8"):
        write(narrow, rows, output_file=output)


def test_blank_lines_are_no_texts_of_an_index_and_no_queries(model, tmp_path, caplog):
    texts, queries = tmp_path / "texts.txt", tmp_path / "queries.txt"
    texts.write_text("a\n\nbb\n \r\n")
    queries.write_text("\ndog\n")
    folder, output = str(tmp_path / "index"), tmp_path / "answers.jsonl"
    write(model, str(texts), write_index=folder)
    assert "texts.txt: skipped 2 blank lines" in caplog.text
    write(model, str(queries), index=folder, output_file=str(output))
    (answer,) = map(json.loads, output.read_text().splitlines())
    assert {row["text"] for row in answer["neighbors"]} == {"a", "bb"}
    assert caplog.text.count("skipped") == 2
    write(model, str(texts), output_file=str(tmp_path / "rows.npy"))
    assert len(np.load(tmp_path / "rows.npy")) == 4  # a row for each line
    for name, content in {"a.txt": "\n \n", "a.tsv": "text\n", "b.txt": ""}.items():
        (tmp_path / name).write_text(content)
        for flags in ({"index": folder}, {"write_index": str(tmp_path / "new")}):
            with pytest.raises(UserError, match=f"{name}: contains no texts"):
                write(model, str(tmp_path / name), **flags)


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
    "a column that answers have": (
        {"write_index": "new", "input_file": "SCORED"},
        "scored.tsv:1: score is also a name in the answer",
    ),
    "no array of vectors": (
        {"model_dir": "LABEL", "output_file": "NPY"},
        "would be an array of vectors, but label answers with label",
    ),
    "a type without vectors": (
        {"model_dir": "LABEL", "output_file": "JSONL", "vector_type": "int8"},
        "--vector_type=int8: label answers with label, not with vectors; remove it",
    ),
    "no array of rows": (
        {"index": "INDEX", "output_file": "NPY"},
        "would be an array of vectors, but .* answers with neighbors",
    ),
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
        "SCORED": str(tmp_path / "scored.tsv"),
        "NPY": str(tmp_path / "new.npy"),
        "JSONL": str(tmp_path / "new.jsonl"),
        "new": str(tmp_path / "new"),
    }
    (tmp_path / "scored.tsv").write_text("text\tscore\na\t1\n")
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
    assert not [*tmp_path.glob("new*")]
