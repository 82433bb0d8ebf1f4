"""Cuts documents into windows and finds answers in a TensorFlow graph, for SavedModels.

It equals text/tasks/answer_spans.py, which names the source of each step. All questions of
a batch go through each step together. It uses only core TensorFlow operations.
"""

from typing import NamedTuple

import tensorflow as tf

from text.graphs.graph_tokenizer import GraphTokenizer
from text.tasks.answer_spans import NO_CANDIDATE, Lengths, Search, TopSpans

# For each question, the best _READ x n_best_size candidates are examined to find
# n_best_size different texts. More would help only with highly repetitive texts, and a
# document of 1 MB can have a million.
_READ = 100

_NEVER = -float("inf")
# By code point, what str.split treats as whitespace; the last is not, nor is any beyond.
_IS_SPACE = [chr(point).isspace() for point in range(0x3002)]


# === Rows ============================================================================


class Windows(NamedTuple):
    """The contents of all questions' rows; int32 [rows] each.

    Attributes:
        question: its number, ascending.
        num_query_tokens: tokens of the question in the row.
        first, stop, own_first, own_stop, offset, cls: those of `answer_spans.Window`.
    """

    question: tf.Tensor
    num_query_tokens: tf.Tensor
    first: tf.Tensor
    stop: tf.Tensor
    own_first: tf.Tensor
    own_stop: tf.Tensor
    offset: tf.Tensor
    cls: tf.Tensor


def windows(
    questions: tf.RaggedTensor, documents: tf.RaggedTensor, lengths: Lengths
) -> Windows:
    """The windows over each document; questions and documents are ids, int32 [b,
    (tokens)].
    """
    sizes = tf.cast(documents.row_lengths(), tf.int32)  # [b]
    query = tf.cast(questions.row_lengths(), tf.int32)
    query = tf.minimum(query, lengths.max_query_length)
    beyond = tf.maximum(sizes - lengths.window(query), 0)
    stride = min(lengths.doc_stride, lengths.max_seq_length)  # may be beyond int32
    stride = tf.minimum(stride, lengths.window(query))
    number = 1 + (beyond + stride - 1) // stride
    number = tf.where(sizes > 0, number, 0)
    question = tf.repeat(tf.range(tf.size(number)), number)  # [rows]
    before = tf.gather(tf.cumsum(number, exclusive=True), question)
    first = (tf.range(tf.size(question)) - before) * tf.gather(stride, question)
    query, sizes = tf.gather(query, question), tf.gather(sizes, question)
    stop = tf.minimum(first + lengths.window(query), sizes)
    begin = tf.gather(tf.cast(documents.row_starts(), tf.int32), question)
    num_owned = _count_owned(begin + first, begin + stop)
    own_stop = tf.cumsum(num_owned) - begin
    bounds = first, stop, own_stop - num_owned, own_stop
    last = stop - first + query + lengths.num_special_tokens - 1
    cls = last if lengths.cls_last else tf.zeros_like(first)
    offset = -first
    if not lengths.document_first:
        offset += query + lengths.num_special_tokens - 1
    return Windows(question, query, *bounds, offset, cls)


def _count_owned(first, stop):
    """How many tokens each window owns, of those of all documents; int32 [rows]."""
    tokens = tf.ragged.range(first, stop)
    row = tf.cast(tokens.value_rowids(), tf.int32)
    tokens = tokens.flat_values  # once for each window that shows it
    sides = tokens - tf.gather(first, row), tf.gather(stop - 1, row) - tokens
    # float64 and in this order, so that ties fall as in the release.
    size = tf.cast(tf.gather(stop - first, row), tf.float64)
    context = tf.cast(tf.minimum(*sides), tf.float64) + 0.01 * size
    number = tf.reduce_max(tf.concat([[0], stop], 0))
    most = tf.math.unsorted_segment_max(context, tokens, number)
    has_most = tf.equal(context, tf.gather(most, tokens))
    owner = tf.math.unsorted_segment_min(
        tf.boolean_mask(row, has_most), tf.boolean_mask(tokens, has_most), number
    )
    return tf.math.bincount(owner, minlength=tf.size(first), maxlength=tf.size(first))


