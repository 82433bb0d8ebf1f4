"""A document in windows: each token's own window, rows, lengths, annotated answers."""

import itertools
import re

import numpy as np
import pytest

from errors import UserError
from tests.text.tasks.letters import letters
from text.tasks import answer_spans, squad
from text.tasks.answer_spans import Document, Lengths, Search, Window
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece


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
        found = answer_spans.windows(num_tokens, length, stride)
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
        answer_spans.rows(
            document, question, vocabulary, Lengths(9, 2, 2), answer=(3, 4)
        )
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
    (row,) = answer_spans.rows(document, [], tokenizer.vocabulary, Lengths())
    assert (row.start_position, row.end_position) == (0, 0)
    cls, sep = tokenizer.vocabulary.cls_id, tokenizer.vocabulary.sep_id
    assert row.input_ids.tolist() == [cls, sep, *document.ids, sep]


@pytest.mark.parametrize("text", ["", " \n\t\u3000\u202f", "\0\u200b\x0b"])
def test_a_document_without_tokens_has_no_row(text):
    tokenizer = letters()
    document = Document(tokenizer, text)
    rows = answer_spans.rows(document, [5, 6], tokenizer.vocabulary, Lengths())
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
    with pytest.raises(UserError, match=re.escape(message)):
        Lengths(*lengths)


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
    made = list(
        answer_spans.rows(document, question, tokenizer.vocabulary, lengths, (1, 2))
    )
    windows = [row.window for row in made]
    assert windows == [
        Window(0, 2, 0, 2, 3),
        Window(2, 4, 2, 4, 1),
        Window(4, 5, 4, 5, -1),
    ]
    assert [(row.start_position, row.end_position) for row in made] == [(0, 0)] * 3
    logits = np.zeros((2, 3, 6), np.float32)
    logits[0, 1, 3] = logits[1, 1, 4] = logits[1, 0, 4] = 9.0
    (answer,) = answer_spans.best_answers(
        [document], [0, 0, 0], windows, *logits, Search()
    )
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
