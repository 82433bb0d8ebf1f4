"""Cuts long documents into windows, and finds answers in their text from logits.

A document is tokenized once, however many questions are asked about it. Every answer,
scored or served, is taken from its text by character offsets.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from errors import UserError
from text.instances import packing
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import Vocabulary

NO_CANDIDATE = "empty"  # the release's answer if no span is possible

_ROWS_AT_ONCE = 1024

# A word, as the release's reader defines it: only these five characters separate.
_WORD = re.compile("[^ \t\r\n\u202f]+")


# === Windows ===========================================================================


@dataclasses.dataclass(frozen=True)
class Lengths:
    """How a question and a document share a row, all in tokens.

    Attributes:
        max_seq_length: of the whole row, `[CLS] question [SEP] window [SEP]`.
        document_first: the row is `window [SEP] question [SEP] [CLS]`.
        cls_last: the last token of the row stands for "no answer", not the first.
        doc_stride: from the start of one window to that of the next; a shorter window is
            followed by the next without a gap.
        max_query_length: the length to which longer questions are cut.
        num_special_tokens: of a row.
    """

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64
    num_special_tokens: int = packing.NUM_SPECIAL_TOKENS
    document_first: bool = False
    cls_last: bool = False

    def __post_init__(self):
        if self.max_query_length < 1:
            raise UserError(
                f"--max_query_length={self.max_query_length}: must be at least 1"
            )
        if self.window(self.max_query_length) < 1:
            raise UserError(
                f"--max_seq_length={self.max_seq_length}: must be at least "
                f"{self.max_query_length + self.num_special_tokens + 1} to fit "
                f"--max_query_length={self.max_query_length}, "
                f"{self.num_special_tokens} special tokens and 1 document token"
            )
        if self.doc_stride < 1:
            raise UserError(f"--doc_stride={self.doc_stride}: must be at least 1")

    def in_rows_of(self, vocabulary: Vocabulary) -> "Lengths":
        """The same for the rows of a vocabulary."""
        return dataclasses.replace(
            self,
            num_special_tokens=vocabulary.num_special_tokens,
            document_first=vocabulary.document_first,
            cls_last=not vocabulary.head,
        )

    @property
    def always_overlap(self) -> bool:
        """Whether windows overlap for every question."""
        return self.doc_stride < self.window(self.max_query_length)

    def window(self, num_query_tokens: int) -> int:
        """The most tokens of a document that fit after a question of this length."""
        return self.max_seq_length - num_query_tokens - self.num_special_tokens


@functools.lru_cache(maxsize=1 << 14)  # many questions of one length share a document
def windows(num_tokens: int, length: int, stride: int) -> tuple[tuple[int, ...], ...]:
    """Windows over a document, and which of them owns each token.

    A token in several windows belongs to the one where the shorter of its two sides is
    longest; on a tie, to the earlier one. A shorter last window has a disadvantage of 0.01
    per missing token.

    Args:
        length: of every window but the last.
        stride: from start to start; if it is `length` or more, windows are adjacent.
    Returns:
        for each window, the token numbers `first, stop, own_first, own_stop`; the owned
        ranges are adjacent.
    Source: google-research/bert@eedf571 run_squad.py, convert_examples_to_features,
        _check_is_max_context.
    """
    if not num_tokens:
        return ()
    stride = min(stride, length)
    starts = range(0, max(num_tokens - length, 0) + stride, stride)
    most = np.full(num_tokens, -1.0)
    owner = np.zeros(num_tokens, np.int64)
    for index, start in enumerate(starts):
        place = np.arange(min(length, num_tokens - start))
        # float64 and in this order, so that ties fall as in the release.
        context = np.minimum(place, place[::-1]) + 0.01 * len(place)
        covered = slice(start, start + len(place))
        better = context > most[covered]
        most[covered][better] = context[better]
        owner[covered][better] = index
    bounds = owner.searchsorted(range(len(starts) + 1)).tolist()
    return tuple(
        (start, min(start + length, num_tokens), bounds[index], bounds[index + 1])
        for index, start in enumerate(starts)
    )


# === Rows and answers ==================================================================


class Document:
    """A text and its tokens: token t was made of `text[starts[t]:ends[t]]`; int32
    [tokens].
    """

    def __init__(self, tokenizer: Tokenizer, text: str):
        self.text = text
        self.ids, self.starts, self.ends = (
            np.array(column, np.int32) for column in tokenizer.encode_with_offsets(text)
        )

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def words(self) -> np.ndarray:
        """int64 [words, 2]: start and end of each word between whitespace."""
        spans = [match.span() for match in _WORD.finditer(self.text)]
        return np.array(spans, np.int64).reshape(-1, 2)


class Window(NamedTuple):
    """The tokens of a document in a row.

    Attributes:
        first, stop: the tokens in the row, excluding `stop`.
        own_first, own_stop: those that no other row shows with more context.
        offset: token t is at position `t + offset` of the row; may be negative.
        cls: the position of [CLS], or of the last token, which stands for "no answer".
    """

    first: int
    stop: int
    own_first: int
    own_stop: int
    offset: int
    cls: int = 0

    @property
    def size(self) -> int:
        """How many tokens of the row count: up to the [SEP] of the document, and [CLS]."""
        return max(self.stop + self.offset, self.cls) + 1


class QuestionRow(NamedTuple):
    """A question and a window as the encoder takes them, not padded.

    The start and end of the answer are at [CLS] if the row does not contain all of it.
    """

    input_ids: np.ndarray
    segment_ids: np.ndarray
    start_position: int
    end_position: int
    window: Window


def rows(
    document: Document,
    question: list[int],
    vocabulary: Vocabulary,
    lengths: Lengths,
    answer: tuple[int, int] | None = None,
) -> Iterator[QuestionRow]:
    """Lays out a question with each window of a document; none if that has no tokens.

    Args:
        question: ids; those beyond `max_query_length` are dropped.
        answer: its first and last token in the document; None if there is none.
    Source: google-research/bert@eedf571 and zihangdai/xlnet@bbaa3a6 run_squad.py,
        convert_examples_to_features.
    """
    question = question[: lengths.max_query_length]
    before = len(vocabulary.head)
    if not lengths.document_first:
        before += len(question) + vocabulary.separators
    spans = windows(len(document), lengths.window(len(question)), lengths.doc_stride)
    for first, stop, own_first, own_stop in spans:
        sides = question, document.ids[first:stop]
        sides = sides[::-1] if lengths.document_first else sides
        input_ids, segment_ids = (
            np.array(column, kind)
            for column, kind in zip(
                packing.join(vocabulary, *sides), (np.int32, np.uint8), strict=True
            )
        )
        cls = len(input_ids) - 1 if lengths.cls_last else 0
        window = Window(first, stop, own_first, own_stop, before - first, cls)
        start = end = cls
        if answer and first <= answer[0] and answer[1] < stop:
            start, end = answer[0] + window.offset, answer[1] + window.offset
        yield QuestionRow(input_ids, segment_ids, start, end, window)


class AnswerSpan(NamedTuple):
    """A piece of a document that may be the answer, `document.text[start:end]`.

    The text "" means that there is no answer. The probability is relative to the other
    spans in its list.
    """

    text: str
    start: int
    end: int
    start_logit: float
    end_logit: float
    probability: float = 0.0


class Answer(NamedTuple):
    """What was found for one question.

    Attributes:
        nbest: list of `AnswerSpan`, at least one.
        best: the first of them with text; None if no span is possible.
        null_odds: score of no answer minus that of `best`, if requested; otherwise None.
        nothing: "no answer", if it does not compete with the others in `nbest`.
    """

    nbest: list[AnswerSpan]
    best: AnswerSpan | None
    null_odds: float | None
    nothing: AnswerSpan | None = None

    def choose(self, null_threshold: float = 0.0) -> AnswerSpan:
        """The answer, without text if the odds of that are above the threshold."""
        if self.null_odds is None:
            return self.nbest[0]
        if self.best is not None and self.null_odds <= null_threshold:
            return self.best
        return self.nothing or next(span for span in self.nbest if not span.text)

    def text(self, null_threshold: float = 0.0) -> str:
        return self.choose(null_threshold).text


class Search(NamedTuple):
    """How to search for answers.

    Attributes:
        n_best_size: how many spans to return, in addition to "no answer".
        max_answer_length: in tokens.
        with_null: consider "no answer".
    """

    n_best_size: int = 20
    max_answer_length: int = 30
    with_null: bool = False


def best_answers(
    documents: Sequence[Document],
    questions: Sequence[int],
    windows: Sequence[Window],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    search: Search,
) -> list[Answer]:
    """The best spans for each question, from the logits of its rows.

    The score of "no answer" is the lowest sum of both logits at [CLS] of all rows.
    Candidates are the pairs of a row's `n_best_size` best starts and ends that are in its
    window, with the start where no other row shows more context. For equal scores, the
    earlier row, start and end comes first, and "no answer" last; of texts that are equal
    after collapsing whitespace, only the best is kept.

    Args:
        documents: one for each question.
        questions: for each row, the number of its question, from 0.
        windows: the window of each row.
        start_logits, end_logits: float [rows, seq_length]; those of tokens must be finite.
    Returns:
        an `Answer` for each question. Without candidates, for example if a document has no
        tokens, it is `NO_CANDIDATE` or, `with_null`, "no answer".
    Source: google-research/bert@eedf571 run_squad.py, write_predictions.
    """
    table = table_of(questions, windows)
    _refuse_not_finite(table, start_logits, end_logits)

    def choices(rows):
        starts, start_scores = _best(start_logits[rows], search.n_best_size)
        ends, end_scores = _best(end_logits[rows], search.n_best_size)
        return starts, start_scores, ends[:, None], end_scores[:, None]

    nulls = _nulls(table, start_logits, end_logits) if search.with_null else {}
    no_logits = AnswerSpan("", 0, 0, 0.0, 0.0)
    return [
        _answer(
            document,
            candidates,
            nulls.get(question, no_logits) if search.with_null else None,
            search.n_best_size,
        )
        for question, (document, candidates) in enumerate(
            rank_answers(documents, table, choices, search.max_answer_length)
        )
    ]


def table_of(questions: Sequence[int], windows: Sequence[Window]) -> np.ndarray:
    """int64 [rows, 7]: the question of each row, and its window."""
    columns = np.array(windows, np.int64).reshape(-1, len(Window._fields))
    return np.column_stack((np.array(questions, np.int64), columns))


def rank_answers(
    documents: Sequence[Document],
    table: np.ndarray,
    choices: Callable[[slice], tuple[np.ndarray, ...]],
    max_answer_length: int,
) -> Iterator[tuple[Document, np.ndarray]]:
    """Yields the document and the candidates, `_CANDIDATE`, of each question, best first.

    Args:
        table: what `table_of` returned.
        choices: maps a slice of rows to their starts (positions) and the scores of these
            [rows, n], and to their ends and the scores of those [rows, n or 1, m].
    """
    blocks = [
        _candidates(table[rows], *choices(rows), max_answer_length)
        for first in range(0, len(table), _ROWS_AT_ONCE)
        for rows in [slice(first, first + _ROWS_AT_ONCE)]
    ]
    candidates = np.concatenate([*blocks, np.empty(0, _CANDIDATE)])
    order = np.lexsort((-candidates["score"], candidates["question"]))  # stable
    bounds = candidates["question"][order].searchsorted(range(len(documents) + 1))
    for question, document in enumerate(documents):
        yield document, candidates[order[bounds[question] : bounds[question + 1]]]


_CANDIDATE = np.dtype(
    [
        ("question", np.int64),
        ("first", np.int64),
        ("last", np.int64),
        ("start_logit", np.float64),
        ("end_logit", np.float64),
        ("score", np.float64),
    ]
)


def _refuse_not_finite(table, start_logits, end_logits):
    """Padding may have any scores."""
    _, _, stop, _, _, offset, cls = table.T
    sizes = np.maximum(stop + offset, cls) + 1
    is_token = np.arange(start_logits.shape[1]) < sizes[:, None]
    finite = np.isfinite(start_logits) & np.isfinite(end_logits)
    broken = np.flatnonzero((is_token & ~finite).any(axis=1))
    if len(broken):
        raise UserError(
            f"{len(broken)} of {len(table)} rows have scores that are not finite, starting "
            f"with question {table[broken[0], 0] + 1} of the data; the checkpoint is "
            "damaged or its training diverged"
        )


def _candidates(table, starts, start_scores, ends, end_scores, max_answer_length):
    """The allowed pairs, row by row, best start and then best end first."""
    question, first, stop, own_first, own_stop, offset, _ = table.T[:, :, None, None]
    start_tokens, end_tokens = starts[:, :, None] - offset, ends - offset
    allowed = (own_first <= start_tokens) & (start_tokens < own_stop)
    allowed = allowed & (first <= end_tokens) & (end_tokens < stop)  # [rows, n, m]
    more = end_tokens - start_tokens
    allowed &= (more >= 0) & (more < max_answer_length)
    row, start, end = np.nonzero(allowed)
    of_start = start if ends.shape[1] > 1 else 0
    pairs = np.empty(len(row), _CANDIDATE)
    pairs["question"] = question[row, 0, 0]
    pairs["first"] = start_tokens[row, start, 0]
    pairs["last"] = end_tokens[row, of_start, end]
    pairs["start_logit"] = start_scores[row, start]
    pairs["end_logit"] = end_scores[row, of_start, end]
    pairs["score"] = pairs["start_logit"] + pairs["end_logit"]
    return pairs


def _best(logits, count):
    """Positions and logits [rows, count]; of equal ones, the earlier comes first."""
    places = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    return places, np.take_along_axis(logits, places, axis=1)


def _nulls(table, start_logits, end_logits):
    """Question to "no answer" with the lowest score of its rows; on a tie, the first."""
    at_cls = np.arange(len(table)), table[:, -1]
    starts = start_logits[at_cls].astype(np.float64).tolist()
    ends = end_logits[at_cls].astype(np.float64).tolist()
    nulls = {}
    for question, start, end in zip(table[:, 0].tolist(), starts, ends, strict=True):
        if question not in nulls or start + end < _score(nulls[question]):
            nulls[question] = AnswerSpan("", 0, 0, start, end)
    return nulls


def _answer(document, candidates, null, n_best_size):
    """Args: `candidates` of one question, best first; `null` is an `AnswerSpan` or None."""
    nbest = list(itertools.islice(distinct(document, candidates), n_best_size))
    has_span = len(nbest) > 0
    if null:
        # A list of one keeps its span: a row's best start and end, which may be [CLS].
        place = sum(_score(span) >= _score(null) for span in nbest)
        nbest.insert(place, null)
        del nbest[max(n_best_size, place + 1) :]
    nbest = with_probabilities(nbest)
    best = next(span for span in nbest if span.text) if has_span else None
    # Differs from the release, which crashes if no span is possible (#476). In that case,
    # the odds are relative to a score of 0.
    null_odds = None
    if null:
        null_odds = _score(null) - (_score(best) if best else 0.0)
    return Answer(nbest, best, null_odds)


def distinct(document: Document, candidates: np.ndarray) -> Iterator[AnswerSpan]:
    """Yields an `AnswerSpan` for each new text of the candidates, which are best first."""
    seen = set()
    for _, first, last, start_logit, end_logit, _ in map(np.void.item, candidates):
        start, end = int(document.starts[first]), int(document.ends[last])
        text = document.text[start:end]
        start += len(text) - len(text.lstrip())  # a token may be white space
        text = text.strip()
        collapsed = " ".join(text.split())
        if text and collapsed not in seen:
            seen.add(collapsed)
            yield AnswerSpan(text, start, start + len(text), start_logit, end_logit)


def _score(span):
    return span.start_logit + span.end_logit


def with_probabilities(spans: list[AnswerSpan]) -> list[AnswerSpan]:
    """The same with probabilities; `NO_CANDIDATE` if there are none."""
    spans = spans or [AnswerSpan(NO_CANDIDATE, 0, 0, 0.0, 0.0)]
    most = max(map(_score, spans))
    odds = [math.exp(_score(span) - most) for span in spans]
    total = sum(odds)
    return [
        span._replace(probability=odd / total)
        for span, odd in zip(spans, odds, strict=True)
    ]


# === Starts and ends that the network chooses ==========================================


class TopSpans(NamedTuple):
    """The starts and ends that a network has chosen itself for each row, best first.

    Such a network also says whether there is an answer; see
    modeling/objectives/span_beams.py.

    Attributes:
        starts, start_scores: positions in the row, int, and float; [rows, n].
        ends, end_scores: for each start; [rows, n, m].
        no_answer: the logit that the row's text has no answer; float [rows].
    """

    starts: np.ndarray
    start_scores: np.ndarray
    ends: np.ndarray
    end_scores: np.ndarray
    no_answer: np.ndarray

    @classmethod
    def of(cls, outputs: Mapping) -> "TopSpans":
        """Those among the outputs of a network."""
        return cls(
            outputs["start_top"],
            outputs["start_top_scores"],
            outputs["end_top"],
            outputs["end_top_scores"],
            outputs["no_answer_logit"],
        )


def best_of_top_spans(
    documents: Sequence[Document],
    questions: Sequence[int],
    windows: Sequence[Window],
    top_spans: TopSpans,
    search: Search,
) -> list[Answer]:
    """The best spans for each question, by the sum of the scores of start and end.

    The odds of "no answer" are the lowest `no_answer` of a question's rows, alone, and 0
    without rows; the n-best list does not contain it. For the arguments, see
    `best_answers`.

    Source: google-research/albert@b772393 squad_utils.py, accumulate_predictions_v2 and
        write_predictions_v2; google-research/electra@8a46635 finetune/qa/qa_metrics.py.
    """
    table = table_of(questions, windows)
    lowest = np.full(len(documents), np.inf)
    np.minimum.at(lowest, table[:, 0], top_spans.no_answer)
    lowest[np.isinf(lowest)] = 0.0
    answers = []
    for (document, candidates), logit in zip(
        rank_answers(
            documents,
            table,
            lambda rows: tuple(x[rows] for x in top_spans[:4]),
            search.max_answer_length,
        ),
        lowest.tolist(),
        strict=True,
    ):
        spans = itertools.islice(distinct(document, candidates), search.n_best_size)
        nbest = with_probabilities(list(spans))
        best = nbest[0] if nbest[0].end else None
        odds = math.exp(-min(abs(logit), 700.0))
        probability = (1.0 if logit > 0 else odds) / (1.0 + odds)
        nothing = AnswerSpan("", 0, 0, logit, 0.0, probability)
        answers.append(
            Answer(nbest, best, logit if search.with_null else None, nothing)
        )
    return answers
