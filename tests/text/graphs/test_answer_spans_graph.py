"""Windows and answers in a graph equal to those of text/tasks/answer_spans.py."""

import dataclasses
import functools
import json
import sys

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

import tests
from training.backend import tf
from text.graphs import answer_spans_graph
from text.tasks import answer_spans
from text.tokenizers.sentencepiece import FAMILIES
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece

GOLDEN = tests.GOLDEN / "squad"
WORDS = "cat the \ud55c\uad6d ##\uc5b4 \u4e2d \U0001f600 a ##a .".split()
OTHERS = ["a\u0301", "unknown", "\0", "\u200b"]
OTHERS += ["cat cat", "cat\n\u2028cat", "the\x1ccat"]
SPACES = [" ", "  ", "\n", "\u00a0", "\u3000", "\x0b"]
TOKENIZER = WordPiece(Vocabulary([*SPECIAL_TOKENS, *WORDS]))
TEXTS = strategies.lists(
    strategies.sampled_from([*WORDS, *OTHERS, *SPACES]), max_size=60
).map("".join)
PAIRS = strategies.lists(strategies.tuples(TEXTS, TEXTS), max_size=4)
LENGTHS = [
    answer_spans.Lengths(12, 2, 4),
    answer_spans.Lengths(16, 7, 3),
    answer_spans.Lengths(64, 20, 8),
    answer_spans.Lengths(8, 128, 4),  # windows side by side
    answer_spans.Lengths(12, 6, 4),  # side by side behind long questions alone
]


# --- Both ways -----------------------------------------------------------------------


def ragged(lists):
    flat = [value for values in lists for value in values]
    sizes = [len(values) for values in lists]
    return tf.RaggedTensor.from_row_lengths(
        tf.constant(flat, tf.int32), tf.constant(sizes, tf.int64)
    )


class Asked:
    """Questions with their texts, for the graph and in Python."""

    def __init__(self, pairs, lengths, tokenizer=TOKENIZER):
        self.lengths, self.vocabulary = lengths, tokenizer.vocabulary
        self.texts = [text for _, text in pairs]
        self.documents = [answer_spans.Document(tokenizer, text) for text in self.texts]
        self.questions = [tokenizer.encode(question) for question, _ in pairs]
        self.numbers, self.rows = [], []
        for number, document in enumerate(self.documents):
            question = self.questions[number]
            made = list(answer_spans.rows(document, question, self.vocabulary, lengths))
            self.rows += made
            self.numbers += [number] * len(made)

    def column(self, name):
        """int32 [b, (tokens)]: ids, starts or ends."""
        return ragged([getattr(document, name).tolist() for document in self.documents])

    def logits(self, rng, values):
        """float32 [2, rows, s], drawn from values; what is no token, too."""
        shape = 2, len(self.rows), self.lengths.max_seq_length
        return rng.choice(np.asarray(values, np.float32), shape)

    def answers(self, logits, search):
        sizes = np.array([len(row.input_ids) for row in self.rows], int)
        is_token = np.arange(logits.shape[2]) < sizes[:, None]
        return answer_spans.best_answers(
            self.documents,
            self.numbers,
            [row.window for row in self.rows],
            *np.where(is_token, logits, -np.inf),
            search,
        )


@functools.cache
def graph_answers(*search):
    row = tf.TensorSpec([None], tf.int32)
    tokens = tf.RaggedTensorSpec([None, None], tf.int32)
    logits = tf.TensorSpec([None, None], tf.float32)
    fields = len(answer_spans_graph.Windows._fields)
    windows = answer_spans_graph.Windows(*[row] * fields)
    texts = tf.TensorSpec([None], tf.string)
    documents = answer_spans_graph.Documents(texts, tokens, tokens)

    @tf.function(input_signature=[documents, windows, logits, logits])
    def answer(*given):
        return answer_spans_graph.best_answers(*given, *search)

    return answer


def by_graph(asked, logits, *search):
    """A dict of lists."""
    windows = graph_windows(asked)
    texts = [text.encode(errors="surrogateescape") for text in asked.texts]
    documents = answer_spans_graph.Documents(
        tf.constant(texts, tf.string), asked.column("starts"), asked.column("ends")
    )
    answer = graph_answers(*search)
    found = answer(documents, windows, *map(tf.constant, logits))
    return {name: values.numpy().tolist() for name, values in found.items()}


TOKENS = tf.RaggedTensorSpec([None, None], tf.int32)


@functools.cache
def windows_in_graph(lengths):
    @tf.function(input_signature=[TOKENS, TOKENS])
    def windows(questions, documents):
        return answer_spans_graph.windows(questions, documents, lengths)

    return windows


