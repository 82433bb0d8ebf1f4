"""Tokenizes text whose words are split into pieces one by one, with character offsets.

A splitter finds the words, first cutting the text at white space. Because words repeat, the
ids of each are cached, as bytes: joining them is faster than joining lists.
"""

import abc
import array
from typing import Protocol

from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import Vocabulary

_LONGEST_CACHED = 40  # a line of Chinese is one long chunk that never recurs
_MOST_CACHED = 1 << 17  # about 30 MB; then a cache is cleared


class Splitter(Protocol):
    """Splits text into words."""

    def chunks(self, text: str) -> list[str]:
        """Cuts at white space; the words of a chunk do not depend on other chunks."""

    def words(self, chunk: str) -> list[str]:
        """The words of a chunk, as the vocabulary has them."""

    def aligned(self, chunk: str) -> tuple[list[str], list[int], list[int]]:
        """Like `words`, with offsets.

        Returns:
            the words; and for each character of each of them, one after another, the start
            and the end of its original in `chunk`.
        """

    def decomposes(self, text: str) -> bool:
        """See `Tokenizer.decomposes`."""


class WordByWord(Tokenizer):
    """Splits each word on its own.

    Attributes:
        splitter: the `Splitter`.
    """

    def __init__(self, vocabulary: Vocabulary, splitter: Splitter):
        self.vocabulary = vocabulary
        self.splitter = splitter
        self._id_type = vocabulary.id_type.char
        self._word_ids = _Cache(self._encode_word)
        self._chunk_ids = _Cache(self._encode_chunk)
        self._chunk_spans = _Cache(self._align_chunk)

    @abc.abstractmethod
    def split(self, word: str) -> tuple[list[int], list[int]]:
        """The ids of a word's pieces, and how many of its characters each one has."""

    def encode(self, text):
        return array.array(self._id_type, self.encode_packed(text)).tolist()

    def encode_packed(self, text):
        chunks = self.splitter.chunks(text)
        return b"".join(map(self._chunk_ids.__getitem__, chunks))

    def encode_words(self, text):
        chunks = [self._chunk_ids[chunk] for chunk in self.splitter.chunks(text)]
        size = self.vocabulary.id_type.itemsize
        starts = [b"\1" + bytes(len(ids) // size - 1) for ids in chunks if ids]
        return b"".join(chunks), b"".join(starts)

    def encode_with_offsets(self, text):
        """See `Tokenizer`: a dropped accent belongs to its letter, and pieces of one
        character (Hangul letters of one syllable) share its offsets.
        """
        return self.located(text, self.splitter.chunks(text))

    def located(
        self, text: str, chunks: list[str]
    ) -> tuple[list[int], list[int], list[int]]:
        """The ids of chunks, and where in the text that they were cut from they are."""
        ids, starts, ends = [], [], []
        position = 0
        for chunk in chunks:
            position = text.index(chunk, position)
            for id, start, end in self._chunk_spans[chunk]:
                ids.append(id)
                starts.append(position + start)
                ends.append(position + end)
            position += len(chunk)
        return ids, starts, ends

    def decomposes(self, text):
        """Whether accent stripping takes letters of a text apart."""
        return self.splitter.decomposes(text)

    def _encode_chunk(self, chunk):
        words = self.splitter.words(chunk)
        return b"".join(map(self._word_ids.__getitem__, words))

    def _encode_word(self, word):
        return array.array(self._id_type, self.split(word)[0]).tobytes()

    def _align_chunk(self, chunk):
        words, starts, ends = self.splitter.aligned(chunk)
        spans = []
        first = 0
        for word in words:
            for id, size in zip(*self.split(word), strict=True):
                spans.append((id, starts[first], ends[first + size - 1]))
                first += size
        return spans


class _Cache(dict):
    """Caches a function's results for short strings; cleared when full."""

    def __init__(self, function):
        super().__init__()
        self._function = function

    def __missing__(self, key):
        value = self._function(key)
        if len(key) <= _LONGEST_CACHED:
            if len(self) >= _MOST_CACHED:
                self.clear()
            self[key] = value
        return value
