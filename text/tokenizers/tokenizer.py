"""Declares the interface of a tokenizer: text to ids, with offsets, and a graph twin."""

import abc
import array
import os
import typing
from collections.abc import Mapping

from text.files import sources
from text.tokenizers import tokenizer_json
from text.tokenizers.vocabulary import Vocabulary

if typing.TYPE_CHECKING:  # workers that write records load no TensorFlow
    from text.tokenizers.graph_tokenizer import GraphTokenizer

# What tokenizer_config.json calls a tokenizer that tokenizer.json alone describes.
GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")


class Tokenizer(abc.ABC):
    """Text to ids of a vocabulary.

    Attributes:
        vocabulary: the `Vocabulary`.
        vocabulary_file: the name of its file, or of the first of its `files`.
        hugging_face_classes: what tokenizer_config.json calls tokenizers of this kind.
        libraries: the packages whose operations its graph needs, in addition to
            TensorFlow's own; a program imports them before it loads a SavedModel.
        finds_answers_by_offset: whether the ids of a part of a word depend on the rest of
            it, so that an answer is found in its text by characters and not by ids.
        flags: the `TokenizerOptions` that are for this kind alone.
        text_flags: the `TokenizerOptions` that change its ids.
    """

    vocabulary: Vocabulary
    vocabulary_file: str
    hugging_face_classes: tuple[str | None, ...]
    libraries: tuple[str, ...] = ()
    finds_answers_by_offset = False
    flags: tuple[str, ...] = ()
    text_flags: tuple[str, ...] = ()

    @classmethod
    @abc.abstractmethod
    def reads(cls, vocab_file: str) -> bool:
        """Whether a vocabulary file, or a folder, is of this kind.

        Its name decides, or, if it exists and kinds share the name, its content.
        """

    @classmethod
    def reads_json(cls, content: Mapping) -> bool:
        """Whether what `tokenizer_json.read` returns is of this kind."""
        return False  # a kind that Hugging Face does not have

    @classmethod
    def find(cls, folder: str) -> str | None:
        """The vocabulary of this kind in the folder of a checkpoint, if there is one.

        Raises:
            UserError: there is only a tokenizer.json, and it is damaged.
        """
        if found := cls.find_own_file(folder):
            return found
        path = tokenizer_json.path_in(folder)
        is_one = tokenizer_json.is_path(path)
        return path if is_one and cls.reads_json(tokenizer_json.read(path)) else None

    @classmethod
    def find_own_file(cls, folder: str) -> str | None:
        """Like `find`, of the files that this kind writes."""
        path = os.path.join(folder, cls.vocabulary_file)
        return path if sources.exists(path) else None

    @classmethod
    def strips_accents(cls, options) -> bool:
        """Whether `TokenizerOptions` remove accents from text."""
        strips = options.strip_accents
        return options.do_lower_case is not False if strips is None else strips

    @classmethod
    def resolved(cls, options, vocab_file: str) -> Mapping[str, object]:
        """The values of the `TokenizerOptions` that are left open, by name.

        Args:
            vocab_file: the vocabulary, which may decide.
        """
        return {
            "do_lower_case": options.do_lower_case is not False,
            "strip_accents": cls.strips_accents(options),
            "split_cjk": options.split_cjk is not False,
        }

    @classmethod
    @abc.abstractmethod
    def load(cls, vocab_file: str, options) -> typing.Self:
        """Makes the tokenizer for a file.

        Args:
            options: the `TokenizerOptions`.
        Raises:
            UserError: the file is not such a vocabulary.
        """

    @classmethod
    @abc.abstractmethod
    def load_vocabulary(cls, vocab_file: str) -> Vocabulary:
        """Reads the vocabulary alone.

        Raises:
            UserError: the file is not such a vocabulary.
        """

    @classmethod
    @abc.abstractmethod
    def parse(cls, content: bytes) -> list[str]:
        """The tokens by id that a `vocabulary_file` contains.

        Raises:
            ValueError: it is not such a file.
        """

    @classmethod
    def read_files(cls, vocab_file: str) -> dict[str, bytes]:
        """Reads the files of a vocabulary, by name, which a tokenizer.json may stand for.

        Raises:
            UserError: one is missing, or the tokenizer.json asks for what this kind does
                not do.
            OSError: one cannot be read.
        """
        if tokenizer_json.is_path(vocab_file):
            return cls.files_of_json(vocab_file)
        with sources.opened(vocab_file) as file:
            return {cls.vocabulary_file: file.read()}

    @classmethod
    def files_of_json(cls, path: str) -> dict[str, bytes]:
        """The files that a tokenizer.json stands for; raises as `read_files` does."""
        raise NotImplementedError(f"{cls.__name__}.reads_json is false")

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files of the vocabulary by name, from which `load` makes this tokenizer."""
        return self.read_files(self.vocabulary.path)

    @property
    @abc.abstractmethod
    def hugging_face_config(self) -> Mapping[str, object]:
        """What their tokenizer_config.json says of such a tokenizer."""

    @property
    @abc.abstractmethod
    def hugging_face_json(self) -> str | None:
        """Their tokenizer.json, which gives our ids; None if it cannot describe them."""

    @property
    def hugging_face_difference(self) -> str | None:
        """Which ids `hugging_face_json` does not give, for a warning, if there are any."""
        return None  # but for what docs/differences.md says

    @classmethod
    def hugging_face_settings(cls, said: Mapping) -> Mapping[str, object]:
        """The `settings` that their tokenizer_config.json asks for.

        Args:
            said: its content.
        Returns:
            values by name, None for those that it leaves open.
        """
        strips = said.get("strip_accents")
        return {
            "do_lower_case": said.get("do_lower_case"),
            "strip_accents": said.get("do_lower_case") if strips is None else strips,
            "split_cjk": said.get("tokenize_chinese_chars"),
        }

    @property
    @abc.abstractmethod
    def settings(self) -> Mapping[str, object]:
        """What determines the ids, as JSON: the identity noted in files and models."""

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Text to ids; special tokens written in it are split like any text."""

    def encode_packed(self, text: str) -> bytes:
        """`encode` for much text: ids of `vocabulary.id_type`, one after another."""
        return array.array(self.vocabulary.id_type.char, self.encode(text)).tobytes()

    @abc.abstractmethod
    def encode_words(self, text: str) -> tuple[bytes, bytes]:
        """Like `encode_packed`, and uint8: 1 for the first id between two spaces, or 0."""

    @abc.abstractmethod
    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """Text to ids, and where each piece is in the text.

        Returns:
            ids, starts, ends: lists of equal length; `text[start:end]` is what the piece
            was made of.
        """

    @abc.abstractmethod
    def graph(self, folder: str) -> "GraphTokenizer":
        """The same as a TensorFlow graph.

        Args:
            folder: where to write its vocabulary; a SavedModel includes the files.
        """

    def check_graph(self) -> None:
        """Raises:
        UserError: there is no `graph`, and why.
        """
        return  # nearly all kinds have one

    def check_release(self, path: str | None) -> None:
        """Checks the settings against the released model that a path names, if it does.

        Args:
            path: a checkpoint prefix, a folder or a vocabulary file; None passes.
        Raises:
            UserError: the model was trained with other settings.
        """
        return  # a kind whose releases have no names to go by

    def tokenize(self, text: str) -> list[str]:
        """Text to pieces, as the vocabulary spells them."""
        tokens = self.vocabulary.tokens
        return [tokens[id] for id in self.encode(text)]

    def decomposes(self, text: str) -> bool:
        """Whether letters of a text are taken apart; see `kinds.DECOMPOSITION_WARNING`."""
        return False
