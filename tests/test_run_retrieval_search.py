"""run_retrieval.py on a collection: runs, scores, reranking, negatives."""

import json

import numpy as np
import pytest

import bert
import run_retrieval
from errors import UserError
from modeling.objectives.sentence_vectors import OUTPUT
from serving import export
from serving.rerank import Reranker
from tests import exports, jobs
from tests.vectors import flags, pairs, run, write_files, write_table
from text.tasks.retrieval_files import TextCollection, read_collection
from text.tasks.text_groups import JudgedTexts
from training.finetuning import experiment, finetune, ranking_metrics, retrieval
from training.finetuning.retrieval import mine_negatives
from training.finetuning.task import Judgement, Predictions


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A collection, a model trained on pairs, and what it finds before and after."""
    folder = write_files(tmp_path_factory.mktemp("trained"))
    made = list(pairs(30, seed=3))
    passages = [
        {"_id": f"p{i}", "text": pair["positive"]} for i, pair in enumerate(made)
    ]
    write_table(folder / "corpus.jsonl", passages)
    queries = [{"_id": f"q{i}", "text": pair["query"]} for i, pair in enumerate(made)]
    write_table(folder / "queries.tsv", queries)
    (folder / "qrels").mkdir()
    for name, numbers in {"dev": range(20), "test": range(20, 30)}.items():
        rows = [
            {"query-id": f"q{i}", "corpus-id": f"p{i}", "score": 1} for i in numbers
        ]
        write_table(folder / "qrels" / f"{name}.tsv", rows)
    with jobs.untraced():
        run(
            folder,
            dev_kind="collection",
            rerank_with=exports.write(folder / "rater", "rating"),
            rerank_top=5,
            learning_rate=[1e-2],
            **dict.fromkeys(("do_train", "do_eval", "do_predict"), True),
        )
    return folder


def read_run(path):
    found = {}
    for line in path.read_text().splitlines():
        query, _, passage, rank, score, tag = line.split()
        found.setdefault(query, {})[passage] = float(score)
        assert int(rank) == len(found[query])
    return found


def test_what_is_found_is_written_and_scored(trained):
    """The model that was saved finds the same."""
    results = jobs.results(trained)
    assert results["eval_recall@100"] == 1  # all 30 passages are in a run
    run = read_run(trained / "output" / "run.trec")
    assert list(run) == [f"q{i}" for i in range(20, 30)]
    texts = {row["_id"]: row["text"] for row in _rows(trained / "corpus.jsonl")}
    encoder = bert.load(str(trained / "output"))
    made = list(pairs(30, seed=3))
    for number, query in enumerate(run, start=20):
        (near,) = encoder.search(texts.values(), [made[number]["query"]], k=30)
        scores = [score for _, score in near]
        assert list(run[query].values()) == pytest.approx(scores, abs=1e-5)
        near = dict(near)
        for passage, score in run[query].items():
            assert near[texts[passage]] == pytest.approx(score, abs=1e-5)


def _rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_reranker_orders_the_first_ones_again(trained):
    output = trained / "output"
    before, after = (read_run(output / f"{x}run.trec") for x in ("", "reranked_"))
    texts = {row["_id"]: row["text"] for row in _rows(trained / "corpus.jsonl")}
    made = list(pairs(30, seed=3))
    for number, query in enumerate(before, start=20):
        first, rest = list(before[query])[:5], list(before[query])[5:]
        letters = {*made[number]["query"].split()}
        common = {id: len(letters & {*texts[id].split()}) for id in first}
        expected = sorted(first, key=lambda id: -common[id])
        assert list(after[query]) == [*expected, *rest]
        assert ranking_metrics.rank(after[query])[5:] == rest
    results = jobs.results(trained)
    assert results["eval_reranked_mrr@10"] > results["eval_mrr@10"]


def test_mined_negatives_are_near_do_not_fit_and_train(trained, untraced):
    run(trained, do_predict=True, mine_negatives=3, dev_kind="collection")
    rows = _rows(trained / "output" / "mined_negatives.jsonl")
    train = list(pairs(64, seed=0))
    fitting = {}
    for pair in train:
        fitting.setdefault(pair["query"], set()).add(pair["positive"])
    assert [(row["query"], row["positive"]) for row in rows] == [
        (pair["query"], pair["positive"]) for pair in train
    ]
    encoder = bert.load(str(trained / "output"))
    texts = list(dict.fromkeys(pair["positive"] for pair in train))
    assert sum(len(row["negative"]) for row in rows) > len(rows)
    for row in rows[:10]:
        (near,) = encoder.search(texts, [row["query"]], k=len(texts))
        most = 0.95 * dict(near)[row["positive"]]
        wrong = [
            text
            for text, score in near
            if score < most and text not in fitting[row["query"]]
        ]
        assert row["negative"] == wrong[: len(row["negative"])]
    run(
        trained,
        do_train=True,
        train_kind="triplets",
        dev_kind="pairs",
        train_file="output/mined_negatives.jsonl",
        output_dir=str(trained / "again"),
    )


def scored(folder, vectors, **changes):
    """What a task makes of vectors for all texts of dev.tsv: scores, files, judgements."""
    given = run_retrieval.Options(
        **flags(folder, do_eval=True, do_predict=True, test_file="dev.tsv", **changes)
    )
    task = run_retrieval.SentenceVectorTask(given, None)
    found = []
    for split in ("dev", "test"):
        outputs = {OUTPUT: np.array(vectors, np.float32)}
        examples = task.read(split)
        assert len(examples) == len(vectors)
        found.append(Predictions(split, examples, [], np.array([]), outputs))
    dev, test = found
    return task.score(dev), task.prediction_files(test), task.judge(dev)


def test_a_query_does_not_find_its_own_text(tmp_path):
    """As in training and in mining; it may be the passage of another query."""
    rows = [("a", "d"), ("f", "a")]
    rows = [dict(zip(("query", "positive"), row, strict=True)) for row in rows]
    write_table(tmp_path / "dev.tsv", rows)
    a, f, d = [1, 0], [0.8, 0.6], [0.9, 0.1]
    scores, files, judgements = scored(tmp_path, [a, f, d, a])
    assert scores["recall@1"] == 1
    (run,) = files.values()
    assert [line.split()[:3:2] for line in run.splitlines()] == [
        ["0", "0"],
        ["1", "1"],
        ["1", "0"],
    ]
    assert judgements[0][:4] == ("a", "d", "d", 1)


def test_a_page_shows_what_a_search_finds_in_place_of_what_fits(tmp_path):
    write_table(
        tmp_path / "dev.tsv",
        [{"query": q, "positive": p} for q, p in (("a", "b"), ("c", "d"), ("e", "f"))],
    )
    x, y, z = [1, 0], [0, 1], [-1, 0]
    _, _, judgements = scored(tmp_path, [x, y, z, x, y, [0.5, 0.5]])
    assert judgements == [
        Judgement("a", "b", "b", 1),
        Judgement("c", "d", "d", 1),
        Judgement("e", "f", "d", 2),
    ]


def test_pairs_are_scored_by_cosines_whatever_the_lengths_of_vectors(tmp_path):
    names = ("sentence1", "sentence2", "score")
    rows = [("a", "b", 5), ("c", "d", 1), ("e", "f", 3)]
    write_table(
        tmp_path / "dev.tsv", [dict(zip(names, row, strict=True)) for row in rows]
    )
    first = [[1, 0], [9, 0], [1, 0]]
    second = [[2, 0], [1, 9], [1, 1]]
    given = {"train_kind": "scored_pairs", "score_range": [0, 5], "normalize": False}
    scores, files, judgements = scored(tmp_path, [*first, *second], **given)
    assert scores["spearman"] == pytest.approx(1)
    cosines = [1, 1 / np.sqrt(82), np.sqrt(0.5)]
    found = [float(line) for line in files["test_results.tsv"].split()]
    assert found == pytest.approx(cosines, abs=1e-6)
    assert judgements[1] == Judgement(
        "c\nd", "1, rank 3", f"cosine {cosines[1]:.3f}, rank 3", 0
    )


def test_the_second_label_of_a_classifier_says_that_a_passage_fits(tmp_path):
    labels = {"labels": ["other", "same"]}
    path = exports.write(tmp_path, "pair", **labels)
    assert Reranker(path).scores("a b", ["c", "a b", "b"]) == pytest.approx(
        [0.2, 0.9, 0.2]
    )


def test_no_negative_is_nearer_than_a_text_that_fits_badly():
    judged = JudgedTexts(("q",), ("fits", "nearer"), np.array([[0, 0]]), None)
    passages = np.array([[-0.9, 0], [-0.87, 0]], np.float32)
    (line,) = mine_negatives(judged, np.array([[1, 0]], np.float32), passages, 2)
    assert json.loads(line)["negative"] == []


def test_many_vectors_are_in_a_file_and_give_the_same(trained, monkeypatch, untraced):
    ranked, rank = [], retrieval.rank

    def ranking(collection, *vectors):
        ranked.extend(vectors)
        return rank(collection, *vectors)

    monkeypatch.setattr(experiment, "_IN_MEMORY", 0)
    monkeypatch.setattr(retrieval, "rank", ranking)
    given = {"init_checkpoint": str(trained / "output"), "dev_kind": "collection"}
    run(trained, do_predict=True, output_dir=str(trained / "filed"), **given)
    assert [type(vectors) for vectors in ranked] == [np.memmap, np.memmap]
    runs = [trained / name / "run.trec" for name in ("output", "filed")]
    assert runs[0].read_text() == runs[1].read_text()


@pytest.mark.exhaustive
def test_an_export_of_fewer_bits_is_scored_by_searches_among_fewer_passages(
    trained, monkeypatch, untraced
):
    monkeypatch.setattr(finetune, "_COMPARED", 5)
    monkeypatch.setattr(export, "_check", lambda product, directory: None)
    given = {"do_eval": True, "do_export": True, "export_precision": "bfloat16"}
    given |= {"dev_kind": "collection", "init_checkpoint": str(trained / "output")}
    run(trained, output_dir=str(trained / "small"), **given)
    report = json.loads((trained / "small/export/precision.json").read_text())
    found = report["forms"]["saved_model"]
    part = retrieval.part_of(read_collection(str(trained), "dev.tsv"), 5)
    encoder = bert.load(str(trained / "output"))
    texts = (part.queries.values(), part.passages.values())
    found_there = retrieval.rank(part, *(encoder.embed(list(each)) for each in texts))
    scores = ranking_metrics.score_run(part.relevant, found_there)
    assert found["ndcg@10_of_float32"] == pytest.approx(scores["ndcg@10"])
    assert found["agreement"] == 1
    assert report["examples"] == 5 + 10


def test_a_part_of_a_collection_can_be_searched_by_itself():
    texts = {f"p{i}": f"passage {i}" for i in range(1000)}
    relevant = {f"q{i}": {f"p{3 * i + j}": j for j in range(3)} for i in range(100)}
    whole = TextCollection(
        {query: f"of {query}" for query in relevant}, texts, relevant
    )
    part = retrieval.part_of(whole, 10)
    # Those of six queries, and two others.
    assert (len(part.queries), len(part.passages)) == (6, 20)
    assert part.queries.keys() == part.relevant.keys()
    for query, passages in part.relevant.items():
        assert part.queries[query] == f"of {query}"
        assert passages == relevant[query]
        assert all(part.passages[id] == texts[id] for id in passages)
    assert len(retrieval.part_of(whole, 1).queries) == 1  # with all of its passages
    assert retrieval.part_of(whole, 1000) == whole


def test_a_part_of_scored_pairs_has_the_same_scores():
    queries, passages = tuple("abcde"), tuple("vwxyz")
    pairs = np.array([[i % 4, i % 5] for i in range(20)])
    whole = JudgedTexts(queries, passages, pairs, np.arange(20.0))
    part = retrieval.part_of(whole, 4)
    named = [(part.queries[q], part.passages[p]) for q, p in part.pairs]
    for pair, score in zip(named, part.scores, strict=True):
        query, passage = pairs[int(score)]
        assert pair == (queries[query], passages[passage])
    assert part.scores.tolist() == [0, 5, 10, 15]
    assert (part.queries, part.passages) == (tuple("abcd"), ("v",))


WRONG = {
    "texts is empty; pass at least one": ([], ["a"], 1),
    "texts 1: is None; it must be a string": (["a", None], ["a"], 1),
    "queries 0: is 5; it must be a string": (["a"], [5], 1),
    "queries is 'a', a single string; pass a list": (["a"], "a", 1),
    "k=0: must be a whole number": (["a"], ["a"], 0),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_search_in_python_refuses_what_is_not_texts(trained, message):
    with pytest.raises(UserError, match=message):
        bert.load(str(trained / "output")).search(*WRONG[message])


REFUSALS = {
    "scores": (
        {"mine_negatives": 1, "do_predict": True, "train_kind": "scored_pairs"},
        "--mine_negatives: --train_kind=scored_pairs has scores",
    ),
    "no search": (
        {"rerank_with": "x", "dev_kind": "scored_pairs"},
        "--rerank_with has no effect",
    ),
    "no prediction": ({"mine_negatives": 1}, "no effect with --do_predict=False"),
    "none": ({"mine_negatives": 0, "do_predict": True}, "must be from 1 to 1,000"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_flags(tmp_path, name):
    changes, message = REFUSALS[name]
    with pytest.raises(UserError, match=message):
        run_retrieval.Options(**flags(tmp_path, do_eval=True, **changes))


RERANKERS = {
    "none": ({}, "rater: there is no such file or folder"),
    "another form": (
        {"form": "vector", "inputs": {"text": "text"}},
        "with the form vector; reranking needs a classifier",
    ),
    "one text": (
        {"form": "label", "inputs": {"text": "text"}, "labels": ["0", "1"]},
        "takes text and answers",
    ),
    "three labels": (
        {
            "form": "label",
            "inputs": {"text_a": "text", "text_b": "text"},
            "labels": [*"abc"],
        },
        "rater: has 3 labels; reranking needs two",
    ),
}


@pytest.mark.parametrize("name", RERANKERS)
def test_a_reranker_that_cannot_score_pairs_is_refused_first(tmp_path, name):
    description, message = RERANKERS[name]
    if description:
        (tmp_path / "rater").mkdir()
        exports.describe(tmp_path / "rater", description)
    given = flags(tmp_path, do_train=True, rerank_with=str(tmp_path / "rater"))
    with pytest.raises(UserError, match=message):
        run_retrieval.SentenceVectorTask(run_retrieval.Options(**given), None)
