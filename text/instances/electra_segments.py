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

from text.instances import figures, packing
from text.instances.instances import Instances, Rule

# One planned row: two runs of the corpus, of which the second may be empty.
SEGMENTS = np.dtype(
    [("a_start", "<i8"), ("b_start", "<i8"), ("a_length", "<u2"), ("b_length", "<u2")]
)
_ONE_SEGMENT = 0.1  # share of rows that are not to be divided
_OTHER_LENGTH = 0.05  # share of rows that end at a random length
_LEAST = 5  # the shortest of these lengths
_WINDOW = 1 << 16  # sentences of one document held at a time


class ElectraSegments(Instances):
    """Sentences up to max_seq_length, in one segment or two.

    Source: google-research/electra@8a46635 build_pretraining_dataset.py, ExampleBuilder.
        There, sentences that follow the division may still join the first segment, which
        then skips a part of the text; here, the second segment always follows the first.
    """

    planned = SEGMENTS
    suffix = "segments"
    sides = ("A", "B")
    none_planned = "contains no sentences"
    long_sentences = "are truncated"
    passes_differ = True

    def max_num_tokens(self, vocabulary) -> int:
        return self.recipe.max_seq_length - 2

    def plan(self, corpus, first, last, vocabulary, rng):
        size = self.recipe.max_seq_length
        planned, targets = array.array("q"), _targets(size, rng)
        counts = {"truncated_tokens": 0, "one_segment": 0}
        bounds = corpus.documents[first : last + 1].tolist()
        for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
            for target, offsets in _rows(corpus.sentences, begin, end, targets):
                row = _divided(
                    offsets, size, target, vocabulary.num_special_tokens, rng
                )
                planned.extend(row)
                length = row[2] + row[3]
                counts["truncated_tokens"] += offsets[-1] - offsets[0] - length
                counts["one_segment"] += not row[3]
        columns = np.frombuffer(planned, np.int64).reshape(-1, 4).T
        rows = np.empty(columns.shape[1], SEGMENTS)
        for name, values in zip(SEGMENTS.names, columns, strict=True):
            rows[name] = values
        return rows, counts

    def runs(self, planned):
        starts = np.stack([planned["a_start"], planned["b_start"]], axis=1)
        lengths = np.stack([planned["a_length"], planned["b_length"]], axis=1)
        return starts.ravel(), lengths.ravel().astype(np.int64)

    def pack(self, corpus, planned, tokens, vocabulary):
        a, b = (planned[f"{side}_length"].astype(np.int64) for side in "ab")
        size = self.recipe.max_seq_length
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

    # --- Inspection ------------------------------------------------------------------

    def rules(self, batch, layout, vocabulary) -> Iterator[Rule]:
        text, lengths, _ = layout
        columns = np.arange(text.shape[1])
        is_token = columns < lengths[:, None]
        is_sep = is_token & vocabulary.is_separator(text)
        first, last = is_sep.argmax(axis=1)[:, None], lengths[:, None] - 1
        b_begins = first + vocabulary.separators
        b_ends = last + 1 - len(vocabulary.tail)
        has_two = first < b_ends
        right = (columns >= first) & (columns < b_begins) & has_two
        right |= (columns >= b_ends) & is_token
        yield Rule(
            "input_ids",
            is_token & (is_sep != right),
            "must be [SEP] at the end of each segment, and nowhere else",
        )
        yield Rule(
            "input_ids",
            (columns == first)
            & ((first <= len(vocabulary.head)) | has_two & (b_begins >= b_ends)),
            "must have one segment or two, each with tokens before its [SEP]",
        )
        in_b = is_token & (columns >= b_begins) & has_two
        yield Rule(
            "segment_ids",
            batch["segment_ids"] != packing.segments(in_b, columns == last, vocabulary),
            packing.segments_rule(
                vocabulary, "must be 0 in the first segment and 1 in the second"
            ),
        )

    def figures(self, vocabulary) -> list[figures.Figures]:
        return []

    def report(self, counts, passes, vocabulary) -> list[str]:
        number, cut = counts["instances"], counts["truncated_tokens"]
        filled = counts["instance_tokens"] / (number * self.recipe.max_seq_length)
        return [
            f"{filled:.1%} of the positions contain a token; "
            f"{counts['one_segment'] / number:.1%} of the records have one segment; "
            f"{cut / (cut + counts['instance_tokens']):.1%} of the tokens did not fit"
        ]


def _targets(size, rng) -> Iterator[int]:
    """Yields how many tokens end each row."""
    yield size
    while True:
        is_other = rng.random() < _OTHER_LENGTH
        yield int(rng.integers(_LEAST, size + 1)) if is_other else size


def _rows(sentences, first, last, targets) -> Iterator[tuple[int, list[int]]]:
    """Yields the target and the token offsets of the sentences of each row."""
    row, target = [], next(targets)
    for start in range(first, last, _WINDOW):
        offsets = sentences[start : min(start + _WINDOW, last) + 1].tolist()
        row = row or offsets[:1]
        for end in offsets[1:]:
            row.append(end)
            if end - row[0] >= target:
                yield target, row
                row, target = [end], next(targets)
    if len(row) > 1:
        yield target, row


def _divided(offsets, size, target, num_special_tokens, rng) -> tuple[int, ...]:
    """Where the segments of a row begin, and their lengths; cut to fit."""
    wanted = (target - num_special_tokens) // 2
    if rng.random() < _ONE_SEGMENT:
        wanted = offsets[-1] - offsets[0] + 1
    start, split, end = offsets[0], offsets[1], offsets[-1]
    for offset in offsets[2:]:
        # A sentence that crosses the middle belongs to either side.
        if offset - start >= wanted and (
            split - start >= wanted or rng.random() >= 0.5
        ):
            break
        split = offset
    a_length = min(split - start, size - 2)
    b_length = min(end - split, max(0, size - a_length - num_special_tokens))
    return start, split, a_length, b_length
