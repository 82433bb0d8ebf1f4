"""Reads queries, passages and which of these are relevant; makes runs as TREC's.

A folder is laid out as BEIR's are, with tables in the place of JSON lines where wanted:

    corpus.jsonl or corpus.tsv     passages: _id, text and perhaps title
    queries.jsonl or queries.tsv   _id, text
    qrels/test.tsv                 query-id, corpus-id, score; one file for each split

Loads neither NumPy nor TensorFlow.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping

from errors import UserError, count
from files import inputs, sources, tables

_IDS = ("_id", "id")
_TREC = ("query-id", "iteration", "corpus-id", "score")
# What others call the columns of relevant pairs.
_COLUMNS = {
    "query-id": ("query-id", "query_id", "qid"),
    "corpus-id": ("corpus-id", "corpus_id", "passage-id", "passage_id", "pid", "docid"),
    "score": ("score", "relevance", "label"),
}


@dataclasses.dataclass(frozen=True)
class TextCollection:
    """Queries and passages by their ids, and the relevance of passages to queries.

    Attributes:
        queries: of the split; each has a relevant passage.
        relevant: query -> passage -> how relevant it is, from 0.
        shares_ids: whether a query may also be a passage, with the same id, as in ArguAna.
    """

    queries: Mapping[str, str]
    passages: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]
    shares_ids: bool = False

    def own_passages(self) -> dict[str, set[str]]:
        """The passages that are a query itself, by queries that have such.

        They have its text, or its id and end with its text, after a title. What is relevant
        is none of them.
        """
        asked = set(self.queries.values())
        by_text: dict[str, list[str]] = {}
        for id, text in self.passages.items():
            if text in asked:
                by_text.setdefault(text, []).append(id)
        own = {}
        for query, text in self.queries.items():
            ids = set(by_text.get(text, ()))
            if self.shares_ids and self.passages.get(query, "").endswith(text):
                ids.add(query)
            fitting = {id for id, score in self.relevant[query].items() if score}
            if ids - fitting:
                own[query] = ids - fitting
        return own


def read_collection(
    folder: str, name: str, max_line_mb: int | None = None
) -> TextCollection:
    """Reads a folder; queries that the relevant pairs do not mention are left out.

    Args:
        name: of the file of these pairs in qrels, such as test.tsv.
    Raises:
        UserError: a file is missing, ids occur twice or do not exist, or a query has no
            relevant passage.
    """
    passages = read_texts(_find(folder, "corpus"), max_line_mb)
    queries = read_texts(_find(folder, "queries"), max_line_mb)
    path = os.path.join(folder, "qrels", name)
    if not sources.exists(path):
        raise UserError(
            f"{path}: no such file; it must say which passages are relevant, in the "
            "columns query-id, corpus-id and score"
        )
    relevant = read_relevant(path, queries, passages, max_line_mb)
    queries = {id: queries[id] for id in relevant}
    return TextCollection(queries, passages, relevant, shares_ids=True)


def _find(folder, name):
    paths = [os.path.join(folder, f"{name}.{form}") for form in ("jsonl", "tsv")]
    for path in paths:
        if sources.exists(path):
            return path
    raise UserError(f"{folder}: contains no {name}.jsonl and no {name}.tsv; add one")


def read_texts(path: str, max_line_mb: int | None = None) -> dict[str, str]:
    """Texts by their ids, in the order of the file; a title comes before its text."""
    texts, places = {}, {}
    for number, values in tables.read(path, max_line_mb=max_line_mb):
        where = f"{inputs.name(path)}:{number}"
        id = _id(values, where)
        if id in texts:
            raise UserError(
                f"{where}: the id {id!r:.60} is also that of line {places[id]}; ids must "
                "be unique"
            )
        text = join_title(values, where).strip()
        if not text:
            raise UserError(f"{where}: the text is empty; remove it, or give it words")
        texts[id], places[id] = text, number
    if not texts:
        raise UserError(f"{path}: contains no text")
    return texts


def join_title(values: Mapping, where: str) -> str:
    """The text of a row, after its title if it has one, as in BEIR.

    Args:
        where: the row, for messages.
    Source: beir-cellar/beir beir/retrieval/models/sentence_bert.py, encode_corpus.
    """
    text = tables.text(values, "text", where, "the columns _id and text")
    title = values.get("title") or ""
    if not isinstance(title, str):
        raise UserError(f"{where}: 'title' is {title!r:.40}, not text")
    return f"{title} {text}" if title else text


def _id(values, where):
    id = next((values[name] for name in _IDS if name in values), None)
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    if not isinstance(id, str) or not id or id.split() != [id]:
        found = "has no _id" if id is None else f"has the _id {id!r:.60}"
        raise UserError(
            f"{where}: {found}; it must be a word or a number, without spaces"
        )
    return id


def read_relevant(
    path: str,
    queries: Mapping[str, str],
    passages: Mapping[str, str],
    max_line_mb: int | None = None,
) -> dict[str, dict[str, int]]:
    """Reads relevant pairs: BEIR's columns, or TREC's four without a header."""
    relevant, places = {}, {}
    for where, query, passage, score in _pairs(path, max_line_mb):
        for name, id, known in (
            ("query", query, queries),
            ("passage", passage, passages),
        ):
            if id not in known:
                raise UserError(f"{where}: there is no {name} with the id {id!r:.60}")
        if (query, passage) in places:
            raise UserError(
                f"{where}: the pair of {query!r:.60} and {passage!r:.60} is also on line "
                f"{places[query, passage]}; remove one of them"
            )
        places[query, passage] = where.rpartition(":")[2]
        relevant.setdefault(query, {})[passage] = score
    lonely = [query for query, scores in relevant.items() if not any(scores.values())]
    if lonely:
        others = f" ({count(len(lonely), 'such query')})".replace("querys", "queries")
        raise UserError(
            f"{path}: the query {lonely[0]!r:.60} has no relevant passage{others}; add "
            "one with a score above 0, or remove its lines"
        )
    if not relevant:
        raise UserError(f"{path}: contains no pairs")
    return relevant


def _pairs(path, max_line_mb) -> Iterator[tuple[str, str, str, int]]:
    """The place, the two ids and the score of each line."""
    header = _has_header(path, max_line_mb)
    for number, values in tables.read(path, header, max_line_mb=max_line_mb):
        where = f"{path}:{number}"
        if not header:
            values = dict(zip(_TREC, values.values(), strict=True))
        query, passage = (
            str(_column(values, name, where)) for name in ("query-id", "corpus-id")
        )
        yield where, query, passage, _score(_column(values, "score", where), where)


def _has_header(path, max_line_mb):
    """TREC's own files have none, and a number in the last of four columns."""
    first = next(iter(inputs.lines(path, max_line_mb=max_line_mb)), "")
    cells = first.rstrip("\r").split("\t")
    return not (len(cells) == len(_TREC) and cells[-1].lstrip("-").isdecimal())


def _column(values, name, where):
    for spelled in _COLUMNS[name]:
        if spelled in values:
            return values[spelled]
    columns = tables.spell(values, tables.form_of(where.rpartition(":")[0]))
    raise UserError(
        f"{tables.header_of(where)}: has no column {name!r}, only {columns}; the columns "
        "must be query-id, corpus-id and score"
    )


def _score(value, where):
    try:
        score = int(value)
    except (TypeError, ValueError):
        score = -1
    if score < 0 or str(score) != str(value):
        raise UserError(
            f"{where}: the score is {value!r:.40}; it must be a whole number from 0"
        )
    return score


def run_lines(run: Mapping[str, Mapping[str, float]], tag: str) -> Iterator[str]:
    """The lines of a TREC run: query, Q0, passage, rank, score and tag.

    Args:
        run: query -> passage -> score, the best first.
        tag: what the run is called; spaces in it would be another column.
    """
    tag = "_".join(tag.split()) or "run"
    for query, found in run.items():
        for rank, (passage, score) in enumerate(found.items(), start=1):
            # All digits of a float32, so that others see the same ties.
            yield f"{query} Q0 {passage} {rank} {score:.9g} {tag}\n"
