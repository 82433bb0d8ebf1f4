"""Writes texts as rows of tables, each with a number before it."""

import io

import pytest


def _table(texts):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({"id": range(len(texts)), "text": texts})


def parquet(texts, rows):
    """A Parquet file, so many rows in a group."""
    table, file = _table(texts), io.BytesIO()
    write_table = pytest.importorskip("pyarrow.parquet").write_table
    write_table(table, file, row_group_size=rows)
    return file.getvalue()


def arrow(texts, rows):
    """An Arrow stream, so many rows in a record batch."""
    table, file = _table(texts), io.BytesIO()
    with pytest.importorskip("pyarrow").ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=rows)
    return file.getvalue()
