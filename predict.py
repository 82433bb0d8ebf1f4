"""Answers of an exported model, from the command line or as a local page.

    python predict.py --model_dir=output/export --input_file=dev.tsv > answers.jsonl
    echo 'A charming film.' | python predict.py --model_dir=output/export
    python predict.py --model_dir=output/export --serve=8000

An answer is a line of JSON: what the row held, and what the model says of it. Rows stream
through, so memory does not grow with their number.
"""

import contextlib
import csv
import dataclasses
import itertools
import json
import os
import stat
import sys
import time
from collections.abc import Iterator

import options
import training  # noqa: F401  TensorFlow, without its notes
from text import files, inputs
from text.errors import UserError
from text.progress import Progress
from training.predictor import Predictor

_WINDOW = 64  # batches among which rows are sorted by length
_REPORT_SECONDS = 10.0
_CLOSED_PIPE = 128 + 13  # what a shell makes of SIGPIPE
_SUFFIXES = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl"}


@dataclasses.dataclass(frozen=True)
class Options:
    model_dir: str = options.field(
        help="An exported model, or the --output_dir of a run with --do_export."
    )
    input_file: str = options.field(
        "-", help="Rows to answer, plain or .gz; - is standard input."
    )
    input_format: str | None = options.field(
        None,
        choices=("lines", "tsv", "csv", "jsonl"),
        help="By default as the file's name says, else lines: texts of a model that takes "
        "one text, or words of one that takes words. The first line of tsv and csv names "
        "the columns; jsonl has an object a line. What the model does not take is passed "
        "on to the answer.",
    )
    output_file: str | None = options.field(
        None, help="Answers as JSON lines; by default they go to standard output."
    )
    batch_size: int = options.field(32, help="How many rows go through at once.")
    serve: int | None = options.field(
        None,
        help="Answer on this port instead: a page, and JSON as TensorFlow Serving.",
    )
    host: str = options.field(
        "127.0.0.1", help="With --serve, the address to listen on."
    )
    model_name: str = options.field(
        "default", help="With --serve, the model's name: POST /v1/models/NAME:predict."
    )

    def __post_init__(self):
        if self.batch_size < 1:
            raise UserError(f"--batch_size={self.batch_size}: must be at least 1")
        if self.serve is None:
            return
        if not 0 <= self.serve < 2**16:
            raise UserError(
                f"--serve={self.serve}: must be a port, 1 to 65535, or 0 for a free one"
            )
        if self.input_file != "-" or self.output_file:
            raise UserError(
                "--serve answers no files; leave --input_file and --output_file out"
            )


def main(given: Options) -> int | None:
    if given.serve is not None:
        return _serve(given)
    if given.output_file:
        files.refuse_inputs([given.output_file], [given.input_file])
    predictor = Predictor(given.model_dir)
    table = Table(given.input_file, given.input_format, predictor)
    # A bad line of a file is found before work begins; that of a pipe when it comes.
    count = sum(1 for _ in table.rows()) if table.is_file else None
    if count and (given.output_file or not sys.stdout.isatty()):
        progress = Progress("answering", count, "rows")
    else:
        progress = _Progress()
    if table.is_terminal:
        print("Type a line and Enter; Ctrl-D ends.", file=sys.stderr)
    try:
        with _output(given.output_file) as output, progress:
            fault = _answer(table, predictor, given.batch_size, output, progress)
    except BrokenPipeError:
        # Whoever read the answers has enough. Python would complain of it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    if fault:
        raise UserError(f"{fault}; the rows before it are answered") from fault


def _answer(table, predictor, batch_size, output, progress) -> UserError | None:
    """Writes answers in the order of the rows, up to a bad one; returns its fault."""
    faults = []
    rows = _until_bad(table.rows(), faults)
    # Who types a line waits for its answer.
    size = 1 if table.is_terminal else _WINDOW * batch_size
    while window := list(itertools.islice(rows, size)):
        requests = [table.request(row) for _, row in window]
        answers = predictor.predict(requests, batch_size)
        for (place, row), answer in zip(window, answers, strict=True):
            if twice := row.keys() & answer.keys():
                raise UserError(
                    f"{place}: has a {min(twice)} already, as the answer would; leave it "
                    "out, or give it another name"
                )
            line = json.dumps({**row, **answer}, ensure_ascii=False)
            output.write(line.encode("utf-8") + b"\n")
        output.flush()
        progress.advance(len(window))
    return faults[0] if faults else None


def _until_bad(rows, faults):
    try:
        yield from rows
    except UserError as error:
        faults.append(error)


def _output(path):
    """A file that takes its name when the block succeeds, or standard output."""
    if path is None:
        return contextlib.nullcontext(sys.stdout.buffer)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    return files.replacing(path)


class _Progress:
    """Says on stderr how many rows are answered when nobody knows how many will come."""

    def __init__(self):
        self.rows = 0
        self.begun = self.shown = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, exception_type, *_):
        if exception_type is None:
            self._show()

    def advance(self, count: int) -> None:
        self.rows += count
        if time.monotonic() - self.shown >= _REPORT_SECONDS:
            self._show()

    def _show(self):
        self.shown = time.monotonic()
        speed = self.rows / max(self.shown - self.begun, 1e-9)
        print(f"answered {self.rows:,} rows, {speed:,.0f} rows/s", file=sys.stderr)


