"""Declares what learns a kind of vocabulary for build_vocab.py."""

import abc
import sys
from collections.abc import Iterator, Mapping

from text.tokenizers.table import DECOMPOSITION_WARNING
from text.tokenizers.tokenizer import Tokenizer


class Learner(abc.ABC):
    """Learns vocabularies of one kind.

    Attributes:
        options: the flags of build_vocab.py.
        activity: what it does first, for the display of progress.
        file_names: which names of an --output_file are for this kind: "it must ...".
        unused_flags: the flags that have no effect on this kind.
    """

    activity: str
    file_names: str
    unused_flags: tuple[str, ...]

    def __init__(self, options):
        self.options = options
        self._has_warned = False

    @abc.abstractmethod
    def defaults(self) -> Mapping[str, int]:
        """The values of --vocab_size and of other flags whose default depends on flags."""

    @abc.abstractmethod
    def fixed_tokens(self) -> tuple[int, str]:
        """How many tokens are not learned, and what they are."""

    def check(self) -> None:  # noqa: B027  most kinds take any
        """Refuses flags that do not fit each other."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files to write: --output_file, and others that belong to it."""
        return (self.options.output_file,)

    @abc.abstractmethod
    def learn(self, lines: Iterator[str], source: str) -> list[bytes]:
        """Learns a vocabulary: the contents of the files at `paths`.

        Args:
            source: where the lines come from, for errors.
        """

    @abc.abstractmethod
    def report(self, tokenizer: Tokenizer) -> Iterator[str]:
        """Lines about the vocabulary, after `learn`; `tokenizer` has it."""

    def continues(self, tokenizer: Tokenizer) -> list[bool]:
        """By id, whether a piece and another one are parts of a word."""
        vocabulary = tokenizer.vocabulary
        if vocabulary.joins_next.any():  # it is a word's end that is marked
            return vocabulary.joins_next.tolist()
        return vocabulary.is_continuation.tolist()

    def takes_apart(self, line: str) -> bool:
        """Whether accent stripping takes letters apart that --strip_accents=false keeps."""
        return False

    def _warn(self, line: str) -> None:
        """Says once that letters of the text are taken apart."""
        if not self._has_warned and self.takes_apart(line):
            print(f"warning: {DECOMPOSITION_WARNING}", file=sys.stderr)
            self._has_warned = True
