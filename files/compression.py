"""Unpacks compressed files; the end of a file's name says how it is packed.

Each packing is a row of `PACKINGS`. All readers seek and peek, read files that were joined
of several packed ones, and raise an error of `DAMAGE` where the data ends too early.
"""

import bz2
import gzip
import importlib
import io
import zlib
from collections.abc import Callable
from typing import BinaryIO

from errors import UserError

_READ_BYTES = 1 << 16


class DamagedError(Exception):
    """Packed data is not what its end says it is."""


DAMAGE = gzip.BadGzipFile, EOFError, zlib.error, DamagedError


def is_packed(path: str) -> bool:
    return path.endswith(tuple(PACKINGS))


def without_suffix(path: str) -> str:
    """The name of a file before it was packed."""
    suffix = next(filter(path.endswith, PACKINGS), "")
    return path.removesuffix(suffix)


def unpack(path: str, file: BinaryIO) -> BinaryIO:
    """What a file contains; closing it closes the file.

    Args:
        path: its name, which says how it is packed; one that is not packed is returned.
    """
    for suffix, opened in PACKINGS.items():
        if path.endswith(suffix):
            return opened(path, file)
    return file


class _Gzip(gzip.GzipFile):
    """Closes the file that it unpacks."""

    def close(self):
        packed = self.fileobj
        super().close()
        if packed:
            packed.close()


class _Streams(io.RawIOBase):
    """Unpacks streams that follow each other in a file.

    Args:
        begin: makes what unpacks one of them, with the methods of `bz2.BZ2Decompressor`.
        damage: the errors it raises.
    """

    def __init__(self, file: BinaryIO, begin: Callable, damage: tuple[type, ...]):
        self._file, self._begin, self._damage = file, begin, damage
        self._position = 0
        self._stream = None

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._position

    def readinto(self, buffer):
        content = b""
        while not content:
            packed = b""
            if self._stream is None or self._stream.eof:
                packed = self._stream.unused_data if self._stream else b""
                packed = packed or self._file.read(_READ_BYTES)
                if not packed and self._stream:
                    return 0
                self._stream = self._begin()
            elif self._stream.needs_input:
                packed = self._file.read(_READ_BYTES)
            if not packed and self._stream.needs_input:
                raise EOFError("it ends within a stream")
            try:
                content = self._stream.decompress(packed, len(buffer))
            except self._damage as error:
                raise DamagedError(str(error)) from error
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def seek(self, offset, whence=io.SEEK_SET):
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence != io.SEEK_SET:
            raise io.UnsupportedOperation("the end is not known")
        if offset < self._position:
            self._file.seek(0)
            self._position, self._stream = 0, None
        while self._position < offset:
            if not self.read(min(offset - self._position, 1 << 20)):
                break
        return self._position

    def close(self):
        if not self.closed:
            self._file.close()
        super().close()


def _gzip(path, file):
    return _Gzip(fileobj=file)


def _bzip2(path, file):
    streams = _Streams(file, bz2.BZ2Decompressor, (OSError, ValueError))
    return io.BufferedReader(streams, _READ_BYTES)


def _zstandard(path, file):
    # Of the packages there are, this one's names are those of Python 3.14, and it alone
    # says where a stream ends, so that a file which was cut off is not read as a whole.
    for name in ("compression.zstd", "backports.zstd"):
        try:
            zstd = importlib.import_module(name)
            break
        except ModuleNotFoundError:
            continue
    else:
        file.close()
        raise UserError(
            f"{path}: reading .zst needs the package backports.zstd, which is not "
            "installed; run pip install -r requirements/corpus.txt"
        )
    streams = _Streams(file, zstd.ZstdDecompressor, (zstd.ZstdError,))
    return io.BufferedReader(streams, _READ_BYTES)


PACKINGS: dict[str, Callable[[str, BinaryIO], BinaryIO]] = {
    ".gz": _gzip,
    ".bz2": _bzip2,
    ".zst": _zstandard,
}
ONE_OF_THEM = "{}, {} or {}".format(*PACKINGS)
