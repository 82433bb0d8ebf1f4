"""An answer with the most probable next tokens. Loads only NumPy."""

from serving.form import Form, tokens_of


def _next(row, request):
    return {"tokens": tokens_of(row["tokens"], row["probabilities"])}


NEXT = Form(
    _next,
    ("tokens",),
    "text-generation",
    "continues texts",
    export="family.gpt.export:ContinuationExport",
)
