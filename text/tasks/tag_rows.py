"""Decides which words share a row, so that each is labelled once and has context."""

import collections
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np


class TagWindow(NamedTuple):
    """Words `start` to `stop`; those from `own_start` to `own_stop` are labeled."""

    start: int
    own_start: int
    own_stop: int
    stop: int


class Pieces:
    """Turns words into a tokenizer's pieces.

    Args:
        most: the most pieces of a word to keep.
        counts: counts the words that are longer.
    """

    def __init__(self, tokenizer, most: int, counts: collections.Counter):
        self.tokenizer = tokenizer
        self.most = most
        self.counts = counts
        self._document = self._pieces_of_document = None

    def of_document(self, words: tuple[str, ...]):
        """Same as `of`, once for all consecutive sentences of a document.

        A document is recognized by identity: hashing all of its words for each of its
        sentences would take longer than everything else.
        """
        if self._document is not words:
            self._document, self._pieces_of_document = words, self.of(words)
        return self._pieces_of_document

    def of(self, words: Iterable[str]) -> tuple[list[list[int]], np.ndarray]:
        """The pieces of each word; and the number of pieces before each, and in total."""
        pieces = []
        for word in words:
            # The space begins a word, also the first one: some tokenizers take it in.
            ids = self.tokenizer.encode(f" {word}")
            if not ids:  # a word of control characters only
                ids = [self.tokenizer.vocabulary.unk_id]
            self.counts["words are longer than a row and cut"] += len(ids) > self.most
            pieces.append(ids[: self.most])
        return pieces, np.cumsum([0, *map(len, pieces)])


def windows(
    edges: np.ndarray, own_start: int, own_stop: int, capacity: int
) -> Iterator[TagWindow]:
    """Rows that together label each of some words once, with others as context.

    The words share one row if they fit. Otherwise they are labeled in parts of half a row
    each, so that every word has context on both sides, as far as the text has any.

    Args:
        edges: int [words + 1], ascending: the number of pieces before each word, and in
            total; each word has at least one piece, and at most `capacity`.
        own_start, own_stop: the words to label.
        capacity: pieces per row.
    """
    at_once = capacity
    if edges[own_stop] - edges[own_start] > capacity:
        at_once = capacity // 2
    while own_start < own_stop:
        last = np.searchsorted(edges, edges[own_start] + at_once, side="right") - 1
        part_stop = min(max(int(last), own_start + 1), own_stop)
        spare = capacity - (edges[part_stop] - edges[own_start])
        left, right = edges[own_start], edges[-1] - edges[part_stop]
        # Half on either side, and more if the other side has less.
        left = min(left, max(spare // 2, spare - right))
        right = min(right, spare - left)
        start = np.searchsorted(edges, edges[own_start] - left)
        stop = np.searchsorted(edges, edges[part_stop] + right, side="right") - 1
        yield TagWindow(int(start), own_start, part_stop, int(stop))
        own_start = part_stop
