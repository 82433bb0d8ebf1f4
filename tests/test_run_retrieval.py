"""run_retrieval.py as a user meets it: all kinds of files, losses, exports, a kill."""

import collections
import dataclasses
import json
import re

import numpy as np
import pytest

import bert
import run_retrieval
from training.backend import tf
from errors import UserError
from modeling.architectures.bert import BertEncoder
from serving import export
from serving.predictor import Predictor
from tests import jobs, relatives, tiers
from tests.conversion import convert
from tests.vectors import (
    LETTERS,
    TINY,
    flags,
    pairs,
    run,
    scored_pairs,
    write_files,
    write_table,
)
from text.tasks import text_groups
from text.tokenizers.vocabulary import SPECIAL_TOKENS

WHOLE = {"do_train": True, "do_eval": True, "do_predict": True}
DROPPING = dataclasses.replace(TINY, hidden_dropout_prob=0.1)
SAVED = {"save_checkpoints_steps": 10, "num_train_epochs": [4.0]}


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """After a whole run, with its export, also as a file."""
    folder = write_files(tmp_path_factory.mktemp("trained"))
    with jobs.untraced():
        given = {"learning_rate": [1e-2], "export_formats": ["onnx"]}
        run(folder, do_export=True, **given, **WHOLE, **SAVED)
    return folder


def vectors_by_hand(output, texts):
    """The mean of the tokens, of length 1, text by text."""
    ids = {word: n for n, word in enumerate([*SPECIAL_TOKENS, *LETTERS])}
    weights = jobs.weights(output.parent, output.name)
    encoder = BertEncoder(TINY)
    for variable in encoder.weights:
        variable.assign(weights[variable.path])
    rows = []
    for text in texts:
        row = tf.constant([[ids[word] for word in f"[CLS] {text} [SEP]".split()]])
        mean = encoder({"input_ids": row})["sequence_output"].numpy()[0].mean(axis=0)
        rows.append(mean / np.linalg.norm(mean))
    return np.array(rows)


@pytest.mark.without_family
def test_texts_that_fit_are_found_and_exported_vectors_are_the_encoders(trained):
    output = trained / "output"
    assert jobs.results(trained)["eval_recall@1"] > 0.4  # by chance 0.05
    assert "loss" not in jobs.results(trained)
    test = list(pairs(8, seed=2))
    queries = vectors_by_hand(output, [pair["query"] for pair in test])
    fitting = vectors_by_hand(output, [pair["positive"] for pair in test])
    lines = [line.split() for line in (output / "run.trec").read_text().splitlines()]
    assert [line[3] for line in lines] == [str(i) for i in range(1, 9)] * 8
    cosines = queries @ fitting.T
    for query, _, passage, _, score, _ in lines:
        assert float(score) == pytest.approx(
            cosines[int(query), int(passage)], abs=1e-5
        )
    exported = Predictor(str(output))
    answers = exported.predict([{"text": pair["query"]} for pair in test])
    found = np.array([answer["vector"] for answer in answers])
    np.testing.assert_allclose(found, queries, atol=1e-5)
    assert exported.description["pooling"] == "mean"
    assert exported.description["similarity"] == "cosine"


def test_a_trained_model_knows_its_network_and_cuts_its_vectors(
    trained, tmp_path, capsys, untraced
):
    write_files(tmp_path)
    model = str(trained / "output")
    given = {"do_eval": True, "init_checkpoint": model, "eval_batch_size": 4}
    run(tmp_path, **given)
    assert jobs.results(tmp_path) == jobs.results(trained) | {"global_step": 0}
    printed = capsys.readouterr().out
    assert "dev: 40 texts, 40 rows" in printed
    assert "--max_seq_length" not in printed
    cut = {"output_dir": str(tmp_path / "cut"), "vector_size": 2}
    run(tmp_path, max_seq_length=12, **cut, **given)
    printed = capsys.readouterr().out
    remark = "--max_seq_length=12: the model was trained with 16"
    # In the log, which only the first host prints.
    assert re.findall(rf"^\d\d:\d\d:\d\d {remark}$", printed, re.MULTILINE)
    cut = jobs.results(tmp_path, "cut")
    assert cut["eval_recall@1"] < jobs.results(trained)["eval_recall@1"]
    jobs.check_refused(
        run,
        tmp_path,
        "--pooling=max: the model was trained with mean",
        pooling="max",
        **given,
    )


def test_killed_and_continued_a_training_ends_with_the_same_bits(
    trained, folder, capsys, untraced
):
    given = {"learning_rate": [1e-2], **SAVED}
    jobs.check_goes_on(run, trained, folder, capsys, **given)


# --- Files ---------------------------------------------------------------------------


