"""Tagging in a graph: rows, entities and tags equal those of text/tasks/tags.py."""

import dataclasses
import functools
import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests import tiers
from text.graphs import row_chunks, tags_graph
from text.graphs.wordpiece_graph import WordPieceGraph
from text.instances import packing
from text.tasks import tag_rows, tags
from text.tokenizers.sentencepiece import FAMILIES
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece

PIECES = [*"abPpLl.", *(f"##{letter}" for letter in "ab")]
VOCABULARY = Vocabulary([*SPECIAL_TOKENS, *PIECES])
TYPES = ("LOC", "PER")
LABELS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


# --- Parts of a batch ----------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("width", [0, 5])
def test_a_batch_is_shown_in_parts(rows, width):
    shown = []

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def run(ids):
        def predict(batch):
            tf.numpy_function(lambda x: shown.append(x.shape), [batch["ids"]], [])
            return {"logits": tf.cast(batch["ids"], tf.float32) * 2}

        return row_chunks.run_in_chunks(predict, {"ids": ids}, most_rows=4)

    ids = np.arange(rows * width, dtype=np.int32).reshape(rows, width)
    logits = run(ids)["logits"].numpy()
    assert logits[:, :width].tolist() == (ids * 2.0).tolist()
    assert len(logits) == rows
    assert sum(shape[0] for shape in shown) == max(rows, 1)
    assert all(0 < shape[0] <= 4 and shape[1] > 0 for shape in shown)


def test_parts_are_smaller_where_rows_are_long():
    def parts(shape):
        shown = []

        def predict(batch):
            tf.numpy_function(lambda x: shown.append(len(x)), [batch["ids"]], [])
            return batch

        row_chunks.run_in_chunks(predict, {"ids": tf.zeros(shape, tf.int32)})
        return shown

    assert parts([40, 512]) == [16, 16, 8]
    assert parts([40, 4, 512]) == [4] * 10
    assert parts([100, 64]) == [100]
    assert parts([2, 10_000]) == [1, 1]


# --- Rows ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """The exact one, and its twin in the graph."""
    exact = WordPiece(VOCABULARY, do_lower_case=False)
    path = tmp_path_factory.mktemp("vocabulary")
    return exact, WordPieceGraph(exact, str(path))


def requests_of(lists):
    """Lists of words -> string [b, n]."""
    return tf.ragged.constant(lists, dtype=tf.string, ragged_rank=1).to_tensor("")


def sentences_of(words):
    """Yields where sentences start and stop, in words and in words that are not empty."""
    start = count = 0
    for place, word in enumerate([*words, ""]):
        if not word:
            if place > start:
                yield range(start, place), range(count, count + place - start)
                count += place - start
            start = place + 1


def by_python(exact, words, capacity, in_context):
    """The windows of one request, and all of its pieces."""
    pieces = [
        (exact.encode(word) or [exact.vocabulary.unk_id])[:capacity]
        for word in filter(None, words)
    ]
    for _, own in sentences_of(words):
        low, high = (0, len(pieces)) if in_context else (own.start, own.stop)
        edges = np.cumsum([0, *map(len, pieces[low:high])])
        for window in tag_rows.windows(
            edges, own.start - low, own.stop - low, capacity
        ):
            yield tag_rows.TagWindow(*(int(number) + low for number in window)), pieces


@st.composite
def requests(draw):
    """Any words, those of control characters alone and of more pieces than a row too."""
    word = st.one_of(
        st.just(""), st.text("abPL.x\x01\u200b\u00a0가", min_size=1, max_size=14)
    )
    return draw(st.lists(st.lists(word, max_size=12), max_size=4))


def rows_of(tokenizer, words, length, in_context):
    cells = tf.where(words != "")
    asked = tf.ones(tf.shape(cells)[0], tf.bool)
    pieces = tags_graph.encode(tokenizer, tf.gather_nd(words, cells), length)
    found = tags_graph.windows(
        tf.cast(pieces.row_splits, tf.int32),
        tags_graph.sentences(words, cells, asked, in_context),
        length - 2,
    )
    return found, *tags_graph.rows(tokenizer, pieces, found, length)


@pytest.fixture(scope="module")
def graphs(tokenizers):
    """`rows_of` in graphs of any length, by `in_context`."""
    specs = tf.TensorSpec([None, None], tf.string), tf.TensorSpec([], tf.int32)
    as_graph = functools.partial(tf.function, input_signature=specs, autograph=False)
    rows = functools.partial(rows_of, tokenizers[1])
    return [as_graph(functools.partial(rows, in_context=x)) for x in (False, True)]


