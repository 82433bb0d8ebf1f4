"""Learns WordPiece and BPE vocabularies from the words of a text and their counts."""

import abc
import collections
import functools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence

import tokenizers

from errors import UserError
from text.tokenizers import bpe
from text.tokenizers.bpe import ByteSplitter, GptWords, Merges
from text.tokenizers.learning import morphemes
from text.tokenizers.learning.learner import Learner
from text.tokenizers.table import TOKENIZERS
from text.tokenizers.vocabulary import CLS, MASK, PAD, SEP, SPECIAL_TOKENS, UNK
from text.tokenizers.wordpiece import LONGEST_WORD, WordSplitter

_UNUSED_BEFORE_SPECIALS = 99  # as in the release, whose [UNK] is 100
_UNUSED = 994  # [unusedN] among the release's tokens
_CHARACTERS_AT_ONCE = 1 << 23
_FIRST_SYMBOL = (
    0xF0000  # for private use, so that it is not a character of a vocabulary
)
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
    def splitter(self) -> WordSplitter | ByteSplitter:
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
            f"{options.output_file}: {len(tokens):,} tokens{self._reserved()}, learned "
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

    def _reserved(self):
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


def _train(
    model: tokenizers.Tokenizer,
    trainer: tokenizers.trainers.Trainer,
    words: Mapping[str, int],
    is_possible: Callable[[str], bool],
) -> None:
    """Joins the most frequent pair of pieces repeatedly; skips very long words."""

    def repeated():
        for word in sorted(words):
            if len(word) <= LONGEST_WORD and is_possible(word):
                count = words[word]
                for start in range(0, count, 1000):
                    yield " ".join([word] * min(1000, count - start))

    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    model.train_from_iterator(repeated(), trainer)


# === WordPiece =======================================================================


class WordPieceLearner(WordLearner):
    """Learns the vocab.txt of BERT.

    [PAD] comes first, then [unusedN] and the other special tokens as in the released files,
    then the characters (all of ASCII, others if frequent enough) that begin a word and,
    with ##, those that continue one, then the pieces joined from them, most frequent first.
    """

    file_names = "end in .txt"
    unused_flags = tuple(n for n in WordLearner.unused_flags if n != "piece_boundaries")

    def defaults(self):
        values, number = super().defaults(), self.options.num_unused
        if number is None:
            size = max(0, values["vocab_size"])
            number = min(_UNUSED, size * _UNUSED // self.vocab_size)
        return values | {"num_unused": number}

    def fixed_tokens(self):
        number = self.options.num_unused
        return (
            number + len(SPECIAL_TOKENS),
            f"special tokens plus --num_unused={number}",
        )

    @functools.cached_property
    def splitter(self):
        return WordSplitter.of(self.options)

    def takes_apart(self, line):
        return self.splitter.decomposes(line)

    def learn(self, lines, source):
        if self.options.piece_boundaries == "morphemes":
            lines = morphemes.marked(lines)
        return super().learn(lines, source)

    def contents(self):
        options = self.options
        del self.counts.characters[morphemes.MARK]
        characters = self.frequent_characters()
        joining = [c for c in characters if len(self.splitter.words("a" + c)) == 1]
        alphabet = characters + ["##" + character for character in joining]
        unused = [f"[unused{number}]" for number in range(options.num_unused)]
        room = options.vocab_size - len(SPECIAL_TOKENS) - len(unused)
        if room < len(alphabet):
            raise UserError(
                f"--vocab_size={options.vocab_size} is too small: {len(SPECIAL_TOKENS)} "
                f"special tokens, {len(unused)} [unusedN] tokens and {len(alphabet)} for "
                f"characters need {options.vocab_size - room + len(alphabet)}; raise it or "
                "--min_character_count, or lower --num_unused"
            )
        pieces = _join_word_pieces(self.counts.words, alphabet, room, options)
        first, rest = unused[:_UNUSED_BEFORE_SPECIALS], unused[_UNUSED_BEFORE_SPECIALS:]
        tokens = [PAD, *first, UNK, CLS, SEP, MASK, *rest, *pieces]
        return tokens, ["".join(f"{token}\n" for token in tokens).encode()]

    def _reserved(self):
        number = self.options.num_unused
        return f" ({number} of them [unusedN], --num_unused)" if number else ""


def _join_word_pieces(words, alphabet, size, options):
    """The alphabet, and the pieces joined from it, which do not cross a MARK.

    To the trainer, each piece of the alphabet is one character, and a word is what lies
    between two marks.
    """
    pieces = {chr(_FIRST_SYMBOL + n): piece for n, piece in enumerate(alphabet)}
    symbols = {piece: symbol for symbol, piece in pieces.items()}
    first = {ord(piece): symbol for piece, symbol in symbols.items() if len(piece) == 1}
    later = {ord(p[2:]): symbol for p, symbol in symbols.items() if p.startswith("##")}
    counts = collections.Counter()
    for word, count in words.items():
        spelled = word[0].translate(first) + word[1:].translate(later)
        for part in filter(None, spelled.split(morphemes.MARK)):
            counts[part] += count
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=options.min_frequency,
        # Equally frequent pairs are joined in the order of their ids.
        special_tokens=list(pieces),
        show_progress=False,
    )
    _train(model, trainer, counts, set(pieces).issuperset)
    ids = model.get_vocab()
    learned = (map(pieces.get, token) for token in sorted(ids, key=ids.get))
    return [_joined(list(parts)) for parts in learned]


