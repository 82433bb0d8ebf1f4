"""Makes pairs of spans with a label for whether the second follows the first.

These are the release's instances. Here, a corpus is two arrays of offsets on disk:
`sentences` into the tokens, `documents` into the sentences, each with the end as its last
element.
"""

import array
import dataclasses
import itertools
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

import options
from text.corpus.store import FlatFile
from text.instances import packing
from text.instances.instances import Instances
from text.instances.packing import truncated_lengths
from text.records.schema import Feature

# One planned instance: two spans of the corpus, already cut to fit. `is_random` is its
# label, which family/albert/rows.py also sets for spans that it swaps.
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


@dataclasses.dataclass(frozen=True)
class PairOptions(options.Group):
    """Records. Which two spans share one."""

    short_seq_prob: float = options.field(
        0.1,
        help="Share of documents in each pass that get shorter sequences.",
        at_least=0,
        at_most=1,
    )
    random_next_sentences: bool = options.field(
        True,
        help="Take half of the second sentences from other documents. If false, every "
        "pair is consecutive; use this for text that is a single document.",
    )


class Pairs(Instances):
    """`[CLS] a [SEP] b [SEP]` and the next-sentence label.

    The vocabulary may have more than one [SEP] between a and b.

    Source: google-research/bert@eedf571 create_pretraining_data.py.
    """

    planned = PAIR
    spans = ("a", "b")
    sentence_task = "next_sentence"
    none_planned = (
        "no document has two sentences, which a pair needs with "
        "--random_next_sentences=false"
    )
    passes_differ = True
    swapped_share = 0.0  # of the consecutive pairs

    @property
    def random_next(self) -> bool:
        """Whether half of the second spans are random, so that a chunk may have one."""
        return self.options.random_next_sentences

    def max_num_tokens(self, vocabulary) -> int:
        return self.options.max_seq_length - vocabulary.num_special_tokens

    def refusal(self, num_documents) -> str:
        if num_documents > 1 or not self.random_next:
            return ""
        return (
            "all of the text is one document, so no sentence can come from another one; "
            "pass several documents as --input_format says (by default, empty lines "
            "separate them), or --random_next_sentences=false"
        )

    def plan(self, corpus, first, last, vocabulary, rng):
        return plan(
            corpus.sentences,
            corpus.documents,
            first,
            last,
            max_num_tokens=self.max_num_tokens(vocabulary),
            short_seq_prob=self.options.short_seq_prob,
            random_next=self.random_next,
            swapped_share=self.swapped_share,
            rng=rng,
        )

    def pack(self, corpus, planned, tokens, vocabulary):
        lengths = (planned[f"{side}_length"].astype(np.int64) for side in "ab")
        batch, is_text = packing.pack_pairs(
            tokens, *lengths, vocabulary, self.options.max_seq_length
        )
        labels = planned["is_random"].astype(np.uint8)[:, None]
        return batch | {"next_sentence_labels": labels}, is_text

    def labels(self) -> tuple[Feature, ...]:
        return (Feature("next_sentence_labels", "int64", 1, 2),)


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
    swapped_share: float = 0.0,
) -> tuple[np.ndarray, dict[str, int]]:
    """Plans one pass over the documents `first` to `last`.

    Args:
        sentences: int64 [num_sentences + 1], token offsets; no sentence is empty.
        documents: int64 [num_documents + 1], sentence offsets; no document is empty.
        max_num_tokens: limit for both spans together.
        short_seq_prob: chance that a document's target length is drawn at random, from 2.
        random_next: pair half of the chunks, and all of one sentence, with text from
            another document; needs two documents. Otherwise, all pairs are
            consecutive and a lone last sentence is left out.
        swapped_share: how many of the consecutive pairs have their sides exchanged.
    Returns:
        PAIR [num_pairs], and counts: `random_next`, `truncated_tokens`,
        `unpaired_sentences`; with `swapped_share`, also `swapped`, the labels that are 1.
    Source: google-research/bert@eedf571 create_pretraining_data.py:223-340, 418-437; for
        swapped sides, google-research/albert@b772393 create_pretraining_data.py:312-348.
    """
    columns, unpaired = _plan_chunks(
        sentences,
        documents[first : last + 1].tolist(),
        first,
        max_num_tokens,
        short_seq_prob,
        1 if random_next else 2,
        rng,
    )
    is_random = columns[-1] < 0
    counts = {
        "random_next": int(is_random.sum()),
        "unpaired_sentences": 0 if random_next else unpaired,
    }
    spans = _find_random_spans(columns, is_random, sentences, documents, rng)
    if swapped_share:
        is_random |= _swap(spans, ~is_random, swapped_share, rng)
        counts["swapped"] = int(is_random.sum())
    pairs, counts["truncated_tokens"] = _cut(*spans, max_num_tokens, rng)
    pairs["is_random"] = is_random
    return pairs, counts