@given(requests(), st.integers(3, 12), st.booleans())
def test_rows_are_those_of_python(tokenizers, graphs, lists, length, in_context):
    exact, _ = tokenizers
    words = requests_of(lists)
    found, batch, places = graphs[in_context](words, tf.constant(length))
    pairs = zip(batch["input_ids"].numpy(), batch["input_mask"].numpy(), strict=True)
    ids = [row[mask > 0].tolist() for row, mask in pairs]
    assert not batch["segment_ids"].numpy().any()
    expected, before, expected_ids, expected_places = [], 0, [], []
    for each in lists:
        for window, known in by_python(exact, each, length - 2, in_context):
            expected.append([number + before for number in window])
            inside = known[window.start : window.stop]
            own = range(window.own_start, window.own_stop)
            expected_places += [
                [len(expected_ids), 1 + sum(map(len, known[window.start : word]))]
                for word in own
            ]
            expected_ids.append(
                [VOCABULARY.cls_id, *sum(inside, []), VOCABULARY.sep_id]
            )
        before += sum(map(bool, each))
    assert found.numpy().tolist() == expected
    assert ids == expected_ids
    assert places.numpy().tolist() == expected_places


# Whose [CLS] is at the end, or which have none.
_FROM_TEXT = [
    name
    for name, family in FAMILIES.items()
    if family.special.cls_last or not family.special.names[2]
]


@pytest.mark.parametrize("family", _FROM_TEXT)
def test_rows_that_begin_with_text_are_those_of_python(tmp_path, family):
    special = dataclasses.replace(FAMILIES[family].special, continuation="##")
    vocabulary = Vocabulary([*special.tokens, *PIECES], special=special)
    exact = WordPiece(vocabulary, do_lower_case=False)
    tokenizer = WordPieceGraph(exact, str(tmp_path))
    words = ["P", "abab", "", "L", "ab", ".", "x", "aaaaa", "b", "Lab"]
    _, batch, places = rows_of(tokenizer, requests_of([words]), 8, in_context=True)
    expected, expected_places = [], []
    for row, (window, pieces) in enumerate(by_python(exact, words, 6, True)):
        inside = pieces[window.start : window.stop]
        expected.append(packing.join(vocabulary, sum(inside, [])))
        expected_places += [
            [row, sum(map(len, pieces[window.start : word]))]
            for word in range(window.own_start, window.own_stop)
        ]
    sizes = batch["input_mask"].numpy().sum(axis=1)
    names = "input_ids", "segment_ids"
    found = [
        tuple(batch[name][row, :size].numpy().tolist() for name in names)
        for row, size in enumerate(sizes)
    ]
    assert found == expected and len(expected) > 2
    assert places.numpy().tolist() == expected_places


# --- Entities ------------------------------------------------------------------------


def entities_of(answer, number):
    """One request's, as (text, type, start, stop)."""
    columns = ("entities", "entity_types", "entity_starts", "entity_stops")
    found = zip(*(answer[name][number].numpy() for name in columns), strict=True)
    return [(a.decode(), b.decode(), c, d) for a, b, c, d in found if c >= 0]


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None], tf.string),
        tf.TensorSpec([None, None], tf.int32),
    ]
)
def read(words, labels):
    return {s: tags_graph.read(words, labels, TYPES, s) for s in tags.SCHEMES}


@pytest.mark.parametrize("seed", range(2))
def test_entities_and_tags_are_those_of_python(seed):
    """Any order of labels: mostly broken."""
    rng = random.Random(seed)
    lists = [
        [rng.choice(["", "Ab", "c", "d"]) for _ in range(rng.randint(0, 30))]
        for _ in range(rng.choice([0, 1, 20]))
    ]
    words = requests_of(lists)
    numbers = np.array([[rng.randrange(5) for _ in row] for row in words.numpy()])
    numbers = numbers.reshape(words.shape) * (words != "").numpy()
    answers = read(words, numbers.astype(np.int32))
    for number, each in enumerate(lists):
        expected, marks = [], {scheme: [""] * words.shape[1] for scheme in tags.SCHEMES}
        for own, _ in sentences_of(each):
            found = tags.entities([LABELS[numbers[number, i]] for i in own])
            for scheme in tags.SCHEMES:
                marks[scheme][own.start : own.stop] = tags.mark(found, len(own), scheme)
            for kind, start, stop in found:
                start, stop = start + own.start, stop + own.start
                expected.append((" ".join(each[start:stop]), kind, start, stop))
        for scheme, answer in answers.items():
            written = [tag.decode() for tag in answer["tags"][number].numpy()]
            assert written == marks[scheme]
            assert entities_of(answer, number) == expected