def groups(folder, kind, **columns):
    given = run_retrieval.Options(
        **flags(folder, do_train=True, train_kind=kind, **columns)
    )
    task = run_retrieval.SentenceVectorTask(given, None)
    return [(group.texts, group.score) for group in task.read("train")]


def test_negatives_may_be_several_columns_or_lists(folder):
    rows = [
        {"query": "a", "positive": "b", "negative": ["c", "d"], "other": "e"},
        {"query": "f", "positive": "g", "negative": "h", "other": []},
    ]
    write_table(folder / "train.jsonl", rows)
    found = groups(
        folder,
        "triplets",
        train_file="train.jsonl",
        negative_columns=["negative", "other"],
    )
    assert found == [(("a", "b", "c", "d", "e"), None), (("f", "g", "h"), None)]


def test_inferences_make_triplets(folder):
    lines = [
        ("p", "follows", "entailment"),
        ("p", "neither", "neutral"),
        ("p", "against", "contradiction"),
        ("q", "alone", "entailment"),
        ("p", "also", "entailment"),
    ]
    names = ("sentence1", "sentence2", "gold_label")
    rows = (dict(zip(names, line, strict=True)) for line in lines)
    write_table(folder / "train.tsv", rows)
    assert groups(folder, "nli") == [
        (("p", "follows", "against"), None),
        (("p", "also", "against"), None),
    ]
    counts = collections.Counter()
    columns = text_groups.KINDS["nli"].columns
    text_groups.read(str(folder / "train.tsv"), "nli", columns, counts=counts)
    assert list(counts.values()) == [1]  # q


def test_labels_make_pairs_that_fit_and_that_do_not(folder):
    texts = {"a": "1", "b": "1", "c": "2", "d": "2", "e": "3"}
    rows = ({"text": text, "label": label} for text, label in texts.items())
    write_table(folder / "train.tsv", rows)
    found = groups(folder, "labelled_texts", pairs_per_text=3)
    assert len(found) == 4 * 6 + 3  # nothing has the label of e but itself
    for (first, second), score in found:
        assert first != second
        assert score == (texts[first] == texts[second])
    assert found == groups(folder, "labelled_texts", pairs_per_text=3)


def test_questions_and_plain_texts_make_pairs(folder):
    pairs = [("why?", "so"), ("who?", "me")]
    paragraphs = [
        {"context": context, "qas": [{"id": "1", "question": text, "answers": []}]}
        for text, context in pairs
    ]
    data = json.dumps({"data": [{"paragraphs": paragraphs}]})
    (folder / "train.json").write_text(data)
    found = groups(folder, "squad", train_file="train.json")
    assert found == [(pair, None) for pair in pairs]
    (folder / "train.txt").write_text("one text\n\nanother\n")
    assert groups(folder, "texts", train_file="train.txt") == [
        (("one text", "one text"), None),
        (("another", "another"), None),
    ]


RUNS = {
    "cosent": {"train_kind": "scored_pairs", "loss": "cosent"},
    "cosine": {"train_kind": "scored_pairs", "loss": "cosine_error"},
    "texts": {"train_kind": "texts", "text_a_column": "sentence1", "pooling": "cls"},
    "margin": {
        "train_kind": "triplets",
        "loss": "triplet_margin",
        "text_b_column": "sentence2",
        "text_a_column": "sentence1",
        "negative_columns": ["positive"],
        "dev_kind": "scored_pairs",
        "normalize": False,
        "pooling": "weighted_mean",
    },
}


