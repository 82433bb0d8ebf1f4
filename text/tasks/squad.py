"""Reads questions in SQuAD's JSON layout, versions 1.1 and 2.0, and finds their answers.

KorQuAD 1.0 and KLUE-MRC have this layout, too.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from errors import UserError
from files import inputs
from text.tasks.answer_spans import Document
from text.tokenizers.tokenizer import Tokenizer

_KLUE_ID = "guid"  # what KLUE-MRC calls the id of a question


class Question(NamedTuple):
    """One question about one text."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int | None], ...]  # text and first character
    is_impossible: bool

    @property
    def references(self) -> list[str]:
        return [text for text, _ in self.answers]


def read(path: str, max_line_mb: int | None = None) -> Iterator[tuple[str, Question]]:
    """Yields the place of each question in a file of SQuAD's layout, and its `Question`.

    Args:
        max_line_mb: see `inputs.whole_text`.
    """
    for where, question, context in _questions(_content(path, max_line_mb), path):
        yield where, _example(question, context, where)


def answer_score(path: str, max_line_mb: int | None = None) -> str:
    """How the data set that a file is of scores answers: a name in
    `squad_metrics.ANSWER_SCORES`.
    """
    content = _content(path, max_line_mb)
    if isinstance(content, dict):
        if str(content.get("version", "")).startswith("KorQuAD"):
            return "characters"
        _, question, _ = next(_questions(content, path), (None, {}, None))
        if _KLUE_ID in question:
            return "rouge_w"
    return "words"


def _content(path, max_line_mb):
    lines = inputs.lines(path, max_line_mb=max_line_mb)
    try:
        return json.loads(inputs.whole_text(path, lines, max_line_mb))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise UserError(
            f"{path}:{line}: not JSON, or truncated: {getattr(error, 'msg', error)}"
        ) from error


def _questions(content, path):
    for in_data, article in _items(content, "data", path):
        for in_article, paragraph in _items(article, "paragraphs", in_data):
            context = _value(paragraph, "context", in_article, str)
            for where, question in _items(paragraph, "qas", in_article):
                yield where, question, context


def read_to_answer(path: str, max_line_mb: int | None = None) -> list[Question]:
    """Reads questions whose answers will be written by id, which must be unique."""
    examples, seen = [], {}
    for where, example in read(path, max_line_mb):
        if example.id in seen:
            raise UserError(
                f"{where}: id {example.id!r} is also that of {seen[example.id]}, but "
                "answers are written by id; make ids unique"
            )
        seen[example.id] = where.removeprefix(f"{path}: ")
        examples.append(example)
    if not examples:
        raise UserError(f"{path}: contains no questions")
    return examples


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
        shown, kinds_allowed = (
            json.dumps(value)[:40],
            " or ".join(_KINDS[k] for k in kinds),
        )
        raise UserError(f"{where}: {key!r} is {shown}, not {kinds_allowed}")
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
    name = _KLUE_ID if _KLUE_ID in question and "id" not in question else "id"
    id = str(_value(question, name, where, str, int))
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
    return Question(id, text, context, tuple(named), is_impossible)


def _tokens_of(document, text, start):
    """The tokens that an answer touches, if it is where its annotation says."""
    if document.text[start : start + len(text)] != text:
        return None
    start += len(text) - len(text.lstrip())
    touched = (document.ends > start) & (document.starts < start + len(text.strip()))
    touched &= document.ends > document.starts  # not a space alone
    places = np.flatnonzero(touched)
    return (int(places[0]), int(places[-1])) if len(places) else None


def check_trainable(example: Question, where: str) -> None:
    """Refuses a question that no answer can be learned from; `where` is its place."""
    if not example.answers:
        raise UserError(
            f"{where}: no answer to train on; for questions without answers, pass "
            "--version_2_with_negative and mark them with is_impossible"
        )
    for text, start in example.answers:
        if start is None:
            raise UserError(f"{where}: an answer has no 'answer_start'")
        if not 0 <= start <= len(example.context) - len(text):
            raise UserError(
                f"{where}: answer_start is {start} for {text[:40]!r}, but the text has "
                f"{len(example.context)} characters, counted from 0"
            )


def check_scorable(examples: list[Question], path: str, version_2: bool) -> None:
    """Refuses questions whose answers are not known, if all must have one or be
    impossible.
    """
    answered = [example for example in examples if example.answers]
    if not answered and not any(example.is_impossible for example in examples):
        raise UserError(
            f"{path}: no question has an answer to compare with; a test set can only "
            "be answered: pass --do_predict without --do_eval"
        )
    if not version_2 and len(answered) < len(examples):
        missing = next(e.id for e in examples if not e.answers)
        raise UserError(
            f"{path}: {len(examples) - len(answered)} questions have no answer, such as "
            f"{missing!r}; for SQuAD 2.0, pass --version_2_with_negative"
        )


def first_answer(
    document: Document, tokenizer: Tokenizer, example: Question
) -> tuple[int, int] | None:
    """The first of a question's answers that is in the text; see `find_answer`."""
    places = (
        find_answer(document, tokenizer, text, start)
        for text, start in example.answers
        if start is not None
    )
    return next(filter(None, places), None)


def find_answer(
    document: Document, tokenizer: Tokenizer, text: str, start: int
) -> tuple[int, int] | None:
    """Where an annotated answer is among a document's tokens: the first and the last.

    These are the words that the annotation touches or, if they contain the tokens of
    the answer alone, the first of these: `1895` in `(1895-1943).` None if the words do
    not contain the answer or it has no tokens. See also
    `Tokenizer.finds_answers_by_offset`.

    Source: google-research/bert@eedf571 run_squad.py, read_squad_examples,
        _improve_answer_span.
    """
    collapsed = " ".join(text.split())
    in_range = 0 <= start <= len(document.text) - len(text)
    if not collapsed or not in_range or not len(document):
        return None
    # Whitespace belongs to the word before it, or at the beginning to the first word.
    touched = document.words[:, 0].searchsorted([start, start + len(text) - 1], "right")
    first_word, last_word = np.maximum(touched - 1, 0)
    begin, end = document.words[first_word, 0], document.words[last_word, 1]
    # Differs from the release: all whitespace counts as a space on both sides, so that a
    # no-break space in an answer does not lose the example.
    if collapsed not in " ".join(document.text[begin:end].split()):
        return None
    first, stop = document.starts.searchsorted([begin, end]).tolist()
    if first == stop:  # a word of deleted characters only
        return None
    if tokenizer.finds_answers_by_offset:
        return _tokens_of(document, text, start) or (first, stop - 1)
    ids = document.ids[first:stop].tolist()
    for before in " ", "":  # some tokenizers take in the space before a word
        answer_ids = tokenizer.encode(before + text.strip())
        for place in range(len(ids) - len(answer_ids) + 1 if answer_ids else 0):
            if ids[place : place + len(answer_ids)] == answer_ids:
                return first + place, first + place + len(answer_ids) - 1
    return first, stop - 1