def rows(
    questions: tf.RaggedTensor,
    documents: tf.RaggedTensor,
    windows: Windows,
    tokenizer: GraphTokenizer,
) -> dict[str, tf.Tensor]:
    """Each question with its windows: int32 [rows, longest] input_ids, input_mask,
    segment_ids.
    """
    begin = tf.gather(tf.cast(documents.row_starts(), tf.int32), windows.question)
    tokens = tf.ragged.range(begin + windows.first, begin + windows.stop)
    begin = tf.gather(tf.cast(questions.row_starts(), tf.int32), windows.question)
    query = tf.ragged.range(begin, begin + windows.num_query_tokens)
    sides = [
        _gather(questions.flat_values, query),
        _gather(documents.flat_values, tokens),
    ]
    sides = sides[::-1] if tokenizer.document_first else sides
    head, between, tail = (
        tf.tile(tf.constant(ids, tf.int32, [1, len(ids)]), [tf.size(begin), 1])
        for ids in (tokenizer.head, tokenizer.between, tokenizer.tail)
    )
    first = tf.concat([head, sides[0], between], axis=1)
    input_ids = tf.concat([first, sides[1], tail], axis=1)
    sizes = tf.cast(input_ids.row_lengths(), tf.int32)
    input_ids = input_ids.to_tensor(tokenizer.pad_id)
    longest = tf.shape(input_ids)[1]
    input_mask = tf.sequence_mask(sizes, longest, tf.int32)
    in_first = tf.sequence_mask(first.row_lengths(), longest, tf.int32)
    segments = (input_mask - in_first) * tokenizer.second_segment
    if tokenizer.last_segment is not None:
        is_last = tf.range(longest) == sizes[:, None] - 1
        segments = tf.where(is_last, tokenizer.last_segment, segments)
    return {
        "input_ids": input_ids,
        "input_mask": input_mask,
        "segment_ids": segments,
    }


def _gather(values, ragged):
    """The values at ragged places."""
    return ragged.with_flat_values(tf.gather(values, ragged.flat_values))


# === Pieces of texts, by their characters ===============================================


class Texts:
    """Texts, string [b], by their characters."""

    def __init__(self, texts):
        decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        self.points = decoded.flat_values  # of all texts, concatenated
        self.begin = tf.cast(decoded.row_starts(), tf.int32)
        last = len(_IS_SPACE) - 1
        self.is_space = tf.gather(_IS_SPACE, tf.minimum(self.points, last))

    def cut(self, text, start, end):
        """string [n]: the characters from `start` up to `end`; all int32 [n]."""
        begin = tf.gather(self.begin, text)
        return _join(self.points, begin + start, begin + end)

    def strip_span(self, text, start, end):
        """Start and end without the white space there; equal if there is nothing else."""
        solid = tf.cast(tf.where(~self.is_space)[:, 0], tf.int32)
        begin = tf.gather(self.begin, text)
        first = tf.searchsorted(solid, begin + start)
        stop = tf.searchsorted(solid, begin + end)
        bounds = tf.concat([solid, tf.shape(self.points)], 0)
        start = tf.minimum(tf.gather(bounds, first) - begin, end)
        end = tf.gather(tf.concat([[0], solid + 1], 0), stop) - begin
        return start, tf.maximum(start, end)

    def distinct(self, text, start, end):
        """bool [n]: whether no earlier piece of the same text is equal.

        Whitespace is collapsed. Pieces do not begin or end with whitespace, so a piece of
        the collapsed text is the collapsed piece.
        """
        is_space = self.is_space
        is_kept = ~(is_space & tf.concat([[False], is_space[:-1]], 0))
        collapsed = tf.boolean_mask(tf.where(is_space, ord(" "), self.points), is_kept)
        kept_before = tf.cumsum(tf.concat([[0], tf.cast(is_kept, tf.int32)], 0))
        begin = tf.gather(self.begin, text)
        pieces = _join(
            collapsed,
            tf.gather(kept_before, begin + start),
            tf.gather(kept_before, begin + end),
        )
        keys = tf.strings.join([tf.strings.as_string(text), pieces], ":")
        _, same = tf.unique(keys)
        place = tf.range(tf.size(same))
        earliest = tf.math.unsorted_segment_min(place, same, tf.size(same))
        return tf.equal(place, tf.gather(earliest, same))


