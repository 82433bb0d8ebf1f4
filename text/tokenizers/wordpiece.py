"""Tokenizes text into WordPieces with character offsets.

Every code point is treated as in the release. What the release does in five passes over
the text (clean, space out CJK, lowercase, strip accents, split at punctuation) is one table
from code points to replacements, applied to the text between two spaces. Because words
repeat, the results are cached, as bytes: joining them is faster than joining lists.
"""

import array
import os
import pathlib
import re
import unicodedata

from text.errors import UserError
from text.files import sources
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import UNK, Vocabulary

LONGEST_WORD = 200  # characters; longer words are [UNK] (D27)
_LONGEST_CACHED = 40  # a line of Chinese is one long chunk that never recurs
_MOST_CACHED = 1 << 17  # about 30 MB; then a cache is cleared

# Control characters that str.split treats as spaces; the release deletes them.
_DELETED_SPACES = "\x0b\x0c\x1c-\x1f\x85"
_HAS_DELETED_SPACE = re.compile(f"[{_DELETED_SPACES}]")
_CHUNK = re.compile(rf"(?:\S|[{_DELETED_SPACES}])+")

_COMPOSED = re.compile(
    "[\uac00-\ud7a3{}]".format(
        "".join(
            kana
            for kana in map(chr, range(0x3041, 0x3100))
            if "3099" in unicodedata.decomposition(kana)
            or "309A" in unicodedata.decomposition(kana)
        )
    )
)

_CJK = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)

_UNCASED_RELEASES = (
    "uncased_L-24_H-1024_A-16",
    "uncased_L-12_H-768_A-12",
    "multilingual_L-12_H-768_A-12",
    "chinese_L-12_H-768_A-12",
)
_CASED_RELEASES = (
    "cased_L-12_H-768_A-12",
    "cased_L-24_H-1024_A-16",
    "multi_cased_L-12_H-768_A-12",
)


class _CodePoints(dict):
    """Code point to replacement, computed when a code point first occurs.

    Computing all 1.1 million at once would take seconds in every worker.
    """

    def __init__(self, do_lower_case, strip_accents, split_cjk):
        super().__init__()
        self.do_lower_case = do_lower_case
        self.strip_accents = strip_accents
        self.split_cjk = split_cjk

    def __missing__(self, code_point):
        self[code_point] = replacement = self._replace(chr(code_point))
        return replacement

    def _replace(self, character):
        if _is_deleted(character):
            return ""
        if character.isspace():
            return " "
        kept = character
        if self.do_lower_case:
            kept = kept.lower()
        if self.strip_accents:
            kept = "".join(
                part
                for part in unicodedata.normalize("NFD", kept)
                if unicodedata.category(part) != "Mn"
            )
        kept = "".join(f" {part} " if _is_punctuation(part) else part for part in kept)
        if self.split_cjk and is_cjk(character):
            kept = f" {kept} "
        return kept


def _is_deleted(character):
    if character in "\t\n\r":
        return False
    return character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf")


def _is_punctuation(character):
    # All ASCII characters except letters, digits and spaces count, such as $ and ^.
    if character.isascii():
        return character.isprintable() and not (character.isalnum() or character == " ")
    return unicodedata.category(character).startswith("P")


def is_cjk(character):
    return _CJK.match(character) is not None


