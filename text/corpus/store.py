"""Keeps a tokenized corpus on disk: flat ids, and offsets of sentences and documents.

    tokens     uint16 or uint32 [num_tokens]
    sentences  int64 [num_sentences + 1], offsets into the tokens
    documents  int64 [num_documents + 1], offsets into the sentences
    words      uint8 [num_tokens], 1 at the first token between two spaces; only if word
               boundaries are needed

A piece has lengths of sentences and ends of documents instead, in sentences, and ends of
paragraphs if they are needed to find duplicates.

Processes write it in pieces, which are then joined.
"""

import array
import contextlib
import itertools
import os
import shutil
import weakref
from collections.abc import Callable, Iterator

import numpy as np

from files.local import replacing

_FLUSHED_TOKENS = 1 << 20


class PieceWriter(contextlib.ExitStack):
    """Writes a piece: tokens, lengths of sentences, ends of documents.

    Use it in a `with` block; the files, whose names begin with `prefix`, appear when the
    block succeeds. With `with_words`, `add` receives words.
    """

    def __init__(
        self,
        prefix: str,
        id_type: np.dtype,
        with_words: bool,
        with_paragraphs: bool = False,
    ):
        super().__init__()
        columns = {
            "tokens": array.array(id_type.char),
            "lengths": array.array("q"),
            "ends": array.array("q"),
        }
        if with_words:
            columns["words"] = array.array("B")
        if with_paragraphs:
            columns["paragraphs"] = array.array("q")
        self._columns = {
            suffix: (values, self.enter_context(replacing(f"{prefix}.{suffix}")))
            for suffix, values in columns.items()
        }
        self.callback(self._flush)
        self.num_sentences = 0

    def add(self, packed: bytes, words: bytes | None = None) -> None:
        """Adds a sentence, its packed ids; one without tokens is ignored.

        Args:
            words: uint8, one for each id.
        """
        if not packed:
            return
        tokens = self._columns["tokens"][0]
        tokens.frombytes(packed)
        if words is not None:
            self._columns["words"][0].frombytes(words)
        self._columns["lengths"][0].append(len(packed) // tokens.itemsize)
        self.num_sentences += 1
        if len(tokens) >= _FLUSHED_TOKENS:
            self._flush()

    def end_document(self) -> None:
        """Ends a document; calling it twice in a row is the same as once."""
        self._columns["ends"][0].append(self.num_sentences)

    def end_paragraph(self) -> None:
        """Ends a paragraph; the end of a document does, too."""
        self._columns["paragraphs"][0].append(self.num_sentences)

    def _flush(self):
        for values, file in self._columns.values():
            values.tofile(file)
            del values[:]


def blocks(path: str, dtype: np.dtype) -> Iterator[np.ndarray]:
    """Reads a file as arrays, a megabyte at a time."""
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            yield np.frombuffer(block, dtype)


def join(
    prefixes: list[str],
    path: str,
    with_words: bool,
    kept: Callable[[int], np.ndarray] | None = None,
) -> None:
    """Joins pieces of a `PieceWriter` into a corpus; documents may span pieces.

    Args:
        kept: bool [sentences]: which of a piece stay, by its place; None keeps all.
    """
    for suffix in ("tokens", "words") if with_words else ("tokens",):
        with replacing(f"{path}.{suffix}") as file:
            for number, prefix in enumerate(prefixes):
                with open(f"{prefix}.{suffix}", "rb") as piece:
                    if kept:
                        file.writelines(_of_sentences(piece, prefix, kept(number)))
                    else:
                        shutil.copyfileobj(piece, file, 1 << 20)
    last_end, num_sentences, num_tokens = 0, 0, 0
    with (
        replacing(f"{path}.documents") as documents,  # appears last
        replacing(f"{path}.sentences") as sentences,
    ):
        sentences.write(np.int64(0).tobytes())
        documents.write(np.int64(0).tobytes())
        for number, prefix in enumerate(prefixes):
            ends = np.fromfile(f"{prefix}.ends", np.int64)
            stay = kept(number) if kept else None
            if kept:
                ends = np.append(0, np.cumsum(stay))[ends]
            # A repeated end closed a document without sentences.
            ends = np.unique(ends + num_sentences)
            documents.write(ends[ends > last_end].tobytes())
            last_end = int(ends.max(initial=last_end))
            for lengths in _lengths(prefix, stay):
                if not len(lengths):
                    continue
                offsets = num_tokens + lengths.cumsum()
                sentences.write(offsets.tobytes())
                num_tokens = int(offsets[-1])
                num_sentences += len(offsets)
        if num_sentences > last_end:
            documents.write(np.int64(num_sentences).tobytes())


def _lengths(prefix, stay):
    """Yields the lengths of the sentences that stay."""
    start = 0
    for lengths in blocks(f"{prefix}.lengths", np.dtype(np.int64)):
        yield lengths if stay is None else lengths[stay[start : start + len(lengths)]]
        start += len(lengths)


def _of_sentences(file, prefix, stay):
    """Yields the items, of any width, that belong to the sentences that stay."""
    all_lengths = blocks(f"{prefix}.lengths", np.dtype(np.int64))
    num_tokens = sum(int(lengths.sum()) for lengths in all_lengths)
    width, start = os.path.getsize(file.name) // max(num_tokens, 1), 0
    for lengths in blocks(f"{prefix}.lengths", np.dtype(np.int64)):
        items = np.frombuffer(file.read(int(lengths.sum()) * width), f"V{width}")
        some = stay[start : start + len(lengths)]
        yield items[np.repeat(some, lengths)].tobytes()
        start += len(lengths)


def remove_pieces(prefixes: list[str]) -> None:
    """Removes those files of pieces that exist."""
    for prefix in prefixes:
        for suffix in ("tokens", "words", "lengths", "ends", "paragraphs"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{prefix}.{suffix}")


class FlatFile:
    """A file as an array that stays on disk.

    It is read, not memory-mapped: mapped pages count as the process's memory, and after
    enough random reads that is the whole file.
    """

    def __init__(self, path: str, dtype: np.dtype):
        self.dtype = np.dtype(dtype)
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._length = os.path.getsize(path) // self.dtype.itemsize

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index):
        """An element, or a slice with a start and a stop."""
        if not isinstance(index, slice):
            return self[index : index + 1][0]
        size = self.dtype.itemsize
        length = (index.stop - index.start) * size
        content = os.pread(self._file, length, index.start * size)
        return np.frombuffer(content, self.dtype)

    def gather(self, starts, lengths) -> np.ndarray:
        """Reads runs of elements, by their starts and lengths, and joins them."""
        size, file = self.dtype.itemsize, self._file
        starts, lengths = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
        # What follows its predecessor in the file, too, is read with it.
        follows = starts[1:] == starts[:-1] + lengths[:-1]
        firsts = np.flatnonzero(np.append(True, ~follows)[: len(starts)])
        ends = np.append(np.cumsum(lengths)[firsts[1:] - 1], lengths.sum())
        sizes = np.diff(ends, prepend=0)[: len(firsts)] * size
        offsets = (starts[firsts] * size).tolist()
        runs = map(os.pread, itertools.repeat(file), sizes.tolist(), offsets)
        return np.frombuffer(b"".join(runs), self.dtype)


class HeldArray:
    """An array in memory that is read like a `FlatFile`."""

    def __init__(self, values: np.ndarray):
        self.dtype = values.dtype
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index):
        return self._values[index]

    def gather(self, starts, lengths) -> np.ndarray:
        """See `FlatFile.gather`."""
        starts, lengths = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
        shifts = starts - (np.cumsum(lengths) - lengths)
        return self._values[np.repeat(shifts, lengths) + np.arange(lengths.sum())]


