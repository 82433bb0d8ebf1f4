"""Rows and answers with [CLS] last, equal to XLNet's release, and the same in a graph."""

import json

import numpy as np
import pytest

import tests
from training.backend import tf
from tests.text.graphs import test_answer_spans_graph as graphs
from text.graphs import packing_graph
from text.graphs.lookup import graph_of
from text.instances import packing
from text.tasks import answer_spans, squad
from text.tokenizers.table import TokenizerOptions

GOLDEN = json.loads((tests.GOLDEN / "xlnet" / "rows.json").read_text("utf-8"))
MODEL = tests.GOLDEN / "sentencepiece" / "xlnet.model"
LENGTHS = answer_spans.Lengths(96, 32, 16, document_first=True, cls_last=True)


@pytest.fixture(scope="module")
def tokenizer():
    return TokenizerOptions().load_tokenizer(str(MODEL))


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    path = tmp_path_factory.mktemp("squad") / "squad.json"
    path.write_text(json.dumps(GOLDEN["squad_input"]))
    return squad.read_to_answer(str(path))


def rows_of(examples, tokenizer, with_answers=False):
    """The documents, the number of each row's question, and the rows."""
    documents = [answer_spans.Document(tokenizer, e.context) for e in examples]
    numbers, rows = [], []
    for number, (example, document) in enumerate(zip(examples, documents, strict=True)):
        answer = None
        if with_answers:
            answer = squad.first_answer(document, tokenizer, example)
        question = tokenizer.encode(example.question)
        made = answer_spans.rows(
            document, question, tokenizer.vocabulary, LENGTHS, answer
        )
        rows += made
        numbers += [number] * (len(rows) - len(numbers))
    return documents, numbers, rows


# --- Packing -------------------------------------------------------------------------


def packed(case, tokenizer):
    """The ids of the texts, and the row in Python."""
    texts = [
        tokenizer.encode(case[name]) for name in ("text_a", "text_b") if case.get(name)
    ]
    pair = texts if len(texts) > 1 else (*texts, None)
    return pair, packing.pack(tokenizer.vocabulary, *pair, case["max_seq_length"])


@pytest.mark.parametrize("case", GOLDEN["classifier_examples"])
def test_rows_are_those_of_the_release_with_padding_on_the_right(case, tokenizer):
    size = case["input_mask"].count(0)
    _, (ids, segments, _) = packed(case, tokenizer)
    assert ids == case["input_ids"][-size:]
    assert segments == case["segment_ids"][-size:]


def test_a_graph_packs_the_same(tokenizer, tmp_path):
    graph = graph_of(tokenizer, str(tmp_path))
    for case in GOLDEN["classifier_examples"]:
        pair, (ids, segments, _) = packed(case, tokenizer)
        a, b = (x if x is None else tf.ragged.constant([x], tf.int32) for x in pair)
        batch = packing_graph.pack(graph, a, b, case["max_seq_length"])
        assert batch["input_ids"].numpy().tolist() == [ids]
        assert batch["segment_ids"].numpy().tolist() == [segments]
        assert batch["input_mask"].numpy().tolist() == [[1] * len(ids)]


def test_pairs_in_records_are_the_same_rows(tokenizer):
    vocabulary = tokenizer.vocabulary
    pairs = [([20, 21, 22], [23]), ([30], [31, 32])]
    tokens = np.array([id for pair in pairs for side in pair for id in side])
    lengths = np.array([[len(side) for side in pair] for pair in pairs]).T
    batch, is_text = packing.pack_pairs(tokens, *lengths, vocabulary, 8)
    for row, pair in enumerate(pairs):
        ids, segments = packing.join(vocabulary, *pair)
        padding = 8 - len(ids)
        assert batch["input_ids"][row].tolist() == ids + [5] * padding
        assert batch["segment_ids"][row].tolist() == segments + [0] * padding
        assert batch["input_mask"][row].tolist() == [1] * len(ids) + [0] * padding
    assert batch["input_ids"][is_text].tolist() == tokens.tolist()