class WordSplitter:
    """Splits text into words, which WordPiece then splits into pieces.

    Attributes:
        do_lower_case, strip_accents, split_cjk: the resolved bools.
        table: dict-like of code point to replacement.
    """

    def __init__(
        self,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        split_cjk: bool = True,
    ):
        """Args:
        do_lower_case: lowercase the text.
        strip_accents: decompose the text and drop its marks; None: same as
            do_lower_case.
        split_cjk: make every Chinese character a word.
        """
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents
        self.split_cjk = split_cjk
        self.table = _CodePoints(do_lower_case, self.strip_accents, split_cjk)

    @classmethod
    def of(cls, options) -> "WordSplitter":
        """Makes the splitter for `TokenizerOptions`."""
        return cls(options.do_lower_case, options.strip_accents, options.split_cjk)

    @property
    def settings(self) -> dict[str, bool]:
        """The options by the names of their flags."""
        names = ("do_lower_case", "strip_accents", "split_cjk")
        return {name: getattr(self, name) for name in names}

    def chunks(self, text: str) -> list[str]:
        """Splits at spaces only; the words of a chunk do not depend on other chunks."""
        if _HAS_DELETED_SPACE.search(text):
            return _CHUNK.findall(text)
        return text.split()

    def words(self, text: str) -> list[str]:
        """Text to cleaned, lowercased, stripped words; punctuation marks are words."""
        return self._replaced(text).split()

    def aligned(self, text: str) -> tuple[str, list[int], list[int]]:
        """Like `words`, with offsets.

        Returns:
            the words as one string with spaces between them; and for each of its
            characters, the start and the end of its original in `text`. A dropped accent
            belongs to the letter before it.
        """
        parts = [self.table[ord(character)] for character in text]
        ends = [0] * len(text)
        end = len(text)
        for index in reversed(range(len(text))):
            ends[index] = end
            if parts[index] or unicodedata.category(text[index]) != "Mn":
                end = index
        sources = [index for index, part in enumerate(parts) for _ in part]
        return self._replaced(text), sources, [ends[index] for index in sources]

    def decomposes(self, text: str) -> bool:
        """Whether accent stripping decomposes Hangul or kana in `text`."""
        return (
            self.strip_accents
            and not text.isascii()
            and _COMPOSED.search(text) is not None
        )

    def _replaced(self, text):
        if not text.isascii():
            # Two rules depend on more than one code point, so the table alone would be
            # wrong: a capital sigma at the end of a word, and the order of marks in NFD.
            # Both look past deleted characters. The table does not change their results.
            if "\ufffd" in text or not text.isprintable():  # otherwise none is deleted
                text = "".join(part for part in text if not _is_deleted(part))
            if self.do_lower_case:
                text = text.lower()
            if self.strip_accents:
                text = unicodedata.normalize("NFD", text)
        return text.translate(self.table)


