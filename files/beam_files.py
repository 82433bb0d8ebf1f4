"""Reaches files with Apache Beam: local ones, gs://, hdfs:// and what else it supports."""

import contextlib
import io
import uuid
from collections.abc import Iterable, Iterator

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from files import local, sources

_AS_IT_IS = CompressionTypes.UNCOMPRESSED


class BeamFiles:
    """For `sources.reach_with`. Remembers the status of what it has listed."""

    def __init__(self):
        self._listed = {}  # path to metadata

    def exists(self, path: str) -> bool:
        return path in self._listed or FileSystems.exists(path)

    def is_folder(self, path: str) -> bool:
        if path in self._listed:
            return False
        (inside,) = FileSystems.match([f"{path.rstrip('/')}/*"], limits=[1])
        return bool(inside.metadata_list)

    def matching(self, pattern: str) -> list[str]:
        (match,) = FileSystems.match([pattern])
        listed = {metadata.path: metadata for metadata in match.metadata_list}
        self._listed |= listed
        return sorted(listed)

    def status(self, path: str) -> sources.Status:
        metadata = self._listed.get(path)
        if metadata is None:
            metadata = FileSystems.get_filesystem(path).metadata(path)
        changed = int(1e9 * (metadata.last_updated_in_seconds or 0))
        return sources.Status(metadata.size_in_bytes, changed)

    def open(self, path: str) -> io.BufferedIOBase:
        return FileSystems.open(path, compression_type=_AS_IT_IS)


@contextlib.contextmanager
def replacing(path: str) -> Iterator:
    """Like `local.replacing`, for bytes, on any of Beam's file systems."""
    if not sources.is_remote(path):
        with local.replacing(path) as file:
            yield file
        return
    # Two workers may write the same file: a runner repeats what seems to be lost.
    temporary = f"{local.temporary_name(path)}.{uuid.uuid4().hex}"
    try:
        with FileSystems.create(temporary, compression_type=_AS_IT_IS) as file:
            yield file
        remove([path])  # HDFS renames to new names only
        FileSystems.rename([temporary], [path])
    except BaseException:
        with contextlib.suppress(OSError):
            remove([temporary])
        raise


def remove(paths: Iterable[str]) -> None:
    """Removes those files that exist."""
    FileSystems.delete([path for path in paths if FileSystems.exists(path)])
