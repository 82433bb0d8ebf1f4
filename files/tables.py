"""Reads tables: TSV, CSV and JSON lines."""

import collections
import csv
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from absl import logging

from errors import UserError, count
from files import compression, inputs, json_files

FORMS = ("tsv", "csv", "jsonl")
_ABSENT = object()
_MOST_COLUMNS = 1 << 16
_BEFORE_ITEM = re.compile(r"[\s,]*")
# In the name of the only column, signs of another format; and what helps.
_SEPARATORS = {
    "\t": "rename it to .tsv",
    ";": "save it with tabs as .tsv, or with commas as .csv",
    ",": "rename it to .csv",
}


def read(
    path: str,
    header: bool = True,
    *,
    form: str | None = None,
    skip_bad_lines: bool = False,
    max_line_mb: int | None = None,
) -> Iterator[tuple[int, dict]]:
    """Yields the lines of a table: the number, and the values by column.

    Args:
        path: "-" is standard input.
        form: one of FORMS; None takes it from the name. In tab-separated tables, quotes
            are ordinary characters. JSON may be one list of objects, too.
        header: whether the first line names the columns; if not, they are numbered from 0.
        skip_bad_lines: skip lines with a different number of columns, with a warning.
        max_line_mb: see `inputs.lines`; it limits a row and a list of JSON, too.
    """
    form = form or form_of(path) or "tsv"
    lines = inputs.lines(path, max_line_mb=max_line_mb)
    if form == "jsonl":
        return _json_lines(path, lines, max_line_mb)
    if form == "csv":
        cells = _csv(path, lines, max_line_mb)
    else:
        cells = enumerate((x.removesuffix("\r").split("\t") for x in lines), start=1)
    return _table(inputs.name(path), cells, header, skip_bad_lines)


def form_of(path: str) -> str | None:
    """The format that a file's name indicates; it may be packed."""
    suffix = os.path.splitext(compression.without_suffix(path.lower()))[1].removeprefix(
        "."
    )
    suffix = {"json": "jsonl"}.get(suffix, suffix)
    return suffix if suffix in FORMS else None


def check_different(columns, *names: str) -> None:
    """Raises UserError if two of these flags name the same column."""
    flag_of = {}
    for name in names:
        column = getattr(columns, name)
        if column is not None and (other := flag_of.setdefault(column, name)) != name:
            raise UserError(
                f"--{other} and --{name} are both {column!r}; name two columns"
            )


def header_of(place: str) -> str:
    """The "file:line" of the columns' names; of a line of JSON, its own."""
    path = place.rpartition(":")[0]
    return place if form_of(path) == "jsonl" else f"{path}:1"


def cell(values: Mapping, column: str, where: str, flags: str):
    """What a row has in a column; "a.b" is the b within a JSON object a.

    Args:
        where: the row, as "file:line".
        flags: those that name the columns, for the error.
    """
    value = get(values, column, _ABSENT)
    if value is _ABSENT:
        names = spell(values, form_of(where.rpartition(":")[0]))
        raise UserError(
            f"{header_of(where)}: has no column {column!r}, only {names}; check {flags}"
        )
    return value


def get(values: Mapping, column: str | int | None, default=None):
    """The same, or a default if the row has no such column."""
    if column in values or not isinstance(column, str):
        return values.get(column, default)
    outer, _, inner = column.partition(".")
    within = values.get(outer)
    return (
        get(within, inner, default) if inner and isinstance(within, dict) else default
    )


def spell(names: Iterable, form: str | None) -> str:
    """The names of the columns, for an error; a hint if one name seems to be several."""
    names = list(names)
    shown = ", ".join(map(repr, names))
    if len(names) != 1 or form == "jsonl":
        return shown
    for separator, remedy in _SEPARATORS.items():
        if separator in str(names[0]) and not (form == "csv" and separator == ","):
            return (
                f"{shown} (the file seems to be separated by {separator!r}: {remedy})"
            )
    return shown


def text(values: Mapping, column: str, where: str, flags: str) -> str:
    """The same, where it must be a text."""
    value = cell(values, column, where, flags)
    if not isinstance(value, str):
        raise UserError(f"{where}: {column!r} is {value!r:.40}, not text")
    return value


