"""Keeps a teacher's answers to the rows of a set, so that it is asked once.

The file has a record per row, in the order of the rows: `row_hash` int64, which identifies
the row's tokens, and the teacher's outputs, float32. The note next to it, <file>.json, says
from what the answers follow.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping

import numpy as np

from training.backend import tf
from training.storage.folder import Folder
from errors import UserError
from files import anywhere, json_files
from modeling.distillation.distilled import TEACHERS
from text.records import encoding, framing, reading
from text.records.rows import Field, Row
from text.records.schema import Feature

_HASH = "row_hash"
_TOGETHER = 1024
_NOTED = {"fingerprint": str, "rows": int, "sha256": str, "outputs": dict}


@dataclasses.dataclass
class Answers:
    """A teacher's outputs for the rows of one set.

    Attributes:
        outputs: name -> float32 [rows, ...]; a sequence axis has max_seq_length entries.
        sequence_outputs: which of them have such an axis first.
        hashes: int64 [rows], of the rows that were asked; None until they are known.
        source: names them in messages.
    """

    outputs: Mapping[str, np.ndarray]
    sequence_outputs: tuple[str, ...]
    hashes: np.ndarray | None
    source: str

    @property
    def fields(self) -> dict[str, Field]:
        """What `join` adds to rows."""
        return {
            TEACHERS + name: Field(
                "float32",
                (None, *values.shape[2:])
                if name in self.sequence_outputs
                else values.shape[1:],
            )
            for name, values in self.outputs.items()
        }

    def join(self, rows: Iterator[tuple[int, Row]]) -> Iterator[tuple[int, Row]]:
        """Adds the answers to numbered rows, as fields named after the outputs.

        Raises:
            UserError: these are not the rows that were asked.
        """
        hashes = []
        number = len(next(iter(self.outputs.values())))
        for at, row in rows:
            place = len(hashes)
            hashes.append(row_hash(row))
            if place >= number or (
                self.hashes is not None and self.hashes[place] != hashes[-1]
            ):
                raise UserError(
                    f"{self.source}: row {place}, counted from 0, is not the one that the "
                    "teacher answered; remove the file, so that it is asked again"
                )
            labels = {
                TEACHERS + name: values[place][: len(row.input_ids)]
                if name in self.sequence_outputs
                else values[place]
                for name, values in self.outputs.items()
            }
            yield at, dataclasses.replace(row, labels={**row.labels, **labels})
        if len(hashes) != number:
            raise UserError(
                f"{self.source}: contains answers to {number} rows, but there are "
                f"{len(hashes)}; remove the file, so that the teacher is asked again"
            )
        self.hashes = np.array(hashes, np.int64)


def row_hash(row: Row) -> int:
    """63 bits that identify the tokens and segments of a row."""
    digest = hashlib.sha256(
        repr((_plain(row.input_ids), _plain(row.segment_ids))).encode()
    )
    return int.from_bytes(digest.digest()[:8], "little") >> 1


def _plain(values):
    """Lists of int, of whichever type they were."""
    return [
        list(map(int, item)) if isinstance(item, list | tuple) else int(item)
        for item in values
    ]


def write(folder: Folder, name: str, answers: Answers, fingerprint: str) -> None:
    """Writes the file of this name and its note.

    Args:
        fingerprint: hashes what determines the answers.
    """
    columns = {_HASH: answers.hashes, **answers.outputs}
    schema = tuple(
        Feature(
            column,
            "int64" if column == _HASH else "float32",
            int(np.prod(values.shape[1:], dtype=int)),
        )
        for column, values in columns.items()
    )
    digest = hashlib.sha256()
    with folder.replacing(name) as file:
        for start in range(0, len(answers.hashes), _TOGETHER):
            some = {
                column: values[start : start + _TOGETHER].reshape(-1, feature.length)
                for (column, values), feature in zip(
                    columns.items(), schema, strict=True
                )
            }
            content = framing.frame(encoding.encode(some, schema))
            digest.update(content)
            file.write(content)
    shapes = {output: x.shape[1:] for output, x in answers.outputs.items()}
    note = {
        "fingerprint": fingerprint,
        "rows": len(answers.hashes),
        "sha256": digest.hexdigest(),
        "outputs": shapes,
    }
    folder.write(f"{name}.json", json.dumps(note, indent=2) + "\n")


def read_note(path: str) -> dict:
    """What is known about a file of answers; empty if there is no such file."""
    note = json_files.read_own(f"{path}.json")
    is_note = all(isinstance(note.get(name), kind) for name, kind in _NOTED.items())
    return note if is_note and anywhere.exists(path) else {}


def read(path: str, sequence_outputs: tuple[str, ...]) -> Answers:
    """Reads a file of answers.

    Raises:
        UserError: it is damaged.
    """
    note = read_note(path)
    with anywhere.open_file(path) as file:
        if not note or hashlib.sha256(file.read()).hexdigest() != note["sha256"]:
            raise UserError(f"{path}: is damaged")
    spec = {_HASH: tf.io.FixedLenFeature([], tf.int64)} | {
        name: tf.io.FixedLenFeature(shape, tf.float32)
        for name, shape in note["outputs"].items()
    }
    serialized = tf.data.TFRecordDataset(path).batch(_TOGETHER)
    parts = [
        {name: x.numpy() for name, x in tf.io.parse_example(some, spec).items()}
        for some in serialized.with_options(reading.options())
    ]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in spec}
    hashes = columns.pop(_HASH)
    return Answers(columns, sequence_outputs, hashes, path)
