"""Splits text into words as BERT does, with character offsets.

Every code point is treated as in the release. What the release does in five passes over
the text (clean, space out CJK, lowercase, strip accents, split at punctuation) is one table
from code points to replacements, applied to the text between two spaces.
"""

import re
import unicodedata
from typing import Protocol

from text.tokenizers.cleaner import Filled

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

SWITCHES = ("do_lower_case", "strip_accents", "split_cjk")


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


class Splitter(Protocol):
    """Splits text into words."""

    def chunks(self, text: str) -> list[str]:
        """Parts of a text; the words of one do not depend on the others."""

    def words(self, chunk: str) -> list[str]:
        """The words of a part."""

    def decomposes(self, text: str) -> bool:
        """Whether letters of a text are taken apart."""


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
        return {name: getattr(self, name) for name in SWITCHES}

    def chunks(self, text: str) -> list[str]:
        """Splits at spaces only; the words of a chunk do not depend on other chunks."""
        if _HAS_DELETED_SPACE.search(text):
            return _CHUNK.findall(text)
        return text.split()

    def words(self, text: str) -> list[str]:
        """Text to cleaned, lowercased, stripped words; punctuation marks are words."""
        return self._replace(text).split()

    def align(self, text: str) -> tuple[list[str], list[int], list[int]]:
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

    def decompose(self, text: str) -> str:
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

    def _replace(self, text):
        if not text.isascii():
            # Two rules depend on more than one code point, so the table alone would be
            # wrong: a capital sigma at the end of a word, and the order of marks in NFD.
            # Both look past deleted characters. The table does not change their results.
            if "\ufffd" in text or not text.isprintable():  # otherwise none is deleted
                text = "".join(part for part in text if not _is_deleted(part))
            if self.do_lower_case:
                text = text.lower()
            if self.strip_accents:
                text = self.decompose(text)
            elif self.composes_hangul and _MAY_COMPOSE.search(text):
                text = _LETTERS.sub(lambda m: unicodedata.normalize("NFC", m[0]), text)
        return text.translate(self.table)
