"""Finds documents and paragraphs of a tokenized corpus that occurred before.

Texts are the same if their tokens are, by a hash of 128 bits. Hashes are sorted on disk, in
parts, so that memory grows with the text by only a bit per paragraph.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence

import numpy as np

_PARTS = 64  # in which hashes are sorted, one after the other
_FLUSHED_BYTES = 1 << 16
_HASH = np.dtype([("high", "<u8"), ("low", "<u8"), ("number", "<i8")])


class _PieceTexts:
    """The texts, documents or paragraphs, that the sentences of one piece are parts of.

    The first may begin in an earlier piece, the last may continue in a later one.

    Args:
        ends: of texts, in sentences of the piece; several may be the same.
        first: the number of the first text, among all of the corpus.
        is_open: whether that has a sentence in an earlier piece.
    """

    def __init__(self, ends: np.ndarray, num_sentences: int, first: int, is_open: bool):
        ends = np.unique(ends)
        self.ends = ends if is_open else ends[ends > 0]
        self.num_sentences = num_sentences
        self.first = first
        self.next = first + len(self.ends)
        last = int(self.ends[-1]) if len(self.ends) else 0
        goes_on = is_open and not len(self.ends)
        self.is_open_after = num_sentences > last or goes_on

    def numbers(self) -> np.ndarray:
        """int64 [num_sentences]: the number of the text of each sentence."""
        places = np.arange(self.num_sentences)
        return self.first + np.searchsorted(self.ends, places, side="right")


class _Hashes:
    """The hashes of texts, in the order of their numbers; files begin with `prefix`."""

    def __init__(self, prefix: str):
        self._paths = [f"{prefix}-{part}" for part in range(_PARTS)]
        self._buffers = [bytearray() for _ in self._paths]
        for path in self._paths:  # a killed run may have left some
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
        self._number, self._state = 0, None

    def add(self, tokens: bytes) -> None:
        """Adds tokens to the text that is open, or begins one."""
        if self._state is None:
            self._state = hashlib.blake2b(digest_size=16)
        self._state.update(tokens)

    def end(self) -> None:
        """Ends the text that is open."""
        digest, self._state = self._state.digest(), None
        part = digest[0] % _PARTS
        self._buffers[part] += digest + self._number.to_bytes(8, "little")
        self._number += 1
        if len(self._buffers[part]) >= _FLUSHED_BYTES:
            self._flush(part)

    def _flush(self, part):
        with open(self._paths[part], "ab") as file:
            file.write(self._buffers[part])
        self._buffers[part].clear()

    def find_repeats(self) -> np.ndarray:
        """uint8: packed bits, by number: 1 if the same text has a lower number."""
        if self._state is not None:
            self.end()
        bits = np.zeros(-(-self._number // 8), np.uint8)
        for part, path in enumerate(self._paths):
            self._flush(part)
            hashes = np.fromfile(path, _HASH)
            os.remove(path)
            order = np.lexsort([hashes[name] for name in ("number", "low", "high")])
            high, low, numbers = (hashes[name][order] for name in _HASH.names)
            same = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
            numbers = numbers[1:][same]
            np.bitwise_or.at(bits, numbers // 8, (1 << numbers % 8).astype(np.uint8))
        return bits


class Duplicates:
    """The sentences of a corpus that stay when documents and paragraphs occur once.

    Args:
        prefixes: the pieces, with ends of paragraphs; see `store.PieceWriter`.
        id_type: of the tokens.
        path: how the names of temporary files begin.

    Attributes:
        counts: "duplicate_documents", and "duplicate_paragraphs" of the other documents.
    """

    def __init__(self, prefixes: Sequence[str], id_type: np.dtype, path: str):
        self._prefixes, self._width = prefixes, id_type.itemsize
        self._begins = []  # of each piece: the arguments of _Texts for both
        hashes = [_Hashes(f"{path}.hashes-{suffix}") for suffix in ("d", "p")]
        state = [(0, False), (0, False)]
        for prefix in prefixes:
            self._begins.append(state)
            lengths = np.fromfile(f"{prefix}.lengths", np.int64)
            offsets = np.append(0, np.cumsum(lengths)) * self._width
            both = self._texts(len(self._begins) - 1)
            with open(f"{prefix}.tokens", "rb") as file:
                for texts, each in zip(both, hashes, strict=True):
                    _add(texts, each, file.fileno(), offsets)
            state = [(texts.next, texts.is_open_after) for texts in both]
        self._repeated = [each.find_repeats() for each in hashes]
        self.counts = self._count()

    def _texts(self, piece):
        """The documents of a piece, and its paragraphs."""
        prefix, begins = self._prefixes[piece], self._begins[piece]
        documents, paragraphs = (
            np.fromfile(f"{prefix}.{suffix}", np.int64)
            for suffix in ("ends", "paragraphs")
        )
        number = os.path.getsize(f"{prefix}.lengths") // 8
        every_end = np.append(paragraphs, documents)  # a document's is a paragraph's
        return [
            _PieceTexts(ends, number, *begin)
            for ends, begin in zip((documents, every_end), begins, strict=True)
        ]

    def _numbers_and_repeated(self, piece):
        for texts, bits in zip(self._texts(piece), self._repeated, strict=True):
            numbers = texts.numbers()
            shifts = (numbers % 8).astype(np.uint8)
            yield numbers, (bits[numbers // 8] >> shifts & 1).astype(bool)

    def kept_mask(self, piece: int) -> np.ndarray:
        """bool [sentences]: which of a piece stay, by its place in `prefixes`."""
        (_, in_document), (_, in_paragraph) = self._numbers_and_repeated(piece)
        return ~(in_document | in_paragraph)

    def _count(self):
        counts, last = [0, 0], [-1, -1]
        for piece in range(len(self._prefixes)):
            both = list(self._numbers_and_repeated(piece))
            in_document = both[0][1]
            for kind, (numbers, repeated) in enumerate(both):
                if not len(numbers):
                    continue
                begins = np.diff(numbers, prepend=last[kind]) > 0
                counted = begins & repeated & (~in_document if kind else True)
                counts[kind] += int(counted.sum())
                last[kind] = int(numbers[-1])
        return dict(
            zip(("duplicate_documents", "duplicate_paragraphs"), counts, strict=True)
        )


def _add(texts: _PieceTexts, hashes: _Hashes, file: int, offsets: np.ndarray) -> None:
    def add(begin, end):
        if end > begin:
            size = int(offsets[end] - offsets[begin])
            hashes.add(os.pread(file, size, int(offsets[begin])))

    begin = 0
    for end in texts.ends.tolist():
        add(begin, end)
        hashes.end()
        begin = end
    add(begin, texts.num_sentences)
