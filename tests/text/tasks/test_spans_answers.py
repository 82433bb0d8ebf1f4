"""Answers from logits: those of the definition, and every one a piece of its document."""

import collections
import itertools
import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from errors import UserError
from tests.text.tasks.letters import letters
from text.tasks import answer_spans
from text.tasks.answer_spans import AnswerSpan, Document, Lengths, Search


def slow_answer(document, rows, n_best_size, max_answer_length, with_null):
    """The same by the definition, pair by pair, for one question."""
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
    monkeypatch.setattr(answer_spans, "_ROWS_AT_ONCE", 7)
    tokenizer = letters()
    lengths = Lengths(14, 3, 3)
    generator = np.random.default_rng(n_best_size)
    words = ["the", "cat", "dog", "cat  in", "cat in", "(the)"]
    documents, numbers, rows = [], [], []
    for number, size in enumerate(generator.integers(1, 14, 60)):
        document = Document(tokenizer, "\n".join(generator.choice(words, size)))
        question = [9] * generator.integers(0, 5)
        rows += answer_spans.rows(document, question, tokenizer.vocabulary, lengths)
        numbers += [number] * (len(rows) - len(numbers))
        documents.append(document)
    # Good scores in the window, so that each question has a candidate.
    starts, ends = generator.integers(-2, 3, (2, len(rows), 14)).astype(np.float32)
    for row, start, end in zip(rows, starts, ends, strict=True):
        window = row.window
        place = (window.own_first + window.own_stop) // 2 + window.offset
        start[place] = end[place] = 3
        end[window.stop + window.offset :] -= 9
    answers = answer_spans.best_answers(
        documents,
        numbers,
        [row.window for row in rows],
        starts,
        ends,
        Search(n_best_size, max_answer_length, with_null),
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
    (row,) = answer_spans.rows(document, [], tokenizer.vocabulary, Lengths(32, 8, 8))
    logits = np.zeros((2, 1, 32), np.float32)
    logits[:, 0, row.window.stop + row.window.offset :] = -1e9
    for word, (start, end) in scores.items():
        position = text.split().index(word) + row.window.offset
        logits[:, 0, position] = start, end
    return document, row.window, logits


def answered(document, window, logits, **options):
    """The answer to the question of one row."""
    (answer,) = answer_spans.best_answers(
        [document], [0], [window], *logits, Search(**options)
    )
    return answer


def test_the_best_span_is_cut_from_the_text():
    answer = answered(*one_row("the cat\n in  the dog", cat=(5, 0), dog=(0, 4)))
    assert answer.text() == answer.best.text == "cat\n in  the dog"
    assert (answer.best.start, answer.best.end) == (4, 20)
    assert answer.null_odds is None
    assert answer.nbest[0] == answer.best
    assert sum(span.probability for span in answer.nbest) == pytest.approx(1)


def test_no_answer_wins_only_above_the_threshold():
    document, window, logits = one_row("the cat", cat=(1, 2))
    logits[:, 0, 0] = 2
    answer = answered(document, window, logits, with_null=True)
    assert answer.null_odds == 1
    assert answer.nbest[0].text == ""
    assert [answer.text(), answer.text(1.0), answer.text(0.999)] == ["", "cat", ""]


def test_without_a_candidate_the_release_s_word_or_no_answer():
    """Every end lies before every start."""
    document, window, logits = one_row("the cat", the=(-9, 9), cat=(9, -9))
    answer = answered(document, window, logits, n_best_size=1)
    assert answer.text() == "empty" and answer.best is None
    logits[0, 0, 0] = -3
    answer = answered(document, window, logits, n_best_size=1, with_null=True)
    assert answer.nbest == [AnswerSpan("", 0, 0, -3.0, 0.0, 1.0)]
    assert (answer.best, answer.null_odds) == (None, -3)
    assert answer.text() == answer.text(-99.0) == answer.text(99.0) == ""


def test_questions_without_rows_are_answered_too():
    tokenizer = letters()
    document, window, (starts, ends) = one_row("the cat", cat=(4, 4))
    documents = [Document(tokenizer, ""), document, Document(tokenizer, " ")]
    rows = documents, [1], [window], starts, ends
    texts = [answer.text() for answer in answer_spans.best_answers(*rows, Search())]
    assert texts == ["empty", "cat", "empty"]
    answers = answer_spans.best_answers(*rows, Search(with_null=True))
    assert [answer.text() for answer in answers] == ["", "cat", ""]
    assert [answer.null_odds for answer in answers] == [0, -8, 0]
    nothing = np.zeros((0, 32), np.float32)
    assert answer_spans.best_answers([], [], [], nothing, nothing, Search()) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(value):
    document, window, logits = one_row("the cat", cat=(4, 4))
    logits[1, 0, 2] = value
    with pytest.raises(UserError, match="1 of 1 rows .* question 1 of the data"):
        answered(document, window, logits)


def test_padding_may_hold_anything():
    document, window, logits = one_row("the cat", cat=(4, 4))
    logits[0, 0, 5:], logits[1, 0, 5:] = -math.inf, math.nan
    assert answered(document, window, logits).text() == "cat"


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
    rows = list(
        answer_spans.rows(document, [7], tokenizer.vocabulary, Lengths(12, 3, 2))
    )
    logits = np.random.default_rng(seed).normal(size=(2, len(rows), 12))
    windows = [row.window for row in rows]
    (answer,) = answer_spans.best_answers(
        [document], [0] * len(rows), windows, *logits, Search()
    )
    assert len(document) or answer.best is None
    for span in answer.nbest:
        if answer.best:
            assert span.text and span.text == text[span.start : span.end]
            assert span.text == span.text.strip(" \t\r\n\u202f")
    texts = [" ".join(span.text.split()) for span in answer.nbest]
    assert len(set(texts)) == len(texts)
