"""Makes pairs of spans with a label for whether the second follows the first.

These are the release's instances. Here, a corpus is two arrays of offsets on disk:
`sentences` into the tokens, `documents` into the sentences, each with the end as its last
element.
"""

import array
import functools
import itertools
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from text.corpus.store import FlatFile
from text.instances import figures, packing
from text.instances.instances import Instances, Rule
from text.instances.packing import truncated_lengths
from text.instances.sides import Sides, find_first_seps
from text.records.schema import Feature

# One planned instance: two spans of the corpus, already cut to fit. `is_random` is its
# label, which text/instances/sentence_order.py also sets for spans that it swaps.
PAIR = np.dtype(
    [
        ("a_start", "<i8"),
        ("b_start", "<i8"),
        ("a_length", "<u2"),
        ("b_length", "<u2"),
        ("is_random", "?"),
    ]
)

_MOSTLY_RANDOM = 0.75  # share of random next sentences; half is usual
_WINDOW = 1 << 16  # sentences of one document held at a time
_RANDOM_SPANS = 1 << 12  # looked up at a time


class Pairs(Instances):
    """`[CLS] a [SEP] b [SEP]` and the next-sentence label.

    The vocabulary may have more than one [SEP] between a and b.

    Source: google-research/bert@eedf571 create_pretraining_data.py.
    """

    planned = PAIR
    suffix = "pairs"
    sentence_task = "next_sentence"
    meanings = ("B follows A in the text", "B is random text from elsewhere")
    sides = ("A", "B")
    none_planned = (
        "no document has two sentences, which a pair needs with "
        "--random_next_sentences=false"
    )
    long_sentences = "are truncated"
    passes_differ = True

    def max_num_tokens(self, vocabulary) -> int:
        return self.recipe.max_seq_length - vocabulary.num_special_tokens

    def refusal(self, num_documents) -> str:
        if num_documents > 1 or not self.recipe.random_next_sentences:
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
            short_seq_prob=self.recipe.short_seq_prob,
            random_next=self.recipe.random_next_sentences,
            rng=rng,
        )

    def runs(self, planned):
        starts = np.stack([planned["a_start"], planned["b_start"]], axis=1)
        lengths = np.stack([planned["a_length"], planned["b_length"]], axis=1)
        return starts.ravel(), lengths.ravel().astype(np.int64)

    def pack(self, corpus, planned, tokens, vocabulary):
        lengths = (planned[f"{side}_length"].astype(np.int64) for side in "ab")
        batch, is_text = packing.pack_pairs(
            tokens, *lengths, vocabulary, self.recipe.max_seq_length
        )
        labels = planned["is_random"].astype(np.uint8)[:, None]
        return batch | {"next_sentence_labels": labels}, is_text

    def labels(self) -> tuple[Feature, ...]:
        return (Feature("next_sentence_labels", "int64", 1, 2),)

    # --- Inspection ------------------------------------------------------------------

    def rules(self, batch, layout, vocabulary) -> Iterator[Rule]:
        text, lengths, _ = layout
        columns = np.arange(text.shape[1])
        is_token = columns < lengths[:, None]
        first_seps = find_first_seps(layout, vocabulary)
        last = lengths[:, None] - 1
        b_begins = first_seps + vocabulary.separators
        b_ends = last + 1 - len(vocabulary.tail)
        in_b = is_token & (columns >= b_begins)
        is_sep = (columns >= first_seps) & ~in_b | (columns >= b_ends)
        is_sep &= is_token
        yield Rule(
            "input_ids",
            is_token & (vocabulary.is_separator(text) != is_sep),
            "must be [SEP] at the end of the two sides, and nowhere else",
        )
        yield Rule(
            "input_ids",
            (columns == first_seps)
            & ((first_seps <= len(vocabulary.head)) | (b_ends <= b_begins)),
            "must have two sides, each with tokens before its [SEP]",
        )
        yield Rule(
            "segment_ids",
            batch["segment_ids"] != packing.segments(in_b, columns == last, vocabulary),
            packing.segments_rule(
                vocabulary,
                "must be 0 up to the first [SEP], 1 up to the second, then 0",
            ),
        )
        yield self._label_rule(batch["next_sentence_labels"])

    def _label_rule(self, labels) -> Rule:
        if self.recipe.random_next_sentences:
            rule = "must be 0 (the next sentence) or 1 (random)"
        else:
            rule = (
                "must be 0, because the description has --random_next_sentences=false"
            )
        is_broken = (labels < 0) | (labels > self.recipe.random_next_sentences)
        return Rule("next_sentence_labels", is_broken, rule)

    def sums(self, batch) -> dict[str, int]:
        return {"random_next": int(batch["next_sentence_labels"].sum())}

    def figures(self, vocabulary) -> list[figures.Figures]:
        return [Sides(self.recipe.max_seq_length, vocabulary)]

    def label(self, record) -> str:
        value = int(record["next_sentence_labels"][0])
        known = value in (0, 1)
        return self.meanings[value] if known else f"next_sentence_labels is {value}"

    def report(self, counts, passes, vocabulary) -> list[str]:
        cut = counts["truncated_tokens"]
        number = counts["instances"]
        paired = (
            counts["instance_tokens"] - vocabulary.num_special_tokens * number + cut
        )
        lines = [
            f"{self._label_report(counts)}; {cut / paired:.1%} of the paired tokens were "
            "truncated"
        ]
        if unpaired := counts.get("unpaired_sentences", 0) // passes:
            lines.append(
                f"{unpaired:,} sentences at the end of a document had no next sentence "
                "and were skipped"
            )
        return lines

    def advice(self, counts):
        share = counts["random_next"] / max(1, counts["instances"])
        if share <= _MOSTLY_RANDOM:
            return super().advice(counts)
        return [
            *super().advice(counts),
            f"advice: {share:.0%} of the records have a random next sentence (usually "
            "half), because most sentences have no next one in their document or record; "
            "put an empty line only after documents, add --input_format=paragraphs if "
            "lines are paragraphs, or use --instances=full_sentences, which has no pairs",
        ]

    def _label_report(self, counts) -> str:
        share = counts["random_next"] / counts["instances"]
        return f"{share:.1%} with a random next sentence"


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
    random_share: float = 0.5,
    swapped_share: float = 0.0,
) -> tuple[np.ndarray, dict[str, int]]:
    """Plans one pass over the documents `first` to `last`.

    Args:
        sentences: int64 [num_sentences + 1], token offsets; no sentence is empty.
        documents: int64 [num_documents + 1], sentence offsets; no document is empty.
        max_num_tokens: limit for both spans together.
        short_seq_prob: chance that a document's target length is drawn at random, from 2.
        random_next: pair `random_share` of the chunks, and all of one sentence, with text
            from another document; needs two documents. Otherwise, all pairs are
            consecutive and a lone last sentence is left out.
        swapped_share: how many of the consecutive pairs have their sides exchanged.
    Returns:
        PAIR [num_pairs], and counts: `random_next`, `truncated_tokens`,
        `unpaired_sentences`; with `swapped_share`, also `swapped`, the labels that are 1.
    Source: google-research/bert@eedf571 create_pretraining_data.py:223-340, 418-437; for
        swapped sides, google-research/albert@b772393 create_pretraining_data.py:312-348.
    """
    chunks = _consecutive_chunks
    if random_next:
        chunks = functools.partial(_chunks, random_share=random_share)
    columns, unpaired = _plan_chunks(
        sentences,
        documents[first : last + 1].tolist(),
        first,
        max_num_tokens,
        short_seq_prob,
        chunks,
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


def _plan_chunks(sentences, bounds, first, max_num_tokens, short_seq_prob, chunks, rng):
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
        for a_start, a_end, end in chunks(sentences, *own, target, uniforms):
            planned.extend((document, target, a_start, a_end, end))
        if end < sentences[own[1]]:
            left += 1
    return np.frombuffer(planned, np.int64).reshape(-1, 5).T.copy(), left


def _find_random_spans(columns, is_random, sentences, documents, rng):
    """Returns a_start, a_end, b_start, b_end; those of b are found where it is random."""
    document, target, a_start, a_end, b_end = columns
    b_start = a_end.copy()
    wanted = np.maximum(target - (a_end - a_start), 1)
    rows = np.flatnonzero(is_random)
    for start in range(0, len(rows), _RANDOM_SPANS):
        some = rows[start : start + _RANDOM_SPANS]
        b_start[some], b_end[some] = _random_spans(
            sentences, documents, document[some], wanted[some], rng
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


def _chunks(sentences, first, last, target, uniforms, random_share):
    """Yields (a_start, a_end, b_end) in tokens; b_end is -1 for a random next span."""
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
            if end == i + 1 or next(uniforms) < random_share:
                yield offsets[i], offsets[a_end], -1
                i = a_end  # the unused sentences are put back
            else:
                yield offsets[i], offsets[a_end], offsets[end]
                i = end
        if is_last:
            return
        offsets, is_last = windows.send(i)


def _consecutive_chunks(sentences, first, last, target, uniforms):
    """Like `_chunks` without random next spans: a chunk has at least two sentences."""
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
