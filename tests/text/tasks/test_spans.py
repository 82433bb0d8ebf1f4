"""Windows and answers equal to the release's; every answer a piece of its document."""

import collections
import gzip
import itertools
import json
import math
import re

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

import tests
from text.errors import UserError
from text.tasks import spans, squad
from text.tasks.spans import Document, Lengths, Span, Window
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece, WordSplitter

GOLDEN = tests.GOLDEN / "squad"
WORD = re.compile("[^ \t\r\n\u202f]+")


def read_golden(name):
    opener = gzip.open if name.endswith(".gz") else open
    with opener(GOLDEN / name, "rt", encoding="utf-8") as file:
        if ".jsonl" in name:
            return [json.loads(line) for line in file]
        return json.load(file)


def letters(**switches):
    """A tokenizer that knows the letters, and some words whole."""
    singles = [chr(point) for point in range(0x61, 0x7B)]
    words = ["the", "of", "in", "cat", "dog", "japanese", "1895", "1943", "(", ")", "."]
    words += ["-", ",", "\ud55c", "##\uad6d", "\ud55c\uad6d", "##\uc5b4", "\u4e2d"]
    pieces = [*singles, *(f"##{single}" for single in singles), *words]
    return WordPiece(Vocabulary([*SPECIAL_TOKENS, *pieces]), **switches)


@pytest.fixture(scope="module")
def uncased():
    return WordPiece(Vocabulary.load(str(GOLDEN / "uncased_vocab.txt")))


def featurized(tokenizer, version, training=False):
    """Ids of the questions, their documents, each row's question, and the rows."""
    lengths = Lengths(max_seq_length=256, doc_stride=96, max_query_length=32)
    ids, documents, numbers, rows = [], [], [], []
    paragraphs = (
        paragraph
        for article in read_golden(f"{version}_dev.json")["data"]
        for paragraph in article["paragraphs"]
    )
    for paragraph in paragraphs:
        document = Document(tokenizer, paragraph["context"])
        for question in paragraph["qas"]:
            answer = None
            if training and not question.get("is_impossible"):
                first = question["answers"][0]
                answer = squad.find_answer(
                    document, tokenizer, first["text"], first["answer_start"]
                )
                assert answer
            ids_of_question = tokenizer.encode(question["question"])
            made = spans.rows(
                document, ids_of_question, tokenizer.vocabulary, lengths, answer
            )
            rows += made
            numbers += [len(documents)] * (len(rows) - len(numbers))
            ids.append(question["id"])
            documents.append(document)
    return ids, documents, numbers, rows


# --- The release's features ----------------------------------------------------------


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_windows_equal_the_release(version, uncased):
    _, documents, numbers, rows = featurized(uncased, version)
    features = read_golden(f"{version}_features.jsonl.gz")
    assert len(rows) == len(features) > 200
    for number, row, feature in zip(numbers, rows, features, strict=True):
        window = row.window
        document = documents[number]
        starts = [match.start() for match in WORD.finditer(document.text)]
        words = np.searchsorted(starts, document.starts, side="right") - 1
        tokens = np.arange(len(feature["input_ids"])) - window.offset
        assert number == feature["example_index"]
        assert row.input_ids.tolist() == feature["input_ids"]
        assert row.segment_ids.sum() == feature["segment_ids_sum"]
        assert row.segment_ids.tolist() == sorted(row.segment_ids)
        assert feature["token_to_orig_map"] == {
            str(token + window.offset): words[token]
            for token in range(window.first, window.stop)
        }
        owned = (window.own_first <= tokens) & (tokens < window.own_stop)
        assert owned.astype(int).tolist() == feature["max_context"]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_answer_positions_equal_the_release(version, uncased):
    *_, rows = featurized(uncased, version, training=True)
    features = read_golden(f"{version}_features.jsonl.gz")
    assert sum(feature["start_position"] > 0 for feature in features) > 100
    for row, feature in zip(rows, features, strict=True):
        assert (row.start_position, row.end_position) == (
            feature["start_position"],
            feature["end_position"],
        )


