"""An answer that says which tokens were probably replaced. Loads only NumPy."""

from serving.form import (
    POSITION,
    PROBABILITY,
    TEXT,
    Form,
    list_of,
    number_of,
    object_of,
)


def _replaced_tokens(row, request):
    (text,) = request.values()
    return {
        "tokens": [
            {
                "text": text[start:end],
                "start": int(start),
                "end": int(end),
                "probability": number_of(probability),
            }
            for start, end, probability in zip(
                row["starts"], row["ends"], row["probabilities"], strict=True
            )
            if start >= 0
        ]
    }


REPLACED = Form(
    _replaced_tokens,
    {
        "tokens": list_of(
            object_of(text=TEXT, start=POSITION, end=POSITION, probability=PROBABILITY)
        )
    },
    "token-classification",
    "finds replaced tokens",
    export="family.electra.export:ReplacedExport",
)
