"""An index: a folder with the vectors of texts, the texts, and a note of the model.

    index.json         the model's digest, the number, width and type of the vectors, and
                       the checksums of the files
    vectors.npy        the vectors; of a binary index, as int8, for rescoring
    bits.npy           of a binary index: what is searched
    rows.jsonl         the texts, with the other columns of their file
    row_lengths.npy    of each line of it, in bytes
    ivf.faiss          of an approximate search, written by the first (approximate.py)

It is searched where it lies, a block at a time. A binary index is searched by the number of
bits that differ from the query's, and the best of that are scored again with their int8.
What is searched may have many gigabytes, so the first search that reads it checks its
checksum.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping

import google_crc32c
import numpy as np

from errors import UserError
from files import json_files, local, sources
from serving.search import approximate, exact, vector_files
from serving.search.vector_types import TYPES

DESCRIPTION = "index.json"
_ROWS, _LENGTHS = "rows.jsonl", "row_lengths.npy"
_VECTORS, _BITS = "vectors.npy", "bits.npy"
_IVF = "ivf.faiss"
_LENGTH = "<u4"  # the type of a length
_CANDIDATES = 20  # of the bits, for each of the k to find


@dataclasses.dataclass(frozen=True)
class IndexDescription:
    """What index.json says.

    Attributes:
        model: the digest of the model, which queries must have, too.
        title: what people know the model by.
        num_rows, dimensions: of the vectors.
        vector_type: a key of TYPES.
        checksums: of the files by their names, once they are written.
    """

    model: str
    title: str
    num_rows: int
    dimensions: int
    vector_type: str
    checksums: Mapping[str, str] = dataclasses.field(default_factory=dict)


def write(
    folder: str,
    description: IndexDescription,
    rows: Iterator[Mapping],
    vectors_of: Callable[[list[Mapping]], np.ndarray],
    batch_size: int,
) -> None:
    """Writes an index, or continues one; see `vector_files.write`."""
    sources.refuse_remote(folder)
    folder = os.path.abspath(folder)
    if os.path.lexists(folder):
        raise UserError(f"{folder}: exists; remove it, or choose another folder")
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    settings, parts = dataclasses.asdict(description), _parts(description)

    def finish(job):
        sums = {name: _checksum(os.path.join(job.path, name)) for name in parts}
        whole = {**settings, "checksums": sums}
        local.write_json(os.path.join(job.path, DESCRIPTION), whole)
        job.finish()

    vector_files.write(
        folder,
        settings,
        parts,
        rows,
        description.num_rows,
        vectors_of,
        batch_size,
        finish,
    )


def _parts(description):
    number, width = description.num_rows, description.dimensions
    kind = description.vector_type
    is_binary = kind == "binary"
    shape = vector_files.Shape(number, width, "int8" if is_binary else kind)
    parts = {
        _VECTORS: vector_files.npy(shape),
        _ROWS: vector_files.FilePart(b"", lambda rows, _: b"".join(map(_line, rows))),
        _LENGTHS: vector_files.FilePart(
            vector_files.npy_header(_LENGTH, (number,)),
            lambda rows, _: np.array(
                [len(_line(row)) for row in rows], _LENGTH
            ).tobytes(),
        ),
    }
    if is_binary:
        parts[_BITS] = vector_files.npy(vector_files.Shape(number, width, kind))
    return parts


def _checksum(path):
    file = np.memmap(path, np.uint8, "r")
    return google_crc32c.Checksum(file).hexdigest().decode()


def _line(row):
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


class Index:
    """An index on disk.

    Attributes:
        digest: what no index of other vectors or rows has.
    """

    def __init__(self, folder: str):
        """Raises:
        UserError: the folder is not an index, or files of it are missing or damaged.
        """
        self.folder = folder
        path = os.path.join(folder, DESCRIPTION)
        if not os.path.exists(path):
            hint = " (its writing was interrupted: run the same command again)"
            begun = os.path.exists(f"{folder.rstrip('/')}.unfinished")
            raise UserError(
                f"{folder}: is not an index, which has an {DESCRIPTION}"
                f"{hint if begun else ''}; predict.py --write_index writes one"
            )
        content = json_files.read_object(path, "write the index again")
        try:
            self.description = IndexDescription(**content)
            shape = vector_files.Shape(
                self.description.num_rows,
                self.description.dimensions,
                self.description.vector_type,
            )
            number, width = shape.of_array
            sums, names = self.description.checksums, _parts(self.description)
            self._checksums = {n: sums[n] for n in names}  # of what is unchecked
        except (TypeError, KeyError) as error:
            raise UserError(f"{path}: describes no index; write it again") from error
        text = json.dumps(content, sort_keys=True)
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        is_binary = shape.type == "binary"
        scored = shape._replace(type="int8") if is_binary else shape
        dtype = TYPES[scored.type].dtype
        self._vectors = self._array(_VECTORS, scored.of_array, dtype)
        self._bits = self._array(_BITS, (number, width), "|u1") if is_binary else None
        lengths = self._array(_LENGTHS, (number,), _LENGTH)
        if _checksum(os.path.join(folder, _LENGTHS)) != self._checksums[_LENGTHS]:
            raise self._damage(_LENGTHS)
        self._ends = np.cumsum(lengths, dtype=np.int64)
        size = os.path.getsize(os.path.join(folder, _ROWS))
        if size != (self._ends[-1] if len(self._ends) else 0):
            raise self._damage(_ROWS)

    def _array(self, name, shape, dtype):
        try:
            array = np.load(os.path.join(self.folder, name), mmap_mode="r")
        except (OSError, ValueError) as error:
            raise self._damage(name) from error
        is_array = isinstance(array, np.ndarray)
        if not is_array or (array.shape, array.dtype) != (shape, dtype):
            raise self._damage(name)
        return array

    def _damage(self, name):
        path = os.path.join(self.folder, name)
        return UserError(f"{path}: is missing or damaged; write the index again")

    def check_model(self, digest: str, title: str) -> None:
        """Refuses queries by another model, whose vectors mean something else."""
        if digest != self.description.model:
            raise UserError(
                f"{self.folder}: was written by another model ({self.description.title}, "
                f"weights or settings {self.description.model[:12]}) than {title} "
                f"({digest[:12]}); use that one, or write the index again"
            )

    def rows(self, numbers: np.ndarray) -> list[dict]:
        """The rows of the texts of these numbers, int [n]."""
        found = []
        with open(os.path.join(self.folder, _ROWS), "rb") as file:
            for number in map(int, numbers):
                begin = int(self._ends[number - 1]) if number else 0
                file.seek(begin)
                line = file.read(int(self._ends[number]) - begin)
                try:
                    found.append(dict(json_files.parse(line)))
                except (ValueError, TypeError) as error:
                    raise self._damage(_ROWS) from error
        return found

    def search(
        self, queries: np.ndarray, k: int, is_approximate: bool = False
    ) -> exact.Nearest:
        """The nearest texts of float32 [queries, dimensions]; see `exact.search`.

        Args:
            is_approximate: whether faiss may look at a part of the vectors only.
        """
        if is_approximate:
            path = os.path.join(self.folder, _IVF)
            return approximate.search(
                path, self._blocks, len(self._vectors), queries, k
            )
        if self._bits is not None:
            return self._search_bits(queries, k)
        return exact.search(queries, self._blocks(), k)

    def _blocks(self):
        kind = "int8" if self._bits is not None else self.description.vector_type
        for block in self._checked_blocks(_VECTORS, self._vectors):
            yield TYPES[kind].load(block, self.description.dimensions)

    def _checked_blocks(self, name, array):
        """The blocks of a file; after the last, its checksum is known and checked."""
        expected = self._checksums.get(name)
        with open(os.path.join(self.folder, name), "rb") as file:
            checksum = google_crc32c.Checksum(file.read(array.offset))
        for block in exact.blocks_of(array):
            if expected:
                checksum.update(block)
            yield block
        if expected and checksum.hexdigest().decode() != expected:
            raise self._damage(name)
        self._checksums.pop(name, None)

    def _search_bits(self, queries, k):
        bits = TYPES["binary"].store(queries)
        number = max(k * _CANDIDATES, 100)
        near = exact.search(
            bits, self._checked_blocks(_BITS, self._bits), number, exact.shared_bits
        )
        scores = np.empty(near.rows.shape, np.float32)
        for query, rows in enumerate(near.rows):
            # In the order of the file, in which reading is fast.
            order = np.argsort(rows)
            vectors = TYPES["int8"].load(
                self._vectors[rows[order]], self.description.dimensions
            )
            scores[query, order] = vectors @ queries[query]
        order = np.argsort(near.rows, axis=1)  # of equal scores, the lower row
        rows = np.take_along_axis(near.rows, order, 1)
        return exact.top(np.take_along_axis(scores, order, 1), rows, k)