# --- The release's n-best lists ------------------------------------------------------


def collapsed(text):
    return " ".join(text.split())


def realigned(tokenizer, document, span):
    """The release's text for a span, and whether it fell back to whole words.

    It spells the words that the span touches as the tokenizer does, finds the pieces in
    that and counts characters, spaces aside; where a character has become none or two,
    counting fails.
    """
    inside = (document.starts >= span.start) & (document.ends <= span.end)
    tokens = [tokenizer.vocabulary.tokens[id] for id in document.ids[inside]]
    pieces = " ".join(tokens).replace(" ##", "").replace("##", "")
    words = " ".join(
        match.group()
        for match in WORD.finditer(document.text)
        if match.end() > span.start and match.start() < span.end
    )
    spelled = " ".join(WordSplitter().words(words))
    places = [place for place, character in enumerate(words) if character != " "]
    begin = spelled.find(pieces)
    if begin < 0 or len(spelled.replace(" ", "")) != len(places):
        return words, True
    first = begin - spelled[:begin].count(" ")
    last = first + len(pieces.replace(" ", "")) - 1
    return words[places[first] : places[last] + 1], False


def by_logits(entries):
    """Each entry under its logits, and how often they came before."""
    found = {}
    for start_logit, end_logit, entry in entries:
        times = sum(key[:2] == (start_logit, end_logit) for key in found)
        found[start_logit, end_logit, times] = entry
    return found


def compare(golden, nbest):
    """Holds a list to the release's.

    Returns:
        spans with another text; spans that the release does not name.
    """
    theirs = by_logits((e["start_logit"], e["end_logit"], e) for e in golden)
    ours = by_logits((s.start_logit, s.end_logit, s) for s in nbest)
    both = [key for key in ours if key in theirs]
    assert both == [key for key in theirs if key in ours]
    # A span more at the top pushes one out at the end, but never "no answer".
    named = [key for key, entry in theirs.items() if entry["text"]]
    lost = [key for key in theirs if key not in ours]
    assert lost == named[len(named) - len(lost) :]
    share = sum(ours[key].probability for key in both)
    their_share = sum(theirs[key]["probability"] for key in both)
    for key in both:
        probability = theirs[key]["probability"] * share / their_share
        assert ours[key].probability == pytest.approx(probability, abs=1e-6)
    unlike = [
        (ours[key], theirs[key]["text"])
        for key in both
        if collapsed(ours[key].text) != collapsed(theirs[key]["text"])
    ]
    return unlike, [ours[key] for key in ours if key not in theirs]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_answers_equal_the_release_except_where_it_fell_back_to_words(version, uncased):
    """golden/squad/whole_words.tsv lists each exception: id, its text, our text."""
    ids, documents, numbers, rows = featurized(uncased, version)
    with np.load(GOLDEN / f"{version}_logits.npz") as file:
        logits = dict(file)
    answers = spans.best_answers(
        documents,
        numbers,
        [row.window for row in rows],
        logits["start_logits"],
        logits["end_logits"],
        with_null=version == "v2",
    )
    lists = read_golden(f"{version}_nbest_predictions.json.gz")
    predictions = read_golden(f"{version}_predictions.json")
    exceptions = []
    # Four ids of v2 stand twice; the release's files hold what came last.
    last = {
        id: (answer, document)
        for id, answer, document in zip(ids, answers, documents, strict=True)
    }
    assert last.keys() == lists.keys() == predictions.keys()
    for id, (answer, document) in last.items():
        unlike, unnamed = compare(lists[id], answer.nbest)
        texts = dict(unlike)
        for span, text in unlike:
            assert realigned(uncased, document, span) == (text, True)
            exceptions.append([id, text, span.text])
        for span in unnamed:
            text, fell_back = realigned(uncased, document, span)
            assert fell_back and text in [entry["text"] for entry in lists[id]]
            exceptions.append([id, text, span.text])
        if answer.best is None:  # one question of v1
            assert answer.nbest == [Span("empty", 0, 0, 0.0, 0.0, 1.0)]
            assert predictions[id] == answer.text() == "empty"
            continue
        for span in answer.nbest:
            assert span.text == document.text[span.start : span.end]
        expected = texts.get(answer.best, answer.text()) if answer.text() else ""
        assert collapsed(predictions[id]) == collapsed(expected)
    table = (GOLDEN / "whole_words.tsv").read_text("utf-8").splitlines()
    listed = [line.split("\t")[1:] for line in table if line.startswith(version)]
    assert exceptions == listed


