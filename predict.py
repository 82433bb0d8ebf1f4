"""Queries an exported model, from the command line or on a local page.

    python predict.py --model_dir=output/export --input_file=dev.tsv > answers.jsonl
    echo 'A charming film.' | python predict.py --model_dir=output/export
    python predict.py --model_dir=output/export --serve=8000

    python predict.py --model_dir=vectors --input_file=texts.tsv --output_file=texts.npy
    python predict.py --model_dir=vectors --input_file=texts.tsv --write_index=my/index
    python predict.py --model_dir=vectors --input_file=questions.txt --index=my/index

Each answer is one line of JSON: the row and the model's output for it. Rows are streamed,
so memory use does not grow with their number, and rows from a pipe are answered as they
arrive. A model of vectors also writes an array or an index, which it continues if it is
interrupted, and answers with the texts of an index that are nearest.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import queue
import stat
import sys
import threading
import time
from collections.abc import Iterator

import command_line
import options
from errors import UserError
from files import inputs, local, protected, sources, tables
from serving.options import ServingOptions
from serving.search import vector_files
from serving.search.vector_types import TYPES
from text.progress import Progress
from text.tasks import retrieval_files

_WINDOW = 64  # batches whose rows are sorted by length together
_PATIENCE = 0.2  # seconds that a row from a pipe waits for others
_CLOSED_PIPE = 128 + 13  # the status a shell gives for SIGPIPE


@dataclasses.dataclass(frozen=True)
class Options(ServingOptions, inputs.LineOptions):
    model_dir: str = options.field(
        help="An exported model, or the output_dir of the run that exported it."
    )
    input_file: str = options.field(
        inputs.STANDARD_INPUT,
        help=f"Rows to answer, {inputs.PACKED}; - is standard input.",
        only_for={"serve": options.ABSENT},
    )
    input_format: str | None = options.field(
        None,
        choices=("lines", *tables.FORMS),
        help="By default, taken from the file's suffix, otherwise lines: one text per "
        "line, or its words for a model that takes words. The first line of tsv and csv "
        "names the columns, as in the training data or in the model; jsonl has one object "
        "per line. Other columns are passed through to the answer.",
    )
    output_file: str | None = options.field(
        None,
        help="Write the answers here as JSON lines; by default, to standard output. "
        "Vectors are written as the suffix says: .npy, .h5 or .hdf5 (dataset vectors), or "
        ".jsonl.",
        only_for={"serve": options.ABSENT},
    )
    vector_type: str = options.field(
        "float32",
        choices=tuple(TYPES),
        help="Of what numbers --write_index or --output_file has vectors. int8: each "
        "times 127 by its largest number. binary: a bit for each number, whether it is "
        "above 0. Both keep a vector's direction alone.",
    )
    write_index: str | None = options.field(
        None,
        help="Write the rows and their vectors into this new folder, for --index.",
        only_for={
            "serve": options.ABSENT,
            "output_file": options.ABSENT,
            "watch_report": options.ABSENT,
        },
    )
    index: str | None = options.field(
        None,
        help="Answer with the rows of this folder, written by --write_index, whose vectors "
        "are nearest.",
        only_for={"write_index": options.ABSENT, "watch_report": options.ABSENT},
    )
    neighbors: int = options.field(
        10,
        help="How many rows of the index to answer with, or all if it has fewer.",
        at_least=1,
        at_most=10_000,
        only_for={"index": options.GIVEN},
    )
    approximate: bool = options.field(
        False,
        help="Search a part of the index, which finds most of the nearest rows in a "
        "fraction of the time; for a million or more. Needs faiss-cpu. The first search "
        "prepares it.",
        only_for={"index": options.GIVEN},
    )
    rerank_with: str | None = options.field(
        None,
        help="Let this export of run_classifier.py, which reads two texts, score ten times "
        "--neighbors rows again, and answer with the best of them.",
        only_for={"index": options.GIVEN},
    )
    watch_report: str | None = options.field(
        None,
        help="Write a page here that compares what the model is asked with its dev set: "
        "lengths, unknown tokens, decisions and their probabilities. Only counts are kept.",
    )
    batch_size: int = options.field(
        32,
        help="Number of rows to process at once.",
        at_most=options.MOST_ROWS,
        at_least=1,
    )

    def __post_init__(self):
        super().__post_init__()
        has_file = self.output_file and vector_files.form_of(self.output_file)
        if (
            self.vector_type != "float32"
            and not self.write_index
            and (self.index or not has_file)
        ):
            raise UserError(
                f"--vector_type={self.vector_type} is for --write_index, and for an "
                f"--output_file whose name ends with {', '.join(vector_files.FORMS)}"
            )


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training import backend  # noqa: F401  TensorFlow, without its log messages
from serving import nearest
from serving.predictor import Predictor, Served
from serving.rerank import Reranker
from serving.search import index
from serving.watch import Watch


def main(flags: Options) -> int | None:
    if flags.watch_report:
        read = [flags.input_file, *flags.folders(flags.model_dir).values()]
        protected.check_output(flags.watch_report, read)
    with _watch(flags.watch_report) as watch:
        return (
            _answer_all(flags, watch) if flags.serve is None else _serve(flags, watch)
        )


@contextlib.contextmanager
def _watch(path: str | None):
    """Yields what counts requests; None without a page for it."""
    watch = Watch(path) if path else None
    try:
        yield watch
    finally:
        if watch:
            watch.write()


def _answer_all(flags: Options, watch: Watch | None) -> int | None:
    if flags.output_file:
        read = [flags.input_file, flags.model_dir, flags.watch_report]
        protected.check_output(flags.output_file, read)
    predictor = _model(flags)
    if watch:
        watch.add(flags.model_name, predictor, flags.model_dir)
    table = InputTable(
        flags.input_file, flags.input_format, predictor, flags.max_line_mb
    )
    # A bad line in a file is found before work begins; in a pipe, when it arrives.
    count = sum(1 for _ in table.rows()) if table.is_file else None
    if _writes_vectors(flags, predictor, table):
        return _write_vectors(flags, predictor, table, count)
    progress = Progress("answering", count, "rows", starts_slowly=True)
    if table.is_terminal:
        print("Type a line and press Enter; Ctrl-D ends.", file=sys.stderr)
    try:
        with _output(flags.output_file) as output, progress:
            fault = _answer(table, predictor, flags.batch_size, output, progress)
    except BrokenPipeError:
        # The reader has closed the pipe. Python would report that again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    if fault:
        raise UserError(f"{fault}; the rows before it were answered") from fault


def _model(flags: Options) -> Predictor | nearest.NearestTexts:
    if not flags.index:
        predictor = Predictor(flags.model_dir)
        if flags.write_index:
            nearest.check_model(predictor)
        return predictor
    opened = index.Index(flags.index)  # first, because it takes no time
    return nearest.NearestTexts(
        Predictor(flags.model_dir),
        opened,
        flags.neighbors,
        flags.approximate,
        Reranker(flags.rerank_with) if flags.rerank_with else None,
    )


def _answer(table, predictor, batch_size, output, progress) -> UserError | None:
    """Writes answers in the order of the rows, up to a bad row; returns its error."""
    faults = []
    rows = _until_bad(table.rows(), faults)
    for window in _windows(table, rows, _WINDOW * batch_size):
        requests = [table.request(row) for _, row in window]
        answers = predictor.predict(requests, batch_size)
        for (_, row), answer in zip(window, answers, strict=True):
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


def _windows(table, rows, size):
    """Yields lists of at most `size` rows."""
    if table.is_file or table.is_terminal:
        size = 1 if table.is_terminal else size  # a user waits for each answer
        return iter(lambda: list(itertools.islice(rows, size)), [])
    return _arriving(rows, size)


def _arriving(rows, size):
    """Yields lists of rows that arrive together; full lists if they arrive fast."""
    came, end, faults = queue.Queue(size), object(), []

    def read(kept):
        try:
            for row in rows:
                came.put(row)
        except Exception as error:
            faults.append(error)
        came.put(end)

    # Python would crash on exit if it closed stdin while the thread still reads it; it does
    # not close an object that the thread refers to.
    threading.Thread(target=read, args=[sys.stdin], daemon=True).start()
    window = []
    while end not in window:
        window = [came.get()]
        until = time.monotonic() + _PATIENCE
        with contextlib.suppress(queue.Empty):
            while len(window) < size and window[-1] is not end:
                window.append(came.get(timeout=max(0.0, until - time.monotonic())))
        if answered := [row for row in window if row is not end]:
            yield answered
    if faults:
        raise faults[0]


def _output(path):
    if path is None:
        return contextlib.nullcontext(sys.stdout.buffer)
    return local.replacing(path)


# --- Vectors -----------------------------------------------------------------------------


def _writes_vectors(flags: Options, predictor, table) -> bool:
    """Whether what is written can be continued; JSON from a pipe cannot."""
    form = predictor.description["form"]
    is_array = flags.output_file and vector_files.form_of(flags.output_file)
    if not flags.write_index and not (is_array and form == "vector"):
        return False
    if not table.is_file:
        if not flags.write_index and is_array is vector_files.json_lines:
            return False
        raise UserError(
            f"{flags.write_index or flags.output_file}: the number of rows must be known "
            "first, so write them to a file and name it with --input_file"
        )
    return True


def _write_vectors(flags: Options, predictor, table, count):
    if not count:
        raise UserError(f"{table.name}: contains no texts")
    dimensions, kind = predictor.dimensions, flags.vector_type
    is_cosine = predictor.description.get("similarity") == "cosine"
    if not is_cosine and not TYPES[kind].keeps_length:
        raise UserError(
            f"--vector_type={kind}: keeps the direction of a vector, but of this model's "
            "the length counts, too; use float32 or float16, or train with --normalize"
        )

    def vectors_of(rows):
        requests = [table.request(row) for row in rows]
        return predictor.vectors(requests, flags.batch_size)

    rows = (row for _, row in table.rows())
    if flags.write_index:
        described = index.IndexDescription(
            predictor.digest, predictor.title, count, dimensions, kind
        )
        index.write(flags.write_index, described, rows, vectors_of, flags.batch_size)
        return
    shape = vector_files.Shape(count, dimensions, kind)
    identity = {"model": predictor.digest}
    vector_files.write_file(
        flags.output_file, identity, shape, rows, vectors_of, flags.batch_size
    )


# --- Rows --------------------------------------------------------------------------------


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
    ):
        """Args:
        path: "-" is standard input.
        form: one of --input_format; None takes it from the path.
        max_line_mb: see `inputs.lines`.
        """
        self.path, self.predictor = path, predictor
        self.max_line_mb = max_line_mb
        self.name = inputs.name(path)
        self.is_file = path != inputs.STANDARD_INPUT
        self.is_terminal = not self.is_file and sys.stdin.isatty()
        is_local = self.is_file and not sources.is_remote(path)
        if is_local and not stat.S_ISREG(os.stat(path).st_mode):
            raise UserError(f"{path}: is not a regular file; pipe it to standard input")
        self.form = form or tables.form_of(path) or "lines"
        kinds = predictor.parts.values()
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
        lines = self.form == "lines"
        limit = self.max_line_mb
        rows = (
            self._lines()
            if lines
            else tables.read(self.path, form=self.form, max_line_mb=limit)
        )
        for number, row in rows:
            place = f"{self.name}:{number}"
            if self.form in ("tsv", "csv"):
                self._check_columns(row)
            self.predictor.check(self.request(row, place), place)
            self._check_others(row, place)
            yield place, row

    def _check_others(self, row, place):
        """Checks that what the model does not take can go into the answer."""
        if twice := [name for name in self.predictor.names if name in row]:
            place = place if self.form == "jsonl" else f"{self.name}:1"
            raise UserError(
                f"{place}: {twice[0]} is also a name in the answer; remove or rename it"
            )
        if self.form == "jsonl":
            try:
                json.dumps(row, allow_nan=False)
            except (ValueError, RecursionError) as error:  # 1e999 is infinity
                raise UserError(
                    f"{place}: cannot be written as JSON: {error}; fix or remove the row"
                ) from error

    def _check_columns(self, row):
        request = self.request(row)
        if missing := [name for name in self.predictor.parts if name not in request]:
            raise UserError(
                f"{self.name}:1: no column {missing[0]!r} among "
                f"{tables.spell(row, self.form)}; the first "
                f"line must name the model's parts, {', '.join(self.predictor.parts)}"
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
        ((name, kind),) = self.predictor.parts.items()
        lines = inputs.lines(self.path, max_line_mb=self.max_line_mb)
        for number, line in enumerate(lines, start=1):
            text = line.removesuffix("\r")
            yield number, {name: self._list(text) if kind == "list" else text}

    def _list(self, text):
        if self.predictor.description.get("characters"):
            return list(" ".join(text.split()))  # a space is one of its tokens
        return text.split()


# --- The server --------------------------------------------------------------------------


def _serve(flags: Options, watch: Watch | None):
    try:
        from serving import server
    except ModuleNotFoundError as error:
        raise UserError(
            f"--serve needs the package {error.name}, which is not installed; run pip "
            "install -r requirements/serve.txt"
        ) from error

    def load(name, folder):
        is_first = name == flags.model_name
        predictor = _model(flags) if is_first else Predictor(folder)
        predictor.warm_up()
        if watch:
            watch.add(name, predictor, folder)
        return predictor

    folders = flags.folders(flags.model_dir)
    server.run(flags, folders, load, flags.batch_size)


if __name__ == "__main__":
    command_line.run(main, Options)
