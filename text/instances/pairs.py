"""Chooses the two spans of an instance, and its next-sentence label.

Here, a corpus is two arrays of offsets on disk: `sentences` into the tokens, `documents`
into the sentences, each with the end as its last element.
"""

import array
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from text.corpus.store import FlatFile
from text.instances.packing import truncated_lengths

# One planned instance: two spans of the corpus, already cut to fit.
PAIR = np.dtype(
    [
        ("a_start", "<i8"),
        ("b_start", "<i8"),
        ("a_length", "<u2"),
        ("b_length", "<u2"),
        ("is_random", "?"),
    ]
)

_WINDOW = 1 << 16  # sentences of one document held at a time
_RANDOM_SPANS = 1 << 12  # looked up at a time


def plan(
    sentences: FlatFile,
    documents: FlatFile,
    first: int,
    last: int,
    *,
    max_num_tokens: int,
    short_seq_prob: float,
    random_next: bool,
    rng: np.random.Generator,
) -> tuple[np.ndarray, dict[str, int]]:
    """Plans one pass over the documents `first` to `last`.

    Args:
        sentences: int64 [num_sentences + 1], token offsets; no sentence is empty.
        documents: int64 [num_documents + 1], sentence offsets; no document is empty.
        max_num_tokens: what both spans together may have.
        short_seq_prob: chance that a document's target length is drawn from 2 on.
        random_next: pair every second chunk, and each of one sentence, with text of
            another document; needs two documents. Without, all pairs are consecutive
            and a lone last sentence is left out.
    Returns:
        PAIR [num_pairs], and counts: `truncated_tokens`, `unpaired_sentences`.
    Source: google-research/bert@eedf571 create_pretraining_data.py:223-340, 418-437.
    """
    planned = array.array("q")  # a list of tuples would take five times the memory
    unpaired = 0
    uniforms = _uniforms(rng)
    chunks = _consecutive_chunks if not random_next else _chunks
    document_bounds = documents[first : last + 1].tolist()
    for document, *bounds in zip(
        range(first, last), document_bounds[:-1], document_bounds[1:], strict=True
    ):
        # One target for a whole document and pass, not one for each instance.
        target = max_num_tokens
        if next(uniforms) < short_seq_prob:
            target = 2 + int(next(uniforms) * (max_num_tokens - 1))
        end = sentences[bounds[0]]
        for a_start, a_end, end in chunks(sentences, *bounds, target, uniforms):
            planned.extend((document, target, a_start, a_end, end))
        if not random_next and end < sentences[bounds[1]]:
            unpaired += 1
    columns = np.frombuffer(planned, np.int64).reshape(-1, 5).T.copy()
    document, target, a_start, a_end, b_end = columns
    is_random = b_end < 0
    b_start = a_end.copy()
    wanted = np.maximum(target - (a_end - a_start), 1)
    rows = np.flatnonzero(is_random)
    for start in range(0, len(rows), _RANDOM_SPANS):
        some = rows[start : start + _RANDOM_SPANS]
        b_start[some], b_end[some] = _random_spans(
            sentences, documents, document[some], wanted[some], rng
        )
    a_length, b_length = truncated_lengths(
        a_end - a_start, b_end - b_start, max_num_tokens
    )
    a_cut, b_cut = a_end - a_start - a_length, b_end - b_start - b_length
    pairs = np.empty(len(document), PAIR)
    # Each token is lost in front or behind with equal chance.
    pairs["a_start"] = a_start + rng.binomial(a_cut, 0.5)
    pairs["b_start"] = b_start + rng.binomial(b_cut, 0.5)
    pairs["a_length"], pairs["b_length"] = a_length, b_length
    pairs["is_random"] = is_random
    return pairs, {
        "truncated_tokens": int(a_cut.sum() + b_cut.sum()),
        "unpaired_sentences": unpaired,
    }


def _uniforms(rng) -> Iterator[float]:
    while True:
        yield from rng.random(1 << 12).tolist()


def _windows(sentences, first, last, longest_chunk) -> Iterator[tuple[list[int], int]]:
    """Yields (token offsets, index of the first one used) over one document.

    The caller sends back how many sentences it used up. Each window but the last holds
    more sentences behind that point than a chunk can have, so a document of any length is
    read in bounded memory.
    """
    while first < last:
        stop = min(first + _WINDOW + longest_chunk, last)
        used = yield sentences[first : stop + 1].tolist(), stop == last
        first += used


def _chunks(sentences, first, last, target, uniforms):
    """Yields (a_start, a_end, b_end) in tokens; b_end is -1 for a random next."""
    windows = _windows(sentences, first, last, target)
    offsets, is_last = next(windows)
    while True:
        count = len(offsets) - 1
        stop = count if is_last else count - target
        i = 0
        while i < stop:
            # A chunk ends with the sentence that reaches the target, or the document.
            end = bisect_left(offsets, offsets[i] + target, i + 1, count)
            a_end = i + 1
            if end > a_end:
                a_end += int(next(uniforms) * (end - a_end))
            if end == i + 1 or next(uniforms) < 0.5:
                yield offsets[i], offsets[a_end], -1
                i = a_end  # the unused sentences are put back
            else:
                yield offsets[i], offsets[a_end], offsets[end]
                i = end
        if is_last:
            return
        offsets, is_last = windows.send(i)


def _consecutive_chunks(sentences, first, last, target, uniforms):
    """Like `_chunks` without random nexts: a chunk has at least two sentences."""
    windows = _windows(sentences, first, last, target + 1)
    offsets, is_last = next(windows)
    while True:
        count = len(offsets) - 1
        stop = count - 1 if is_last else count - target - 1
        i = 0
        while i < stop:
            end = bisect_left(offsets, offsets[i] + target, i + 2, count)
            a_end = i + 1 + int(next(uniforms) * (end - i - 1))
            yield offsets[i], offsets[a_end], offsets[end]
            i = end
        if is_last:
            return
        offsets, is_last = windows.send(i)


def _random_spans(sentences, documents, own_documents, wanted_lengths, rng):
    """Token spans that start at a random sentence of another document.

    Each has whole sentences until `wanted_lengths` is reached or its document ends.
    """
    count = len(own_documents)
    # Differs from the release: there the same document can come up (after ten draws) and
    # is labelled random all the same; here the draw is among the others.
    others = rng.integers(0, len(documents) - 2, count)
    others += others >= own_documents
    firsts, lasts = documents.gather(others, np.full(count, 2)).reshape(-1, 2).T
    starts = firsts + (rng.random(count) * (lasts - firsts)).astype(np.int64)
    # No sentence is empty, so the length is reached within as many sentences.
    sizes = np.minimum(starts + wanted_lengths, lasts) + 1 - starts
    offsets = sentences.gather(starts, sizes)
    row_starts = np.cumsum(sizes) - sizes
    begins = offsets[row_starts]
    is_short = offsets < np.repeat(begins + wanted_lengths, sizes)
    reached = np.add.reduceat(is_short, row_starts, dtype=np.int64)
    return begins, offsets[row_starts + np.minimum(reached, sizes - 1)]
