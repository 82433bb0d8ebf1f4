"""Learns a SentencePiece model with the options of ALBERT's release.

Source: google-research/albert@b772393 README.md, the spm_train command.
"""

import io
import re
from collections.abc import Iterator

from text.errors import UserError
from text.tokenizers import sentencepiece as pieces
from text.tokenizers.vocabulary import CLS, MASK, SEP

# These are pieces of their own wherever they occur.
USER_SYMBOLS = ("(", ")", '"', "-", ".", "\u2013", "\u00a3", "\u20ac")
_LONGEST = 250  # characters; bounds memory, and the trainer leaves out 4,193 bytes
# What the trainer reserves, and leaves out lines for.
_RESERVED = str.maketrans({"\u2585": " ", "\t": " ", "\0": " "})


def learn(
    lines: Iterator[str],
    *,
    vocab_size: int,
    character_coverage: float,
    input_sentence_size: int,
) -> bytes:
    """Learns a unigram model.

    Args:
        lines: cleaned text; see `Cleaner`.
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
    sentencepiece = pieces.library()
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(part for line in lines for part in _parts(line)),
            model_writer=written,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            input_sentence_size=input_sentence_size,
            shuffle_input_sentence=True,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=[CLS, SEP, MASK],
            user_defined_symbols=list(USER_SYMBOLS),
            minloglevel=2,
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
