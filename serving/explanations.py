"""Writes explanations of answers as JSON: what each word of a request contributes.

Loads only NumPy.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from serving.form import (
    NUMBER,
    POSITION,
    TEXT,
    list_of,
    number_of,
    numbers_of,
    object_of,
    text_of,
)
from text.tokenizers.word_splitter import is_cjk

NAME = "explanation"  # in an answer
_BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])['’](?=[^\W\d_])")
_LOGITS = {"logit": NUMBER, "baseline_logit": NUMBER}
_WORD = object_of(
    part=TEXT, text=TEXT, start=POSITION, end=POSITION, contribution=NUMBER
)
_OF_TEXTS = object_of(**_LOGITS, words=list_of(_WORD))
_OF_TEXTS["properties"] = {"label": TEXT, **_OF_TEXTS["properties"]}
_OF_WORDS = object_of(
    word=POSITION, label=TEXT, **_LOGITS, contributions=list_of(NUMBER)
)
_OF_WORDS["properties"] = {**_OF_WORDS["properties"], "context": NUMBER}


def schema(parts: Mapping[str, str]) -> Mapping:
    """The JSON Schema of an explanation, for the parts of a request."""
    return list_of(_OF_WORDS) if "list" in parts.values() else _OF_TEXTS


def explain(outputs: Mapping[str, np.ndarray], request: Mapping, parts: Mapping):
    """The JSON of an explanation.

    Args:
        outputs: a row of the signature's; see `integrated_gradients`.
        parts: of a request, "text" or "list" by name, in the model's order.
    """
    of_kind = _of_words if "list" in parts.values() else _of_texts
    return of_kind(outputs, request, list(parts))


def _logits(row):
    return {name: number_of(row[name]) for name in _LOGITS}


# --- Texts -------------------------------------------------------------------------------


def _of_texts(row, request, names):
    """One answer, and the words of all texts."""
    label = {"label": text_of(row["label"])} if "label" in row else {}
    words = []
    for number, name in enumerate(names):
        is_here = row["parts"] == number
        columns = (row[key][is_here] for key in ("starts", "ends", "attributions"))
        words += [{"part": name, **word} for word in words_of(request[name], *columns)]
    return {**label, **_logits(row), "words": words}


def words_of(
    text: str, starts: np.ndarray, ends: np.ndarray, contributions: np.ndarray
) -> list[dict]:
    """The words of a text that have tokens, with what these contribute in all.

    Words that share a token are one.

    Args:
        starts, ends: int32 [tokens], characters.
        contributions: float32 [tokens].
    """
    spans = _spans(text)
    if not spans:
        spans = [(0, len(text))]  # tokens of spaces alone
    begins = np.array([start for start, _ in spans])
    stops = np.array([stop for _, stop in spans])
    # That in which a token begins, or the next one; and that in which it ends.
    first = np.minimum(np.searchsorted(stops, starts, side="right"), len(spans) - 1)
    last = np.maximum(np.searchsorted(begins, ends, side="left") - 1, first)
    is_joined = np.zeros(len(spans), bool)  # to the next one
    for a, b in zip(first, last, strict=True):
        is_joined[a:b] = True
    heads = np.flatnonzero(np.concatenate([[True], ~is_joined[:-1]]))
    begins, stops = begins[heads], stops[np.append(heads[1:], len(spans)) - 1]
    groups = np.searchsorted(heads, first, side="right") - 1
    sums = np.zeros(len(heads), np.float32)
    np.add.at(sums, groups, contributions)
    return [
        {
            "text": text[begins[group] : stops[group]],
            "start": int(begins[group]),
            "end": int(stops[group]),
            "contribution": number_of(sums[group]),
        }
        for group in np.unique(groups)
    ]


def _spans(text: str) -> list[tuple[int, int]]:
    """Where words begin and end; marks and CJK characters are words of their own."""
    inside = {match.start() for match in _BETWEEN_LETTERS.finditer(text)}
    spans, is_open = [], False
    for place, character in enumerate(text):
        category = unicodedata.category(character)
        is_alone = category[0] in "PS" or is_cjk(character)
        is_alone &= place not in inside
        if character.isspace() or category == "Cc":
            is_open = False
        elif is_open and not is_alone:
            spans[-1] = spans[-1][0], place + 1
        else:
            spans.append((place, place + 1))
            is_open = not is_alone
    return spans


def pieces(explanation: Mapping, request: Mapping) -> list[tuple[str, float]]:
    """The texts of a request in pieces, with their contributions; 0 between words."""
    parts = []
    for name, text in request.items():
        parts += [("\n", 0.0)] if parts else []
        shown = 0
        for word in explanation["words"]:
            if word["part"] == name:
                parts.append((text[shown : word["start"]], 0.0))
                parts.append((word["text"], word["contribution"]))
                shown = word["end"]
        parts.append((text[shown:], 0.0))
    return [part for part in parts if part[0]]


# --- Lists of words ----------------------------------------------------------------------


def _of_words(row, request, names):
    """An answer for each word that is explained, with one number for each word."""
    number = len(request["words"])
    return [
        {
            "word": int(word),
            "label": text_of(row["label"][word]),
            **_logits({name: row[name][word] for name in _LOGITS}),
            "contributions": numbers_of(row["attributions"][word, :number]),
            # Words of the document, which are not among those of the request.
            **_context(row["attributions"][word, -1], names),
        }
        for word in range(number)
        if row["label"][word]
    ]


def _context(contribution, names: Sequence[str]) -> dict:
    return {"context": number_of(contribution)} if len(names) > 1 else {}