def _join(points, start, stop):
    """string [n]: the code points from each start to its stop."""
    places = tf.ragged.range(start, stop)
    return tf.strings.unicode_encode(
        places.with_flat_values(tf.gather(points, places.flat_values)), "UTF-8"
    )


# === Answers =========================================================================


class Documents(NamedTuple):
    """What answers are taken from.

    Attributes:
        texts: string [b]; invalid UTF-8 in them counts as U+FFFD.
        starts, ends: characters of each token, int32 [b, (tokens)].
    """

    texts: tf.Tensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


def best_answers(
    documents: Documents,
    windows: Windows,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    search: Search,
    null_threshold: float = 0.0,
) -> dict[str, tf.Tensor]:
    """The answer to each question, from the logits of its rows.

    Args:
        start_logits, end_logits: float32 [rows, s]; padding may have any scores.
        search: see `answer_spans.Search`.
        null_threshold: `with_null`, the answer is "" if its odds are above this.
    Returns:
        [b] each: answer string; start, end int32, its characters; probability and score
        float32, those of its entry in the n-best list; `with_null`, null_odds float32.
        Without a candidate, the answer is `NO_CANDIDATE` or, `with_null`, "".
    """
    logits = start_logits, end_logits
    texts = _rank(documents, windows, *logits, search)
    number = tf.size(documents.texts)
    null = (
        _lowest(windows, _nulls(windows, *logits), number) if search.with_null else None
    )
    probabilities, score_of_other = _probabilities(texts.scores, null)
    null_odds = None if null is None else null - texts.best
    chosen = texts.exists
    if search.with_null:
        chosen &= null_odds <= null_threshold
    return texts.answers(
        chosen, null_odds, probabilities[:, 0], probabilities[:, -1], score_of_other
    )


def best_places(
    documents: Documents,
    windows: Windows,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    search: Search,
    null_threshold: float = 0.0,
) -> dict[str, tf.Tensor]:
    """Where the logits of the answers of `best_answers` are, which has the same arguments.

    Returns:
        int32 [answers]: the question, which is missing if it has no answer at all; the row,
        and the places of start and end in it. Those of no answer are those of the row in
        which it is least probable.
    """
    logits = start_logits, end_logits
    texts = _rank(documents, windows, *logits, search)
    number, rows = tf.size(documents.texts), tf.size(windows.question)
    row, start, end = tf.unstack(texts.choice, axis=1)
    is_answered = texts.exists
    if search.with_null:
        scores = _nulls(windows, *logits)
        lowest = _lowest(windows, scores, number)
        is_null = lowest - texts.best > null_threshold
        is_null = (is_null | ~texts.exists) & (_num_rows(windows, number) > 0)
        is_lowest = scores == tf.gather(lowest, windows.question)
        of_null = tf.math.unsorted_segment_min(
            tf.where(is_lowest, tf.range(rows), rows), windows.question, number
        )
        row = tf.where(is_null, of_null, row)
        is_answered |= is_null
    question = tf.cast(tf.where(is_answered)[:, 0], tf.int32)
    row, start, end = (tf.gather(x, question) for x in (row, start, end))
    offset, cls = tf.gather(windows.offset, row), tf.gather(windows.cls, row)
    start, end = start + offset, end + offset
    if search.with_null:
        is_null = tf.gather(is_null, question)
        start, end = (tf.where(is_null, cls, place) for place in (start, end))
    return {"question": question, "row": row, "start": start, "end": end}


def _rank(documents, windows, start_logits, end_logits, search):
    """The `RankedTexts` of logits."""
    sizes = tf.maximum(windows.stop + windows.offset, windows.cls) + 1
    is_token = tf.sequence_mask(sizes, tf.shape(start_logits)[1])
    (start_scores, starts), (end_scores, ends) = (
        tf.math.top_k(  # for equal logits, the earlier position comes first
            tf.where(is_token, logits, _NEVER),
            k=tf.minimum(search.n_best_size, tf.shape(logits)[1]),
        )
        for logits in (start_logits, end_logits)
    )  # [rows, n]
    choices = starts, start_scores, ends[:, None], end_scores[:, None]
    return rank_answers(documents, windows, choices, search)


