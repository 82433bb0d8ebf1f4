"""Writes the vectors of many rows to a file: .npy, HDF5 or JSON lines.

Each is a header and then the rows, so that a killed process continues where it stopped.
"""

import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import h5py
import numpy as np

from errors import UserError
from files import unfinished
from serving.search.vector_types import TYPES, VectorType
from text.progress import Progress

_BATCHES = 64  # whose rows are sorted by length, and then noted as done, together
DATASET = "vectors"  # in an HDF5 file
_WHOLE = "vectors"  # the file of an unfinished output


class Shape(NamedTuple):
    """What vectors there will be.

    Attributes:
        type: a key of TYPES.
    """

    num_rows: int
    dimensions: int
    type: str

    @property
    def of_array(self) -> tuple[int, int]:
        """The shape of the array in a file."""
        return self.num_rows, TYPES[self.type].width(self.dimensions)


class FilePart(NamedTuple):
    """A file of an output.

    Attributes:
        header: what it begins with.
        content: (rows, what was computed of each, as float32 vectors [rows, d]) -> what
            they add to it.
    """

    header: bytes
    content: Callable[[list[Mapping], Sequence], bytes]


def npy(shape: Shape) -> FilePart:
    """Of the stored numbers; `numpy.load` reads it."""
    kind = TYPES[shape.type]
    return FilePart(npy_header(kind.dtype, shape.of_array), _content(kind))


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    fields = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()


def _content(kind: VectorType):
    return lambda rows, vectors: kind.store(vectors).tobytes()


def hdf5(shape: Shape) -> FilePart:
    """The same numbers in a dataset that nothing follows."""
    kind = TYPES[shape.type]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "empty.h5")
        with h5py.File(path, "w") as file:
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_layout(h5py.h5d.CONTIGUOUS)
            properties.set_obj_track_times(False)  # the same bytes at any time
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            dataset = h5py.h5d.create(
                file.id,
                DATASET.encode(),
                h5py.h5t.py_create(np.dtype(kind.dtype)),
                h5py.h5s.create_simple(shape.of_array),
                properties,
            )
            begin = dataset.get_offset()
        with open(path, "rb") as file:
            header = file.read(begin)
    return FilePart(header, _content(kind))


def json_lines(shape: Shape) -> FilePart:
    """The rows, each with its `vector`."""
    kind = TYPES[shape.type]

    def content(rows, vectors):
        lines = [
            json.dumps({**row, "vector": _numbers(vector)}, ensure_ascii=False) + "\n"
            for row, vector in zip(rows, kind.store(vectors), strict=True)
        ]
        return "".join(lines).encode()

    return FilePart(b"", content)


def _numbers(vector):
    """The shortest numbers that are these: 0.9, not 0.8999999761581421."""
    if vector.dtype.kind == "f":
        return [float(str(number)) for number in vector]
    return vector.tolist()


FORMS = {".npy": npy, ".h5": hdf5, ".hdf5": hdf5, ".jsonl": json_lines}


def form_of(path: str) -> Callable[[Shape], FilePart] | None:
    """How to write a file of this name; None if it is not one for vectors."""
    return FORMS.get(os.path.splitext(path)[1].lower())


def write(
    output: str,
    identity: Mapping,
    parts: Mapping[str, FilePart],
    rows: Iterator[Mapping],
    total: int,
    values_of: Callable[[list[Mapping]], Sequence],
    batch_size: int,
    finish: Callable[[unfinished.Unfinished], None],
    progress: tuple[str, str] = ("encoding", "texts"),
) -> None:
    """Writes or continues an output.

    Args:
        identity: what the values depend on besides the rows.
        parts: the files, by name.
        rows: all `total` of them, from the first on.
        values_of: some rows -> what is written of each.
        batch_size: on which the last bits depend.
        finish: gives the output its name.
        progress: what is done, and to what.
    """
    identity = {**identity, "rows": total, "batch_size": batch_size}
    headers = {name: part.header for name, part in parts.items()}

    def contents(window):
        values = values_of(window)
        return {name: part.content(window, values) for name, part in parts.items()}

    with unfinished.resume(output, identity, headers) as job:
        what, unit = progress
        with Progress(what, total, unit, starts_slowly=True) as shown:
            shown.advance(job.num_rows, already_done=True)
            size = _BATCHES * batch_size
            for number in unfinished.write_rows(job, rows, size, contents):
                shown.advance(number)
        if job.num_rows != total:
            raise UserError(
                f"{output}: the input had {total:,} rows when they were counted, and now "
                f"{job.num_rows:,}; let it be while it is read"
            )
        finish(job)


def write_file(
    path: str,
    identity: Mapping,
    shape: Shape,
    rows: Iterator[Mapping],
    vectors_of: Callable[[list[Mapping]], np.ndarray],
    batch_size: int,
) -> None:
    """Writes or continues a file of vectors, whose format its name says; see `write`."""
    parts = {_WHOLE: form_of(path)(shape)}
    identity = {**identity, "vector_type": shape.type}
    write(
        os.path.realpath(path),  # a link stays one
        identity,
        parts,
        rows,
        shape.num_rows,
        vectors_of,
        batch_size,
        lambda job: job.finish(_WHOLE),
    )
