"""Writes rows and their answers as Parquet; needs pyarrow, an optional package.

Until all are there they are in an Arrow stream, which a killed process continues. The types
of columns come from the input, and those of answers from their JSON Schema.
"""

import itertools
import json
import os
from collections.abc import Iterator, Mapping

import pyarrow
from pyarrow import ipc, parquet

from errors import UserError
from files import unfinished
from serving.input_table import PARQUET, InputTable
from serving.search.vector_files import FilePart
from text.corpus.arrow_files import ArrowValue

STREAM = "answers"  # the file of an unfinished output, as predict.py calls it
_WHOLE = "answers.parquet"
_ROWS = 1 << 10  # whose types are found together
_GROUP_ROWS, _GROUP_BYTES = 1 << 16, 1 << 26  # of a row group, at most
_TYPES = {"string": pyarrow.string(), "number": pyarrow.float32()}
_TYPES |= {"integer": pyarrow.int64(), "boolean": pyarrow.bool_()}


def survey(table: InputTable) -> tuple[int, pyarrow.Schema]:
    """How many rows a table has, and the types of all their columns.

    Raises:
        UserError: a row is bad, or a column has values of several kinds.
    """
    rows, count, schema = table.rows(), 0, pyarrow.schema([])
    if table.form == PARQUET:
        return sum(1 for _ in rows), table.schema
    while window := list(itertools.islice(rows, _ROWS)):
        count += len(window)
        names = dict.fromkeys(name for _, row in window for name in row)
        try:
            found = {n: pyarrow.array([row.get(n) for _, row in window]) for n in names}
            found = pyarrow.schema([(n, array.type) for n, array in found.items()])
            both = [schema, found]
            schema = pyarrow.unify_schemas(both, promote_options="permissive")
        except (pyarrow.ArrowException, OverflowError) as error:
            problem = " ".join(str(error).split())
            raise UserError(
                f"{window[0][0]}: within {len(window):,} rows from here, or before, a "
                f"column has values of several kinds, which Parquet lacks ({problem:.200})"
            ) from error
    return count, schema


def with_answers(
    columns: pyarrow.Schema, schemas: Mapping[str, Mapping], answer: Mapping
) -> pyarrow.Schema:
    """The columns of rows and of their answers.

    Args:
        columns: of the rows.
        schemas: the JSON Schema of each value in an answer, by name.
        answer: of any row, which has the names in objects whose schema does not.
    """
    fields = [pyarrow.field(field.name, _stored_type(field.type)) for field in columns]
    fields += [
        pyarrow.field(name, _type(schema, answer[name]) or pyarrow.string())
        for name, schema in schemas.items()
    ]
    return pyarrow.schema(fields)


def _stored_type(kind):
    """Categories are written as what they name."""
    return kind.value_type if pyarrow.types.is_dictionary(kind) else kind


def _type(schema, value):
    """The type of values with a JSON Schema; None if it does not say enough."""
    kind = schema["type"]
    if kind == "array":
        of_items = _type(schema["items"], None)
        return of_items and pyarrow.list_(of_items)
    if kind != "object":
        return _TYPES[kind]
    inner = schema.get("properties")
    if inner is None and value:
        inner = dict.fromkeys(value, schema.get("additionalProperties"))
    types = {name: _type(each, None) for name, each in (inner or {}).items()}
    return pyarrow.struct(types) if types and all(types.values()) else None


def stream(schema: pyarrow.Schema) -> FilePart:
    """The stream of rows with these columns."""

    def content(rows, answers):
        whole = [{**row, **each} for row, each in zip(rows, answers, strict=True)]
        arrays = [_array(field, whole) for field in schema]
        batch = pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
        return batch.serialize().to_pybytes()

    return FilePart(schema.serialize().to_pybytes(), content)


def _array(field, rows):
    values = [row.get(field.name) for row in rows]
    if isinstance(values[0], ArrowValue):
        return pyarrow.concat_arrays([value.slice for value in values])
    if field.type == pyarrow.string():
        values = [
            json.dumps(v, ensure_ascii=False) if isinstance(v, list | dict) else v
            for v in values
        ]
    return pyarrow.array(values, field.type)


def finish(job: unfinished.Unfinished) -> None:
    """Turns the stream into a Parquet file, which becomes the output."""
    path = os.path.join(job.path, _WHOLE)
    with (
        pyarrow.OSFile(os.path.join(job.path, STREAM)) as file,
        ipc.open_stream(file) as batches,
        open(path, "wb") as output,
    ):
        with parquet.ParquetWriter(output, batches.schema) as writer:
            for group in _groups(batches):
                table = pyarrow.Table.from_batches(group)
                writer.write_table(table, table.num_rows)
        output.flush()
        os.fsync(output.fileno())
    job.finish(_WHOLE)


def _groups(batches) -> Iterator[list[pyarrow.RecordBatch]]:
    group = []
    for batch in batches:
        group.append(batch)
        rows = sum(each.num_rows for each in group)
        size = sum(each.nbytes for each in group)
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group = []
    if group:
        yield group
