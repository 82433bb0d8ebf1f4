"""Cleans text before SentencePiece gets it, with character offsets."""

import re
import unicodedata
from collections.abc import Callable

_WORD = re.compile(r"\S+")
_CHARACTER = re.compile(".", re.DOTALL)
_CHARACTER_OR_QUOTES = re.compile("``|''|.", re.DOTALL)
_SURROGATES = re.compile("[\ud800-\udfff]")
_VOICING = re.compile("[\u3099\u309a]")  # marks of kana


class Filled(dict):
    """A function's results, each computed when its key first occurs.

    Those of all 1.1 million code points would take seconds in every worker.
    """

    def __init__(self, function: Callable):
        super().__init__()
        self._function = function

    def __missing__(self, key):
        self[key] = result = self._function(key)
        return result


# None for a combining mark.
_marks = Filled(lambda point: None if unicodedata.combining(chr(point)) else point)


def decompose(text: str) -> str:
    """The text decomposed (NFKD), without its combining marks."""
    return unicodedata.normalize("NFKD", text).translate(_marks)


def loses_voicing(text: str) -> bool:
    """Whether it has kana with marks of voicing, which accent stripping removes."""
    if text.isascii():
        return False
    return _VOICING.search(unicodedata.normalize("NFD", text)) is not None


class Cleaner:
    """Cleans text before SentencePiece gets it.

    Attributes:
        collapses_spaces: whether white space becomes single spaces.
        strip_accents: whether `decompose` removes accents.
        joins_quotes: whether `` and '' become ".
    Source: google-research/albert@b772393 tokenization.py, and zihangdai/xlnet@bbaa3a6
        prepro_utils.py, preprocess_text.
    """

    collapses_spaces = True

    def __init__(
        self,
        do_lower_case: bool = True,
        strip_accents: bool = True,
        joins_quotes: bool = False,
    ):
        self.do_lower_case = do_lower_case
        self.strip_accents = strip_accents
        self.joins_quotes = joins_quotes

    def clean(self, text: str) -> str:
        text = " ".join(text.split())
        if self.joins_quotes:
            text = text.replace("``", '"').replace("''", '"')
        if not text.isascii():
            text = _SURROGATES.sub("\ufffd", text)
            text = decompose(text) if self.strip_accents else text
        return text.lower() if self.do_lower_case else text

    def align(self, text: str) -> tuple[str, list[int], list[int]]:
        """Like `clean`, with the start and the end in `text` of each character's original.

        A dropped mark belongs to the character before it.
        """
        text = _SURROGATES.sub("\ufffd", text)
        parts, starts, ends = [], [], []
        character = _CHARACTER_OR_QUOTES if self.joins_quotes else _CHARACTER
        for word in _WORD.finditer(text):
            if parts:
                parts.append(" ")
                starts.append(word.start() - 1)
                ends.append(word.start())
            first = len(starts)
            for match in character.finditer(text, *word.span()):
                index, end = match.span()
                part = match.group() if end - index == 1 else '"'
                part = decompose(part) if self.strip_accents else part
                if part:
                    starts += [index] * len(part)
                    ends += [end] * len(part)
                    parts.append(part)
                else:
                    begin = starts[-1] if len(starts) > first else -1
                    for place in range(len(starts) - 1, first - 1, -1):
                        if starts[place] != begin:
                            break
                        ends[place] = end
        clean = "".join(parts)
        if not self.do_lower_case:
            return clean, starts, ends
        lower = clean.lower()
        if len(lower) != len(clean):  # only \u0130 has two characters
            sizes = [len(character.lower()) for character in clean]
            starts, ends = (
                [x for x, size in zip(column, sizes, strict=True) for _ in range(size)]
                for column in (starts, ends)
            )
        return lower, starts, ends


class Verbatim(Cleaner):
    """Leaves text as it is, except for lone surrogates, which have no bytes in UTF-8."""

    collapses_spaces = False

    def __init__(self):
        super().__init__(do_lower_case=False, strip_accents=False)

    def clean(self, text):
        return text if text.isascii() else _SURROGATES.sub("\ufffd", text)

    def align(self, text):
        places = range(len(text) + 1)
        return self.clean(text), list(places[:-1]), list(places[1:])
