"""Learns a SentencePiece model with the options of ALBERT's or XLNet's release, or T5's.

Source: google-research/albert@b772393 and zihangdai/xlnet@bbaa3a6, README.md, the spm_train
    commands.
"""

import io
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from errors import UserError
from text.tokenizers import sentencepiece_files
from text.tokenizers.vocabulary import CLS, MASK, SEP


class Symbols(NamedTuple):
    """The pieces that are not learned.

    Attributes:
        ids: of the pieces that the trainer knows; -1 for none. The others follow.
        control: no text becomes these.
        user: these are pieces of their own wherever they occur.
        vocab_size: how many pieces the released models have.
    """

    ids: Mapping[str, int]
    control: tuple[str, ...]
    user: tuple[str, ...]
    vocab_size: int

    @property
    def number(self) -> int:
        known = sum(id >= 0 for id in self.ids.values())
        return known + len(self.control) + len(self.user)


# By the names of `sentencepiece.FAMILIES`.
SYMBOLS = {
    "albert": Symbols(
        {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1},
        (CLS, SEP, MASK),
        ("(", ")", '"', "-", ".", "\u2013", "\u00a3", "\u20ac"),
        30000,
    ),
    "t5": Symbols({"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}, (), (), 32000),
    "xlnet": Symbols(
        {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1},
        ("<cls>", "<sep>", "<pad>", "<mask>", "<eod>"),
        ("<eop>", ".", "(", ")", '"', "-", "\u2013", "\u00a3", "\u20ac"),
        32000,
    ),
}
_LONGEST = 250  # characters; bounds memory, and the trainer leaves out 4,193 bytes
# What the trainer reserves, and leaves out lines for.
_RESERVED = str.maketrans({"\u2585": " ", "\t": " ", "\0": " "})


def learn(
    lines: Iterator[str],
    symbols: Symbols = SYMBOLS["albert"],
    *,
    vocab_size: int,
    character_coverage: float,
    input_sentence_size: int,
) -> bytes:
    """Learns a unigram model.

    Args:
        lines: cleaned text; see `Cleaner`.
        symbols: what else is in the model.
        vocab_size: how many pieces to learn, with the special ones; fewer if the text does
            not have them.
        character_coverage: the share of the characters that get a piece.
        input_sentence_size: how many lines to learn from, above 100; memory grows with
            it. They are drawn at random, always the same ones of the same text.
    Returns:
        the content of the .model file, the same for the same arguments.
    Raises:
        UserError: there is no text, or vocab_size has no room for its characters.
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
