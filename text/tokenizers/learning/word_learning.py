"""Learns vocabularies from the words of a text and their counts."""

import abc
import collections
import functools
import sys
from collections.abc import Callable, Mapping

import tokenizers

from errors import UserError
from text.tokenizers.learning.learner import Learner
from text.tokenizers.word_splitter import Splitter

LONGEST_WORD = 200  # characters; longer ones are skipped
_CHARACTERS_AT_ONCE = 1 << 23
_MOST_WORDS = 2_000_000  # about 300 MB


class WordCounts:
    """Counts words and characters in bounded memory.

    Attributes:
        words: Counter of the words, without rare ones if there are very many.
        characters: Counter of the characters of all words.
        forgotten: how many occurrences of rare words were dropped to make room.
    """

    def __init__(self, splitter: Splitter, most_words: int = _MOST_WORDS):
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


class WordLearner(Learner):
    """Learns from the `counts` of words."""

    activity = "counting words"
    unused_flags = (
        "character_coverage",
        "input_sentence_size",
        "piece_boundaries",
        "special_tokens",
    )
    counts: WordCounts
    vocab_size = 30522  # of the release

    def defaults(self):
        size = self.options.vocab_size
        return {"vocab_size": self.vocab_size if size is None else size}

    @functools.cached_property
    @abc.abstractmethod
    def splitter(self) -> Splitter:
        """What splits the text into words."""

    @abc.abstractmethod
    def contents(self) -> tuple[list[str], list[bytes]]:
        """The tokens learned from `counts`, and the files at `paths`."""

    def learn(self, lines, source):
        self.counts = WordCounts(self.splitter)
        for line in lines:
            self.counts.add(line)
            self._warn(line)
        self.counts.fold()
        if not self.counts.words:
            raise UserError(f"no words in {source}")
        print("learning pieces", file=sys.stderr)
        self._tokens, contents = self.contents()
        return contents

    def report(self, tokenizer):
        options, counts, tokens = self.options, self.counts, self._tokens
        yield (
            f"{options.output_file}: {len(tokens):,} tokens{self._unused_note()}, learned "
            f"from {counts.words.total():,} words, {len(counts.words):,} different"
        )
        if len(tokens) < options.vocab_size:
            yield (
                f"--vocab_size={options.vocab_size} was not reached: no other pieces occur "
                f"together --min_frequency={options.min_frequency} times; more text would "
                "help"
            )
        present = set(tokens)
        rare = {c: count for c, count in counts.characters.items() if c not in present}
        if rare:
            yield (
                f"left out: {len(rare):,} characters seen fewer than "
                f"--min_character_count={options.min_character_count} times, "
                f"{sum(rare.values()) / counts.characters.total():.4%} of the text"
            )
        if counts.forgotten:
            yield f"dropped to limit memory: {counts.forgotten:,} rare words"

    def _unused_note(self):
        return ""

    def frequent_characters(self) -> list[str]:
        """All of ASCII that words have, and what else occurs often; sorted."""
        # All of ASCII: a corpus may lack an @ or a digit that the next text contains.
        ascii_words = self.splitter.words(" ".join(map(chr, range(128))))
        frequent = {
            character
            for character, count in self.counts.characters.items()
            if count >= self.options.min_character_count
            and not "\ud800" <= character <= "\udfff"  # UTF-8 cannot encode surrogates
        }
        return sorted(frequent.union(ascii_words))


def train(
    model: tokenizers.Tokenizer,
    trainer: tokenizers.trainers.Trainer,
    words: Mapping[str, int],
    is_possible: Callable[[str], bool],
) -> None:
    """Joins the most frequent pair of pieces repeatedly; skips very long words."""

    def repeat():
        for word in sorted(words):
            if len(word) <= LONGEST_WORD and is_possible(word):
                count = words[word]
                for start in range(0, count, 1000):
                    yield " ".join([word] * min(1000, count - start))

    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    model.train_from_iterator(repeat(), trainer)
