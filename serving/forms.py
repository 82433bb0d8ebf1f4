"""Turns an exported model's outputs for a batch into JSON answers of various forms.

Every export serves one form. Loads only NumPy.

To add a form, add a row to FORMS, or to the `forms` of an extension.
"""

from collections.abc import Mapping, Sequence

import numpy as np

import extensions
from serving.form import Form, number_of, numbers_of, text_of, tokens_of

RARE = ("probability", "score", "null_odds")  # only from some models


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
        "predicted": text_of(row["predicted"]),
        "probabilities": _by_label(row),
    }


def _labels(row, request):
    return {
        "predicted": [text_of(label) for label in row["predicted"] if label],
        "probabilities": _by_label(row),
    }


def _number(row, request):
    return {"predicted": number_of(row["predicted"])}


def _vector(row, request):
    return {"vector": numbers_of(row["vector"])}


def _choice(row, request):
    return {
        "predicted": int(row["predicted"]),
        "probabilities": numbers_of(row["probabilities"][: _list_size(request)]),
    }


def _span(row, request):
    return {
        "answer": text_of(row["answer"]),
        "start": int(row["start"]),
        "end": int(row["end"]),
        # The last only from models that may decline to answer.
        **{name: number_of(row[name]) for name in RARE if name in row},
    }


def _word_tags(row, request):
    num_words = _list_size(request)
    return {
        "tags": [text_of(tag) for tag in row["tags"][:num_words]],
        "probabilities": numbers_of(row["probabilities"][:num_words]),
    }


def _tags(row, request):
    names = ("entities", "entity_types", "entity_starts", "entity_stops")
    return {
        **_word_tags(row, request),
        "entities": [
            {
                "text": text_of(text),
                "type": text_of(kind),
                "start": int(start),
                "stop": int(stop),
            }
            for text, kind, start, stop in zip(*(row[n] for n in names), strict=True)
            # Tokens that are a space are not scored, so one alone is not an entity.
            if start >= 0 and text_of(text) != " "
        ],
    }


def _masks(row, request):
    masks = map(tokens_of, row["tokens"], row["probabilities"])
    return {"masks": [mask for mask in masks if mask]}


def _faults_of_choices(name, texts):
    if not texts:
        yield f"{name} is empty: nothing to choose from"
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            yield f"{name} has an empty choice, number {number}"


def _by_label(row):
    labels = map(text_of, row["labels"])
    return dict(zip(labels, numbers_of(row["probabilities"]), strict=True))


def _list_size(request):
    (size,) = (len(part) for part in request.values() if isinstance(part, list))
    return size


_PREDICTED = ("predicted", "probabilities")
FORMS = {
    "label": Form(_label, _PREDICTED, "text-classification", "classifies texts"),
    "labels": Form(_labels, _PREDICTED, "text-classification", "classifies texts"),
    "number": Form(_number, ("predicted",), "text-classification", "scores texts"),
    "vector": Form(
        _vector, ("vector",), "feature-extraction", "turns texts into vectors"
    ),
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
        export="training.pretraining.exports:MasksExport",
    ),
}
FORMS |= extensions.load_rows("forms", FORMS)
