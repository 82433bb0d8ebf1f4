"""The rows that predict.py answers: lines of text, or a table in one of several formats."""

import json
import os
import stat
import sys
from collections.abc import Collection, Iterator

from absl import logging

from errors import UserError, count
from files import inputs, sources, tables
from serving.predictor import Served
from text.corpus.columns import Parquet
from text.tasks import retrieval_files

PARQUET = "parquet"
FORMS = ("lines", *tables.FORMS, PARQUET)


def form_of(path: str) -> str | None:
    """The format that a file's name indicates."""
    is_parquet = path.lower().endswith(f".{PARQUET}")
    return PARQUET if is_parquet else tables.form_of(path)


class InputTable:
    """The rows of a file or of standard input.

    Attributes:
        is_file: whether the rows can be read twice.
        is_terminal: whether a user types them.
    """

    def __init__(
        self,
        path: str,
        form: str | None,
        predictor: Served,
        max_line_mb: int | None = None,
        as_json: bool = True,
        reserved: Collection[str] = (),
        needs_text: bool = False,
    ):
        """Args:
        path: "-" is standard input.
        form: one of FORMS; None takes it from the path.
        max_line_mb: see `inputs.lines`.
        as_json: whether rows are written as JSON.
        reserved: names that other columns must not have, besides those in an answer.
        needs_text: whether blank lines of a file are no rows, and a file without rows is
            refused.
        """
        self.path, self.predictor = path, predictor
        self.max_line_mb, self._as_json = max_line_mb, as_json
        self._reserved = {*predictor.names, *reserved}
        self.name = inputs.name(path)
        self.is_file = path != inputs.STANDARD_INPUT
        self.is_terminal = not self.is_file and sys.stdin.isatty()
        self._has_counted_blank = False
        is_local = self.is_file and not sources.is_remote(path)
        if is_local and not stat.S_ISREG(os.stat(path).st_mode):
            raise UserError(f"{path}: is not a regular file; pipe it to standard input")
        self.form = form or form_of(path) or "lines"
        if self.form == PARQUET and not self.is_file:
            raise UserError(
                "standard input: cannot be Parquet, whose end is read first; name the file "
                "with --input_file"
            )
        self._needs_text = needs_text and self.is_file
        kinds = [predictor.parts[name] for name in predictor.required]
        if self.form == "lines" and len(kinds) > 1:
            raise UserError(
                f"{self.name}: a line is not enough because the model takes "
                f"{predictor.describe_request()}; use --input_format=tsv, csv or jsonl"
            )
        if self.form in ("tsv", "csv") and "list" in kinds:
            raise UserError(
                f"{self.name}: a table cannot contain lists, but the model takes "
                f"{predictor.describe_request()}; use --input_format=jsonl"
            )

    def rows(self) -> Iterator[tuple[str, dict]]:
        """Yields the place and the content of each row."""
        place = None
        for number, row in self._rows_by_number():
            place = f"{self.name}:{number}"
            if self.form in ("tsv", "csv"):
                self._check_columns(row)
            self.predictor.check(self.request(row, place), place)
            self._check_others(row, place)
            yield place, row
        if self._needs_text and place is None:
            raise UserError(f"{self.name}: contains no texts")

    def _rows_by_number(self):
        if self.form == "lines":
            return self._lines()
        if self.form == PARQUET:
            return self._parquet()
        return tables.read(self.path, form=self.form, max_line_mb=self.max_line_mb)

    def _parquet(self):
        with Parquet().open_table(self.path) as table:
            others = table.columns_not_json
            if others and self._as_json:
                raise UserError(
                    f"{self.path}: column {others[0]!r} is of type "
                    f"{str(table.schema.field(others[0]).type):.60}, which JSON lacks; "
                    "leave it out, or write an --output_file that ends with .parquet"
                )
            yield from enumerate(table.rows(self.max_line_mb), start=1)

    @property
    def schema(self):
        """The types of the columns of Parquet, as pyarrow has them."""
        with Parquet().open_table(self.path) as table:
            return table.schema

    def _check_others(self, row, place):
        """Checks that what the model does not take can go into the answer."""
        if twice := [name for name in row if name in self._reserved]:
            place = f"{self.name}:1" if self.form in ("tsv", "csv") else place
            raise UserError(
                f"{place}: {twice[0]} is also a name in the answer; remove or rename it"
            )
        if self._as_json and self.form in ("jsonl", PARQUET):
            try:
                json.dumps(row, allow_nan=False)
            except (ValueError, RecursionError) as error:  # 1e999 is infinity
                raise UserError(
                    f"{place}: cannot be written as JSON: {error}; fix or remove the row"
                ) from error

    def _check_columns(self, row):
        request = self.request(row)
        required = self.predictor.required
        if missing := [name for name in required if name not in request]:
            raise UserError(
                f"{self.name}:1: has no column {missing[0]!r}, only "
                f"{tables.spell(row, self.form)}; the first line must be a header with "
                f"{' and '.join(required)}"
            )

    def request(self, row: dict, place: str = "") -> dict:
        """The model's parts of a row, found by the training data's or the model's names.

        For a model of vectors, a title comes before its text.

        Args:
            place: the row's, for messages.
        """
        columns = self.predictor.description.get("columns", {})
        if not columns or not row.keys() >= set(columns.values()):
            columns = {name: name for name in self.predictor.parts}
        parts = {name: row[key] for name, key in columns.items() if key in row}
        if "similarity" in self.predictor.description and row.get("title"):
            parts["text"] = retrieval_files.join_title(row, place)
        return parts

    def _lines(self):
        (name,) = self.predictor.required
        kind, num_blank = self.predictor.parts[name], 0
        lines = inputs.lines(self.path, max_line_mb=self.max_line_mb)
        for number, line in enumerate(lines, start=1):
            text = line.removesuffix("\r")
            if self._needs_text and not text.strip():
                num_blank += 1
                continue
            yield number, {name: self._list(text) if kind == "list" else text}
        if num_blank and not self._has_counted_blank:
            logging.warning("%s: skipped %s", self.name, count(num_blank, "blank line"))
            self._has_counted_blank = True

    def _list(self, text):
        if self.predictor.description.get("characters"):
            return list(" ".join(text.split()))  # a space is one of its tokens
        return text.split()
