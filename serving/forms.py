"""Turns an exported model's outputs for a batch into JSON answers of various forms.

Every export serves one form. Loads only NumPy.

To add a form, add a row to FORMS, or to the `forms` of an extension.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

import extensions
from serving.form import (
    NUMBER,
    POSITION,
    PROBABILITY,
    TEXT,
    TOKENS,
    Form,
    by_name,
    list_of,
    number_of,
    numbers_of,
    object_of,
    text_of,
    tokens_of,
)

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


def verdicts(form: str, answer: Mapping) -> Iterable[tuple[str, float | None]]:
    """What an answer decides; see `Form.verdicts`."""
    decide = FORMS[form].verdicts
    return decide(answer) if decide else ()


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


def _verdict_of_label(answer):
    yield answer["predicted"], answer["probabilities"][answer["predicted"]]


def _verdicts_of_labels(answer):
    for label in answer["predicted"]:
        yield label, answer["probabilities"][label]


def _verdict_of_choice(answer):
    yield f"number {answer['predicted'] + 1}", max(answer["probabilities"])


def _verdict_of_span(answer):
    yield "an answer" if answer["answer"] else "no answer", answer.get("probability")


def _verdicts_of_words(answer):
    return zip(answer["tags"], answer["probabilities"], strict=True)


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


_PROBABILITIES = {"probabilities": by_name(PROBABILITY)}
_WORD_TAGS = {"tags": list_of(TEXT), "probabilities": list_of(PROBABILITY)}
_ENTITY = object_of(text=TEXT, type=TEXT, start=POSITION, stop=POSITION)
FORMS = {
    "label": Form(
        _label,
        {"predicted": TEXT, **_PROBABILITIES},
        "text-classification",
        "classifies texts",
        verdicts=_verdict_of_label,
        explains=True,
    ),
    "labels": Form(
        _labels,
        {"predicted": list_of(TEXT), **_PROBABILITIES},
        "text-classification",
        "classifies texts",
        verdicts=_verdicts_of_labels,
        explains=True,
    ),
    "number": Form(
        _number,
        {"predicted": NUMBER},
        "text-classification",
        "scores texts",
        explains=True,
    ),
    "vector": Form(
        _vector,
        {"vector": list_of(NUMBER)},
        "feature-extraction",
        "turns texts into vectors",
    ),
    "choice": Form(
        _choice,
        {"predicted": POSITION, "probabilities": list_of(PROBABILITY)},
        "multiple-choice",
        "chooses one of several texts",
        faults=_faults_of_choices,
        verdicts=_verdict_of_choice,
    ),
    "span": Form(
        _span,
        {
            "answer": TEXT,
            "start": POSITION,
            "end": POSITION,
            "probability": PROBABILITY,
            "score": NUMBER,
            "null_odds": NUMBER,
        },
        "question-answering",
        "answers questions about a text",
        verdicts=_verdict_of_span,
        explains=True,
    ),
    "tags": Form(
        _tags,
        {**_WORD_TAGS, "entities": list_of(_ENTITY)},
        "token-classification",
        "tags words",
        verdicts=_verdicts_of_words,
        explains=True,
    ),
    "word_tags": Form(
        _word_tags,
        _WORD_TAGS,
        "token-classification",
        "tags words",
        verdicts=_verdicts_of_words,
        explains=True,
    ),
    "masks": Form(
        _masks,
        {"masks": list_of(TOKENS)},
        "fill-mask",
        "fills in masked words",
        export="training.pretraining.exports:MasksExport",
    ),
}
FORMS |= extensions.load_rows("forms", FORMS)
