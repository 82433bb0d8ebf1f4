"""Lists the kinds of tokenizers, and defines the flags they share.

A new kind is a file next to this one and an entry in TOKENIZERS, before WordPiece.
"""

import dataclasses
import os

import options
from text.errors import UserError
from text.files import sources
from text.tokenizers.byte_bpe import ByteBpe
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece

DECOMPOSITION_WARNING = (
    "accent stripping decomposes Hangul or kana with voicing marks, as in the 2018 "
    "release (a Hangul syllable becomes its letters, \u304c becomes \u304b); for Korean "
    "or Japanese text, --strip_accents=false keeps them whole"
)

# The first one that reads a vocabulary file is used; WordPiece takes any.
TOKENIZERS: tuple[type[Tokenizer], ...] = (ByteBpe, WordPiece)


def kind_of(vocab_file: str) -> type[Tokenizer]:
    """The kind of tokenizer that a vocabulary file or folder is for."""
    return next(kind for kind in TOKENIZERS if kind.reads(vocab_file))


def load_vocabulary(vocab_file: str) -> Vocabulary:
    """Reads a vocabulary of any kind.

    Raises:
        UserError: the file is not a vocabulary.
        OSError: the file cannot be read.
    """
    vocab_file = _file(vocab_file)
    return kind_of(vocab_file).load_vocabulary(vocab_file)


def _file(path):
    """The file, if a path is a folder."""
    if not sources.is_folder(path):
        return path
    found = find_vocabulary(path)
    if not found:
        names = " or ".join(kind.vocabulary_file for kind in reversed(TOKENIZERS))
        raise UserError(f"{path}: contains no {names}; pass the vocabulary's own path")
    return found


def find_vocabulary(folder: str) -> str | None:
    """The vocabulary in the folder of a checkpoint, if there is one."""
    paths = [os.path.join(folder, kind.vocabulary_file) for kind in TOKENIZERS]
    return next(filter(sources.exists, reversed(paths)), None)


@dataclasses.dataclass(frozen=True)
class TokenizerOptions:
    """The flags that determine how text becomes tokens, the same for every script."""

    do_lower_case: bool = options.field(
        True,
        help="Lowercase the text, for uncased vocabularies. This flag and the next two are "
        "for WordPiece; a byte-level vocabulary (vocab.json) keeps text as it is.",
    )
    strip_accents: bool | None = options.field(
        None,
        help="Remove accents and decompose Hangul; by default, the same as "
        "--do_lower_case.",
    )
    split_cjk: bool = options.field(
        True, help="Make every Chinese character a separate word."
    )

    def load_tokenizer(self, vocab_file: str) -> Tokenizer:
        """The tokenizer for a vocabulary, a file or its folder, and these flags.

        Raises:
            UserError: the file is not a vocabulary.
            OSError: the file cannot be read.
        """
        vocab_file = _file(vocab_file)
        return kind_of(vocab_file).load(vocab_file, self)
