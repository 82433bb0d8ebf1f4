"""Tokenizes text into BPE pieces of bytes, with character offsets.

A word is first cut into its smallest pieces; then the two neighbors that come first in a
list of merges become one piece, again and again. Byte-level, the smallest pieces are the
UTF-8 bytes of a word and of the space before it, written as printable characters. So every
text has pieces, and they give it back: there are no unknown tokens.

A vocabulary is two files as Hugging Face writes them: vocab.json, tokens to ids, and
merges.txt, two pieces per line.
"""

import abc
import hashlib
import json
import re
from collections.abc import Container, Mapping, Sequence

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from errors import UserError
from files import json_files
from text.tokenizers import tokenizer_json
from text.tokenizers.kind import Kind, VocabularyFile
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary

VOCABULARY_FILE, MERGES = "vocab.json", "merges.txt"
SPACE = "\u0120"  # the character for the byte of a space
_SURROGATES = re.compile("[\ud800-\udfff]")  # lone ones have no UTF-8

Merges = list[tuple[str, str]]  # pairs of pieces, the first to merge first


class BpeKind(Kind):
    """What vocabularies with a list of merges have in common."""

    vocabulary_file = VOCABULARY_FILE

    special: SpecialTokens
    # For the error.
    layout = (
        "a byte-level vocabulary is two files in one folder, "
        f"{VOCABULARY_FILE} and {MERGES}"
    )

    def merges_name(self, vocabulary_name: str) -> str:
        """The name of the merges that belong to a vocabulary."""
        return MERGES

    @abc.abstractmethod
    def of_json(self, path: str, content: Mapping) -> tuple[bytes, bytes]:
        """The two files that a tokenizer.json stands for."""

    @abc.abstractmethod
    def vocabulary_of(self, path: str, tokens: list[str], digest: str) -> Vocabulary:
        """Makes a vocabulary of the tokens of a file; raises as `load` does."""

    def load(self, file, options):
        self.resolve(options, file)  # refuses what has no effect
        return self.tokenizer(*self._read(file))

    def load_vocabulary(self, file):
        return self._read(file)[0]

    def parse(self, content):
        return _tokens_by_id(content)

    def is_same_file(self, name, content, other):
        if name == self.vocabulary_file:
            return super().is_same_file(name, content, other)
        return _pairs(content) == _pairs(other)

    def read_files(self, file):
        if file.json is not None:
            contents = self.of_json(file.path, file.json)
        else:
            parts = file, self._merges_of(file)
            for part in parts:
                if not part.exists:
                    raise UserError(f"{part.path}: no such file; {self.layout}")
            contents = [part.content for part in parts]
        return dict(zip((VOCABULARY_FILE, MERGES), contents, strict=True))

    def _merges_of(self, file):
        return VocabularyFile(file.folder, self.merges_name(file.name))

    def _read(self, file) -> tuple[Vocabulary, Merges]:
        files, path = self.read_files(file), file.path
        content, merges_content = files.values()
        try:
            tokens = _tokens_by_id(content)
        except ValueError as error:
            raise UserError(f"{path}: not a vocabulary: {error}") from error
        digest = hashlib.sha256(content + merges_content).hexdigest()
        in_file = set(tokens)  # special tokens that are added to them are in no merge
        vocabulary = self.vocabulary_of(path, tokens, digest)
        vocabulary.files = files
        merges = _merges(self._merges_of(file).path, merges_content, in_file, file.name)
        return vocabulary, merges


# === Files ============================================================================


def _tokens_by_id(content: bytes) -> list[str]:
    """The tokens of a JSON object of tokens and the ids 0, 1, 2 and so on, or
    ValueError.
    """
    ids = json_files.parse(content)
    if not isinstance(ids, dict) or not ids:
        raise ValueError("not an object of tokens and ids")
    for token, id in ids.items():
        if type(id) is not int or not 0 <= id < len(ids):
            raise ValueError(
                f"{token!r} has the id {id!r}; {len(ids)} tokens have the ids 0 to "
                f"{len(ids) - 1}, each once"
            )
    tokens = [""] * len(ids)
    for token, id in ids.items():
        if tokens[id]:
            raise ValueError(f"{tokens[id]!r} and {token!r} have the same id, {id}")
        tokens[id] = token
    return tokens


