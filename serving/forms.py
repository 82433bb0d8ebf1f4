"""Turns an exported model's outputs for a batch into JSON answers of various forms.

Every export serves one form. Loads only NumPy.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np


def answers(
    form: str, outputs: Mapping[str, np.ndarray], requests: Sequence[Mapping]
) -> list[dict]:
    """The JSON answers of a batch.

    Args:
        form: one of FORMS.
        outputs: name -> [b, ...], from serving_default; strings as UTF-8 bytes.
        requests: the b requests; the sizes of their lists tell how much of a padded row to
            use.
    """
    answer = FORMS[form]
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


def _written(row, request):
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


def faults(form: str, name: str, texts: Sequence[str]) -> Iterator[str]:
    """What is wrong with a list of a request, for a person to read."""
    if form in _FAULTS:
        yield from _FAULTS[form](name, texts)


def _faults_of_choices(name, texts):
    if not texts:
        yield f"{name} is empty: nothing to choose from"
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            yield f"{name} has an empty choice, number {number}"


_FAULTS = {"choice": _faults_of_choices}

FORMS = {
    "label": _label,
    "labels": _labels,
    "number": _number,
    "choice": _choice,
    "span": _span,
    "tags": _tags,
    "word_tags": _word_tags,
    "masks": _masks,
    "next": _next,
    "replaced": _replaced,
    "text": _written,
}

RARE = ("probability", "score", "null_odds")  # only from some models

# The names in the answers of each form.
NAMES = {
    "label": ("predicted", "probabilities"),
    "labels": ("predicted", "probabilities"),
    "number": ("predicted",),
    "choice": ("predicted", "probabilities"),
    "span": ("answer", "start", "end", "probability", "score", "null_odds"),
    "tags": ("tags", "probabilities", "entities"),
    "word_tags": ("tags", "probabilities"),
    "masks": ("masks",),
    "next": ("tokens",),
    "replaced": ("tokens",),
    "text": ("predicted",),
}


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
