"""Answers among the starts and ends of a network: by hand, and in a graph as in Python."""

import numpy as np
import pytest

from training.backend import tf
from text.graphs import answer_spans_graph
from text.tasks import answer_spans
from text.tasks.answer_spans import Search, TopSpans
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece

WORDS = [*"abcdefgh"]
TOKENIZER = WordPiece(Vocabulary([*SPECIAL_TOKENS, *WORDS]))
TEXTS = ["a b c d e f g h a b", "", "c  c d", "h"]
LENGTHS = answer_spans.Lengths(8, 2, 2)


def documents_and_rows():
    documents = [answer_spans.Document(TOKENIZER, text) for text in TEXTS]
    numbers, windows = [], []
    for number, document in enumerate(documents):
        made = answer_spans.rows(document, [5], TOKENIZER.vocabulary, LENGTHS)
        windows += [row.window for row in made]
        numbers += [number] * (len(windows) - len(numbers))
    return documents, numbers, windows


def drawn(rng, rows):
    """Positions are those of question, text and padding alike."""
    ends = rng.integers(0, 10, (rows, 4, 3))
    starts = rng.integers(0, 10, (rows, 4))
    scores = [rng.normal(size=x.shape).astype(np.float32) for x in (starts, ends)]
    logits = 2 * rng.normal(size=rows).astype(np.float32)
    return TopSpans(starts, scores[0], ends, scores[1], logits)


def served(documents, numbers, windows, found, *search):
    table = np.column_stack((numbers, np.array(windows))).astype(np.int32)
    question, *window = map(tf.constant, table.T)
    of_rows = answer_spans_graph.Windows(question, tf.ones_like(question), *window)
    columns = [
        tf.ragged.constant([getattr(d, name).tolist() for d in documents], tf.int32)
        for name in ("starts", "ends")
    ]
    of_texts = answer_spans_graph.Documents(tf.constant(TEXTS), *columns)
    given = TopSpans(
        *(tf.constant(x, tf.int32 if x.dtype.kind == "i" else None) for x in found)
    )
    outputs = answer_spans_graph.best_of_top_spans(of_texts, of_rows, given, *search)
    return {name: value.numpy() for name, value in outputs.items()}


@pytest.mark.exhaustive
@pytest.mark.parametrize("with_null", [False, True])
def test_a_graph_answers_as_python_does(with_null):
    rng = np.random.default_rng(1)
    rows = documents_and_rows()
    search = Search(3, 4, with_null)
    texts = set()
    for _ in range(25):
        found = drawn(rng, len(rows[1]))
        answers = answer_spans.best_of_top_spans(*rows, found, search)
        outputs = served(*rows, found, search, -0.5)
        assert ("null_odds" in outputs) == with_null
        for number, answer in enumerate(answers):
            span = answer.choose(-0.5)
            texts.add(span.text)
            assert outputs["answer"][number].decode() == span.text
            assert (outputs["start"][number], outputs["end"][number]) == span[1:3]
            for name, value in (
                ("probability", span.probability),
                ("score", span.start_logit + span.end_logit),
                *([("null_odds", answer.null_odds)] if with_null else []),
            ):
                assert outputs[name][number] == pytest.approx(value, abs=1e-5), name
    assert ("" in texts) == with_null
    assert len(texts) > 5


def test_pairs_belong_to_their_start_and_no_answer_to_the_lowest_logit():
    documents, numbers, windows = documents_and_rows()
    rows = len(numbers)
    of_first = numbers.count(0)
    assert of_first > 1
    # The question, [CLS] and [SEP] are before the text: its tokens begin at 3.
    starts = np.tile([3, 4], (rows, 1))
    ends = np.tile([[4, 5], [4, 3]], (rows, 1, 1))
    scores = np.full((rows, 2, 2), -9.0)
    scores[0] = [[-1.0, -2.0], [-0.5, 5.0]]  # the last ends before it starts
    logits = np.arange(rows, dtype=float)[::-1] - 3.0
    found = TopSpans(starts, np.tile([-1.0, -1.2], (rows, 1)), ends, scores, logits)
    answers = answer_spans.best_of_top_spans(
        documents, numbers, windows, found, Search(with_null=True)
    )
    best = answers[0].nbest
    assert [span.text for span in best[:3]] == ["b", "a b", "a b c"]
    assert [s.start_logit + s.end_logit for s in best[:3]] == [-1.7, -2.0, -3.0]
    assert sum(span.probability for span in best) == pytest.approx(1.0)
    assert answers[0].null_odds == logits[of_first - 1]
    assert answers[0].text(logits[of_first - 1]) == "b"
    assert answers[0].text(logits[of_first - 1] - 0.1) == ""
    # A text without tokens has no window, and no answer.
    assert (answers[1].null_odds, answers[1].text(5.0)) == (0.0, "")
    assert answers[1].nbest[0].text == answer_spans.NO_CANDIDATE