def graph_windows(asked):
    given = ragged(asked.questions), asked.column("ids")
    if asked.lengths in LENGTHS:  # many are asked with these
        return windows_in_graph(asked.lengths)(*given)
    return answer_spans_graph.windows(*given, asked.lengths)


def check_answers(asked, logits, null_threshold=0.0, **options):
    """Holds the graph to text/tasks/answer_spans.py; returns what it answers."""
    search = answer_spans.Search(**options)
    found = by_graph(asked, logits, search, null_threshold)
    answers = asked.answers(logits, search)
    texts = [answer.text(null_threshold) for answer in answers]
    assert [text.decode() for text in found["answer"]] == texts
    chosen = [
        next(span for span in answer.nbest if span.text == text)
        for answer, text in zip(answers, texts, strict=True)
    ]
    assert found["start"] == [span.start for span in chosen]
    assert found["end"] == [span.end for span in chosen]
    probabilities = [span.probability for span in chosen]
    assert found["probability"] == pytest.approx(probabilities, abs=1e-6)
    scores = [span.start_logit + span.end_logit for span in chosen]
    assert found["score"] == pytest.approx(scores, rel=1e-6)
    assert ("null_odds" in found) == search.with_null
    if "null_odds" in found:
        odds = [answer.null_odds for answer in answers]
        assert found["null_odds"] == pytest.approx(odds, rel=1e-6, abs=1e-6)
    return found


# --- Rows ----------------------------------------------------------------------------


def check_rows(asked):
    windows = graph_windows(asked)
    batch = answer_spans_graph.rows(
        ragged(asked.questions), asked.column("ids"), windows, asked.vocabulary
    )
    assert windows.question.numpy().tolist() == asked.numbers
    fields = answer_spans.Window._fields
    found = zip(*(getattr(windows, x).numpy().tolist() for x in fields), strict=True)
    assert list(found) == [tuple(row.window) for row in asked.rows]
    ids, mask, segments = (
        batch[name].numpy() for name in ("input_ids", "input_mask", "segment_ids")
    )
    assert len(ids) == len(asked.rows)
    assert ids.shape[1] == max((len(row.input_ids) for row in asked.rows), default=0)
    for place, row in enumerate(asked.rows):
        size = len(row.input_ids)
        assert ids[place, :size].tolist() == row.input_ids.tolist()
        assert mask[place].tolist() == [1] * size + [0] * (len(mask[place]) - size)
        assert segments[place, :size].tolist() == row.segment_ids.tolist()
        assert (ids[place, size:] == asked.vocabulary.pad_id).all()
        assert not segments[place, size:].any()


@hypothesis.given(pairs=PAIRS, lengths=strategies.sampled_from(LENGTHS))
def test_rows_are_those_of_python(pairs, lengths):
    check_rows(Asked(pairs, lengths))


def test_tokens_belong_to_the_windows_that_python_gives_them():
    """Every number of tokens, and all strides: ties fall as in the release."""
    length = 9
    for stride in (*range(1, length), 128, 10**12):
        lengths = answer_spans.Lengths(length, stride, 4)
        check_rows(Asked([("a a", "cat " * size) for size in range(40)], lengths))


# --- Answers -------------------------------------------------------------------------

COARSE = np.arange(-4, 5)  # many are equal
FINE = np.random.default_rng(0).normal(0.0, 4.0, 5000)
# Each is a graph of its own.
_WITHOUT_CLS = [name for name, each in FAMILIES.items() if not each.special.names[2]]
OPTIONS = [
    {"n_best_size": 20},
    {"n_best_size": 1, "with_null": True},
    {"n_best_size": 3},
    {"n_best_size": 20, "with_null": True, "null_threshold": 2.5},
    {"n_best_size": 4, "with_null": True},
]


