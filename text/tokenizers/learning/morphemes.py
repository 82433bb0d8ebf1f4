"""Marks where morphemes begin within Korean words, for pieces that do not cross them.

Only learning a vocabulary takes this into account, as for KLUE's (arXiv:2105.09680, 4.1.1):
text is split into pieces by the vocabulary alone, so exports need no analyser.
"""

import unicodedata
from collections.abc import Iterable, Iterator

from errors import UserError

MARK = "\ufdd0"  # not a character, so no text has it, and splitters keep it


def mark_morphemes(lines: Iterable[str]) -> Iterator[str]:
    """Lines in Unicode's form C with a MARK before each morpheme but the first of a word.

    A syllable that belongs to two morphemes (했 is 하 and 었) is not divided.

    Raises:
        UserError: kiwipiepy, which analyses the text, is not installed.
    """
    try:
        import kiwipiepy
    except ModuleNotFoundError as error:
        raise UserError(
            "--piece_boundaries=morphemes needs the package kiwipiepy, which is not "
            "installed; run pip install -r requirements/korean.txt"
        ) from error
    analyser = kiwipiepy.Kiwi()
    lines = (unicodedata.normalize("NFC", line.replace(MARK, " ")) for line in lines)
    for tokens, line in analyser.tokenize(lines, echo=True):
        yield _with_marks(line, tokens)


def _with_marks(line, tokens):
    parts, end, written = [], 0, 0
    for token in tokens:
        # Of odd texts, a token may begin behind the end of its word.
        around = line[max(token.start - 1, 0) : token.start + 1]
        begins_within = len(around) == 2 and not any(map(str.isspace, around))
        if begins_within and token.start >= end:
            parts.append(line[written : token.start])
            written = token.start
        end = max(end, token.end)
    return MARK.join([*parts, line[written:]])
