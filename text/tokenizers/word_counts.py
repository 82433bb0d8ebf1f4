"""Counts the words of any amount of text, and trains models of the package tokenizers."""

import collections
from collections.abc import Callable, Mapping

import tokenizers

from text.tokenizers.byte_bpe import ByteSplitter
from text.tokenizers.wordpiece import LONGEST_WORD, WordSplitter

_CHARACTERS_AT_ONCE = 1 << 23
_MOST_WORDS = 2_000_000  # about 300 MB


class WordCounts:
    """Counts words and characters in bounded memory.

    Attributes:
        words: Counter of the words, without rare ones if there are very many.
        characters: Counter of the characters of all words.
        forgotten: how many occurrences of rare words were dropped to make room.
    """

    def __init__(
        self, splitter: WordSplitter | ByteSplitter, most_words: int = _MOST_WORDS
    ):
        self.words = collections.Counter()
        self.characters = collections.Counter()
        self.forgotten = 0
        self._splitter = splitter
        self._most_words = most_words
        self._chunks = collections.Counter()
        self._pending = 0
        self._rare = 0

    def add(self, text: str) -> None:
        self._chunks.update(self._splitter.chunks(text))
        self._pending += len(text)
        if self._pending >= _CHARACTERS_AT_ONCE:
            self.fold()

    def fold(self) -> None:
        """Updates `words` and `characters` with the text added since the last call."""
        for chunk, count in self._chunks.items():
            for word in self._splitter.words(chunk):
                self.words[word] += count
                for character in word:
                    self.characters[character] += count
        self._chunks.clear()
        self._pending = 0
        while len(self.words) > self._most_words:
            self._rare += 1
            kept = {word: n for word, n in self.words.items() if n > self._rare}
            self.forgotten += self.words.total() - sum(kept.values())
            self.words = collections.Counter(kept)


def train(
    model: tokenizers.Tokenizer,
    trainer: tokenizers.trainers.Trainer,
    words: Mapping[str, int],
    is_known: Callable[[str], bool],
) -> None:
    """Joins the most frequent pair of pieces repeatedly; skips very long words."""

    def repeated():
        for word in sorted(words):
            if len(word) <= LONGEST_WORD and is_known(word):
                count = words[word]
                for start in range(0, count, 1000):
                    yield " ".join([word] * min(1000, count - start))

    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    model.train_from_iterator(repeated(), trainer)
