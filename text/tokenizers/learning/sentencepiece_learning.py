"""Learns a SentencePiece model with the options of its family's release."""

import collections
import io
import re
import sys
import unicodedata
from collections.abc import Iterator

from errors import UserError
from text.tokenizers import sentencepiece, sentencepiece_files
from text.tokenizers.cleaner import loses_voicing
from text.tokenizers.learning.learner import Learner
from text.tokenizers.sentencepiece_family import SPACE, Symbols

_LONGEST = 250  # characters; bounds memory, and the trainer leaves out 4,193 bytes
# What the trainer reserves, and leaves out lines for.
_RESERVED = str.maketrans({"\u2585": " ", "\t": " ", "\0": " "})


class SentencePieceLearner(Learner):
    """Learns the .model file of a family; memory grows with --input_sentence_size."""

    activity = "reading"
    file_names = "end in .model"
    unused_flags = (
        "num_unused",
        "min_character_count",
        "min_frequency",
        "piece_boundaries",
        "split_cjk",
    )

    def __init__(self, options):
        super().__init__(options)
        self.family = sentencepiece.FAMILIES[options.special_tokens]
        self.symbols = self.family.symbols
        self._lines, self._characters = 0, collections.Counter()

    def defaults(self):
        size = self.options.vocab_size
        return {"vocab_size": self.symbols.vocab_size if size is None else size}

    def fixed_tokens(self):
        return (
            self.symbols.number,
            f"special tokens plus marks of --special_tokens={self.options.special_tokens}",
        )

    def learn(self, lines, source):
        options = self.options
        model = learn(
            self._clean(lines),
            self.symbols,
            vocab_size=options.vocab_size,
            character_coverage=options.character_coverage,
            input_sentence_size=options.input_sentence_size,
        )
        return [model]

    def _clean(self, lines):
        options = self.options
        cleaner = self.family.cleaner(
            options.do_lower_case, sentencepiece.strips_accents(options)
        )
        for line in lines:
            if not (clean := cleaner.clean(line)):
                continue
            # As the model does.
            self._characters.update(unicodedata.normalize("NFKC", clean))
            self._lines += 1
            self._warn(line)
            yield clean
        print("learning pieces", file=sys.stderr)

    def takes_apart(self, line):
        return sentencepiece.strips_accents(self.options) and loses_voicing(line)

    def report(self, tokenizer):
        options, characters = self.options, self._characters
        names = [name.removeprefix(SPACE) for name in self.family.special.sentinels]
        number = len(tokenizer.vocabulary) - len(names)
        used = min(self._lines, options.input_sentence_size)
        yield (
            f"{options.output_file}: {number:,} tokens, learned from {used:,} of "
            f"{self._lines:,} lines"
        )
        if names:
            yield (
                f"with {len(names)} more, {names[0]} to {names[-1]}, a model needs "
                f"vocab_size={number + len(names)} or more"
            )
        if number < options.vocab_size:
            yield (
                f"--vocab_size={options.vocab_size} was not reached: the text has no other "
                "pieces; more text would help"
            )
        unknown = tokenizer.vocabulary.unk_id
        if rare := [c for c in characters if unknown in tokenizer.encode(c)]:
            share = sum(map(characters.get, rare)) / characters.total()
            yield (
                f"left out: {len(rare):,} characters beyond --character_coverage="
                f"{options.character_coverage}, {share:.4%} of the text"
            )

    def continues(self, tokenizer):
        """See `Learner`; masks have other words."""
        return [token[:1] != SPACE for token in tokenizer.vocabulary.tokens]


def learn(
    lines: Iterator[str],
    symbols: Symbols,
    *,
    vocab_size: int,
    character_coverage: float,
    input_sentence_size: int,
) -> bytes:
    """Learns a unigram model: the content of its file, the same for the same arguments.

    Args:
        lines: cleaned text; see `Cleaner`.
        symbols: what else is in the model.
        vocab_size: how many pieces to learn, with the special ones; fewer if the text does
            not have them.
        character_coverage: the share of the characters that get a piece.
        input_sentence_size: how many lines to learn from, above 100; memory grows with
            it. They are drawn at random, always the same ones of the same text.
    """
    library = sentencepiece_files.library()
    written = io.BytesIO()
    try:
        library.SentencePieceTrainer.train(
            sentence_iterator=(part for line in lines for part in _parts(line)),
            model_writer=written,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            input_sentence_size=input_sentence_size,
            shuffle_input_sentence=True,
            # As lists: of a string with commas, the package reads " as a quotation mark.
            control_symbols=list(symbols.control),
            user_defined_symbols=list(symbols.user),
            minloglevel=2,
            **symbols.ids,
            **symbols.names,
        )
    except RuntimeError as error:
        raise UserError(_reason(str(error), vocab_size)) from error
    return written.getvalue()


def _parts(line):
    """The line in parts that the trainer takes, cut at spaces where there are any."""
    line = line.translate(_RESERVED)
    while len(line) > _LONGEST:
        cut = line.rfind(" ", 1, _LONGEST + 1)
        cut = cut if cut > 0 else _LONGEST
        yield line[:cut]
        line = line[cut:]
    if line:
        yield line


def _reason(message, vocab_size):
    if "sentences_.empty()" in message:
        return "no words in the text"
    if needed := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"--vocab_size={vocab_size} is too small: the special tokens and the text's "
            f"characters need {needed[1]}; raise it, or lower --character_coverage"
        )
    return (
        f"SentencePiece cannot learn from the text: {' '.join(message.split())[:300]}"
    )