def _joined(parts):
    first, *rest = parts
    return first + "".join(part.removeprefix("##") for part in rest)


# === BPE =============================================================================


class BpeLearner(WordLearner):
    """Learns a list of merges."""

    @abc.abstractmethod
    def pieces(self) -> tuple[list[str], Merges]:
        """The tokens by id, and the merges."""

    @property
    def paths(self):
        path = self.options.output_file
        return path, self.kind.merges_path(path)

    def contents(self):
        tokens, merges = self.pieces()
        ids = {token: id for id, token in enumerate(tokens)}
        lines = ["#version: 0.2", *map(" ".join, merges)]
        return tokens, [
            json.dumps(ids, ensure_ascii=False).encode(),
            "".join(f"{line}\n" for line in lines).encode(),
        ]


class ByteBpeLearner(BpeLearner):
    """Learns RoBERTa's vocab.json and merges.txt.

    <s>, <pad>, </s> and <unk> come first and <mask> last, as in RoBERTa; then the bytes,
    then the pieces merged from them, most frequent first.
    """

    kind = TOKENIZERS["byte_bpe"]
    file_names = "end in .json"
    splitter = ByteSplitter()

    def fixed_tokens(self):
        return len(SPECIAL_TOKENS) + 256, "special tokens plus all bytes"

    def check(self):
        path = self.options.output_file
        if os.path.basename(path) != bpe.VOCABULARY_FILE:
            raise UserError(
                f"--output_file={path}: a byte-level vocabulary must be named "
                f"{bpe.VOCABULARY_FILE}"
            )

    def pieces(self):
        pad, unk, cls, sep, mask = bpe.ROBERTA.names
        first = [cls, pad, sep, unk]
        tokens, merges = _learned(
            self.counts.words,
            sorted(bpe.byte_characters()),
            self.options.vocab_size - len(first) - 1,
            self.options.min_frequency,
            lambda word: True,
        )
        return [*first, *tokens, mask], merges


class GptBpeLearner(BpeLearner):
    """Learns GPT-1's encoder_bpe.json and vocab.bpe.

    <unk> comes first, as in the release, then the characters, within a word and at its end,
    and the line break; then the pieces merged from them, most frequent first.
    """

    kind = TOKENIZERS["gpt_bpe"]
    file_names = "be encoder_bpeNAME.json"

    vocab_size = 40478

    def fixed_tokens(self):
        return 2, f"{bpe.UNKNOWN} plus a line break"

    def check(self):
        self.kind.resolved(self.options, self.options.output_file)

    @functools.cached_property
    def splitter(self):
        return GptWords()

    def pieces(self):
        options = self.options
        characters = self.frequent_characters()
        ends = [character + bpe.END for character in ["\n", *characters]]
        least = 1 + len(characters) + len(ends)
        if options.vocab_size < least:
            raise UserError(
                f"--vocab_size={options.vocab_size} is too small: <unk> and two tokens for "
                f"each of {len(characters)} characters need {least}; raise it or "
                "--min_character_count"
            )
        tokens, merges = _learned(
            self.counts.words,
            [*characters, *ends],
            options.vocab_size - 1,
            options.min_frequency,
            set(characters).issuperset,
            end_of_word_suffix=bpe.END,
        )
        return [bpe.UNKNOWN, *tokens], merges


def _learned(
    words: Mapping[str, int],
    alphabet: Sequence[str],
    size: int,
    min_frequency: int,
    is_possible: Callable[[str], bool],
    **marks: str,
) -> tuple[list[str], Merges]:
    model = tokenizers.Tokenizer(tokenizers.models.BPE(**marks))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=list(alphabet),  # a fixed order of ids
        show_progress=False,
        **marks,
    )
    _train(model, trainer, words, is_possible)
    ids = model.get_vocab()
    merges = json.loads(model.to_str())["model"]["merges"]
    return sorted(ids, key=ids.get), list(map(tuple, merges))
