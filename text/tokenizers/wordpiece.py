"""Tokenizes text into WordPieces with character offsets.

Every code point is treated as in the release. What the release does in five passes over
the text (clean, space out CJK, lowercase, strip accents, split at punctuation) is one table
from code points to replacements, applied to the text between two spaces.
"""

import os
import pathlib
import re
import unicodedata

from errors import UserError
from text.tokenizers import tokenizer_json, tokenizer_json_writing
from text.tokenizers.tokenizer import GENERIC_CLASSES
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary
from text.tokenizers.word_by_word import WordByWord

LONGEST_WORD = 200  # characters; longer words are [UNK] (D27)

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
        """See `Splitter`; a dropped accent belongs to the letter before it."""
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
            for found in reversed(list(_LETTERS.finditer(letters))):
                del starts[found.start() + 1 : found.end()]
                del stops[found.start() : found.end() - 1]
        return self.words(text), starts, stops

    def decomposed(self, text: str) -> str:
        """The text in Unicode's form D."""
        return unicodedata.normalize("NFD", text)

    def changes_unassigned(self, character: str) -> bool:
        """Whether one that Unicode has not assigned, or left to others, is replaced."""
        return is_cjk(character)

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
                text = self.decomposed(text)
            elif self.composes_hangul and _MAY_COMPOSE.search(text):
                text = _LETTERS.sub(lambda m: unicodedata.normalize("NFC", m[0]), text)
        return text.translate(self.table)


class WordPiece(WordByWord):
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
        super().__init__(
            vocabulary, WordSplitter(do_lower_case, strip_accents, split_cjk)
        )
        self._longest_piece = max(map(len, vocabulary.tokens)) + len("##")

    vocabulary_file = "vocab.txt"
    text_flags = _SWITCHES
    hugging_face_classes = (
        None,  # not said
        "BertTokenizer",
        "BertTokenizerFast",
        "ElectraTokenizer",
        "ElectraTokenizerFast",
        *GENERIC_CLASSES,
    )

    @classmethod
    def reads(cls, vocab_file):
        return True  # a vocab.txt may have any name

    @classmethod
    def reads_json(cls, content):
        return tokenizer_json.is_wordpiece(content)

    @classmethod
    def files_of_json(cls, path):
        return {cls.vocabulary_file: tokenizer_json.vocab_txt(path, SpecialTokens())}

    @classmethod
    def load_vocabulary(cls, vocab_file):
        if not tokenizer_json.is_path(vocab_file):
            return Vocabulary.load(vocab_file)
        (content,) = cls.files_of_json(vocab_file).values()
        return Vocabulary.load(vocab_file, content)

    @classmethod
    def parse(cls, content):
        lines = content.decode("utf-8-sig").rstrip().split("\n")
        return [line.strip() for line in lines]

    @classmethod
    def load(cls, vocab_file, options):
        return cls.of(cls.load_vocabulary(vocab_file), options)

    @classmethod
    def of(cls, vocabulary: Vocabulary, options) -> "WordPiece":
        """Makes the tokenizer for a loaded vocabulary and `TokenizerOptions`."""
        return cls(
            vocabulary,
            do_lower_case=options.do_lower_case is not False,
            strip_accents=options.strip_accents,
            split_cjk=options.split_cjk is not False,
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
    def hugging_face_json(self):
        return tokenizer_json_writing.wordpiece(
            self.vocabulary, self.splitter.settings, LONGEST_WORD
        )

    def graph(self, folder):
        # It loads TensorFlow, which workers that write records do not need.
        from text.tokenizers.wordpiece_graph import WordPieceGraph

        return WordPieceGraph(self, os.path.join(folder, self.vocabulary_file))

    def check_release(self, path):
        check_case(self.splitter.do_lower_case, path)

    def split(self, word):
        """See `WordByWord`: the longest pieces from the left, or [UNK] if none fits."""
        unknown = [self.vocabulary.unk_id], [len(word)]
        if len(word) > LONGEST_WORD:
            return unknown
        ids = self.vocabulary.ids
        if word in ids:
            return [ids[word]], [len(word)]
        found, sizes = [], []
        prefix = ""
        while word:
            piece = prefix + word[: self._longest_piece]
            while piece not in ids:
                piece = piece[:-1]
                if piece == prefix:
                    return unknown
            found.append(ids[piece])
            sizes.append(len(piece) - len(prefix))
            word = word[sizes[-1] :]
            prefix = "##"
        return found, sizes


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