# --- Questions -----------------------------------------------------------------------


def test_windows_are_those_of_the_release(examples, tokenizer):
    documents, numbers, rows = rows_of(examples, tokenizer)
    assert len(rows) == len(GOLDEN["rows"])
    for number, row, case in zip(numbers, rows, GOLDEN["rows"], strict=True):
        window = row.window
        assert row.input_ids.tolist() == case["input_ids"]
        assert row.segment_ids.tolist() == case["segment_ids"]
        assert window.cls == case["cls_index"]
        assert window.stop - window.first == case["paragraph_len"]
        own = range(window.own_first - window.first, window.own_stop - window.first)
        assert list(own) == case["max_context"]
        # The release's pieces include the space before them, and so end with one.
        document = documents[number]
        for place in range(window.first, window.stop):
            start, end = (
                case[name][place - window.first] for name in ("starts", "ends")
            )
            text = document.text[document.starts[place] : document.ends[place]]
            assert text == document.text[start : end + 1].strip()


def test_answers_to_learn_are_where_the_release_has_them(examples, tokenizer):
    _, _, rows = rows_of(examples, tokenizer, with_answers=True)
    for row, case in zip(rows, GOLDEN["train_rows"], strict=True):
        place = case["start_position"], case["end_position"]
        assert (row.start_position, row.end_position) == place
        assert row.window.cls == case["cls_index"]


def beams_of_release():
    rows = {row["unique_id"]: row for row in GOLDEN["results"]}
    rows = [rows[row["unique_id"]] for row in GOLDEN["rows"]]
    columns = [
        np.array([row[name] for row in rows])
        for name in (
            "start_top_index",
            "start_top_log_probs",
            "end_top_index",
            "end_top_log_probs",
            "cls_logits",
        )
    ]
    for place in (2, 3):  # of each start
        columns[place] = columns[place].reshape(-1, 3, 3)
    return answer_spans.TopSpans(*columns)


def test_answers_are_those_of_the_release(examples, tokenizer):
    documents, numbers, rows = rows_of(examples, tokenizer)
    answers = answer_spans.best_of_top_spans(
        documents,
        numbers,
        [row.window for row in rows],
        beams_of_release(),
        answer_spans.Search(4, 20, with_null=True),
    )
    for example, answer in zip(examples, answers, strict=True):
        wanted = GOLDEN["nbest"][example.id]
        # Differs from the release: a space alone is not an answer.
        texts = [each for each in wanted if each["text"]]
        for span, each in zip(answer.nbest, texts, strict=False):
            assert span.text == each["text"]
            scores = each["start_log_prob"], each["end_log_prob"]
            assert (span.start_logit, span.end_logit) == scores
            if len(texts) == len(wanted):
                assert span.probability == pytest.approx(each["probability"])
        assert answer.null_odds == GOLDEN["null_odds"][example.id]


@pytest.mark.exhaustive
def test_a_graph_answers_the_same(tokenizer):
    """With rows of a window, a question and [CLS], and "no answer" at that."""
    texts = ['The simple form, "assert", is. It was added in 1999, falsé is', "", "a"]
    asked = graphs.Asked(
        [("What is it?", text) for text in texts],
        answer_spans.Lengths(20, 4, 6, document_first=True, cls_last=True),
        tokenizer,
    )
    graphs.check_rows(asked)
    rng = np.random.default_rng(0)
    chosen = set()
    for _ in range(10):
        logits = asked.logits(rng, rng.normal(size=100))
        logits[:, np.arange(len(asked.rows)), [r.window.cls for r in asked.rows]] += 2
        found = graphs.check_answers(asked, logits, with_null=True, n_best_size=3)
        chosen.update(found["answer"])
    assert b"" in chosen and len(chosen) > 3