def _plan_chunks(sentences, bounds, first, max_num_tokens, short_seq_prob, least, rng):
    """Plans the chunks of documents, numbered from `first`.

    Returns int64 [5, chunks]: document, target length, a_start, a_end, b_end; and how many
    documents have a sentence left at their end.
    """
    planned = array.array("q")  # a list of tuples would take five times the memory
    left = 0
    uniforms = _uniforms(rng)
    for document, *own in zip(
        itertools.count(first), bounds[:-1], bounds[1:], strict=False
    ):
        # One target per document and pass, not per instance.
        target = max_num_tokens
        if next(uniforms) < short_seq_prob:
            target = 2 + int(next(uniforms) * (max_num_tokens - 1))
        end = sentences[own[0]]
        for a_start, a_end, end in _chunks(sentences, *own, target, least, uniforms):
            planned.extend((document, target, a_start, a_end, end))
        if end < sentences[own[1]]:
            left += 1
    return np.frombuffer(planned, np.int64).reshape(-1, 5).T.copy(), left


def _find_random_spans(columns, is_random, sentences, documents, rng):
    """Returns a_start, a_end, b_start, b_end; those of b are found where it is random."""
    document, target, a_start, a_end, b_end = columns
    b_start = a_end.copy()
    b_lengths = np.maximum(target - (a_end - a_start), 1)
    rows = np.flatnonzero(is_random)
    for start in range(0, len(rows), _RANDOM_SPANS):
        some = rows[start : start + _RANDOM_SPANS]
        b_start[some], b_end[some] = _random_spans(
            sentences, documents, document[some], b_lengths[some], rng
        )
    return a_start, a_end, b_start, b_end


def _swap(spans, may_swap, share, rng):
    """Exchanges the sides of some pairs; returns which."""
    is_swapped = may_swap & (rng.random(len(may_swap)) < share)
    # Before they are cut: of two equal sides, the second loses first, and must not tell
    # which one it was in the text.
    a_start, a_end, b_start, b_end = spans
    for a, b in ((a_start, b_start), (a_end, b_end)):
        a[is_swapped], b[is_swapped] = b[is_swapped], a[is_swapped]
    return is_swapped


def _cut(a_start, a_end, b_start, b_end, max_num_tokens, rng):
    """Cuts pairs to fit: PAIR without labels, and how many tokens were cut off."""
    a_length, b_length = truncated_lengths(
        a_end - a_start, b_end - b_start, max_num_tokens
    )
    a_cut, b_cut = a_end - a_start - a_length, b_end - b_start - b_length
    pairs = np.zeros(len(a_start), PAIR)
    # Each token is cut from the front or the end with equal probability.
    pairs["a_start"] = a_start + rng.binomial(a_cut, 0.5)
    pairs["b_start"] = b_start + rng.binomial(b_cut, 0.5)
    pairs["a_length"], pairs["b_length"] = a_length, b_length
    return pairs, int(a_cut.sum() + b_cut.sum())


def _uniforms(rng) -> Iterator[float]:
    while True:
        yield from rng.random(1 << 12).tolist()


def _windows(sentences, first, last, longest_chunk) -> Iterator[tuple[list[int], int]]:
    """Yields (token offsets, index of the first one used) over one document.

    The caller sends back how many sentences it used. Each window but the last contains more
    sentences after that point than a chunk can have, so a document of any length is read in
    bounded memory.
    """
    while first < last:
        stop = min(first + _WINDOW + longest_chunk, last)
        used = yield sentences[first : stop + 1].tolist(), stop == last
        first += used


def _chunks(sentences, first, last, target, least, uniforms):
    """Yields (a_start, a_end, b_end) in tokens; b_end is -1 for a random next span.

    A chunk has at least `least` sentences; if that is one, half of the next are random.
    """
    windows = _windows(sentences, first, last, target + least - 1)
    offsets, is_last = next(windows)
    while True:
        count = len(offsets) - 1
        stop = count + 1 - least - (0 if is_last else target)
        i = 0
        while i < stop:
            # A chunk ends with the sentence that reaches the target, or the document.
            end = bisect_left(offsets, offsets[i] + target, i + least, count)
            a_end = i + 1
            if end > a_end:
                a_end += int(next(uniforms) * (end - a_end))
            if least == 1 and (end == i + 1 or next(uniforms) < 0.5):
                yield offsets[i], offsets[a_end], -1
                i = a_end  # the unused sentences are put back
            else:
                yield offsets[i], offsets[a_end], offsets[end]
                i = end
        if is_last:
            return
        offsets, is_last = windows.send(i)


def _random_spans(sentences, documents, own_documents, wanted_lengths, rng):
    """Token spans that start at a random sentence of another document.

    Each contains whole sentences until `wanted_lengths` is reached or its document ends.
    """
    count = len(own_documents)
    # Differs from the release: there, the same document can be drawn (after ten draws) and
    # is still labeled random; here, only the others are drawn from.
    others = rng.integers(0, len(documents) - 2, count)
    others += others >= own_documents
    firsts, lasts = documents.gather(others, np.full(count, 2)).reshape(-1, 2).T
    starts = firsts + (rng.random(count) * (lasts - firsts)).astype(np.int64)
    # No sentence is empty, so a length of n is reached within n sentences.
    sizes = np.minimum(starts + wanted_lengths, lasts) + 1 - starts
    offsets = sentences.gather(starts, sizes)
    row_starts = np.cumsum(sizes) - sizes
    begins = offsets[row_starts]
    is_short = offsets < np.repeat(begins + wanted_lengths, sizes)
    reached = np.add.reduceat(is_short, row_starts, dtype=np.int64)
    return begins, offsets[row_starts + np.minimum(reached, sizes - 1)]
