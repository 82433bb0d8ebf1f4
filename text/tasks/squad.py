"""Reads questions in SQuAD's JSON layout, versions 1.1 and 2.0."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from text.errors import UserError
from text.files import inputs


class Example(NamedTuple):
    """One question about one text."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int | None], ...]  # text and first character
    is_impossible: bool

    @property
    def references(self) -> list[str]:
        return [text for text, _ in self.answers]


def read(path: str) -> Iterator[tuple[str, Example]]:
    """Reads a file in SQuAD's layout.

    Yields:
        the place in the file, for messages; and an `Example`.
    Raises:
        UserError: the file is not JSON, or a value is missing or has the wrong type.
    """
    try:
        content = json.loads("\n".join(inputs.lines(path)))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise UserError(
            f"{path}:{line}: not JSON, or truncated: {getattr(error, 'msg', error)}"
        ) from error
    for in_data, article in _items(content, "data", path):
        for in_article, paragraph in _items(article, "paragraphs", in_data):
            context = _value(paragraph, "context", in_article, str)
            for where, question in _items(paragraph, "qas", in_article):
                yield where, _example(question, context, where)


def _items(values, key, where):
    for number, item in enumerate(_value(values, key, where, list)):
        within = f"{where}: " if "[" not in where else f"{where}."
        yield f"{within}{key}[{number}]", item


_KINDS = {str: "a string", list: "a list", int: "an integer", bool: "true or false"}


def _value(values, key, where, *kinds):
    if not isinstance(values, dict) or key not in values:
        raise UserError(
            f"{where}: has no {key!r}; check that the file has SQuAD's layout"
        )
    value = values[key]
    if type(value) not in kinds:  # to isinstance, true would be an integer
        shown, wanted = json.dumps(value)[:40], " or ".join(_KINDS[k] for k in kinds)
        raise UserError(f"{where}: {key!r} is {shown}, not {wanted}")
    if type(value) is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"{where}: {key!r} contains half a character (a lone surrogate)"
            ) from None
    return value


def _example(question, context, where):
    # The release keeps integers, but its answer files have strings too.
    id = str(_value(question, "id", where, str, int))
    named = []
    # Test sets may omit the answers.
    for where_, answer in _items({"answers": []} | question, "answers", where):
        text, start = _value(answer, "text", where_, str), None
        if "answer_start" in answer:
            start = _value(answer, "answer_start", where_, int)
        named.append((text, start))
    is_impossible = False
    if "is_impossible" in question:
        is_impossible = _value(question, "is_impossible", where, bool)
    text = _value(question, "question", where, str)
    return Example(id, text, context, tuple(named), is_impossible)
