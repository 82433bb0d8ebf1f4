"""An answer that is a text. Loads only NumPy."""

from serving import form
from serving.form import Form, text_of


def _plain_text(row, request):
    return {"predicted": text_of(row["predicted"])}


TEXT = Form(
    _plain_text,
    {"predicted": form.TEXT},
    "text2text-generation",
    "answers texts with texts",
    export="family.t5.export:SpansExport",
)