class WordPiece(Tokenizer):
    """Turns text into WordPieces exactly like the release's FullTokenizer.

    Attributes:
        splitter: the `WordSplitter`.
    Source: google-research/bert@eedf571 tokenization.py.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        split_cjk: bool = True,
    ):
        """Args: as for `WordSplitter`."""
        self.vocabulary = vocabulary
        self.splitter = WordSplitter(do_lower_case, strip_accents, split_cjk)
        self._id_type = vocabulary.id_type.char
        self._word_ids = _Cache(self._encode_word)
        self._chunk_ids = _Cache(self._encode_chunk)
        self._chunk_spans = _Cache(self._align_chunk)
        self._longest_piece = max(map(len, vocabulary.tokens)) + len("##")

    vocabulary_file = "vocab.txt"
    hugging_face_classes = (
        None,  # not said
        "BertTokenizer",
        "BertTokenizerFast",
        "PreTrainedTokenizerFast",
    )

    @classmethod
    def reads(cls, vocab_file):
        return True  # a vocab.txt may have any name

    @classmethod
    def load_vocabulary(cls, vocab_file):
        return Vocabulary.load(vocab_file)

    @classmethod
    def parse(cls, content):
        lines = content.decode("utf-8-sig").rstrip().split("\n")
        return [line.strip() for line in lines]

    @classmethod
    def load(cls, vocab_file, options):
        return cls.of(Vocabulary.load(vocab_file), options)

    @classmethod
    def of(cls, vocabulary: Vocabulary, options) -> "WordPiece":
        """Makes the tokenizer for a loaded vocabulary and `TokenizerOptions`."""
        return cls(
            vocabulary,
            do_lower_case=options.do_lower_case,
            strip_accents=options.strip_accents,
            split_cjk=options.split_cjk,
        )

    @property
    def settings(self):
        return {"vocab_sha256": self.vocabulary.digest, **self.splitter.settings}

    @property
    def hugging_face_config(self):
        return {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.splitter.do_lower_case,
            "strip_accents": self.splitter.strip_accents,
            "tokenize_chinese_chars": self.splitter.split_cjk,
        }

    @property
    def files(self):
        with sources.opened(self.vocabulary.path) as file:
            return {self.vocabulary_file: file.read()}

    def encode(self, text):
        return array.array(self._id_type, self.encode_packed(text)).tolist()

    def encode_packed(self, text):
        chunks = self.splitter.chunks(text)
        return b"".join(map(self._chunk_ids.__getitem__, chunks))

    def encode_words(self, text):
        chunks = [self._chunk_ids[chunk] for chunk in self.splitter.chunks(text)]
        size = self.vocabulary.id_type.itemsize
        starts = [b"\1" + bytes(len(ids) // size - 1) for ids in chunks if ids]
        return b"".join(chunks), b"".join(starts)

    def encode_with_offsets(self, text):
        """See `Tokenizer`: a dropped accent belongs to its letter, and pieces of one
        character (Hangul letters of one syllable) share its offsets.
        """
        ids, starts, ends = [], [], []
        position = 0
        for chunk in self.splitter.chunks(text):
            position = text.index(chunk, position)
            for id, start, end in self._chunk_spans[chunk]:
                ids.append(id)
                starts.append(position + start)
                ends.append(position + end)
            position += len(chunk)
        return ids, starts, ends

    def graph(self, folder):
        # It loads TensorFlow, which workers that write records do not need.
        from text.tokenizers.wordpiece_graph import WordPieceGraph

        return WordPieceGraph(self, os.path.join(folder, self.vocabulary_file))

    def check_release(self, path):
        check_case(self.splitter.do_lower_case, path)

    def decomposes(self, text):
        """Whether accent stripping takes letters of a text apart."""
        return self.splitter.decomposes(text)

    def _encode_chunk(self, chunk):
        words = self.splitter.words(chunk)
        return b"".join(map(self._word_ids.__getitem__, words))

    def _encode_word(self, word):
        ids = [self.vocabulary.ids[piece] for piece in self._pieces(word)]
        return array.array(self._id_type, ids).tobytes()

    def _align_chunk(self, chunk):
        text, starts, ends = self.splitter.aligned(chunk)
        spans = []
        for word in re.finditer(r"\S+", text):
            first = word.start()
            for piece in self._pieces(word.group()):
                length = len(piece) - len("##") if first > word.start() else len(piece)
                if piece == UNK:
                    length = len(word.group())
                last = first + length - 1
                spans.append((self.vocabulary.ids[piece], starts[first], ends[last]))
                first += length
        return spans

    def _pieces(self, word):
        """The longest pieces from the left, or [UNK] if none fits."""
        if len(word) > LONGEST_WORD:
            return [UNK]
        ids = self.vocabulary.ids
        if word in ids:
            return [word]
        pieces = []
        prefix = ""
        while word:
            piece = prefix + word[: self._longest_piece]
            while piece not in ids:
                piece = piece[:-1]
                if piece == prefix:
                    return [UNK]
            pieces.append(piece)
            word = word[len(piece) - len(prefix) :]
            prefix = "##"
        return pieces


class _Cache(dict):
    """Caches a function's results for short strings; cleared when full."""

    def __init__(self, function):
        super().__init__()
        self._function = function

    def __missing__(self, key):
        value = self._function(key)
        if len(key) <= _LONGEST_CACHED:
            if len(self) >= _MOST_CACHED:
                self.clear()
            self[key] = value
        return value


def check_case(do_lower_case: bool, path: str | None) -> None:
    """Refuses a case that contradicts the released model named in a path.

    Args:
        do_lower_case: the flag.
        path: a checkpoint prefix, a folder or a vocabulary file; None passes.
    Raises:
        UserError: the path's folder is a released model with the other case.
    Source: google-research/bert@eedf571 tokenization.py,
        validate_case_matches_checkpoint.
    """
    releases = _CASED_RELEASES if do_lower_case else _UNCASED_RELEASES
    for name in pathlib.PurePosixPath(path or "").parts[-2:]:
        if name in releases:
            case = "cased" if do_lower_case else "lowercased"
            raise UserError(
                f"--do_lower_case={str(do_lower_case).lower()} does not match "
                f"{path}: {name} was trained on {case} text; pass "
                f"--do_lower_case={str(not do_lower_case).lower()}"
            )