def test_files_with_one_type_have_no_name_for_it():
    words, labels = [["a", "b", "c"]], [[1, 2, 1]]
    answer = tags_graph.read(tf.constant(words), tf.constant(labels), ("",), "iobes")
    assert answer["tags"].numpy().tolist() == [[b"B", b"E", b"S"]]
    assert entities_of(answer, 0) == [("a b", "", 0, 2), ("c", "", 2, 3)]


def test_characters_of_an_entity_are_a_text():
    words, labels = [["서", "울", " ", "시"]], [[1, 2, 2, 2]]
    answer = tags_graph.read(
        tf.constant(words), tf.constant(labels), ("LC",), "iob2", ""
    )
    assert entities_of(answer, 0) == [("서울 시", "LC", 0, 4)]


def test_plain_tags_of_empty_words_are_empty():
    answer = tags_graph.plain(
        tf.constant([["a", "", " "]]), tf.constant([[1, 0, 0]]), ["N", "가"]
    )
    assert answer["tags"].numpy().tolist() == [["가".encode(), b"", b"N"]]


# --- From words to labels ------------------------------------------------------------


def network(batch):
    """Says something of a piece that depends on those beside it."""
    ids = tf.cast(batch["input_ids"], tf.float32)
    beside = tf.pad(ids, [[0, 0], [1, 1]])
    ids += 0.5 * beside[:, :-2] + 0.3 * beside[:, 2:]
    return {"logits": tf.sin(ids[..., None] * tf.range(1.0, 6.0))}


def random_requests(rng):
    return [
        [
            "".join(rng.choices("abPL.x\x01\u00a0가", k=rng.choice([0, 1, 3, 14])))
            for _ in range(rng.randint(0, 20))
        ]
        for _ in range(rng.choice([0, 1, 4]))
    ]


@pytest.mark.parametrize(
    ("length", "in_context"),
    tiers.cases([(3, True), (8, False), (12, True)], [(8, False), (12, True)]),
)
def test_labels_are_those_of_the_rows_of_python(tokenizers, length, in_context):
    exact, tokenizer = tokenizers

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.string)])
    def label(words):
        nothing = tf.fill(tf.shape(words)[:1], "")
        context = tags_graph.Context(nothing, nothing) if in_context else None
        return tags_graph.label(tokenizer, network, words, length, context)

    rng = random.Random(length)
    for lists in (random_requests(rng) for _ in range(12)):
        words = requests_of(lists)
        found = [each.numpy() for each in label(words)]
        assert found[0].shape == found[1].shape == words.shape
        for each, labels, probabilities in zip(lists, *found, strict=True):
            expected = [(0, 0.0)] * words.shape[1]
            places = [place for place, word in enumerate(each) if word]
            for word, *said in said_by_python(exact, each, length - 2, in_context):
                expected[places[word]] = said
            assert labels.tolist() == [label for label, _ in expected]
            assert probabilities == pytest.approx([p for _, p in expected], abs=1e-5)


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
def logits_of(ids):
    return network({"input_ids": ids})["logits"]


def said_by_python(exact, words, capacity, in_context):
    """Yields each word that is not empty with its label and probability."""
    for window, pieces in by_python(exact, words, capacity, in_context):
        inside = sum(pieces[window.start : window.stop], [])
        ids = [exact.vocabulary.cls_id, *inside, exact.vocabulary.sep_id]
        logits = logits_of(tf.constant([ids], tf.int32))[0].numpy()
        for word in range(window.own_start, window.own_stop):
            place = 1 + sum(map(len, pieces[window.start : word]))
            odds = np.exp(logits[place])
            yield word, odds.argmax(), odds.max() / odds.sum()


def test_words_around_are_context_and_not_asked_for(tokenizers):
    """A sentence with its document around it says what it says within the document."""
    asked = ["La", "L", "."]

    def label(words, *texts):
        context = tags_graph.Context(*([text] for text in texts)) if texts else None
        words = requests_of([words])
        found = tags_graph.label(tokenizers[1], network, words, 8, context)
        return [each.numpy()[0].tolist() for each in found]

    for before, after in (("Pa b", "b aaa a"), ("Pa b " * 9, "x  b " * 9), ("b", "")):
        document = [*before.split(), "", *asked, "", "", *after.split()]
        start = document.index("") + 1
        inside = [each[start : start + 3] for each in label(document, "", "")]
        assert label(asked, before, after) == inside
        assert label(asked) != inside
