"""Writes files of many rows so that a killed process can continue them, to the same bytes.

Until it is complete, an output is in the folder OUTPUT.unfinished, with a note of how many
rows are on disk, and which. The process that continues it checks that its own first rows
are the same.
"""

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping

import google_crc32c

from errors import UserError
from files import json_files, local

_SUFFIX = ".unfinished"
_NOTE = "progress.json"


class Unfinished:
    """An output on its way.

    Attributes:
        path: of the folder.
        num_rows: how many rows are on disk.
    """

    def __init__(self, output: str, identity: Mapping, headers: Mapping[str, bytes]):
        """Args:
        identity: JSON of all that the bytes depend on, except the rows.
        headers: what each file begins with, by its name.
        """
        self.output, self.path = output, output + _SUFFIX
        self._identity = dict(identity)
        self._checksum = google_crc32c.Checksum()
        self._expected = self._checksum.hexdigest().decode()
        self._sizes = {name: len(header) for name, header in headers.items()}
        self.num_rows = 0
        # Without one of its files, it was killed as it began, or once the output was whole.
        if self._has(_NOTE) and all(map(self._has, headers)):
            self._continue()
        else:
            self._begin(headers)
        self._files = {
            name: self._open(name, size) for name, size in self._sizes.items()
        }

    def _begin(self, headers):
        own = {*headers, _NOTE} if self._has(_NOTE) else set()
        if os.path.exists(self.path) and not own.issuperset(os.listdir(self.path)):
            raise UserError(
                f"{self.path}: this folder is for unfinished work but contains something "
                "else; move it, or choose another output"
            )
        os.makedirs(self.path, exist_ok=True)
        self._write_note()  # first, so that the files are known to be ours
        for name, header in headers.items():
            with local.replacing(self._file(name)) as file:
                file.write(header)

    def _continue(self):
        note = json_files.read_own(self._file(_NOTE))
        identity = note.get("identity", {})
        for name, value in self._identity.items():
            if identity.get(name) != value:
                raise UserError(
                    f"{self.path}: was begun with {name} {identity.get(name)!r:.60}, not "
                    f"{value!r:.60}; continue it with what it was begun with, or remove "
                    "this folder"
                )
        self.num_rows, self._expected = note["num_rows"], note["checksum"]
        self._sizes = note["sizes"]

    def _file(self, name):
        return os.path.join(self.path, name)

    def _has(self, name):
        return os.path.exists(self._file(name))

    def _open(self, name, size):
        file = open(self._file(name), "r+b")
        file.truncate(size)  # what was written after the last note
        file.seek(size)
        return file

    def _write_note(self):
        note = {
            "identity": self._identity,
            "num_rows": self.num_rows,
            "checksum": self._checksum.hexdigest().decode(),
            "sizes": self._sizes,
        }
        local.write_json(self._file(_NOTE), note)

    def skip(self, rows: Iterator[Mapping]) -> None:
        """Reads the rows that are on disk, and checks that they are the same."""
        for _ in range(self.num_rows):
            self._add_to_checksum(next(rows, None))
        if self._checksum.hexdigest().decode() != self._expected:
            raise UserError(
                f"{self.path}: was begun with other rows than the first {self.num_rows:,} "
                "of the input; continue it with the same input, or remove this folder"
            )

    def append(self, rows: list[Mapping], contents: Mapping[str, bytes]) -> None:
        """Adds rows; once it returns, they are on disk.

        Args:
            contents: what to add to each file.
        """
        for name, content in contents.items():
            file = self._files[name]
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            self._sizes[name] += len(content)
        for row in rows:
            self._add_to_checksum(row)
        self.num_rows += len(rows)
        self._write_note()

    def _add_to_checksum(self, row):
        # A column that is passed through may have values that JSON lacks.
        self._checksum.update(json.dumps(row, default=str).encode())

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def finish(self, name: str | None = None) -> None:
        """Gives the output its name.

        Args:
            name: of the file that is the output; None if the folder is.
        """
        self.close()
        if name is None:
            os.replace(self.path, self.output)
            os.remove(os.path.join(self.output, _NOTE))
        else:
            os.replace(self._file(name), self.output)
            shutil.rmtree(self.path)


@contextlib.contextmanager
def resume(
    output: str, identity: Mapping, headers: Mapping[str, bytes]
) -> Iterator[Unfinished]:
    """Begins or continues an output, while no other process can."""
    with local.hold_lock(output):
        job = Unfinished(output, identity, headers)
        try:
            yield job
        finally:
            job.close()


def write_rows(
    job: Unfinished,
    rows: Iterator[Mapping],
    size: int,
    contents: Callable[[list[Mapping]], Mapping[str, bytes]],
) -> Iterator[int]:
    """Adds all rows that are not on disk, `size` at a time; yields how many were added."""
    job.skip(rows)
    while window := list(itertools.islice(rows, size)):
        job.append(window, contents(window))
        yield len(window)
