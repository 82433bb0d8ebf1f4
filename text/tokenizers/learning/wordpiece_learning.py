"""Learns WordPiece vocabularies."""

import collections
import functools

import tokenizers

from errors import UserError
from text.tokenizers.learning import morphemes
from text.tokenizers.learning.word_learning import WordLearner, train
from text.tokenizers.vocabulary import CLS, MASK, PAD, SEP, SPECIAL_TOKENS, UNK
from text.tokenizers.word_splitter import WordSplitter

_UNUSED_BEFORE_SPECIALS = 99  # as in the release, whose [UNK] is 100
_UNUSED = 994  # [unusedN] among the release's tokens
# For private use, so that it is not a character of a vocabulary.
_FIRST_SYMBOL = 0xF0000


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
            lines = morphemes.mark_morphemes(lines)
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

    def _unused_note(self):
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
    train(model, trainer, counts, set(pieces).issuperset)
    ids = model.get_vocab()
    learned = (map(pieces.get, token) for token in sorted(ids, key=ids.get))
    return [_join(list(parts)) for parts in learned]


def _join(parts):
    first, *rest = parts
    return first + "".join(part.removeprefix("##") for part in rest)