def best_of_top_spans(
    documents: Documents,
    windows: Windows,
    top_spans: TopSpans,
    search: Search,
    null_threshold: float = 0.0,
) -> dict[str, tf.Tensor]:
    """The answer to each question; arguments and results as for the functions of both.

    The probability of no answer is that which its logit says.
    """
    texts = rank_answers(documents, windows, top_spans[:4], search)
    probabilities, _ = _probabilities(texts.scores, None)
    if not search.with_null:
        of_other = probabilities[:, -1]
        return texts.answers(
            texts.exists, None, probabilities[:, 0], of_other, tf.zeros_like(of_other)
        )
    odds = _lowest(windows, top_spans.no_answer, tf.size(documents.texts))
    chosen = texts.exists & (odds <= null_threshold)
    return texts.answers(chosen, odds, probabilities[:, 0], tf.sigmoid(odds), odds)


class RankedTexts(NamedTuple):
    """The texts that may be answers, best first.

    Attributes:
        texts: those of the documents.
        scores, start, end: float64 and int32 [b, n_best_size], padded with `_NEVER` and 0.
        choice: int32 [b, 3], of the best one the row, the first and the last token.
    """

    texts: Texts
    scores: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    choice: tf.Tensor

    @property
    def exists(self) -> tf.Tensor:
        """bool [b]: whether there is any."""
        return tf.math.is_finite(self.scores[:, 0])

    @property
    def best(self) -> tf.Tensor:
        """float64 [b]: the highest score, or 0."""
        return tf.where(self.exists, self.scores[:, 0], 0.0)

    def answers(
        self, chosen, null_odds, probability, probability_of_other, score_of_other
    ) -> dict[str, tf.Tensor]:
        """What `best_answers` returns.

        Args:
            chosen: bool [b], whether the best text is the answer.
            null_odds: float64 [b], or None if every question has an answer.
            others: float64 [b]; `other` is the answer without text.
        """
        start, end = (tf.where(chosen, x[:, 0], 0) for x in (self.start, self.end))
        answer = self.texts.cut(tf.range(tf.size(start)), start, end)
        without = NO_CANDIDATE if null_odds is None else ""
        result = {
            "answer": tf.where(chosen, answer, without),
            "start": start,
            "end": end,
            "probability": tf.where(chosen, probability, probability_of_other),
            "score": tf.where(chosen, self.best, score_of_other),
            **({} if null_odds is None else {"null_odds": null_odds}),
        }
        return {
            name: tf.cast(x, tf.float32) if x.dtype == tf.float64 else x
            for name, x in result.items()
        }


def rank_answers(
    documents: Documents,
    windows: Windows,
    choices: tuple[tf.Tensor, ...],
    search: Search,
) -> RankedTexts:
    """The best texts of each question; for the choices, see `answer_spans.rank_answers`."""
    number = tf.size(documents.texts)
    texts = Texts(documents.texts)
    candidates = _candidates(windows, *choices, search.max_answer_length)
    size = search.n_best_size
    candidates = _best(candidates, number, _READ * size)
    return RankedTexts(texts, *_distinct(candidates, documents, texts, size))


def _distinct(candidates, documents, texts, n_best_size):
    """The first of each text.

    Returns score float64, start and end int32, characters: [b, n_best_size] each, best
    first, padded with `_NEVER`, 0 and 0; and the `RankedTexts.choice`.
    """
    start = _at(documents.starts, candidates.question, candidates.first)  # [candidates]
    end = _at(documents.ends, candidates.question, candidates.last)
    start, end = texts.strip_span(candidates.question, start, end)
    is_new = texts.distinct(candidates.question, start, end) & (start < end)
    rows = tf.boolean_mask(candidates.question, is_new)

    def by_question(values, default, most=n_best_size):
        ragged = tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(values, is_new),
            tf.cast(rows, tf.int64),
            tf.size(documents.texts, out_type=tf.int64),
        )
        return ragged[:, :most].to_tensor(default, shape=[None, most])

    score = by_question(candidates.score, _NEVER)
    places = candidates.row, candidates.first, candidates.last
    choice = tf.concat([by_question(place, 0, most=1) for place in places], axis=1)
    return score, by_question(start, 0), by_question(end, 0), choice


