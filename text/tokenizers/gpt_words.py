"""Splits text into words for GPT-1, as Hugging Face or as OpenAI does.

Hugging Face's words are BERT's. For OpenAI's, with the packages ftfy and spaCy, damaged
characters are repaired (ftfy), marks are set apart, white space becomes one space or one
line break, and spaCy's tokenizer for English makes the words, which are lowercased. A line
break is a word, too.
"""

import difflib
import functools
import importlib.util
import re
import warnings

import tokenizers

from errors import UserError
from text.tokenizers.wordpiece import WordSplitter

PACKAGES = ("ftfy", "spacy")
# Backslashes are not among them: the release meant to, but its pattern has none.
_MARKS = re.compile(r"""([-~!";?+,)(/*\[\]}{|_])\1*""")
_WHITE_SPACE = re.compile(r"\s+")
_SPELLED = str.maketrans({"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"})
_CHUNK = re.compile(r"\n|\S+")
_VISIBLE = re.compile(r"\s+|\S")
_PARTS = re.compile(r"\s+|\S+")
_SURROGATES = re.compile("[\ud800-\udfff]")  # lone ones have no UTF-8
_NO_CHARACTER = "\U0010ffff"  # instead of them; it is in no vocabulary

_normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
_form_d = tokenizers.normalizers.NFD()
_cutter = tokenizers.pre_tokenizers.BertPreTokenizer()


def _encodable(text):
    return text if text.isascii() else _SURROGATES.sub(_NO_CHARACTER, text)


class _CodePoints(dict):
    """Code point to replacement, filled as they occur."""

    def __init__(self, words):
        super().__init__()
        self._words = words

    def __missing__(self, point):
        # Letters around it show whether it is a word of its own.
        self[point] = " ".join(self._words(f"a{chr(point)}a"))[1:-1]
        return self[point]


class HuggingFaceWords(WordSplitter):
    """BERT's words as the package tokenizers finds them.

    It differs from `WordSplitter` in characters that are newer than its tables, in those
    for private use, which it removes, and in the Greek final sigma.

    Source: transformers 5.23.0, OpenAIGPTTokenizer.
    """

    final_sigmas = False

    def __init__(self, *switches: bool):
        del switches  # there is one way alone
        super().__init__()
        self.table = _CodePoints(self.words)

    def words(self, text):
        text = _normalizer.normalize_str(_encodable(text))
        return [word for word, _ in _cutter.pre_tokenize_str(text)]

    def decomposed(self, text):
        return _form_d.normalize_str(_encodable(text))

    def changes_unassigned(self, character):
        return _normalizer.normalize_str(character) != character


def are_installed() -> bool:
    """Whether this environment has the `PACKAGES`."""
    return all(map(importlib.util.find_spec, PACKAGES))


def standardized(text: str) -> str:
    """Sets marks apart and simplifies white space.

    Source: openai/finetune-transformer-lm@a69b5c4 text_utils.py, text_standardize.
    """
    text = _MARKS.sub(r" \g<0> ", text.translate(_SPELLED))
    return _WHITE_SPACE.sub(lambda m: " \n " if "\n" in m[0] else " ", text).strip()


def cut(text: str) -> list[str]:
    """What is between spaces in a `standardized` text, and its line breaks."""
    return _CHUNK.findall(text)


