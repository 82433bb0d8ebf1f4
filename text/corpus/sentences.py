"""Finds the ends of sentences in running text, in any language.

A stop ends a sentence unless its context says otherwise: no space follows (URLs, decimals),
a lowercase letter follows, or the preceding word is an abbreviation or an initial. The
lists are short: a few wrong splits do not hurt pre-training.
"""

import re

_WIDE_STOPS = "\u3002\uff61\uff01\uff1f"  # 。 ｡ ！ ？ need no space after them
_STOPS = (
    ".!?\u2026\u203d"
    "\u061f\u06d4"  # Arabic question mark, Urdu full stop
    "\u0964\u0965"  # danda and double danda: Hindi and its neighbours
    "\u0589\u1362\u1367\u104b\u17d4"  # Armenian, Ethiopic (two), Burmese, Khmer
) + _WIDE_STOPS
_WIDE_CLOSERS = "\u300d\u300f\u3011\u3009\u300b\u3015\uff09\uff02\uff07"  # 」 』 】 …
_CLOSERS = "\"')\\]}\u201d\u2019\u00bb\u203a" + _WIDE_CLOSERS
# Quotes that close in some languages and open in others; Chinese, which uses no spaces,
# opens with them directly after a stop.
_EITHER = "\u201c\u2018\u00ab\u2039"

# Always the longest possible match, judged afterwards: a pattern that could fail after a
# run of stops would try each of them again, which is quadratic.
_CANDIDATE = re.compile(
    rf"[{_STOPS}]+"
    rf"(?:(?<=[{_WIDE_STOPS}])[{_CLOSERS}]*"
    rf"|(?:[{_CLOSERS}{_EITHER}]|[\u00a0\u202f][\u00bb\u203a])*)"
    r"|\n[^\S\n]*\n"
)
_SPACES = re.compile(r"\s*")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")  # U.S  e.g  z.B  a.m
_OPENER = re.compile(
    "(?:The|A|An|He|She|It|They|We|You|I|His|Her|Its|Their|Our|My|In|On|At|As|By|For"
    "|From|To|With|But|And|So|This|That|These|Those|There|Then|If|When|While|After"
    r"|Before|Since|What|Why|How|Who|Where|However|Although|No|Yes|Not)\s"
)

_TITLES = frozenset(
    "mr mrs ms messrs mme mlle dr prof rev hon fr gen col maj capt lt sgt cmdr adm sen "
    "rep gov pres sr\u00e1 sra srta hr st mt ft vs viz cf bzw".split()
)
_ABBREVIATIONS = frozenset(
    "inc ltd co corp bros jr sr etc al est dept univ assn ave blvd rd ph usw ed "
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat".split()
)
_BEFORE_NUMBER = frozenset(
    "no nos nr fig figs eq eqs sec secs ch chap vol vols p pp art tab ca app".split()
)
_SHORTENED = _TITLES | _ABBREVIATIONS | _BEFORE_NUMBER


def split_sentences(text: str) -> list[str]:
    """Splits running text into sentences, in time linear in its length.

    A blank line ends a sentence too. Only whitespace is lost: within a sentence it becomes
    one space. None of them is empty; a text without a stop is one.
    """
    # If nothing is capitalized, a lowercase letter after a stop means nothing.
    is_cased = not text.islower()
    sentences = []
    start = 0
    for stop in _CANDIDATE.finditer(text):
        if _is_end(text, start, stop, is_cased):
            sentences.append(text[start : stop.end()])
            start = stop.end()
    sentences.append(text[start:])
    if text.isprintable() and "  " not in text:  # single spaces, and no others
        stripped = map(str.strip, sentences)
    else:
        stripped = [" ".join(sentence.split()) for sentence in sentences]
    return list(filter(None, stripped))


def _is_end(text, start, stop, is_cased):
    """Whether a candidate ends the sentence that began at `start`."""
    mark, end = stop.group(), stop.end()
    if end == len(text) or mark[0] == "\n":
        return True
    if not mark.isascii() and any(wide in mark for wide in _WIDE_STOPS):
        # After a quotation, a Japanese sentence continues in hiragana.
        return not (mark[-1] in _WIDE_CLOSERS and "\u3041" <= text[end] <= "\u309f")
    if not text[end].isspace():
        return False
    following = end + 1
    if text[following : following + 1].isspace():
        following = _SPACES.match(text, following).end()
    if following == len(text):
        return True
    if is_cased and text[following].islower():
        return False
    return mark != "." or not _is_abbreviation(text, start, stop.start(), following)


def _is_abbreviation(text, start, stop, following):
    """Whether the full stop at `stop` belongs to the word before it."""
    # The last word, without looking far back: a text may be one long line.
    before = text[max(start, stop - 24) : stop]
    if not before or before[-1].isspace():
        return False
    word = before.rsplit(None, 1)[-1].lstrip(
        "([{\"'\u201c\u2018\u00ab\u201e\u00bf\u00a1"
    )
    lowered = word.lower()
    if len(word) > 1 and word.isalpha() and lowered not in _SHORTENED:
        return False  # nearly all words
    if lowered in _TITLES:
        return True
    if text[following].isdigit() and lowered in _BEFORE_NUMBER:
        return True
    if word.isdigit():  # the number of a list item
        return len(word) < 4 and text[start:stop].strip() == word
    is_initial = len(word) == 1 and word.isupper()
    if is_initial or lowered in _ABBREVIATIONS or _DOTTED.fullmatch(word):
        return _OPENER.match(text, following) is None
    return False