# --- Rows --------------------------------------------------------------------------------


class Table:
    """The rows of a file or of standard input.

    Attributes:
        is_file: whether it can be read twice.
        is_terminal: whether a person types it.
    """

    def __init__(self, path: str, form: str | None, predictor: Predictor):
        """Args:
            path: "-" is standard input.
            form: one of --input_format; None for what the path says.
        Raises:
            UserError: rows of this form cannot be requests to the model.
        """
        self.path, self.predictor = path, predictor
        self.name = "standard input" if path == "-" else path
        self.is_terminal = path == "-" and sys.stdin.isatty()
        self.is_file = path != "-"
        if self.is_file and not stat.S_ISREG(os.stat(path).st_mode):
            raise UserError(f"{path}: is no regular file; pipe it to standard input")
        suffix = os.path.splitext(path.lower().removesuffix(".gz"))[1]
        self.form = form or _SUFFIXES.get(suffix, "lines")
        kinds = predictor.parts.values()
        if self.form == "lines" and len(kinds) > 1:
            raise UserError(
                f"{self.name}: a line is not enough, the model takes "
                f"{predictor.describe_request()}; give --input_format=tsv, csv or jsonl"
            )
        if self.form in ("tsv", "csv") and "list" in kinds:
            raise UserError(
                f"{self.name}: a table holds no lists, but the model takes "
                f"{predictor.describe_request()}; give --input_format=jsonl"
            )

    def rows(self) -> Iterator[tuple[str, dict]]:
        """Yields place and content of each row.

        Raises:
            UserError: a line is not of the form, or no request; names file and line.
        """
        parse = {"lines": self._lines, "jsonl": self._objects}
        for number, row in parse.get(self.form, self._cells)():
            place = f"{self.name}:{number}"
            self.predictor.check(self.request(row), place)
            yield place, row

    def request(self, row: dict) -> dict:
        """What the model takes of a row."""
        return {name: row[name] for name in self.predictor.parts if name in row}

    def _read(self):
        """Yields numbered lines."""
        lines = _standard_input() if self.path == "-" else inputs.lines(self.path)
        yield from enumerate(lines, start=1)

    def _lines(self):
        ((name, kind),) = self.predictor.parts.items()
        for number, line in self._read():
            text = line.removesuffix("\r")
            yield number, {name: text.split() if kind == "list" else text}

    def _objects(self):
        for number, line in self._read():
            if not line.strip():
                continue
            try:
                row = json.loads(line, parse_constant=_refuse_constant)
                if "\\u" in line:  # may stand for half a character
                    json.dumps(row, ensure_ascii=False).encode("utf-8")
            except (ValueError, RecursionError) as error:
                raise UserError(f"{self.name}:{number}: no JSON: {error}") from error
            if not isinstance(row, dict):
                raise UserError(
                    f"{self.name}:{number}: no JSON object, but {line.strip()[:40]}; give "
                    f"{self.predictor.describe_request()}"
                )
            yield number, row

    def _cells(self):
        names = None
        for number, cells in self._csv() if self.form == "csv" else self._tsv():
            if names is None:
                names = cells
                self._check_header(names, number)
            elif len(cells) == len(names):
                yield number, dict(zip(names, cells, strict=True))
            else:
                raise UserError(
                    f"{self.name}:{number}: {len(cells)} columns, not {len(names)} as in "
                    "the first line; mend the line, or leave it out"
                )

    def _check_header(self, names, number):
        if missing := [name for name in self.predictor.parts if name not in names]:
            raise UserError(
                f"{self.name}:{number}: no column {missing[0]} among {', '.join(names)}; "
                f"the first line has to name the model's parts, "
                f"{', '.join(self.predictor.parts)}"
            )
        if len(set(names)) < len(names):
            raise UserError(
                f"{self.name}:{number}: several columns have the same name; rename them"
            )

    def _tsv(self):
        for number, line in self._read():
            yield number, line.removesuffix("\r").split("\t")

    def _csv(self):
        csv.field_size_limit(sys.maxsize)
        reader = csv.reader((f"{line}\n" for _, line in self._read()), strict=True)
        begun = 1
        try:
            for cells in reader:
                if cells:
                    yield begun, cells
                begun = reader.line_num + 1
        except csv.Error as error:
            raise UserError(
                f"{self.name}:{begun}: no CSV ({error}) in what begins here; is a quote "
                "open?"
            ) from error


def _standard_input():
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode("utf-8" if number > 1 else "utf-8-sig").rstrip("\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"standard input:{number}: not UTF-8; convert it, for example with iconv "
                "-t UTF-8"
            ) from error


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON number")


# --- The server --------------------------------------------------------------------------


def _serve(given):
    try:
        from training import server
    except ModuleNotFoundError as error:
        raise UserError(
            f"--serve needs the package {error.name}, which is not installed: pip install "
            "-r requirements-serve.txt"
        ) from error
    server.run(Predictor(given.model_dir), given.host, given.serve, given.model_name)


if __name__ == "__main__":
    options.run(main, Options)
