"""Makes rows of consecutive sentences in one segment or two, as ELECTRA is trained on.

A row takes sentences of one document until it is full, or sometimes until a random length.
Most rows are divided near the middle, between two sentences:

    [CLS] first segment [SEP] second segment [SEP]
    [CLS] one segment [SEP]

The second segment follows the first in the text, so there is no label.
"""

import array
from collections.abc import Iterator

import numpy as np

from text.instances import packing
from text.instances.instances import Instances, as_planned, windows

# One planned row: two runs of the corpus; the second may be empty.
SEGMENTS = np.dtype(
    [("a_start", "<i8"), ("b_start", "<i8"), ("a_length", "<u2"), ("b_length", "<u2")]
)
_ONE_SEGMENT = 0.1  # share of rows that are not to be divided
_OTHER_LENGTH = 0.05  # share of rows that end at a random length
_LEAST = 5  # the shortest of these lengths


class ElectraSegments(Instances):
    """Sentences up to max_seq_length, in one segment or two.

    Source: google-research/electra@8a46635 build_pretraining_dataset.py, ExampleBuilder.
        There, sentences that follow the division may still join the first segment, which
        then skips a part of the text; here, the second segment always follows the first.
    """

    planned = SEGMENTS
    spans = ("a", "b")
    none_planned = "contains no sentences"
    passes_differ = True

    def max_num_tokens(self, vocabulary) -> int:
        return self.options.max_seq_length - 2

    def plan(self, corpus, first, last, vocabulary, rng):
        size = self.options.max_seq_length
        planned, targets = array.array("q"), _targets(size, rng)
        counts = {"truncated_tokens": 0, "one_segment": 0}
        bounds = corpus.documents[first : last + 1].tolist()
        for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
            for target, offsets in _rows(corpus.sentences, begin, end, targets):
                row = _divide(offsets, size, target, vocabulary.num_special_tokens, rng)
                planned.extend(row)
                length = row[2] + row[3]
                counts["truncated_tokens"] += offsets[-1] - offsets[0] - length
                counts["one_segment"] += not row[3]
        return as_planned(planned, SEGMENTS), counts

    def pack(self, corpus, planned, tokens, vocabulary):
        a, b = (planned[f"{side}_length"].astype(np.int64) for side in "ab")
        size = self.options.max_seq_length
        # A row of one segment may have no room for the [SEP] of a second, which it loses.
        room = size + vocabulary.separators
        batch, is_text = packing.pack_pairs(tokens, a, b, vocabulary, room)
        is_lost = (b == 0)[:, None] & (np.arange(room) > a[:, None] + 1)
        alone = np.flatnonzero(b == 0)
        for place, id in enumerate(vocabulary.tail, start=len(vocabulary.head)):
            batch["input_ids"][alone, a[alone] + place] = id
        if vocabulary.last_segment is not None:
            batch["segment_ids"][alone, a[alone] + 1] = vocabulary.last_segment
        fillers = {"input_ids": vocabulary.pad_id, "input_mask": 0, "segment_ids": 0}
        for name, filler in fillers.items():
            batch[name][is_lost] = filler
            batch[name] = np.ascontiguousarray(batch[name][:, :size])
        return batch, np.ascontiguousarray(is_text[:, :size])


def _targets(size, rng) -> Iterator[int]:
    """Yields how many tokens end each row."""
    yield size
    while True:
        is_other = rng.random() < _OTHER_LENGTH
        yield int(rng.integers(_LEAST, size + 1)) if is_other else size


def _rows(sentences, first, last, targets) -> Iterator[tuple[int, list[int]]]:
    """Yields the target and the token offsets of the sentences of each row."""
    row, target = [], next(targets)
    for offsets in windows(sentences, first, last):
        row = row or offsets[:1]
        for end in offsets[1:]:
            row.append(end)
            if end - row[0] >= target:
                yield target, row
                row, target = [end], next(targets)
    if len(row) > 1:
        yield target, row


def _divide(offsets, size, target, num_special_tokens, rng) -> tuple[int, ...]:
    """Where the segments of a row begin, and their lengths; cut to fit."""
    least = (target - num_special_tokens) // 2
    if rng.random() < _ONE_SEGMENT:
        least = offsets[-1] - offsets[0] + 1
    start, split, end = offsets[0], offsets[1], offsets[-1]
    for offset in offsets[2:]:
        # A sentence that crosses the middle belongs to either side.
        if offset - start >= least and (split - start >= least or rng.random() >= 0.5):
            break
        split = offset
    a_length = min(split - start, size - 2)
    b_length = min(end - split, max(0, size - a_length - num_special_tokens))
    return start, split, a_length, b_length