class OpenAiWords:
    """Splits text into the words of the release; see `Splitter`.

    The words of a chunk are cached where they are used, so spaCy sees each chunk once: its
    tokenizer, too, cuts at white space first.
    """

    def __init__(self):
        """Raises:
        UserError: a package is missing.
        """
        if not are_installed():
            raise UserError(
                "--gpt_words=openai needs the packages ftfy and spaCy; install them (pip "
                "install -r requirements/gpt.txt), or pass --gpt_words=hugging_face"
            )
        self._fix, self._tokens = _packages()

    def chunks(self, text):
        """See `Splitter`; what is between spaces after marks were set apart."""
        return cut(standardized(self._repaired(text)))

    def words(self, chunk):
        if chunk == "\n":
            return [chunk]
        return [word.lower() for _, word in self._tokens(chunk)]

    def aligned(self, chunk):
        if chunk == "\n":
            return [chunk], [0], [1]
        words, sources = [], []
        for start, word in self._tokens(chunk):
            for place, character in enumerate(word, start=start):
                sources += [place] * len(character.lower())
            words.append(word.lower())
        return words, sources, [source + 1 for source in sources]

    def decomposes(self, text):
        return False

    def located(self, text: str) -> tuple[str, list[int], list[int]]:
        """The text that `chunks` cuts, and where each of its characters is from.

        Returns:
            a text; for each of its characters the start and the end of its original in
            `text`. A line break is all the white space around it.
        """
        repaired = self._repaired(text)
        begins, stops = aligned(text, repaired)
        places = []  # in the repaired text, of what is visible afterwards
        for found in _VISIBLE.finditer(repaired):
            if found[0].isspace() and "\n" not in found[0]:
                continue
            copies = len(found[0].translate(_SPELLED)) if not found[0].isspace() else 1
            places += [(begins[found.start()], stops[found.end() - 1])] * copies
        clean = standardized(repaired)
        if repaired[:1].isspace() and "\n" in _WHITE_SPACE.match(repaired)[0]:
            places = places[1:]  # it is stripped
        starts, ends = [], []
        place = iter(places)
        for character in clean:
            start, end = (0, 0) if character == " " else next(place)
            starts.append(start)
            ends.append(end)
        return clean, starts, ends

    def _repaired(self, text):
        return self._fix(_encodable(text))


@functools.cache
def _packages():
    """The functions of ftfy and spaCy; the second yields pairs of a place and a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ftfy 5 is older than some of Python's rules
        import ftfy
        import spacy

    tokenizer = spacy.blank("en").tokenizer
    # A word of spaCy 3 alone; spaCy 2 took the two marks apart.
    tokenizer.rules = {k: v for k, v in tokenizer.rules.items() if k != "''"}

    def tokens(text):
        with tokenizer.vocab.memory_zone():  # else it remembers every word for good
            return [(token.idx, token.text) for token in tokenizer(text)]

    return ftfy.fix_text, tokens


# === Alignment =======================================================================


def aligned(text: str, changed: str) -> tuple[list[int], list[int]]:
    """Where each character of a repaired text is from.

    Args:
        text: the original.
        changed: the same text with a few characters replaced.
    Returns:
        for each character of `changed`, the start and the end of its original in `text`.
        What was replaced as a whole shares one span; what was removed, and what was
        inserted, belongs to the character before it.
    """
    starts, ends = [], []

    def keep(first, last):
        starts.extend(range(first, last))
        ends.extend(range(first + 1, last + 1))

    if text == changed:
        keep(0, len(text))
        return starts, ends
    # Words first, because comparing characters takes time squared.
    old, new = _PARTS.findall(text), _PARTS.findall(changed)
    offset = 0
    for kind, first, last, new_first, new_last in _differences(old, new):
        if kind == "equal":
            size = sum(map(len, old[first:last]))
            keep(offset, offset + size)
            offset += size
            continue
        pairs = list(zip(old[first:last], new[new_first:new_last], strict=False))
        if last - first != new_last - new_first:
            pairs = [("".join(old[first:last]), "".join(new[new_first:new_last]))]
        for before, after in pairs:
            for start, end in _of_characters(before, after):
                start, end = offset + start, offset + end
                if start == end:  # inserted
                    start, end = max(start - 1, 0), max(end, 1)
                starts.append(start)
                ends.append(end)
            offset += len(before)
    return starts, ends


def _of_characters(before, after) -> list[tuple[int, int]]:
    spans = []
    for kind, first, last, new_first, new_last in _differences(before, after):
        if kind == "equal":
            spans += [(place, place + 1) for place in range(first, last)]
        elif kind == "delete":
            if spans:
                spans[-1] = spans[-1][0], last
        else:
            spans += [(first, last)] * (new_last - new_first)
    return spans


def _differences(old, new):
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
