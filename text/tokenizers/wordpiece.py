"""Tokenizes text into WordPieces with character offsets.

Every code point is treated as in the release. What the release does in five passes over
the text (clean, space out CJK, lowercase, strip accents, split at punctuation) is one table
from code points to replacements, applied to the text between two spaces.
"""

import dataclasses
import os
import pathlib
import re
import unicodedata

from absl import logging

from errors import UserError, setting
from files import sources
from text.tokenizers import tokenizer_json
from text.tokenizers.cleaner import Filled
from text.tokenizers.kind import Kind, hugging_face_classes
from text.tokenizers.tokenizer import HuggingFace
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary
from text.tokenizers.word_by_word import WordByWord

LONGEST_WORD = 200  # characters; longer words are [UNK]

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

# Letters of a Hangul syllable in Unicode's form D, as file systems and tools of macOS write
# them: the first and the second one, or a syllable of these two, and the last one.
_OPEN = "".join(map(chr, range(0xAC00, 0xD7A4, 28)))
_LETTERS = re.compile(
    rf"(?:[\u1100-\u1112][\u1161-\u1175]|[{_OPEN}])(?:[\u11a8-\u11c2])?"
)
_MAY_COMPOSE = re.compile("[\u1161-\u1175\u11a8-\u11c2]")

_CJK = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)

_SYLLABLE = re.compile("[\uac00-\ud7a3]")
# The share of tokens with syllables from which on a vocabulary is meant for them. English
# BERT's cased one has 10 of 28,996; multilingual BERT's, 3,271 of 119,547.
_KOREAN = 0.01

_SWITCHES = ("do_lower_case", "strip_accents", "split_cjk")

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


def _replacement(character, do_lower_case, strip_accents, split_cjk):
    """What a character becomes; spaces set off words."""
    if _is_deleted(character):
        return ""
    if character.isspace():
        return " "
    kept = character.lower() if do_lower_case else character
    if strip_accents:
        parts = unicodedata.normalize("NFD", kept)
        kept = "".join(p for p in parts if unicodedata.category(p) != "Mn")
    kept = "".join(f" {part} " if _is_punctuation(part) else part for part in kept)
    return f" {kept} " if split_cjk and is_cjk(character) else kept


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
        final_sigmas: whether lowercasing gives a capital sigma at the end of a word the
            form that it has there.
        composes_hangul: whether letters become the syllables that they spell.
    """

    final_sigmas = True

    def __init__(
        self,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        split_cjk: bool = True,
    ):
        """strip_accents: decompose text and drop its marks; None: the same as
        do_lower_case.
        """
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents
        self.split_cjk = split_cjk
        switches = do_lower_case, self.strip_accents, split_cjk
        self.table = Filled(lambda point: _replacement(chr(point), *switches))

    @property
    def composes_hangul(self) -> bool:
        # Differs from the release, for which these letters are unknown if accents are kept.
        return not self.strip_accents

    @classmethod
    def of(cls, options) -> "WordSplitter":
        """Makes the splitter for `TokenizerOptions`."""
        lowers = options.do_lower_case is not False
        return cls(lowers, options.strip_accents, options.split_cjk is not False)

    @property
    def settings(self) -> dict[str, bool]:
        """The options by the names of their flags."""
        return {name: getattr(self, name) for name in _SWITCHES}

    def chunks(self, text: str) -> list[str]:
        """Splits at spaces only; the words of a chunk do not depend on other chunks."""
        if _HAS_DELETED_SPACE.search(text):
            return _CHUNK.findall(text)
        return text.split()

    def words(self, text: str) -> list[str]:
        """Text to cleaned, lowercased, stripped words; punctuation marks are words."""
        return self._replaced(text).split()

    def aligned(self, text: str) -> tuple[list[str], list[int], list[int]]:
        """Like `words`, with the start and the end in `text` of the original of each
        character of each of them, one after another.

        A dropped accent belongs to the letter before it.
        """
        parts = [self.table[ord(character)] for character in text]
        ends = [0] * len(text)
        end = len(text)
        for index in reversed(range(len(text))):
            ends[index] = end
            if parts[index] or unicodedata.category(text[index]) != "Mn":
                end = index
        visible = [(i, c) for i, part in enumerate(parts) for c in part if c != " "]
        starts = [source for source, _ in visible]
        stops = [ends[source] for source in starts]
        if self.composes_hangul and _MAY_COMPOSE.search(text):
            letters = "".join(c for _, c in visible)
            for match in reversed(list(_LETTERS.finditer(letters))):
                del starts[match.start() + 1 : match.end()]
                del stops[match.start() : match.end() - 1]
        return self.words(text), starts, stops

    def decomposed(self, text: str) -> str:
        """The text in Unicode's form D."""
        return unicodedata.normalize("NFD", text)

    def changes_unassigned(self, character: str) -> bool:
        """Whether one that Unicode has not assigned, or left to others, is replaced."""
        return is_cjk(character)

    def decomposes(self, text: str) -> bool:
        """Whether accent stripping decomposes Hangul or kana in `text`, or keeps Hangul
        in letters.
        """
        if not self.strip_accents or text.isascii():
            return False
        return bool(_COMPOSED.search(text) or _MAY_COMPOSE.search(text))

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
                text = self.decomposed(text)
            elif self.composes_hangul and _MAY_COMPOSE.search(text):
                text = _LETTERS.sub(lambda m: unicodedata.normalize("NFC", m[0]), text)
        return text.translate(self.table)


