"""The files of a folder, as they were when somebody first asked for them."""

import fnmatch
import glob
import os
from collections.abc import Callable, Collection

from files import sources


class FolderFiles:
    """The files of a folder, each looked for and read at most once.

    Args:
        path: of the folder.
        names: of all that is in it, if that is known.
    """

    def __init__(self, path: str, names: Collection[str] | None = None):
        self.path, self._names = path, names
        self._found, self._matches = {}, {}
        self._contents, self._parsed = {}, {}

    def file(self, name: str) -> str:
        """The path of a file in it."""
        return os.path.join(self.path, name)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        if name not in self._found:
            may_be = self._names is None or name in self._names
            self._found[name] = may_be and sources.is_file(self.file(name))
        return self._found[name]

    def matching(self, pattern: str) -> list[str]:
        """The names of the files that a glob matches, sorted."""
        if pattern not in self._matches:
            self._matches[pattern] = sorted(filter(self.has, self._match(pattern)))
        return self._matches[pattern]

    def _match(self, pattern):
        if self._names is None:
            paths = sources.matching(os.path.join(glob.escape(self.path), pattern))
            return map(os.path.basename, paths)
        visible = (name for name in self._names if not name.startswith("."))
        return fnmatch.filter(visible, pattern)

    def content(self, name: str) -> bytes:
        """The bytes of a file; raises as `sources.content` does."""
        if name not in self._contents:
            self._contents[name] = sources.content(self.file(name))
        return self._contents[name]

    def parse(self, name: str, parse: Callable[[str, bytes], object]):
        """What `parse` makes of the path and the bytes of a file; always the same."""
        if name not in self._parsed:
            self._parsed[name] = parse(self.file(name), self.content(name))
        return self._parsed[name]
