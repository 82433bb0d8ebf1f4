"""Checks and counts rows of packed documents."""

from collections.abc import Iterator

import numpy as np

from text.inspection import figures
from text.inspection.inspector import Inspector, Rule
from text.instances import packing


class PackedInspector(Inspector):
    """Documents that do not see each other."""

    long_sentences = "continue in the next record"

    def is_cls(self, batch, text) -> np.ndarray:
        first, last = _bounds(batch, text)
        return first if self.vocabulary.head else last

    def rules(self, batch, text) -> Iterator[Rule]:
        vocabulary, places = self.vocabulary, batch["position_ids"]
        before = np.pad(places, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
        counts_up = (places == before + 1) | (places == 0) & (text.columns > 0)
        yield Rule(
            "position_ids",
            np.where(text.is_token, ~counts_up, places != 0),
            "must count from 0 in each document, and be 0 at padding",
        )
        _, last = _bounds(batch, text)
        special = len(vocabulary.head + vocabulary.tail)
        yield Rule(
            "position_ids",
            last & (places < special),
            "must leave room for a token of the text in each document",
        )
        is_tail = last.copy()
        for place in range(1, len(vocabulary.tail)):
            is_tail[:, :-place] |= last[:, place:]
        yield Rule(
            "input_ids",
            text.is_token & (text.separators(vocabulary) != is_tail),
            "must be [SEP] at the end of each document, and nowhere else",
        )
        expected = packing.segments(np.zeros_like(last), last, vocabulary)
        yield Rule(
            "segment_ids",
            batch["segment_ids"] != expected,
            "must be 0, or what the vocabulary has for the last token of a document",
        )

    def figures(self) -> list[figures.RunningSums]:
        return [_DocumentLengths(self.options.max_seq_length)]

    def report(self, counts, passes) -> list[str]:
        places = counts["instances"] * self.options.max_seq_length
        return [
            f"{counts['instance_tokens'] / places:.2%} of the positions contain a token",
            f"{counts['split_documents'] // passes:,} times, a document continues in the "
            "next record",
        ]


def _bounds(batch, text):
    """bool [batch, seq_length], twice: the first and the last token of each document."""
    is_first = batch["position_ids"] == 0
    is_next = np.pad(is_first, ((0, 0), (0, 1)), constant_values=True)[:, 1:]
    return is_first & text.is_token, is_next & text.is_token


class _DocumentLengths(figures.RunningSums):
    """Counts documents and their tokens."""

    def __init__(self, max_seq_length):
        self._counts = np.zeros(max_seq_length + 1, np.int64)
        self._lengths = np.zeros(max_seq_length + 1, np.int64)

    def add(self, batch, text, options) -> None:
        first, last = _bounds(batch, text)
        figures.count(self._counts, first.sum(axis=1))
        figures.count(self._lengths, batch["position_ids"][last] + 1)

    def lines(self) -> list[tuple[str, str]]:
        return [
            (
                "Documents",
                f"{figures.mean(self._counts):.2f} per record, of "
                f"{figures.mean(self._lengths):.1f} tokens",
            )
        ]

    def plots(self) -> list[figures.Histogram | figures.Bars]:
        return [
            figures.lengths("Documents per record", self._counts, "documents"),
            figures.lengths("Tokens per document", self._lengths),
        ]