def _probabilities(scores, null):
    """The probabilities of the n-best list.

    Args:
        scores: float64 [b, n], best first, padded with `_NEVER`.
        null: score of no answer, float64 [b], or None.
    Returns:
        float64 [b, n + 1], the last that of the answer without text; the score of that
        answer, float64 [b].
    """
    n, never = scores.shape[1], tf.cast(_NEVER, tf.float64)
    other = null
    if null is None:  # `NO_CANDIDATE` counts only if there is nothing else
        other = tf.where(tf.math.is_finite(scores[:, 0]), never, 0.0)
    # The answer without text takes one of the n places if a text is worse.
    places = tf.range(n) + tf.cast(scores < other[:, None], tf.int32)
    scores = tf.where(places < n, scores, never)
    return tf.nn.softmax(tf.concat([scores, other[:, None]], axis=1)), other


def _nulls(windows, start_logits, end_logits):
    """float64 [rows]: the score of [CLS] in each."""
    return sum(
        tf.cast(tf.gather(logits, windows.cls, axis=1, batch_dims=1), tf.float64)
        for logits in (start_logits, end_logits)
    )


def _lowest(windows, scores, number):
    """float64 [number]: the lowest score of each question's rows, 0 without rows."""
    scores = tf.cast(scores, tf.float64)
    lowest = tf.math.unsorted_segment_min(scores, windows.question, number)
    return tf.where(_num_rows(windows, number) > 0, lowest, 0.0)


def _num_rows(windows, number):
    """int32 [number]: of each question."""
    return tf.math.bincount(windows.question, minlength=number, maxlength=number)


# --- Candidates ----------------------------------------------------------------------


class _Candidates(NamedTuple):
    """Pairs of a first and a last token; [candidates] each."""

    question: tf.Tensor  # int32
    row: tf.Tensor  # int32
    first: tf.Tensor  # int32
    last: tf.Tensor  # int32
    score: tf.Tensor  # float64


def _candidates(windows, starts, start_scores, ends, end_scores, max_answer_length):
    """The allowed pairs, row by row, best start and then best end first."""
    first, stop, own_first, own_stop, offset = (x[:, None, None] for x in windows[2:7])
    starts, ends = starts[:, :, None] - offset, ends - offset  # tokens
    may_start = (own_first <= starts) & (starts < own_stop)
    may_end = (first <= ends) & (ends < stop)
    more = ends - starts  # [rows, n, m]
    allowed = may_start & may_end & (more >= 0) & (more < max_answer_length)
    row, start, end = tf.unstack(tf.where(allowed), axis=1)
    of_start = tf.stack([row, start], axis=1)
    start = tf.minimum(start, tf.shape(ends, tf.int64)[1] - 1)  # one may be for all
    of_end = tf.stack([row, start, end], axis=1)
    return _Candidates(
        tf.gather(windows.question, row),
        tf.cast(row, tf.int32),
        tf.gather_nd(starts[:, :, 0], of_start),
        tf.gather_nd(ends, of_end),
        tf.cast(tf.gather_nd(start_scores, of_start), tf.float64)
        + tf.cast(tf.gather_nd(end_scores, of_end), tf.float64),
    )


def _best(candidates, number, most):
    """At most `most` per question, best first; for equal scores, the earlier first."""
    order = tf.argsort(candidates.score, direction="DESCENDING", stable=True)
    of_question = tf.gather(candidates.question, order)
    order = tf.gather(order, tf.argsort(of_question, stable=True))
    sizes = tf.math.bincount(candidates.question, minlength=number, maxlength=number)
    places = tf.ragged.range(sizes).flat_values
    order = tf.boolean_mask(order, places < most)
    return tf.nest.map_structure(lambda x: tf.gather(x, order), candidates)


def _at(ragged, row, place):
    """Values of a ragged tensor, one for each row and place."""
    starts = tf.gather(tf.cast(ragged.row_starts(), tf.int32), row)
    return tf.gather(ragged.flat_values, starts + place)
