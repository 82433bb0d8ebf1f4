"""Tokenizes text whose words are split into pieces one by one, with character offsets.

A splitter finds the words, first cutting the text at white space. Because words repeat, the
ids of each are cached, as bytes: joining them is faster than joining lists.
"""

import abc
import array

from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import Vocabulary

_LONGEST_CACHED = 40  # a line of Chinese is one long chunk that never recurs
_MOST_CACHED = 1 << 17  # about 30 MB; then a cache is cleared


class WordByWord(Tokenizer):
    """Splits each word that a `WordSplitter` finds on its own."""

    def __init__(self, vocabulary: Vocabulary, splitter):
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
        ids, starts, ends = [], [], []
        position = 0
        for chunk in self.splitter.chunks(text):
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
        words, starts, ends = self.splitter.align(chunk)
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