def test_null_odds_equal_the_release(uncased):
    ids, documents, numbers, rows = featurized(uncased, "v2")
    with np.load(GOLDEN / "v2_logits.npz") as file:
        logits = dict(file)
    answers = spans.best_answers(
        documents,
        numbers,
        [row.window for row in rows],
        logits["start_logits"],
        logits["end_logits"],
        with_null=True,
    )
    odds = {id: answer.null_odds for id, answer in zip(ids, answers, strict=True)}
    assert odds == pytest.approx(read_golden("v2_null_odds.json"), abs=1e-6)


# --- Windows -------------------------------------------------------------------------


def slow_windows(num_tokens, length, stride):
    """By the definition: the release's steps, and every token asks every window."""
    bounds = []
    start = 0
    while start < num_tokens:
        size = min(num_tokens - start, length)
        bounds.append((start, start + size))
        if start + size == num_tokens:
            break
        start += min(size, stride)

    def context(bound, token):
        first, stop = bound
        if not first <= token < stop:
            return -1.0
        return min(token - first, stop - 1 - token) + 0.01 * (stop - first)

    owners = [
        max(range(len(bounds)), key=lambda i: context(bounds[i], token))
        for token in range(num_tokens)
    ]
    return [(*bound, owners.count(i)) for i, bound in enumerate(bounds)], owners


@pytest.mark.parametrize("num_tokens", [*range(30), 299, 300, 301, 307])
def test_each_token_belongs_to_the_window_with_the_most_context(num_tokens):
    lengths, strides = (1, 2, 5, 8, 13, 200), (1, 2, 4, 5, 7, 8, 9, 100, 199, 200, 500)
    for length, stride in itertools.product(lengths, strides):
        expected, owners = slow_windows(num_tokens, length, stride)
        found = spans.windows(num_tokens, length, stride)
        sizes_of_own = [(f, s, stop - first) for f, s, first, stop in found]
        assert sizes_of_own == expected
        tokens = [t for _, _, first, stop in found for t in range(first, stop)]
        assert tokens == list(range(num_tokens))
        assert owners == sorted(owners)


def test_a_row_is_a_question_and_a_window():
    tokenizer = letters()
    vocabulary = Vocabulary(["the", "cat", "dog", *reversed(SPECIAL_TOKENS), "in"])
    document = Document(WordPiece(vocabulary), "the cat in the dog in cat")
    question = [vocabulary.ids["dog"]] * 9
    rows = list(
        spans.rows(document, question, vocabulary, Lengths(9, 2, 2), answer=(3, 4))
    )
    q = [vocabulary.cls_id, *question[:2], vocabulary.sep_id]
    the, cat, dog, inside = (vocabulary.ids[w] for w in ("the", "cat", "dog", "in"))
    assert [row.input_ids.tolist() for row in rows] == [
        [*q, the, cat, inside, the, vocabulary.sep_id],
        [*q, inside, the, dog, inside, vocabulary.sep_id],
        [*q, dog, inside, cat, vocabulary.sep_id],
    ]
    assert [row.segment_ids.tolist() for row in rows] == [
        [0, 0, 0, 0, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 1, 1, 1],
    ]
    # Only the second window holds the answer, "the dog", whole.
    labels = [(row.start_position, row.end_position) for row in rows]
    assert labels == [(0, 0), (5, 6), (0, 0)]
    assert [row.window for row in rows] == [
        Window(0, 4, 0, 3, 4),
        Window(2, 6, 3, 5, 2),
        Window(4, 7, 5, 7, 0),
    ]
    assert tokenizer.vocabulary.cls_id != vocabulary.cls_id