@pytest.mark.parametrize("name", tiers.cases(RUNS, ["texts", "margin", "cosine"]))
def test_each_loss_learns_and_scores_are_correlations(folder, name, untraced):
    if name == "texts":
        write_files(folder, DROPPING)
    for split, seed in (("train", 1), ("dev", 2)):
        rows = [
            row | {"positive": pair["positive"]}
            for row, pair in zip(scored_pairs(48, seed), pairs(48, 9), strict=True)
        ]
        write_table(folder / f"{split}.tsv", rows)
    given = {"do_train": True, "do_eval": True, "score_range": [0.0, 3.0]}
    epochs = 4.0 if name == "cosent" else 1.0
    run(folder, learning_rate=[1e-2], num_train_epochs=[epochs], **given, **RUNS[name])
    results = jobs.results(folder)
    assert -1.0 <= results["eval_pearson"] <= 1.0
    lines = (folder / "output" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert len(losses) == 1 and losses[0] > 0
    if name == "cosent":
        assert results["eval_spearman"] > 0.3


# --- Refusals ------------------------------------------------------------------------

REFUSED = {
    "a batch of one": (
        {"train_batch_size": [1]},
        "--train_batch_size=1: --loss=in_batch_negatives compares the rows of a batch",
    ),
    "no scores": (
        {"loss": "cosent"},
        "--loss=cosent: --train_kind=pairs has no scores; pass in_batch_negatives or",
    ),
    "no negatives": (
        {"loss": "triplet_margin"},
        "--loss=triplet_margin: --train_kind=pairs has no texts that do not fit",
    ),
    "another loss's": (
        {"symmetric": True, "train_kind": "scored_pairs"},
        "--symmetric has no effect with --loss=cosent; it is for in_batch_negatives",
    ),
    "range": ({"score_range": [1.0, 0.0]}, "--score_range=1,0: pass the lowest and"),
    "one column": (
        {"text_a_column": "x", "text_b_column": "x"},
        "--text_a_column and --text_b_column are both 'x'",
    ),
    "no column": (
        {"text_a_column": "question"},
        r"train.tsv:1: has no column 'question', only 'query', 'positive'; check the",
    ),
    "empty text": ({"lines": "a\t \n"}, r"train.tsv:2: 'positive' is empty; remove"),
    "no rows": ({"lines": ""}, r"train.tsv: contains no examples of the kind pairs"),
    "size": (
        {"vector_size": 17},
        "--vector_size=17: the vectors have only 16 numbers",
    ),
    "width": (
        {"matryoshka_sizes": [8, 17]},
        "--matryoshka_sizes=17: the vectors have only 16 numbers",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_in_one_line(folder, name):
    changes, message = REFUSED[name]
    changes = dict(changes)
    lines = changes.pop("lines", None)
    if lines is not None:
        (folder / "train.tsv").write_text(f"query\tpositive\n{lines}")
    jobs.check_refused(run, folder, message, do_train=True, **changes)


TEACHES_NOTHING = {
    "no negative": (
        [{"query": "a", "positive": "b", "negative": []}] * 8,
        *("triplets", "triplet_margin"),
        "no row has a text that does not fit; --loss=triplet_margin",
    ),
    "one pair": (
        [{"query": "a", "positive": "b"}] * 2,
        *("pairs", "in_batch_negatives"),
        "the first text of all rows is the same",
    ),
    "one passage": (
        [{"query": "a", "positive": "b"}, {"query": "c", "positive": "b"}],
        *("pairs", "in_batch_negatives"),
        "the second text of all rows is the same",
    ),
    "one score": (
        [{"sentence1": "a", "sentence2": x, "score": 0.5} for x in "bc"],
        *("scored_pairs", "cosent"),
        "no two scores differ; --loss=cosent learns their order",
    ),
}


@pytest.mark.parametrize("name", TEACHES_NOTHING)
def test_a_training_set_that_teaches_nothing_is_refused(folder, name):
    rows, kind, loss, message = TEACHES_NOTHING[name]
    write_table(folder / "train.jsonl", rows)
    with pytest.raises(UserError, match=f"train.jsonl: {message}"):
        groups(folder, kind, train_file="train.jsonl", loss=loss)


def test_pairs_without_an_order_are_refused_as_a_dev_set(folder):
    rows = [{"sentence1": "a", "sentence2": x, "score": 3} for x in "bc"]
    write_table(folder / "dev.tsv", rows)
    given = {"dev_kind": "scored_pairs", "score_range": [0.0, 3.0], "do_train": True}
    message = "dev.tsv: no two scores differ, so there is no order to compare"
    jobs.check_refused(run, folder, message, do_eval=True, **given)


def test_texts_need_dropout_to_be_read_in_two_ways(folder):
    given = {"do_train": True, "train_kind": "texts", "text_a_column": "query"}
    message = (
        r"config.json: has no dropout \(hidden_dropout_prob, attention_probs_dropo"
    )
    jobs.check_refused(run, folder, message, **given)


def test_rows_without_negatives_are_no_triplets(folder):
    rows = [{"query": x, "positive": "b", "negative": ["c"] * (x > "e")} for x in "afg"]
    write_table(folder / "train.jsonl", rows)
    changes = {"train_file": "train.jsonl", "loss": "triplet_margin"}
    found = groups(folder, "triplets", **changes)
    assert [texts[0] for texts, _ in found] == ["f", "g"]
    assert len(groups(folder, "triplets", train_file="train.jsonl")) == 3


@pytest.mark.parametrize("score", ["5.1", "-1", "high", "nan"])
def test_scores_outside_their_range_are_refused(folder, score):
    row = {"sentence1": "a", "sentence2": "b", "score": score}
    write_table(folder / "train.tsv", [row])
    message = rf"train.tsv:2: 'score' is '{score}', not a number from 0 to 5"
    given = {"train_kind": "scored_pairs", "score_range": [0.0, 5.0]}
    jobs.check_refused(run, folder, message, do_train=True, **given)


# --- Trained models elsewhere --------------------------------------------------------


def test_python_embeds_as_the_model_was_trained(trained):
    texts = [pair["query"] for pair in pairs(8, seed=2)]
    found = bert.load(str(trained / "output")).embed(texts)
    by_hand = vectors_by_hand(trained / "output", texts)
    np.testing.assert_allclose(found, by_hand, atol=1e-5)


@pytest.mark.exhaustive
def test_an_export_made_again_is_the_same_model_unless_its_vectors_are_cut(
    trained, folder, untraced, monkeypatch
):
    """Also by another run, which counts its own steps, and with the flags it needs."""
    output = str(trained / "output")
    digest = Predictor(output).digest
    monkeypatch.setattr(export, "_check", lambda product, directory: None)
    given = {"do_export": True, "init_checkpoint": output}
    run(folder, output_dir=str(folder / "again"), **given)
    assert Predictor(str(folder / "again")).digest == digest
    run(folder, output_dir=str(folder / "cut"), vector_size=8, **given)
    assert Predictor(str(folder / "cut")).digest != digest


@pytest.mark.exhaustive
def test_prompts_and_projection_belong_to_the_model(folder, untraced):
    given = {"query_prompt": "a ", "passage_prompt": "b b ", "projection_size": 6}
    run(folder, do_train=True, do_eval=True, do_export=True, vector_size=5, **given)
    output = str(folder / "output")
    exported, encoder = Predictor(output), bert.load(output)
    texts = [pair["query"] for pair in pairs(8, seed=2)]
    by_role = {}
    for are_queries, prompt in ((True, "a "), (False, "b b ")):
        found = exported.vectors([{"text": t} for t in texts], are_queries=are_queries)
        whole = encoder.embed(texts, are_queries=are_queries)
        assert (found.shape, whole.shape) == ((8, 5), (8, 6))
        cut = whole[:, :5] / np.linalg.norm(whole[:, :5], axis=1, keepdims=True)
        np.testing.assert_allclose(found, cut, atol=1e-5)
        written = [{"text": prompt + text, "prompt": ""} for text in texts]
        np.testing.assert_allclose(exported.vectors(written), found, atol=1e-6)
        by_role[are_queries] = found
    assert np.abs(by_role[True] - by_role[False]).max() > 1e-3
    # Converted to sentence-transformers and back, it is the same.
    vectors = encoder.embed(texts, are_queries=True)
    there, back = str(folder / "there"), str(folder / "back")
    convert(output, there, layout="sentence_transformers")
    convert(there, back)
    for converted in (there, back):
        found = bert.load(converted).embed(texts, are_queries=True)
        np.testing.assert_array_equal(found, vectors)
    # A training that begins with this model keeps what it is.
    more = {"do_train": True, "init_checkpoint": output, "num_train_epochs": [0.5]}
    run(folder, output_dir=str(folder / "more"), **more)
    task = json.loads((folder / "more" / "task.json").read_text())
    assert given.items() <= task.items()


@pytest.mark.exhaustive
def test_a_student_learns_the_vectors_of_its_teacher(trained, folder, untraced):
    given = {
        "do_train": True,
        "do_eval": True,
        "distill_from": str(trained / "output"),
        "hard_weight": 0.0,
        "pooling": "cls",
        "learning_rate": [1e-2],
        "num_train_epochs": [6.0],
        "log_every_steps": 8,
    }
    run(folder, **given)
    lines = (folder / "output" / "metrics.jsonl").read_text().splitlines()
    cosines = [json.loads(line)["teacher_cosine"] for line in lines]
    assert cosines[-1] > cosines[0] + 0.1


# Their vocabulary has padding elsewhere; its encoder is BERT's.
FAMILY = sorted(relatives.CONFIGS.keys() - {"roberta"})


@pytest.mark.exhaustive
@pytest.mark.parametrize("architecture", FAMILY)
def test_each_relative_gives_the_vectors_that_it_searches_with(
    folder, architecture, untraced
):
    start, _ = relatives.write_start(folder, relatives.CONFIGS[architecture])
    pooling = "mean" if architecture in ("gpt", "elmo") else "cls"
    given = {"do_train": True, "do_predict": True, "num_train_epochs": [0.5]}
    run(folder, pooling=pooling, **given, **start)
    encoder, test = bert.load(str(folder / "output")), list(pairs(8, seed=2))
    queries, passages = (
        encoder.embed([pair[name] for pair in test]) for name in ("query", "positive")
    )
    lines = (folder / "output" / "run.trec").read_text().splitlines()
    scores = {}
    for query, _, _, _, score, _ in map(str.split, lines):
        scores.setdefault(int(query), []).append(float(score))
    found = [scores[query] for query in sorted(scores)]
    expected = -np.sort(-(queries @ passages.T), axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-4)
