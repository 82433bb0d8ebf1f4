"""Turns an exported model's outputs for a batch into JSON answers of various forms.

Every export serves one form. Loads only NumPy.

To add a form, add a row to FORMS.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

RARE = ("probability", "score", "null_odds")  # only from some models


class Form(NamedTuple):
    """A row of the table.

    Attributes:
        answer: (an output's row by name, the request) -> the JSON answer; strings are UTF-8
            bytes, and lists of the request tell how much of a padded row to use.
        names: the names in an answer.
        task: what hubs call the task.
        purpose: what such a model does, in words.
        faults: (name, texts) -> what is wrong with a list of a request, for a person.
        export: "module:class" of the `TextExport` that answers so with a network of
            pre-training; None if only fine-tuned models do.
    """

    answer: Callable[[Mapping, Mapping], dict]
    names: tuple[str, ...]
    task: str
    purpose: str
    faults: Callable[[str, Sequence[str]], Iterator[str]] | None = None
    export: str | None = None


def answers(
    form: str, outputs: Mapping[str, np.ndarray], requests: Sequence[Mapping]
) -> list[dict]:
    """The JSON answers of a batch.

    Args:
        form: one of FORMS.
        outputs: name -> [b, ...], from serving_default; strings as UTF-8 bytes.
        requests: the b requests.
    """
    answer = FORMS[form].answer
    return [
        answer({name: value[i] for name, value in outputs.items()}, request)
        for i, request in enumerate(requests)
    ]


def _label(row, request):
    return {
        "predicted": _text(row["predicted"]),
        "probabilities": _by_label(row),
    }


def _labels(row, request):
    return {
        "predicted": [_text(label) for label in row["predicted"] if label],
        "probabilities": _by_label(row),
    }


def _number(row, request):
    return {"predicted": _float(row["predicted"])}


def _plain_text(row, request):
    return {"predicted": _text(row["predicted"])}


def _choice(row, request):
    return {
        "predicted": int(row["predicted"]),
        "probabilities": _floats(row["probabilities"][: _list_size(request)]),
    }


def _span(row, request):
    return {
        "answer": _text(row["answer"]),
        "start": int(row["start"]),
        "end": int(row["end"]),
        # The last only from models that may decline to answer.
        **{name: _float(row[name]) for name in RARE if name in row},
    }


def _word_tags(row, request):
    num_words = _list_size(request)
    return {
        "tags": [_text(tag) for tag in row["tags"][:num_words]],
        "probabilities": _floats(row["probabilities"][:num_words]),
    }


def _tags(row, request):
    names = ("entities", "entity_types", "entity_starts", "entity_stops")
    return {
        **_word_tags(row, request),
        "entities": [
            {
                "text": _text(text),
                "type": _text(kind),
                "start": int(start),
                "stop": int(stop),
            }
            for text, kind, start, stop in zip(*(row[n] for n in names), strict=True)
            # Tokens that are a space are not scored, so one alone is not an entity.
            if start >= 0 and _text(text) != " "
        ],
    }


def _masks(row, request):
    masks = map(_tokens, row["tokens"], row["probabilities"])
    return {"masks": [mask for mask in masks if mask]}


def _next(row, request):
    return {"tokens": _tokens(row["tokens"], row["probabilities"])}


def _replaced(row, request):
    (text,) = request.values()
    return {
        "tokens": [
            {
                "text": text[start:end],
                "start": int(start),
                "end": int(end),
                "probability": _float(probability),
            }
            for start, end, probability in zip(
                row["starts"], row["ends"], row["probabilities"], strict=True
            )
            if start >= 0
        ]
    }


def _faults_of_choices(name, texts):
    if not texts:
        yield f"{name} is empty: nothing to choose from"
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            yield f"{name} has an empty choice, number {number}"


def _tokens(tokens, probabilities):
    return [
        {"token": _text(token), "probability": _float(probability)}
        for token, probability in zip(tokens, probabilities, strict=True)
        if token
    ]


def _by_label(row):
    labels = map(_text, row["labels"])
    return dict(zip(labels, _floats(row["probabilities"]), strict=True))


def _list_size(request):
    (size,) = (len(part) for part in request.values() if isinstance(part, list))
    return size


def _text(value: bytes) -> str:
    return value.decode("utf-8")


def _floats(values):
    return [_float(value) for value in values]


def _float(value: np.float32) -> float:
    """The shortest number that is this float32: 0.9, not 0.8999999761581421."""
    return float(str(value))


_PREDICTED = ("predicted", "probabilities")
_PRETRAINED = "training.pretraining.exports"
FORMS = {
    "label": Form(_label, _PREDICTED, "text-classification", "classifies texts"),
    "labels": Form(_labels, _PREDICTED, "text-classification", "classifies texts"),
    "number": Form(_number, ("predicted",), "text-classification", "scores texts"),
    "choice": Form(
        _choice,
        _PREDICTED,
        "multiple-choice",
        "chooses one of several texts",
        faults=_faults_of_choices,
    ),
    "span": Form(
        _span,
        ("answer", "start", "end", *RARE),
        "question-answering",
        "answers questions about a text",
    ),
    "tags": Form(
        _tags,
        ("tags", "probabilities", "entities"),
        "token-classification",
        "tags words",
    ),
    "word_tags": Form(
        _word_tags, ("tags", "probabilities"), "token-classification", "tags words"
    ),
    "masks": Form(
        _masks,
        ("masks",),
        "fill-mask",
        "fills in masked words",
        export=f"{_PRETRAINED}:MasksExport",
    ),
    "next": Form(
        _next,
        ("tokens",),
        "text-generation",
        "continues texts",
        export=f"{_PRETRAINED}:ContinuationExport",
    ),
    "replaced": Form(
        _replaced,
        ("tokens",),
        "token-classification",
        "finds replaced tokens",
        export=f"{_PRETRAINED}:ReplacedExport",
    ),
    "text": Form(
        _plain_text,
        ("predicted",),
        "text2text-generation",
        "answers texts with texts",
        export=f"{_PRETRAINED}:SpansExport",
    ),
}
