"""Tokenizes text into byte-level BPE pieces with character offsets, like RoBERTa and GPT-2.

The text is split into words, each with the space before it. The UTF-8 bytes of a word are
its first pieces, written as printable characters; then the two neighbors that come first in
merges.txt become one piece, again and again. So every text has pieces, and they give it
back: there are no unknown tokens, no normalization and no lowercasing.

The vocabulary is two files as Hugging Face writes them: vocab.json, tokens to ids, and
merges.txt, two pieces per line.
"""

import hashlib
import os
import re

import numpy as np
import tokenizers

from errors import UserError
from text.files import sources
from text.tokenizers import bpe_files, tokenizer_json, tokenizer_json_writing
from text.tokenizers.tokenizer import GENERIC_CLASSES, Tokenizer
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary

MERGES = "merges.txt"

# RoBERTa separates two texts with two tokens, and has no segments.
ROBERTA = SpecialTokens(
    ("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
    separators=2,
    second_segment=0,
    continuation="",  # it is a word's beginning that is marked, with its space
)
SPACE = "\u0120"  # the character for the byte of a space

_SURROGATES = re.compile("[\ud800-\udfff]")


def byte_characters() -> list[str]:
    """The character that stands for each byte, by byte.

    Printable bytes stand for themselves, the others are numbered from U+0100.

    Source: openai/gpt-2@9b63575 src/encoder.py, bytes_to_unicode.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


class ByteSplitter:
    """Splits text into words, which `ByteBpe` then splits into pieces."""

    def __init__(self):
        self._words = _word_splitter()

    def chunks(self, text: str) -> list[str]:
        """The words, each with the space before it, their bytes as characters.

        The text gets a space before it, so that its first word is like the others.
        """
        return [word for word, _ in self._words.pre_tokenize_str(f" {_clean(text)}")]

    def words(self, chunk: str) -> list[str]:
        return [chunk]

    def decomposes(self, text: str) -> bool:
        return False


class ByteBpe(Tokenizer):
    """Turns text into pieces exactly like Hugging Face's RoBERTa tokenizer.

    Attributes:
        merges: pairs of pieces, the first to merge first.
    Source: facebookresearch/fairseq@3d262bb fairseq/data/encoders/gpt2_bpe_utils.py, whose
        ids after dict.txt are those of vocab.json.
    """

    vocabulary_file = "vocab.json"
    hugging_face_classes = (
        None,  # not said
        "RobertaTokenizer",
        "RobertaTokenizerFast",
        *GENERIC_CLASSES,
    )

    def __init__(self, vocabulary: Vocabulary, merges: list[tuple[str, str]]):
        self.vocabulary = vocabulary
        self.merges = merges
        model = tokenizers.models.BPE(vocab=vocabulary.ids, merges=merges)
        self._plain = tokenizers.Tokenizer(model)
        self._aligned = tokenizers.Tokenizer(model)
        for tokenizer in (self._plain, self._aligned):
            tokenizer.pre_tokenizer = _word_splitter()
        # Offsets leave out the space before a word, which takes a quarter of the time.
        self._aligned.post_processor = tokenizers.processors.ByteLevel(
            trim_offsets=True, add_prefix_space=False
        )

    @classmethod
    def reads(cls, vocab_file):
        return vocab_file.endswith(".json")

    @classmethod
    def reads_json(cls, content):
        return tokenizer_json.is_byte_level(content)

    @classmethod
    def load(cls, vocab_file, options):
        del options  # their defaults are WordPiece's; no text is changed here
        return cls(*_read(cls._path(vocab_file)))

    @classmethod
    def load_vocabulary(cls, vocab_file):
        return _read(cls._path(vocab_file))[0]

    @classmethod
    def _path(cls, vocab_file):
        if sources.is_folder(vocab_file):
            return os.path.join(vocab_file, cls.vocabulary_file)
        return vocab_file

    @classmethod
    def parse(cls, content):
        return bpe_files.tokens_by_id(content)

    @property
    def settings(self):
        return {"vocab_sha256": self.vocabulary.digest}

    @property
    def hugging_face_config(self):
        # Without the entry for the mask, transformers would keep a space before it.
        mask = {"content": self.vocabulary.mask, "lstrip": True, "rstrip": False}
        kind = {"__type": "AddedToken", "normalized": False, "single_word": False}
        return {"tokenizer_class": "RobertaTokenizer", "mask_token": kind | mask}

    @classmethod
    def read_files(cls, vocab_file):
        if tokenizer_json.is_path(vocab_file):
            contents = tokenizer_json.byte_bpe_files(vocab_file, ROBERTA)
        else:
            merges = os.path.join(os.path.dirname(vocab_file), MERGES)
            contents = bpe_files.contents(
                vocab_file,
                merges,
                "a byte-level vocabulary is two files in one folder, "
                f"{cls.vocabulary_file} and {MERGES}",
            )
        return dict(zip((cls.vocabulary_file, MERGES), contents, strict=True))

    @property
    def hugging_face_json(self):
        return tokenizer_json_writing.byte_bpe(self.vocabulary, self.merges)

    def encode(self, text):
        return self._plain.encode(_clean(text)).ids

    def encode_words(self, text):
        ids = np.array(self.encode(text), self.vocabulary.id_type)
        starts = ~self.vocabulary.is_continuation[ids]
        starts[:1] = True
        return ids.tobytes(), starts.tobytes()

    def encode_with_offsets(self, text):
        """See `Tokenizer`: pieces of one character's bytes share its offsets; a piece of
        spaces alone is empty and ends where the next one starts.
        """
        encoded = self._aligned.encode(_clean(text))
        starts, ends = zip(*encoded.offsets, strict=True) if encoded.ids else ((), ())
        return encoded.ids, list(starts), list(ends)

    def graph(self, folder):
        # It loads TensorFlow, which workers that write records do not need.
        from text.tokenizers.byte_bpe_graph import ByteBpeGraph

        return ByteBpeGraph(self, folder)


def _word_splitter():
    return tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)


def _clean(text):
    """The text with U+FFFD for lone surrogates, which have no bytes in UTF-8."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


# === Files ===========================================================================


def _read(path) -> tuple[Vocabulary, list[tuple[str, str]]]:
    """Reads vocab.json and the merges.txt next to it, or a tokenizer.json.

    Raises:
        UserError: a file is missing or malformed, or they do not fit each other.
    """
    content, merges_content = ByteBpe.read_files(path).values()
    tokens = bpe_files.read(path, content)
    known = set(tokens)
    if missing := [token for token in ROBERTA.names if token not in known]:
        raise UserError(
            f"{path}: has no token {' or '.join(missing)}; RoBERTa's vocab.json contains "
            f"{' '.join(ROBERTA.names)}, unlike GPT-2's encoder.json"
        )
    characters = byte_characters()
    if missing := [byte for byte in range(256) if characters[byte] not in known]:
        raise UserError(
            f"{path}: has no token for {len(missing)} of the 256 bytes, such as "
            f"{characters[missing[0]]!r} for {missing[0]:#04x}; it is not a byte-level "
            "vocabulary"
        )
    merges_path = os.path.join(os.path.dirname(path), MERGES)
    merges = bpe_files.merges(
        merges_path, merges_content, known, ByteBpe.vocabulary_file
    )
    digest = hashlib.sha256(content + merges_content).hexdigest()
    bytes_of = {character: byte for byte, character in enumerate(characters)}
    special = set(ROBERTA.names)
    return (
        Vocabulary(
            tokens,
            path=path,
            digest=digest,
            special=ROBERTA,
            texts=[t if t in special else _text(t, bytes_of) for t in tokens],
            # After a special token, too, a piece begins a word: `StaticMasks` and
            # `Unmasked` see to that.
            is_continuation=[t not in special and t[:1] != SPACE for t in tokens],
        ),
        merges,
    )


def _text(token, bytes_of):
    """What a token stands for, without the space before it; or the token itself."""
    try:
        text = bytes(bytes_of[character] for character in token).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return token
    return text.removeprefix(" ") if text.isprintable() else token
