"""An answer with the most probable next tokens. Loads only NumPy."""

from serving.form import TOKENS, Form, tokens_of


def _next(row, request):
    return {"tokens": tokens_of(row["tokens"], row["probabilities"])}


NEXT = Form(
    _next,
    {"tokens": TOKENS},
    "text-generation",
    "continues texts",
    export="family.gpt.export:ContinuationExport",
)
