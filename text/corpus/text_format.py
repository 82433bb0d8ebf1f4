"""Says what a format of input files does: cut files into spans, read their documents."""

import abc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from files import inputs, sources

PIECE_BYTES = 8 << 20  # of text that a process takes at a time
PARAGRAPH_END = ""  # no sentence is empty


class FileSpan(NamedTuple):
    """A part of a file that can be read on its own.

    Attributes:
        start, stop: where it is, as its format counts: in the unpacked file's bytes, or
            otherwise; a stop of None is the end of the file.
        size: the number of bytes it takes on disk.
        block: its text, if the file had to be unpacked to find the span.
        status: that of the file; None if it does not matter whether it changes.
    """

    path: str
    start: int
    stop: int | None
    size: int
    block: bytes | None = None
    status: sources.Status | None = None


class TextFormat(abc.ABC):
    """How documents lie in files; an object of it is a row of `FORMATS`.

    A format with flags of its own has a subclass of `inputs.LineOptions` for them, which
    `formats.TextOptions` inherits.

    Attributes:
        help: what --help says of it.
        words_format: the format in which build_vocab.py reads the same files, if the ends
            of sentences do not matter; "" is the format itself.
        reads_slowly: whether to read takes longer than to count words, so that
            build_vocab.py has other processes do it.
        splits_documents: whether a document may continue in the next span.
        ends_with_file: whether a document ends only where its file does.
        unit_end: what ends the smallest part that can be read, in the unpacked file.
    """

    help: str
    words_format = ""
    reads_slowly = False
    splits_documents = False
    ends_with_file = False
    unit_end = b"\n"

    def files_in(self, folder: str) -> list[str]:
        """The files of a folder that is one text; itself, if there is none such."""
        return [folder]

    @abc.abstractmethod
    def spans(self, path: str, size: int, total: int) -> Iterator[FileSpan]:
        """Cuts a file into spans of about PIECE_BYTES, independently of who reads them.

        Args:
            size, total: of the file, and of all files, in bytes.

        Raises UserError if the file is not in this format.
        """

    @abc.abstractmethod
    def read(
        self, span: FileSpan, chosen: inputs.LineOptions, counts: Counter
    ) -> Iterator[str | None]:
        """Yields sentences, PARAGRAPH_END, and None wherever a document ends.

        That a document ends means that a paragraph does.

        Args:
            counts: of what is left out; the format adds to it.
        """

    @abc.abstractmethod
    def is_sequential(self, path: str, size: int) -> bool:
        """Whether a file can only be read from its beginning."""

    @abc.abstractmethod
    def whole_documents(self, span: FileSpan, size: int) -> FileSpan | None:
        """The documents that begin in a span of bytes; None if none does.

        Where the span was cut is known without its content. One that reaches into the
        next span, or across several, belongs to the first.

        Args:
            size: of the file in bytes.
        """

    @abc.abstractmethod
    def windows(
        self,
        path: str,
        places: Sequence[tuple[int, int]],
        size: int,
        chosen: inputs.LineOptions,
    ) -> Iterator[FileSpan | None]:
        """Yields a sample of a file, for --dry_run: what is about each place; or None.

        Args:
            places: where they begin and end in the file, in its order; none is all of it.
            size: of the file in bytes.
        """

    def report(self, counts: Mapping[str, int]) -> Iterator[str]:
        """Yields what to tell a user of the counts."""
        yield from ()
