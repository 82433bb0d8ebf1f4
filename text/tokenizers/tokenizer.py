"""Declares the interface of a tokenizer: text to ids, with offsets."""

import abc
import array
from collections.abc import Mapping
from typing import NamedTuple

from errors import UserError
from text.tokenizers.vocabulary import Vocabulary


class HuggingFaceFiles(NamedTuple):
    """A tokenizer as Hugging Face describes one.

    Attributes:
        config: the content of tokenizer_config.json.
        json: tokenizer.json, which gives our ids; None if it cannot describe them.
        difference: which ids it does not give, for a warning, if there are any but those
            in docs/vocabularies.md.
    """

    config: Mapping[str, object]
    json: str | None
    difference: str | None = None


class Tokenizer(abc.ABC):
    """Text to ids of a vocabulary.

    Attributes:
        vocabulary: the `Vocabulary`.
        finds_answers_by_offset: whether the ids of a part of a word depend on the rest of
            it, so that an answer is found in its text by characters and not by ids.
    """

    vocabulary: Vocabulary
    finds_answers_by_offset = False

    @property
    @abc.abstractmethod
    def settings(self) -> Mapping[str, object]:
        """What determines the ids, as JSON: the identity noted in files and models."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files of the vocabulary by name, from which `Kind.load` makes this one."""
        return self.vocabulary.files

    def hugging_face(self) -> HuggingFaceFiles:
        """Raises UserError if Hugging Face has no such tokenizer."""
        raise UserError("Hugging Face has no tokenizer for this kind of vocabulary")

    def encode(self, text: str) -> list[int]:
        """Text to ids; special tokens written in it are split like any text."""
        return self.encode_with_offsets(text)[0]

    def encode_packed(self, text: str) -> bytes:
        """`encode` for much text: ids of `vocabulary.id_type`, one after another."""
        return array.array(self.vocabulary.id_type.char, self.encode(text)).tobytes()

    @abc.abstractmethod
    def encode_words(self, text: str) -> tuple[bytes, bytes]:
        """Like `encode_packed`, and uint8: 1 for the first id between two spaces, or 0."""

    @abc.abstractmethod
    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """Text to ids, starts and ends: `text[start:end]` is what a piece was made of."""

    def tokenize(self, text: str) -> list[str]:
        """Text to pieces, as the vocabulary spells them."""
        tokens = self.vocabulary.tokens
        return [tokens[id] for id in self.encode(text)]

    def decomposes(self, text: str) -> bool:
        """Whether letters of a text are taken apart; see `table.DECOMPOSITION_WARNING`."""
        return False

    def check_release(self, path: str | None) -> None:
        """Refuses other settings than those of the released model that a path names, if
        any.
        """
        return  # a kind whose releases have no names to go by
