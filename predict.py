"""Queries an exported model, from the command line or on a local page.

    python predict.py --model_dir=output/export --input_file=dev.tsv > answers.jsonl
    echo 'A charming film.' | python predict.py --model_dir=output/export
    python predict.py --model_dir=output/export --input_file=in.parquet \\
        --output_file=out.parquet
    python predict.py --model_dir=output/export/model.onnx --input_file=dev.tsv
    python predict.py --model_dir=output/export --serve=8000

    python predict.py --model_dir=vectors --input_file=texts.tsv --output_file=texts.npy
    python predict.py --model_dir=vectors --input_file=texts.tsv --write_index=my/index
    python predict.py --model_dir=vectors --input_file=questions.txt --index=my/index

Each answer is one line of JSON: the row and the model's output for it. Rows are streamed,
so memory use does not grow with their number, and rows from a pipe are answered as they
arrive. From a file to a file, it continues if it is interrupted. A model of vectors also
writes an array or an index, and answers with the texts of an index that are nearest.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import queue
import signal
import sys
import threading
import time

import command_line
import options
from errors import UserError
from files import inputs, local, protected, tables
from serving.options import ServingOptions
from serving.search import vector_files
from serving.search.vector_types import TYPES
from text.progress import Progress

_WINDOW = 64  # batches whose rows are sorted by length together
_PATIENCE = 0.2  # seconds that a row from a pipe waits for others
_CLOSED_PIPE = 128 + 13  # the status a shell gives for SIGPIPE
_ANSWERS = "answers"  # the file of an unfinished output


@dataclasses.dataclass(frozen=True)
class Options(ServingOptions, inputs.LineOptions):
    model_dir: str = options.field(
        help="An exported model, the output_dir of the run that exported it, or the "
        "model.onnx or model.tflite of an export."
    )
    input_file: str = options.field(
        inputs.STANDARD_INPUT,
        help=f"Rows to answer, {inputs.PACKED}; - is standard input.",
        only_for={"serve": options.ABSENT},
    )
    input_format: str | None = options.field(
        None,
        choices=("lines", *tables.FORMS, "parquet"),
        help="By default, taken from the file's suffix, otherwise lines: one text per "
        "line, or its words for a model that takes words. The first line of tsv and csv "
        "names the columns, as in the training data or in the model; jsonl has one object "
        "per line. Other columns are passed through to the answer. parquet needs pyarrow.",
    )
    output_file: str | None = options.field(
        None,
        help="Write the answers here as JSON lines, or as Parquet if the name ends with "
        ".parquet; by default, to standard output. Vectors are written as the suffix says: "
        ".npy, .h5 or .hdf5 (dataset vectors), .parquet, or .jsonl.",
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
    explain: bool = options.field(
        False,
        help="Also say what each word contributes to the answer, if the export has "
        "attributions. Takes dozens of times as long.",
        only_for={"write_index": options.ABSENT, "index": options.ABSENT},
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
    if command_line.parse(Options).serve is not None:
        # It asks a server to load its models anew; until then, none is loaded.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

from training import backend  # noqa: F401  TensorFlow, without its log messages
from serving import input_table, nearest
from serving.input_table import PARQUET, InputTable
from serving.predictor import Predictor
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
    output = flags.output_file or ""
    is_parquet = input_table.form_of(output) == PARQUET
    is_array = vector_files.form_of(output) not in (None, vector_files.json_lines)
    form = predictor.description["form"]
    if flags.vector_type != "float32" and form != "vector":
        raise UserError(
            f"--vector_type={flags.vector_type}: {predictor.title} answers with {form}, "
            "not with vectors; remove it"
        )
    if is_array and form != "vector":
        raise UserError(
            f"{output}: would be an array of vectors, but {predictor.title} answers with "
            f"{form}; choose a name that ends with .jsonl or .parquet"
        )
    table = InputTable(
        flags.input_file,
        flags.input_format,
        predictor,
        flags.max_line_mb,
        as_json=not is_parquet and not is_array,
        reserved=[nearest.SCORE] if flags.write_index else [],
        needs_text=bool(flags.write_index or flags.index),
    )
    if is_parquet:
        return _write_parquet(flags, predictor, table)
    # A bad line in a file is found before work begins; in a pipe, when it arrives.
    count = sum(1 for _ in table.rows()) if table.is_file else None
    if _writes_vectors(flags, predictor, table):
        return _write_vectors(flags, predictor, table, count)
    if table.is_file and output and not local.is_stream(output):
        lines = vector_files.FilePart(b"", _lines)
        return _write_answers(
            flags, predictor, table, count, lines, lambda job: job.finish(_ANSWERS)
        )
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
        predictor = Predictor(flags.model_dir, flags.explain)
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
        output.write(_lines([row for _, row in window], answers))
        output.flush()
        progress.advance(len(window))
    return faults[0] if faults else None


def _lines(rows, answers) -> bytes:
    """JSON lines."""
    lines = [
        json.dumps({**row, **answer}, ensure_ascii=False) + "\n"
        for row, answer in zip(rows, answers, strict=True)
    ]
    return "".join(lines).encode("utf-8")


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


# --- Files that can be continued ---------------------------------------------------------


def _write_answers(flags: Options, predictor, table, count, part, finish) -> None:
    """Writes answers to a file, or continues."""

    def answers_of(rows):
        requests = [table.request(row) for row in rows]
        return predictor.predict(requests, flags.batch_size)

    names = ("explain", "neighbors", "approximate")
    vector_files.write(
        os.path.realpath(flags.output_file),  # a link stays one
        {**predictor.digests, **{name: getattr(flags, name) for name in names}},
        {_ANSWERS: part},
        (row for _, row in table.rows()),
        count,
        answers_of,
        flags.batch_size,
        finish,
        ("answering", "rows"),
    )


def _write_parquet(flags: Options, predictor, table) -> None:
    if not table.is_file or local.is_stream(flags.output_file):
        raise UserError(
            f"{flags.output_file}: Parquet is written from a file to a file, because the "
            "types of its columns must be known first; name both with --input_file and "
            "--output_file"
        )
    try:
        from serving import parquet_answers
    except ModuleNotFoundError as error:
        raise UserError(
            f"{flags.output_file}: writing Parquet needs the package pyarrow, which is not "
            "installed; run pip install -r requirements/corpus.txt"
        ) from error
    count, columns = parquet_answers.survey(table)
    if not count:
        raise UserError(f"{table.name}: contains no rows")
    _, first = next(table.rows())
    note, predictor.note = predictor.note, None  # this answer shows names alone
    [answer] = predictor.predict([table.request(first)])
    predictor.note = note
    schema = parquet_answers.with_answers(columns, predictor.answer_schemas, answer)
    part = parquet_answers.stream(schema)
    _write_answers(flags, predictor, table, count, part, parquet_answers.finish)


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
    identity = {**predictor.digests, "dimensions": dimensions}
    vector_files.write_file(
        flags.output_file, identity, shape, rows, vectors_of, flags.batch_size
    )


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
        predictor = _model(flags) if is_first else Predictor(folder, flags.explain)
        predictor.warm_up()
        if watch:
            watch.add(name, predictor, folder)
        return predictor

    folders = flags.folders(flags.model_dir)
    server.run(flags, folders, load, flags.batch_size)


if __name__ == "__main__":
    command_line.run(main, Options)
