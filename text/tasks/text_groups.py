"""Reads texts that belong together, in pairs, triplets and other kinds of files.

A kind is a row of `KINDS`: what its columns are usually called, and a function that makes
groups of the rows of a table.
"""

import collections
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from errors import UserError
from files import inputs, tables
from text.tasks import squad

_FLAGS = "the --*_column flags"


class TextGroup(NamedTuple):
    """Texts to compare: one, one that fits it, and others that do not.

    Attributes:
        texts: at least two.
        keys: a number for each, from 1, the same for equal texts.
        score: how well the first two fit, from 0 to 1; None if they just do.
    """

    texts: tuple[str, ...]
    keys: tuple[int, ...]
    score: float | None


class TextColumns(NamedTuple):
    """The names of columns; None where there is no such column."""

    first: str
    second: str | None = None
    negatives: tuple[str, ...] = ()
    score: str | None = None
    label: str | None = None

    def with_names(self, **chosen) -> "TextColumns":
        """The same columns, with other names where some are chosen."""
        had = {k: v for k, v in chosen.items() if v and getattr(self, k)}
        return self._replace(**had)


class GroupSettings(NamedTuple):
    """What else groups depend on.

    Attributes:
        score_range: the lowest and the highest score in files.
        pairs_per_text: of texts with labels, for each text as many pairs of one label and
            of two.
        seed: of their choice.
    """

    score_range: tuple[float, float] = (0.0, 1.0)
    pairs_per_text: int = 20
    seed: int = 0


class TextKind(NamedTuple):
    """A row of the table.

    Attributes:
        columns: by default.
        groups: (rows, columns, settings, counts) -> (texts, score) of each group; counts,
            a Counter, says what was left out.
        has_scores: whether groups have scores.
        is_symmetric: whether the first text of a group is like the others, and does not
            ask for them.
    """

    columns: TextColumns
    groups: Callable[..., Iterable[tuple[tuple[str, ...], float | None]]]
    has_scores: bool = False
    is_symmetric: bool = False


def read(
    path: str,
    kind: str,
    columns: TextColumns,
    settings: GroupSettings = GroupSettings(),  # noqa: B008  immutable
    max_line_mb: int | None = None,
    counts: Counter | None = None,
) -> list[TextGroup]:
    """The groups of a file.

    Args:
        counts: to be increased by what was left out, in words.
    Raises:
        UserError: there is none, or a line is bad; names file and line.
    """
    made = KINDS[kind].groups(
        _rows(path, kind, columns, max_line_mb),
        columns,
        settings,
        Counter() if counts is None else counts,
    )
    keys: dict[str, int] = {}
    groups = [
        TextGroup(
            texts, tuple(keys.setdefault(text, len(keys) + 1) for text in texts), score
        )
        for texts, score in made
    ]
    if not groups:
        raise UserError(f"{path}: contains no examples of the kind {kind}")
    return groups


Rows = Iterator[tuple[str, Mapping]]


def _rows(path, kind, columns, max_line_mb) -> Rows:
    if kind == "squad":
        for where, question in squad.read(path, max_line_mb):
            yield (
                where,
                {columns.first: question.question, columns.second: question.context},
            )
    elif kind == "texts" and not tables.form_of(path):
        for number, line in enumerate(inputs.lines(path, max_line_mb=max_line_mb), 1):
            if line.strip():
                yield f"{path}:{number}", {columns.first: line}
    else:
        for number, values in tables.read(path, max_line_mb=max_line_mb):
            yield f"{path}:{number}", values


def _text(values, column, where) -> str:
    text = tables.text(values, column, where, _FLAGS).strip()
    if not text:
        raise UserError(
            f"{where}: {column!r} is empty; remove the row, or write a text"
        )
    return text


def _texts_of(values, column, where) -> Sequence[str]:
    """Those of a column, which in JSON may be a list."""
    value = tables.cell(values, column, where, _FLAGS)
    if not isinstance(value, list):
        return [_text(values, column, where)]
    return [_text({column: text}, column, where) for text in value]


def _pairs(rows: Rows, columns: TextColumns, settings: GroupSettings, counts: Counter):
    del settings, counts
    for where, values in rows:
        pair = (_text(values, name, where) for name in (columns.first, columns.second))
        others = (_texts_of(values, name, where) for name in columns.negatives)
        yield (*pair, *(text for texts in others for text in texts)), None


def _scored_pairs(
    rows: Rows, columns: TextColumns, settings: GroupSettings, counts: Counter
):
    del counts
    low, high = settings.score_range
    for where, values in rows:
        pair = (_text(values, name, where) for name in (columns.first, columns.second))
        written = tables.cell(values, columns.score, where, _FLAGS)
        try:
            score = float(written)
        except (TypeError, ValueError):
            score = float("nan")
        if not low <= score <= high:
            raise UserError(
                f"{where}: {columns.score!r} is {written!r:.40}, not a number from {low:g} "
                f"to {high:g}; pass their --score_range"
            )
        yield tuple(pair), (score - low) / (high - low)


