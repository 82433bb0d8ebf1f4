"""The tokenizer: Unicode and WordPiece, text to pieces with character offsets.

Every code point is treated as in the release. What the release does in five passes over
the text (clean, space out CJK, lower, strip accents, split at punctuation) is one table
from a code point to its replacement, applied to what stands between two spaces; and
since a language repeats itself, the outcome is remembered.
"""

import dataclasses
import pathlib
import re
import unicodedata
from itertools import chain

import options
from text.errors import UserError
from text.tokenizers.vocabulary import UNK, Vocabulary

DECOMPOSITION_WARNING = (
    "Hangul or kana with voicing marks are taken apart by accent stripping, as in the "
    "2018 release (a Hangul syllable becomes its letters, \u304c becomes \u304b); for "
    "Korean or Japanese text, --strip_accents=false keeps them whole"
)

LONGEST_WORD = 200  # characters; longer words are [UNK] (D27)
_LONGEST_CACHED = 40  # a line of Chinese is one long chunk that never comes again
_MOST_CACHED = 1 << 17  # about 30 MB; then a cache starts anew

# Control characters that str.split takes for spaces; the release deletes them.
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

_CJK_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
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
    """Code point to replacement, worked out when a code point is first met.

    All 1.1 million at once would take seconds, in every worker.
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
    # All of ASCII that is no letter, digit or space counts, as $ and ^ do.
    if character.isascii():
        return character.isprintable() and not (character.isalnum() or character == " ")
    return unicodedata.category(character).startswith("P")


def is_cjk(character):
    return any(first <= ord(character) <= last for first, last in _CJK_BLOCKS)


class WordSplitter:
    """Text to words, which WordPiece then takes apart.

    Attributes:
        do_lower_case, strip_accents, split_cjk: bools, as resolved.
        table: dict-like of code point to replacement.
    """

    def __init__(
        self,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        split_cjk: bool = True,
    ):
        """Args:
        do_lower_case: lower the text.
        strip_accents: decompose the text and drop its marks; None: as do_lower_case.
        split_cjk: make every Chinese character a word.
        """
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents
        self.split_cjk = split_cjk
        self.table = _CodePoints(do_lower_case, self.strip_accents, split_cjk)

    def chunks(self, text: str) -> list[str]:
        """Splits at spaces only; what a chunk becomes depends on no other chunk."""
        if _HAS_DELETED_SPACE.search(text):
            return _CHUNK.findall(text)
        return text.split()

    def words(self, text: str) -> list[str]:
        """Text to cleaned, lowered, stripped words; each punctuation mark is a word."""
        return self._replaced(text).split()

    def aligned(self, text: str) -> tuple[str, list[int], list[int]]:
        """Like `words`, with offsets.

        Returns:
            the words as one string with spaces between them; and for each of its
            characters, the start and the end of what it stands for in `text`. An accent
            that was dropped belongs to the letter before it.
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
        """Whether accent stripping takes Hangul or kana in `text` apart."""
        return (
            self.strip_accents
            and not text.isascii()
            and _COMPOSED.search(text) is not None
        )

    def _replaced(self, text):
        if not text.isascii():
            # Two things look at more than one code point, so the table alone would
            # err: a capital sigma at a word's end, and the order of marks under NFD.
            # Both look past deleted characters. The table leaves what they give.
            if "\ufffd" in text or not text.isprintable():  # else none is deleted
                text = "".join(part for part in text if not _is_deleted(part))
            if self.do_lower_case:
                text = text.lower()
            if self.strip_accents:
                text = unicodedata.normalize("NFD", text)
        return text.translate(self.table)