def test_no_answer_is_labelled_with_the_first_position():
    tokenizer = letters()
    document = Document(tokenizer, "the cat")
    (row,) = spans.rows(document, [], tokenizer.vocabulary, Lengths())
    assert (row.start_position, row.end_position) == (0, 0)
    cls, sep = tokenizer.vocabulary.cls_id, tokenizer.vocabulary.sep_id
    assert row.input_ids.tolist() == [cls, sep, *document.ids, sep]


@pytest.mark.parametrize("text", ["", " \n\t\u3000\u202f", "\0\u200b\x0b"])
def test_a_document_without_tokens_has_no_row(text):
    tokenizer = letters()
    document = Document(tokenizer, text)
    rows = spans.rows(document, [5, 6], tokenizer.vocabulary, Lengths())
    assert len(document) == 0 and list(rows) == []


@pytest.mark.parametrize(
    "lengths, message",
    [
        ((384, 0, 64), "--doc_stride=0: must be at least 1"),
        ((384, -1, 64), "--doc_stride=-1: must be at least 1"),
        ((67, 1, 64), "--max_seq_length=67: must be at least 68"),
        ((384, 128, 0), "--max_query_length=0: must be at least 1"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths, message):
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        Lengths(*lengths)
    assert "\n" not in str(caught.value)


def test_the_release_s_lengths_are_allowed():
    """It takes every stride, and a window of one token."""
    assert Lengths(384, 316, 64).always_overlap
    assert not Lengths(384, 317, 64).always_overlap
    assert Lengths(68, 1, 64).window(64) == 1


def test_windows_side_by_side_show_every_token_once():
    """Of an answer across a border no row is told; its parts can still be answered."""
    tokenizer = letters()
    document = Document(tokenizer, "the cat in the dog")
    lengths = Lengths(max_seq_length=6, doc_stride=128, max_query_length=2)
    question = tokenizer.encode("dog")
    made = list(spans.rows(document, question, tokenizer.vocabulary, lengths, (1, 2)))
    windows = [row.window for row in made]
    assert windows == [
        Window(0, 2, 0, 2, 3),
        Window(2, 4, 2, 4, 1),
        Window(4, 5, 4, 5, -1),
    ]
    assert [(row.start_position, row.end_position) for row in made] == [(0, 0)] * 3
    logits = np.zeros((2, 3, 6), np.float32)
    logits[0, 1, 3] = logits[1, 1, 4] = logits[1, 0, 4] = 9.0
    (answer,) = spans.best_answers([document], [0, 0, 0], windows, *logits)
    assert answer.nbest[0].text == "in the"
    assert {span.text for span in answer.nbest} == {
        *("the", "cat", "the cat", "in", "in the", "dog")
    }


# --- Annotated answers ---------------------------------------------------------------


@pytest.mark.parametrize(
    "text, answer, start, found",
    [
        # The words it stands in, less what is not of the answer.
        ("dog (1895-1943). cat", "1895", 5, "1895"),
        ("dog (1895-1943). cat", "1943).", 10, "1943)."),
        ("cat in the dog", "the dog", 7, "the dog"),
        # A piece of a word cannot be had.
        ("the japanese, cat", "japan", 4, "japanese,"),
        # The first of several in these words.
        ("the cat-cat", "cat", 8, "cat"),
        # White space before it counts to the word before, and before all to the first.
        ("the  cat", " cat", 4, "cat"),
        ("japanese cat dog", "ese ", 5, "japanese"),
        ("  cat dog", "cat", 1, "cat"),
        ("  cat dog", " ca", 1, "cat"),
        # Any white space is a space.
        ("in the\u202fcat dog", "the cat", 3, "the\u202fcat"),
        ("in the\u00a0cat dog", "the\u00a0cat", 3, "the\u00a0cat"),
        ("in the\ncat dog", "the\ncat", 3, "the\ncat"),
        # But only the release's white space ends a word.
        ("japanese\u202fcat", "japan", 0, "japanese"),
        ("japanese\u00a0cat", "japan", 0, "japanese\u00a0cat"),
        # A start that is off, but in the same word.
        ("in (cat) dog", "cat", 3, "cat"),
        ("in c\u0301at\0 dog", "c\u0301at", 3, "c\u0301at"),
        ("\U0001f600 \U0001f600the\U0001f600", "the", 3, "\U0001f600the\U0001f600"),
    ],
)
def test_an_answer_is_found_among_the_tokens(text, answer, start, found):
    tokenizer = letters()
    document = Document(tokenizer, text)
    first, last = squad.find_answer(document, tokenizer, answer, start)
    assert text[document.starts[first] : document.ends[last]] == found


@pytest.mark.parametrize("repeated, place", [("cat-cat", 0), ("dog-cat", 2)])
def test_of_several_the_first_counts(repeated, place):
    tokenizer = letters()
    document = Document(tokenizer, repeated)
    assert squad.find_answer(document, tokenizer, "cat", 4) == (place, place)


def test_a_korean_answer_is_found():
    tokenizer = letters(strip_accents=False)
    document = Document(tokenizer, "\ud55c\uad6d\uc5b4 cat")
    answer = squad.find_answer(document, tokenizer, "\ud55c\uad6d", 0)
    assert answer == (0, 0)
    assert document.text[: document.ends[0]] == "\ud55c\uad6d"


@pytest.mark.parametrize(
    "text, answer, start",
    [
        ("the cat", "dog", 4),
        ("the cat", "cat", 0),
        ("the cat", "cat", 5),
        ("the cat", "cat", -3),
        ("the cat", "cat", 99),
        ("the cat", "", 4),
        ("the cat", "  ", 3),
        ("the \u200b cat", "\u200b", 4),
        ("   ", "the", 0),
        ("", "the", 0),
        ("", "", 0),
    ],
)
def test_an_answer_that_is_not_there_is_none(text, answer, start):
    tokenizer = letters()
    document = Document(tokenizer, text)
    assert squad.find_answer(document, tokenizer, answer, start) is None


# --- Answers from logits -------------------------------------------------------------


def slow_answer(document, rows, n_best_size, max_answer_length, with_null):
    """The same by the definition, pair by pair, for one question.

    Returns:
        list of (text, start logit, end logit); the odds of no answer.
    """
    candidates = []
    nulls = []
    for window, starts, ends in rows:
        nulls.append((starts[0] + ends[0], starts[0], ends[0]))
        positions = range(len(starts))
        by_start = sorted(positions, key=lambda p: -starts[p])[:n_best_size]
        by_end = sorted(positions, key=lambda p: -ends[p])[:n_best_size]
        for start, end in itertools.product(by_start, by_end):
            first, last = start - window.offset, end - window.offset
            if (
                window.own_first <= first < window.own_stop
                and window.first <= last < window.stop
                and 0 <= last - first < max_answer_length
            ):
                text = document.text[document.starts[first] : document.ends[last]]
                candidates.append((text, starts[start], ends[end]))
    null = min(nulls, key=lambda null: null[0])
    if with_null:
        candidates.append(("", *null[1:]))
    candidates.sort(key=lambda entry: -(entry[1] + entry[2]))
    nbest = list(
        {" ".join(entry[0].split()): entry for entry in candidates[::-1]}.values()
    )
    nbest.sort(key=candidates.index)
    best = next(entry for entry in nbest if entry[0])
    cut = nbest[:n_best_size]
    if with_null and all(entry[0] for entry in cut):
        cut.append(("", *null[1:]))
    return cut, null[0] - best[1] - best[2]


@pytest.mark.parametrize("with_null", [False, True])
@pytest.mark.parametrize("n_best_size, max_answer_length", [(1, 3), (3, 2), (20, 4)])
def test_answers_are_those_of_the_definition(
    n_best_size, max_answer_length, with_null, monkeypatch
):
    """Logits of few values, so that there are ties of every kind."""
    monkeypatch.setattr(spans, "_ROWS_AT_ONCE", 7)
    tokenizer = letters()
    lengths = Lengths(14, 3, 3)
    generator = np.random.default_rng(n_best_size)
    words = ["the", "cat", "dog", "cat  in", "cat in", "(the)"]
    documents, numbers, rows = [], [], []
    for number, size in enumerate(generator.integers(1, 14, 60)):
        document = Document(tokenizer, "\n".join(generator.choice(words, size)))
        question = [9] * generator.integers(0, 5)
        rows += spans.rows(document, question, tokenizer.vocabulary, lengths)
        numbers += [number] * (len(rows) - len(numbers))
        documents.append(document)
    # Good scores in the window, so that each question has a candidate.
    starts, ends = generator.integers(-2, 3, (2, len(rows), 14)).astype(np.float32)
    for row, start, end in zip(rows, starts, ends, strict=True):
        window = row.window
        place = (window.own_first + window.own_stop) // 2 + window.offset
        start[place] = end[place] = 3
        end[window.stop + window.offset :] -= 9
    answers = spans.best_answers(
        documents,
        numbers,
        [row.window for row in rows],
        starts,
        ends,
        n_best_size=n_best_size,
        max_answer_length=max_answer_length,
        with_null=with_null,
    )
    for question, answer in enumerate(answers):
        mine = [
            (row.window, start.tolist(), end.tolist())
            for number, row, start, end in zip(numbers, rows, starts, ends, strict=True)
            if number == question
        ]
        expected, odds = slow_answer(
            documents[question], mine, n_best_size, max_answer_length, with_null
        )
        found = [(span.text, span.start_logit, span.end_logit) for span in answer.nbest]
        assert found == expected
        assert answer.null_odds == (odds if with_null else None)
        total = sum(math.exp(start + end) for _, start, end in expected)
        for span in answer.nbest:
            probability = math.exp(span.start_logit + span.end_logit) / total
            assert span.probability == pytest.approx(probability)
    assert max(collections.Counter(numbers).values()) > 2


def one_row(text, **scores):
    """Answers for "the cat in ..." with these (start, end) logits of words, else 0."""
    tokenizer = letters()
    document = Document(tokenizer, text)
    (row,) = spans.rows(document, [], tokenizer.vocabulary, Lengths(32, 8, 8))
    logits = np.zeros((2, 1, 32), np.float32)
    logits[:, 0, row.window.stop + row.window.offset :] = -1e9
    for word, (start, end) in scores.items():
        position = text.split().index(word) + row.window.offset
        logits[:, 0, position] = start, end
    return document, row.window, logits


def test_the_best_span_is_cut_from_the_text():
    document, window, (starts, ends) = one_row(
        "the cat\n in  the dog", cat=(5, 0), dog=(0, 4)
    )
    (answer,) = spans.best_answers([document], [0], [window], starts, ends)
    assert answer.text() == answer.best.text == "cat\n in  the dog"
    assert (answer.best.start, answer.best.end) == (4, 20)
    assert answer.null_odds is None
    assert answer.nbest[0] == answer.best
    assert sum(span.probability for span in answer.nbest) == pytest.approx(1)


def test_no_answer_wins_only_above_the_threshold():
    document, window, (starts, ends) = one_row("the cat", cat=(1, 2))
    starts[0, 0], ends[0, 0] = 2, 2
    (answer,) = spans.best_answers(
        [document], [0], [window], starts, ends, with_null=True
    )
    assert answer.null_odds == 1
    assert answer.nbest[0].text == ""
    assert [answer.text(), answer.text(1.0), answer.text(0.999)] == ["", "cat", ""]


def test_without_a_candidate_the_release_s_word_or_no_answer():
    """Every end lies before every start."""
    document, window, (starts, ends) = one_row("the cat", the=(-9, 9), cat=(9, -9))
    chosen = {"n_best_size": 1}
    (answer,) = spans.best_answers([document], [0], [window], starts, ends, **chosen)
    assert answer.text() == "empty" and answer.best is None
    starts[0, 0] = -3
    (answer,) = spans.best_answers(
        [document], [0], [window], starts, ends, with_null=True, **chosen
    )
    assert answer.nbest == [Span("", 0, 0, -3.0, 0.0, 1.0)]
    assert (answer.best, answer.null_odds) == (None, -3)
    assert answer.text() == answer.text(-99.0) == answer.text(99.0) == ""


def test_questions_without_rows_are_answered_too():
    tokenizer = letters()
    document, window, (starts, ends) = one_row("the cat", cat=(4, 4))
    documents = [Document(tokenizer, ""), document, Document(tokenizer, " ")]
    texts = [
        a.text() for a in spans.best_answers(documents, [1], [window], starts, ends)
    ]
    assert texts == ["empty", "cat", "empty"]
    answers = spans.best_answers(documents, [1], [window], starts, ends, with_null=True)
    assert [answer.text() for answer in answers] == ["", "cat", ""]
    assert [answer.null_odds for answer in answers] == [0, -8, 0]
    nothing = np.zeros((0, 32), np.float32)
    assert spans.best_answers([], [], [], nothing, nothing) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(value):
    document, window, (starts, ends) = one_row("the cat", cat=(4, 4))
    ends[0, 2] = value
    with pytest.raises(UserError, match="1 of 1 rows .* question 1 of the data"):
        spans.best_answers([document], [0], [window], starts, ends)


def test_padding_may_hold_anything():
    document, window, (starts, ends) = one_row("the cat", cat=(4, 4))
    ends[0, 5:] = math.nan
    starts[0, 5:] = -math.inf
    (answer,) = spans.best_answers([document], [0], [window], starts, ends)
    assert answer.text() == "cat"


@hypothesis.settings(deadline=None)
@hypothesis.given(
    strategies.text(
        strategies.sampled_from(
            "the c\u0301at\0\ud55c\uad6d\u1112\u4e2d\U0001f600\u00a0"
            "\u200b\ufeff\u0130\u00df\ufb01.,-\n\u202f"
        ),
        max_size=40,
    ),
    strategies.integers(0, 2**32),
    strategies.booleans(),
)
def test_answers_are_pieces_of_any_text(text, seed, do_lower_case):
    tokenizer = letters(do_lower_case=do_lower_case)
    document = Document(tokenizer, text)
    rows = list(spans.rows(document, [7], tokenizer.vocabulary, Lengths(12, 3, 2)))
    logits = np.random.default_rng(seed).normal(size=(2, len(rows), 12))
    windows = [row.window for row in rows]
    (answer,) = spans.best_answers([document], [0] * len(rows), windows, *logits)
    assert len(document) or answer.best is None
    for span in answer.nbest:
        if answer.best:
            assert span.text and span.text == text[span.start : span.end]
            assert span.text == span.text.strip(" \t\r\n\u202f")
    texts = [" ".join(span.text.split()) for span in answer.nbest]
    assert len(set(texts)) == len(texts)