class Corpus:
    """A joined corpus.

    Attributes:
        ids: uint16 or uint32 [num_tokens].
        sentences, documents: int64 offsets, each with the end as its last element.
        word_starts: uint8 [num_tokens] or None.
    """

    def __init__(self, path: str, id_type: np.dtype, with_words: bool):
        self.ids = FlatFile(f"{path}.tokens", id_type)
        self.sentences = FlatFile(f"{path}.sentences", np.int64)
        self.documents = FlatFile(f"{path}.documents", np.int64)
        self.word_starts = FlatFile(f"{path}.words", np.uint8) if with_words else None

    @classmethod
    def in_memory(
        cls,
        ids: np.ndarray,
        sentence_lengths: np.ndarray,
        document_lengths: np.ndarray,
        word_starts: np.ndarray | None = None,
    ) -> "Corpus":
        """A corpus in memory.

        Args:
            sentence_lengths: int64 [num_sentences], in tokens, none of them 0.
            document_lengths: int64 [num_documents], in sentences, none of them 0.
        """
        corpus = cls.__new__(cls)
        corpus.ids = HeldArray(ids)
        corpus.sentences = HeldArray(np.append(0, np.cumsum(sentence_lengths)))
        corpus.documents = HeldArray(np.append(0, np.cumsum(document_lengths)))
        corpus.word_starts = None if word_starts is None else HeldArray(word_starts)
        return corpus

    @property
    def num_documents(self) -> int:
        return len(self.documents) - 1