def _csv(path, lines, max_line_mb):
    csv.field_size_limit(sys.maxsize)  # no cell is longer than its row
    begun, length = 1, 0

    def bounded_lines():
        nonlocal length
        for line in lines:
            length += len(line) + 1
            if length > (max_line_mb or inputs.MAX_LINE_MB) * inputs.MB:
                # An unclosed quote makes one row of the rest of the file.
                where = f"{inputs.name(path)}:{begun}"
                what = f"{where}: the row that begins here, perhaps with an unclosed quote,"
                raise inputs.too_long(what, max_line_mb)
            yield f"{line}\n"

    reader = csv.reader(bounded_lines(), strict=True)
    try:
        for cells in reader:
            yield begun, cells
            begun, length = reader.line_num + 1, 0
    except csv.Error as error:
        if "new-line" in str(error):
            raise UserError(
                f"{inputs.name(path)}:{begun}: a carriage return within a line; end lines "
                "with LF or CR LF, or quote the cell"
            ) from error
        raise UserError(
            f"{inputs.name(path)}:{begun}: the row that begins here is not CSV ({error}); "
            "check for an unclosed quote"
        ) from error


def _table(path, lines, header, skip_bad_lines):
    names, bad, num_bad, empty = None, [], 0, None  # lines; there may be millions
    for number, cells in lines:
        if cells in ([], [""]):
            empty = empty or number
            continue
        if names is None:
            names = cells if header else list(range(len(cells)))
            _check_names(names, f"{path}:{number}")
            if header:
                continue
        if empty and len(names) == 1:
            raise UserError(
                f"{path}:{empty}: an empty line; with one column it could mean an empty "
                "text or no text, so remove it"
            )
        if len(cells) != len(names) and skip_bad_lines:
            num_bad += 1
            bad = bad if len(bad) == 10 else [*bad, number]
            continue
        if len(cells) != len(names):
            raise UserError(
                f"{path}:{number}: {count(len(cells), 'column')}, but the first line has "
                f"{len(names)}; fix or remove the line"
            )
        yield number, dict(zip(names, cells, strict=True))
    if names is None:
        raise UserError(f"{path}: the file is empty")
    if num_bad:
        logging.warning(
            "%s: skipped %d lines that do not have %d columns: %s",
            path,
            num_bad,
            len(names),
            ", ".join(map(str, bad)) + (" ..." if num_bad > len(bad) else ""),
        )


def _check_names(names, where):
    if len(names) > _MOST_COLUMNS:
        raise UserError(
            f"{where}: {len(names):,} columns, more than {_MOST_COLUMNS:,}; check that "
            "this is a table, and what separates its columns"
        )
    repeated = [
        f"{number} columns have the name {name!r}"
        for name, number in sorted(collections.Counter(names).items())
        if number > 1
    ]
    if repeated:
        raise UserError(
            f"{where}: {', '.join(repeated)}; check that the first line is a header"
        )


def _json_lines(path, lines, max_line_mb):
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if number == 1 and line.lstrip().startswith("["):
            whole = inputs.whole_text(path, itertools.chain([line], lines), max_line_mb)
            yield from _json_list(path, whole)
            return
        values = _parse(path, number, line)
        yield number, _object(path, number, values, line.strip())


def _json_list(path, content):
    """The objects of one list, each with the line on which it begins."""
    values = _parse(path, 1, content)
    if not values:
        raise UserError(f"{inputs.name(path)}:1: the list is empty")
    decode, number, place = json.JSONDecoder().raw_decode, 1, content.index("[") + 1
    for value in values:
        begin = _BEFORE_ITEM.match(content, place).end()
        number += content.count("\n", place, begin)
        yield number, _object(path, number, value, content[begin : begin + 40])
        _, place = decode(content, begin)
        number += content.count("\n", begin, place)


def _parse(path, number, content):
    """What a line of JSON contains; `number` is that of its first line."""
    try:
        values = json_files.parse(content, parse_constant=_refuse_constant)
    except ValueError as error:
        number += getattr(error, "lineno", 1) - 1
        message = getattr(error, "msg", error) if "\n" in content else error
        raise UserError(f"{inputs.name(path)}:{number}: not JSON: {message}") from error
    return values


def _object(path, number, values, shown):
    if not isinstance(values, dict):
        raise UserError(
            f"{inputs.name(path)}:{number}: not a JSON object: {shown[:40]}; write one "
            "object per line, or a list of objects"
        )
    return values


def _refuse_constant(name):
    raise ValueError(f"{name} is not a JSON number")