@hypothesis.given(
    pairs=PAIRS,
    lengths=strategies.sampled_from(LENGTHS),
    seed=strategies.integers(0, 2**32 - 1),
    values=strategies.sampled_from([COARSE, FINE]),
    options=strategies.sampled_from(OPTIONS),
)
@hypothesis.example([("a", "cat the dog . in")] * 40, LENGTHS[2], 1, FINE, OPTIONS[4])
def test_answers_are_those_of_python(pairs, lengths, seed, values, options):
    asked = Asked(pairs, lengths)
    logits = asked.logits(np.random.default_rng(seed), values)
    check_answers(asked, logits, max_answer_length=4, **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_answers_to_real_questions_are_those_of_python(version, null, untraced):
    content = json.loads((GOLDEN / f"{version}_dev.json").read_text("utf-8"))
    pairs = [
        (question["question"], paragraph["context"])
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    tokenizer = WordPiece(Vocabulary.load(str(GOLDEN / "uncased_vocab.txt")))
    asked = Asked(pairs, answer_spans.Lengths(256, 96, 32), tokenizer)
    check_rows(asked)
    with np.load(GOLDEN / f"{version}_logits.npz") as file:
        logits = np.stack([file["start_logits"], file["end_logits"]])
    options = {"with_null": True, "null_threshold": -13.0} if null else {}
    found = check_answers(asked, logits, **options)
    assert len(set(found["answer"])) > 50
    assert (30 < found["answer"].count(b"") < 100) == null


@pytest.mark.parametrize("family", _WITHOUT_CLS)
def test_rows_may_begin_with_text_and_their_end_means_no_answer(family, untraced):
    special = dataclasses.replace(FAMILIES[family].special, continuation="##")
    tokenizer = WordPiece(Vocabulary([*special.tokens, *WORDS], special=special))
    pairs = [("a", "cat the cat . " * 4), ("", "cat the"), ("a a a a", "the " * 9)]
    lengths = LENGTHS[0].in_rows_of(tokenizer.vocabulary)
    asked = Asked(pairs, lengths, tokenizer)
    check_rows(asked)
    logits = asked.logits(np.random.default_rng(4), FINE)
    found = check_answers(asked, logits, max_answer_length=4, **OPTIONS[1])
    assert 0 < found["answer"].count(b"") < 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("threshold", [float("-inf"), -1.0, 1e9, float("inf")])
def test_the_threshold_decides_whether_there_is_an_answer(threshold, untraced):
    asked = Asked([("a", text) for text in ("cat the", "the", "")] * 9, LENGTHS[2])
    logits = asked.logits(np.random.default_rng(1), FINE)
    found = check_answers(asked, logits, with_null=True, null_threshold=threshold)
    is_answered = [text != b"" for text in found["answer"]]
    assert not any(is_answered[2::3])
    if threshold > 1e6:
        assert all(is_answered[::3])
    if threshold == float("-inf"):
        assert not any(is_answered)


@pytest.mark.exhaustive
def test_without_a_candidate_the_answer_is_python_s(untraced):
    pairs = [("a", ""), ("", "\0 \n"), ("a", "cat"), ("", "the cat")]
    asked = Asked(pairs, LENGTHS[0])
    logits = np.zeros((2, 2, 12), np.float32)
    logits[1, 0, :3] = 1.0  # the best end stands before every start
    options = {"n_best_size": 1, "max_answer_length": 4}
    found = check_answers(asked, logits, **options)
    nothing = answer_spans.NO_CANDIDATE.encode()
    assert found["answer"][:3] == [nothing] * 3
    assert found["probability"][:3] == [1.0] * 3
    found = check_answers(asked, logits, **options, with_null=True, null_threshold=9.0)
    assert found["answer"][:3] == [b""] * 3


@pytest.mark.exhaustive
def test_an_empty_batch_has_no_answers(untraced):
    for null in (False, True):
        asked = Asked([], LENGTHS[0])
        check_rows(asked)
        found = check_answers(asked, np.zeros((2, 0, 12), np.float32), with_null=null)
        assert not any(found.values())


def test_what_is_no_utf_8_is_replaced():
    asked = Asked([("a", "cat \ufffd\ufffdthe")], LENGTHS[1])
    asked.texts = ["cat \udcff\udcfethe"]  # bytes 0xff and 0xfe
    logits = np.zeros((2, 1, 16), np.float32)
    logits[0, 0, 3] = logits[1, 0, 4] = 9.0
    (answer,) = check_answers(asked, logits)["answer"]
    assert answer.decode() == "cat \ufffd\ufffdthe"


def test_white_space_is_what_python_splits_at():
    table = answer_spans_graph._IS_SPACE
    spaces = [point for point, is_space in enumerate(table) if is_space]
    assert not table[-1]
    assert spaces == [p for p in range(sys.maxunicode + 1) if chr(p).isspace()]


def test_a_document_of_a_megabyte_is_answered():
    """Thousands of windows, and more candidates than are read."""
    words = np.random.default_rng(2).choice(["cat", "the", "a", "."], 350_000)
    asked = Asked(
        [("a", " ".join(words)), ("a", "cat")], answer_spans.Lengths(384, 128, 64)
    )
    assert len(asked.rows) > 2700 and len(asked.texts[0]) > 10**6
    check_rows(asked)
    logits = asked.logits(np.random.default_rng(3), FINE)
    check_answers(asked, logits, with_null=True)