def _equal_pairs(
    rows: Rows, columns: TextColumns, settings: GroupSettings, counts: Counter
):
    """Of plain texts: each with itself, which dropout makes two."""
    del settings, counts
    for where, values in rows:
        text = _text(values, columns.first, where)
        yield (text, text), None


def _labelled_pairs(
    rows: Rows, columns: TextColumns, settings: GroupSettings, counts: Counter
):
    """Pairs of texts of one label, which fit, and of two, which do not.

    Source: Tunstall et al., arXiv:2209.11055, section 3.
    """
    del counts
    by_label, where = collections.defaultdict(list), ""
    for where, values in rows:
        label = str(tables.cell(values, columns.label, where, _FLAGS))
        by_label[label].append(_text(values, columns.first, where))
    if len(by_label) < 2 or max(map(len, by_label.values())) < 2:
        path = where.rpartition(":")[0]
        raise UserError(
            f"{path}: the column {columns.label!r} needs two labels or more, and a label "
            "of two texts or more, to make pairs of them"
        )
    rng = np.random.default_rng(settings.seed)
    all_texts = [text for texts in by_label.values() for text in texts]
    begin = 0
    for texts in by_label.values():
        size = len(texts)
        for place, text in enumerate(texts):
            if size > 1:
                for number in rng.integers(size - 1, size=settings.pairs_per_text):
                    number += number >= place  # not with itself
                    yield (text, texts[number]), 1.0
            others = len(all_texts) - size
            for number in rng.integers(others, size=settings.pairs_per_text):
                number += size * (number >= begin)  # not with its label's
                yield (text, all_texts[number]), 0.0
        begin += size


def _inferences(
    rows: Rows, columns: TextColumns, settings: GroupSettings, counts: Counter
):
    """Of natural language inference: what follows from a premise, what contradicts it.

    Source: Gao et al., arXiv:2104.08821, section 4.
    """
    del settings
    by_premise = collections.defaultdict(lambda: collections.defaultdict(list))
    for where, values in rows:
        label = tables.text(values, columns.label, where, _FLAGS)
        if label in ("entailment", "contradiction"):
            premise, hypothesis = (
                _text(values, name, where) for name in (columns.first, columns.second)
            )
            by_premise[premise][label].append(hypothesis)
    for premise, hypotheses in by_premise.items():
        wrong, right = hypotheses["contradiction"], hypotheses["entailment"]
        if not (wrong and right):
            counts[
                "premises lack what follows, or what contradicts, and are left out"
            ] += 1
            continue
        for number, sentence in enumerate(right):
            yield (premise, sentence, wrong[number % len(wrong)]), None


_PAIR = TextColumns("sentence1", "sentence2")
KINDS = {
    "pairs": TextKind(TextColumns("query", "positive"), _pairs),
    "triplets": TextKind(TextColumns("query", "positive", ("negative",)), _pairs),
    "scored_pairs": TextKind(_PAIR._replace(score="score"), _scored_pairs, True, True),
    "nli": TextKind(_PAIR._replace(label="gold_label"), _inferences),
    "squad": TextKind(TextColumns("question", "context"), _pairs),
    "labelled_texts": TextKind(
        TextColumns("text", label="label"), _labelled_pairs, True, True
    ),
    "texts": TextKind(TextColumns("text"), _equal_pairs, is_symmetric=True),
}


# --- To score vectors ----------------------------------------------------------------


class JudgedTexts(NamedTuple):
    """Texts whose vectors are scored.

    Attributes:
        queries, passages: distinct texts.
        pairs: int [n, 2], what is judged: a query, a passage.
        scores: float [n], how well they fit, from 0 to 1; None if all do, and the passages
            that are not paired with a query do not fit it.
    """

    queries: tuple[str, ...]
    passages: tuple[str, ...]
    pairs: np.ndarray
    scores: np.ndarray | None


def judged_texts(groups: Sequence[TextGroup]) -> JudgedTexts:
    """The texts of groups, each once."""
    queries, passages = {}, {}
    pairs = []
    for group in groups:
        query, *others = group.texts
        numbers = [passages.setdefault(text, len(passages)) for text in others]
        pairs.append((queries.setdefault(query, len(queries)), numbers[0]))
    has_scores = groups[0].score is not None
    scores = np.array([group.score for group in groups]) if has_scores else None
    return JudgedTexts(tuple(queries), tuple(passages), np.array(pairs), scores)