class WordPiece(WordByWord):
    """Turns text into WordPieces exactly like the release's FullTokenizer.

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
        super().__init__(
            vocabulary, WordSplitter(do_lower_case, strip_accents, split_cjk)
        )
        self._longest_piece = max(map(len, vocabulary.tokens)) + len("##")

    @classmethod
    def of(cls, vocabulary: Vocabulary, options) -> "WordPiece":
        """Makes the tokenizer for a loaded vocabulary and `TokenizerOptions`."""
        switches = WordSplitter.of(options).settings
        return cls(vocabulary, **switches)

    @property
    def files(self):
        return _files(self.vocabulary.path)

    @property
    def settings(self):
        return {"vocab_sha256": self.vocabulary.digest, **self.splitter.settings}

    def hugging_face(self):
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.splitter.do_lower_case,
            "strip_accents": self.splitter.strip_accents,
            "tokenize_chinese_chars": self.splitter.split_cjk,
        }
        json = tokenizer_json.wordpiece(
            self.vocabulary, self.splitter.settings, LONGEST_WORD
        )
        return HuggingFace(config, json)

    def check_release(self, path):
        check_case(self.splitter.do_lower_case, path)

    def split(self, word):
        """See `WordByWord`: the longest piece_ids from the left, or [UNK] if none fits."""
        unknown = [self.vocabulary.unk_id], [len(word)]
        if len(word) > LONGEST_WORD:
            return unknown
        ids = self.vocabulary.ids
        if word in ids:
            return [ids[word]], [len(word)]
        piece_ids, sizes = [], []
        prefix = ""
        while word:
            piece = prefix + word[: self._longest_piece]
            while piece not in ids:
                piece = piece[:-1]
                if piece == prefix:
                    return unknown
            piece_ids.append(ids[piece])
            sizes.append(len(piece) - len(prefix))
            word = word[sizes[-1] :]
            prefix = "##"
        return piece_ids, sizes


def check_case(do_lower_case: bool, path: str | None) -> None:
    """Refuses a case that contradicts the released model named in a path, if any.

    Source: google-research/bert@eedf571 tokenization.py,
        validate_case_matches_checkpoint.
    """
    releases = _CASED_RELEASES if do_lower_case else _UNCASED_RELEASES
    for name in pathlib.PurePosixPath(path or "").parts[-2:]:
        if name in releases:
            case = "cased" if do_lower_case else "lowercased"
            raise UserError(
                f"{setting('do_lower_case', do_lower_case)} does not match {path}: {name} "
                f"was trained on {case} text; pass "
                f"{setting('do_lower_case', not do_lower_case)}"
            )


# === Files ===========================================================================

VOCABULARY_FILE = "vocab.txt"


class WordPieceKind(Kind):
    """The vocab.txt of BERT, which may have any name."""

    graph = "text.graphs.wordpiece_graph:WordPieceGraph"
    learner = "text.tokenizers.learning.word_learning:WordPieceLearner"
    tokenizer = WordPiece
    vocabulary_file = VOCABULARY_FILE
    hugging_face_classes = hugging_face_classes("wordpiece", "BertTokenizer")
    text_flags = _SWITCHES

    def reads(self, vocab_file):
        return True

    def reads_json(self, content):
        return tokenizer_json.is_wordpiece(content)

    def load(self, vocab_file, options):
        vocabulary = self.load_vocabulary(vocab_file)
        return WordPiece.of(vocabulary, _keeping_syllables(options, vocabulary))

    def resolved(self, options, vocab_file):
        if options.strip_accents is None and options.do_lower_case is not False:
            options = _keeping_syllables(options, self.load_vocabulary(vocab_file))
        return super().resolved(options, vocab_file)

    def load_vocabulary(self, vocab_file):
        if not tokenizer_json.is_path(vocab_file):
            vocabulary = Vocabulary.load(vocab_file)
            if os.path.basename(vocab_file) == self.vocabulary_file:
                tokenizer_json.check_same_tokens(vocabulary)
            _refuse_marked_pieces(vocabulary)
            return vocabulary
        (content,) = _files(vocab_file).values()
        return Vocabulary.load(vocab_file, content)

    def parse(self, content):
        lines = content.decode("utf-8-sig").rstrip().split("\n")
        return [line.strip() for line in lines]

    def read_files(self, vocab_file):
        return _files(vocab_file)

    def with_tokens(self, tokenizer, tokens):
        return WordPiece(Vocabulary(tokens), **tokenizer.splitter.settings)


def _refuse_marked_pieces(vocabulary):
    """Refuses a list of SentencePiece's pieces, which WordPiece would never find."""
    marked = [token for token in vocabulary.tokens if token[:1] == "\u2581"]
    if len(marked) > 0.1 * len(vocabulary):
        raise UserError(
            f"{vocabulary.path}: lists the pieces of a SentencePiece model, such as "
            f"{marked[-1]!r}; pass the .model file next to it as {setting('vocab_file')}"
        )


def _keeping_syllables(options, vocabulary):
    """The options; where they leave it open, a Korean vocabulary keeps accents.

    Differs from the release, with which none of its pieces would ever be found.
    """
    if options.strip_accents is not None or options.do_lower_case is False:
        return options
    number = sum(map(bool, map(_SYLLABLE.search, vocabulary.tokens)))
    if number < _KOREAN * len(vocabulary):
        return options
    logging.log_first_n(
        logging.WARNING,
        "%s: %d tokens have Hangul syllables, so accents are kept (--strip_accents=false), "
        "because removing them takes syllables apart; pass --strip_accents=true to do as "
        "the 2018 release does",
        1,
        vocabulary.path,
        number,
    )
    return dataclasses.replace(options, strip_accents=False)


def _files(path):
    """See `Kind.read_files`."""
    if tokenizer_json.is_path(path):
        return {VOCABULARY_FILE: tokenizer_json.vocab_txt(path, SpecialTokens())}
    return {VOCABULARY_FILE: sources.content(path)}