def _merges(
    path: str, content: bytes, tokens: Container[str], vocabulary_file: str
) -> Merges:
    """The pairs of pieces that are merged, first to last, one per line of a file.

    Args:
        tokens: those that may be merged.
        vocabulary_file: the name of the file with the tokens, for errors.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 ({error})") from error
    pairs, seen = [], set()
    for number, line in _number_lines(text):
        pieces = tuple(line.split(" "))
        if len(pieces) != 2 or not all(pieces):
            raise UserError(
                f"{path}:{number}: {line[:60]!r} is not two pieces with a space between "
                "them"
            )
        for piece in (*pieces, "".join(pieces)):
            if piece not in tokens:
                raise UserError(
                    f"{path}:{number}: {piece!r} is not in {vocabulary_file}; use the "
                    "merges that belong to it"
                )
        if pieces in seen:
            raise UserError(f"{path}:{number}: {line!r} is repeated; remove the line")
        seen.add(pieces)
        pairs.append(pieces)
    return pairs


def _pairs(content: bytes) -> list[str]:
    """The lines with pairs of a file of merges, whatever version it names."""
    return [
        line for _, line in _number_lines(content.decode("utf-8", errors="replace"))
    ]


def _number_lines(text):
    """The lines with pairs, and their numbers."""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        # The first line is a comment; elsewhere, # is a piece like others.
        if line and not (number == 1 and line.startswith("#version")):
            yield number, line


# === Bytes ===========================================================================


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
    """Turns text into pieces of its bytes, exactly like the package tokenizers.

    A subclass says from which `files` it is made, and how Hugging Face describes it.

    Attributes:
        merges: the `Merges`.
    Source: facebookresearch/fairseq@3d262bb fairseq/data/encoders/gpt2_bpe_utils.py, whose
        ids after dict.txt are those of vocab.json.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        merges: Merges,
        *,
        normalizer: tokenizers.normalizers.Normalizer | None = None,
        cut_out: Sequence[tokenizers.AddedToken] = (),
    ):
        """Args:
        normalizer: what is done to a text first.
        cut_out: tokens that are found in a text before its words are.
        """
        self.vocabulary = vocabulary
        self.merges = merges
        self._normalizer, self._cut_out = normalizer, list(cut_out)
        self._plain, self._aligned = self._make(), self._make()
        # Offsets leave out the space before a word, which takes a quarter of the time.
        self._aligned.post_processor = processors.ByteLevel(
            trim_offsets=True, add_prefix_space=False
        )

    def _make(self) -> tokenizers.Tokenizer:
        made = tokenizers.Tokenizer(models.BPE(self.vocabulary.ids, self.merges))
        if self._normalizer:
            made.normalizer = self._normalizer
        made.pre_tokenizer = _word_splitter()
        made.add_tokens(self._cut_out)
        return made

    @property
    def settings(self):
        return {"vocab_sha256": self.vocabulary.digest}

    def json(self, post_processor: processors.PostProcessor) -> str:
        """The tokenizer.json.

        Args:
            post_processor: what puts special tokens around texts.
        """
        made = self._make()
        made.decoder = decoders.ByteLevel()
        made.post_processor = post_processor
        special = tokenizer_json.special_tokens(self.vocabulary)
        return tokenizer_json.text_of(made, special)

    def encode(self, text):
        return self._plain.encode(_clean(text)).ids

    def encode_words(self, text):
        ids = np.array(self.encode(text), self.vocabulary.id_type)
        starts = ~self.vocabulary.is_continuation[ids]
        starts[:1] = True
        return ids.tobytes(), starts.tobytes()

    def encode_with_offsets(self, text):
        """Pieces of one character's bytes share its offsets; a piece of spaces alone is
        empty and ends where the next one starts.
        """
        encoded = self._aligned.encode(_clean(text))
        starts, ends = zip(*encoded.offsets, strict=True) if encoded.ids else ((), ())
        return encoded.ids, list(starts), list(ends)


def _word_splitter():
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _clean(text):
    """The text with U+FFFD for lone surrogates, which have no bytes in UTF-8."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


class ByteBpeKind(BpeKind):
    """A vocab.json and its merges.txt, or a tokenizer.json with the same."""

    graph = "text.graphs.bpe_graph:ByteBpeGraph"
    normalizer: tokenizers.normalizers.Normalizer | None = None
    # Tokens that are found before words, special ones aside.
    cut_out: tuple[str, ...] = ()

    def reads_json(self, content):
        types = {
            step["type"] for step in tokenizer_json.steps(content["pre_tokenizer"])
        }
        return content["model"]["type"] == "BPE" and "ByteLevel" in types

    def of_json(self, path, content):
        made = tokenizers.Tokenizer(models.BPE())
        if self.normalizer:
            made.normalizer = self.normalizer
        normalizer = json.loads(made.to_str())["normalizer"]
        tokenizer_json.check(path, "normalizer", content["normalizer"], [normalizer])
        tokenizer_json.check_types(path, content, "pre_tokenizer", [["ByteLevel"]])
        (pre_tokenizer,) = tokenizer_json.steps(content["pre_tokenizer"])
        for name, value in (("add_prefix_space", False), ("use_regex", True)):
            part = f"pre_tokenizer.{name}"
            tokenizer_json.check(path, part, pre_tokenizer[name], [value])
        tokenizer_json.check_model(path, content, "end_of_word_suffix", None, "")
        tokenizer_json.check_layout(path, content, self.special)
        added = (*self.special.tokens, *self.cut_out)
        return tokenizer_json.bpe_files(path, content, added)

    def vocabulary_of(self, path, tokens, digest):
        present, characters = set(tokens), byte_characters()
        if missing := [byte for byte in range(256) if characters[byte] not in present]:
            raise UserError(
                f"{path}: has no token for {len(missing)} of the 256 bytes, such as "
                f"{characters[missing[0]]!r} for {missing[0]:#04x}; it is not a byte-level "
                "vocabulary"
            )
        bytes_of = {character: byte for byte, character in enumerate(characters)}
        whole = {*self.special.tokens, *self.cut_out}
        return Vocabulary(
            tokens,
            path=path,
            digest=digest,
            special=self.special,
            texts=[t if t in whole else _text_of_bytes(t, bytes_of) for t in tokens],
            # After a special token, too, a piece begins a word: `Masks` see to that.
            is_continuation=[t not in whole and t[:1] != SPACE for t in tokens],
        )


def _text_of_bytes(token, bytes_of):
    """What a token stands for, without the space before it; or the token itself."""
    try:
        text = bytes(bytes_of[character] for character in token).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return token
    return text.removeprefix(" ") if text.isprintable() else token