@dataclasses.dataclass(frozen=True)
class TokenizerOptions:
    """The flags that decide how text becomes tokens, the same for every script."""

    do_lower_case: bool = options.field(
        True, help="Lower-case the text; for uncased vocabularies."
    )
    strip_accents: bool | None = options.field(
        None,
        help="Remove accents, and decompose Hangul; by default, follows --do_lower_case.",
    )
    split_cjk: bool = options.field(
        True, help="Make every Chinese character a separate word."
    )

    def splitter(self) -> WordSplitter:
        """What splits text as these flags say."""
        return WordSplitter(self.do_lower_case, self.strip_accents, self.split_cjk)

    def tokenizer(self, vocabulary: Vocabulary) -> "Tokenizer":
        """What turns text into ids of a vocabulary as these flags say."""
        return Tokenizer(
            vocabulary,
            do_lower_case=self.do_lower_case,
            strip_accents=self.strip_accents,
            split_cjk=self.split_cjk,
        )


class Tokenizer:
    """Text to WordPieces, equal to the release's FullTokenizer.

    Attributes:
        vocabulary: the `Vocabulary`.
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
        self._word_ids = _Cache(self._encode_word)
        self._chunk_ids = _Cache(self._encode_chunk)
        self._chunk_spans = _Cache(self._align_chunk)
        self._longest_piece = max(map(len, vocabulary.tokens)) + len("##")

    @property
    def settings(self) -> dict:
        """What makes ids of text, as descriptions of files name it."""
        return {
            "vocab_sha256": self.vocabulary.digest,
            "do_lower_case": self.splitter.do_lower_case,
            "strip_accents": self.splitter.strip_accents,
            "split_cjk": self.splitter.split_cjk,
        }

    def encode(self, text: str) -> list[int]:
        """Text to ids; special tokens spelled out in it are taken apart as any text."""
        chunks = self.splitter.chunks(text)
        return list(chain.from_iterable(map(self._chunk_ids.__getitem__, chunks)))

    def encode_words(self, text: str) -> tuple[list[int], list[int]]:
        """Text to ids, and for each 1 where it is the first between two spaces, or 0."""
        ids, word_starts = [], []
        for chunk in map(self._chunk_ids.__getitem__, self.splitter.chunks(text)):
            ids += chunk
            word_starts += [1, *[0] * (len(chunk) - 1)][: len(chunk)]
        return ids, word_starts

    def tokenize(self, text: str) -> list[str]:
        """Text to pieces; those that continue a word start with ##."""
        tokens = self.vocabulary.tokens
        return [tokens[id] for id in self.encode(text)]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """Text to ids, and where each piece stands in it.

        Returns:
            ids, starts, ends: lists of equal length; `text[start:end]` is what the
            piece was made of, an accent that was dropped included. Pieces of one
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

    def decomposes(self, text: str) -> bool:
        """Whether to warn once with DECOMPOSITION_WARNING."""
        return self.splitter.decomposes(text)

    def _encode_chunk(self, chunk):
        words = self.splitter.words(chunk)
        return tuple(chain.from_iterable(map(self._word_ids.__getitem__, words)))

    def _encode_word(self, word):
        ids = self.vocabulary.ids
        return tuple([ids[piece] for piece in self._pieces(word)])

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
        """The longest pieces from the left, or [UNK] where none fits."""
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
    """What a function gave for short strings; starts anew when full: bounded memory."""

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
    """Refuses a case that contradicts the released model that a path names.

    Args:
        do_lower_case: the flag.
        path: a checkpoint prefix, a folder or a vocabulary file; None passes.
    Raises:
        UserError: the path's folder is a released model of the other case.
    Source: google-research/bert@eedf571 tokenization.py,
        validate_case_matches_checkpoint.
    """
    releases = _CASED_RELEASES if do_lower_case else _UNCASED_RELEASES
    for name in pathlib.PurePosixPath(path or "").parts[-2:]:
        if name in releases:
            case = "cased" if do_lower_case else "lower-cased"
            raise UserError(
                f"--do_lower_case={str(do_lower_case).lower()} does not go with "
                f"{path}: {name} was trained on {case} text; pass "
                f"--do_lower_case={str(not do_lower_case).lower()}"
            )
