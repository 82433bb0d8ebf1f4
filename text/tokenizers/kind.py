"""Declares what a kind of vocabulary is: which files it has, and what is made of them."""

import abc
from collections.abc import Mapping
from typing import NamedTuple

import extensions
from files.folder_files import FolderFiles
from text.tokenizers import tokenizer_json
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import Vocabulary

# What tokenizer_config.json calls a tokenizer that tokenizer.json alone describes.
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")


def hugging_face_classes(*names: str, kind: str = "") -> tuple[str | None, ...]:
    """What tokenizer_config.json may call the tokenizers of these classes.

    Args:
        kind: the name of a `Kind`, to which extensions may add classes.
    """
    classes = extensions.rows("tokenizer_classes", names).items()
    names += tuple(name for name, of_kind in classes if of_kind == kind)
    return None, *names, *(f"{name}Fast" for name in names), *_GENERIC_CLASSES


class VocabularyFile(NamedTuple):
    """A vocabulary that is open: a file, or the first of several.

    Attributes:
        folder: has the others.
        name: of the file in it.
    """

    folder: FolderFiles
    name: str

    @property
    def path(self) -> str:
        return self.folder.file(self.name)

    @property
    def exists(self) -> bool:
        return self.folder.has(self.name)

    @property
    def content(self) -> bytes:
        """Its bytes; raises OSError if there is no such file."""
        return self.folder.content(self.name)

    @property
    def json(self) -> Mapping | None:
        """What it contains, see `tokenizer_json.find`; None for any other file."""
        is_one = self.name == tokenizer_json.NAME
        return tokenizer_json.find(self.folder) if is_one else None


class Kind(abc.ABC):
    """A kind of vocabulary, with its tokenizer.

    Attributes:
        graph: "module:Class" of the same in a TensorFlow graph, a `GraphTokenizer` that is
            made from a tokenizer and a folder for the files that a SavedModel includes.
        learner: "module:Class" of the `Learner` of such vocabularies, if there is one.
        tokenizer: the class of its tokenizers.
        vocabulary_file: the name of its file, or of the first of its files.
        hugging_face_classes: what tokenizer_config.json calls such tokenizers; None if it
            may leave that open.
        text_flags: the `TokenizerOptions` that change the ids.
    """

    graph: str
    learner: str | None = None
    tokenizer: type[Tokenizer]
    vocabulary_file: str
    hugging_face_classes: tuple[str | None, ...] = ()
    text_flags: tuple[str, ...] = ()

    # --- Which files are of this kind ------------------------------------------------

    @abc.abstractmethod
    def reads(self, file: VocabularyFile) -> bool:
        """Whether a vocabulary is of this kind; it is no tokenizer.json.

        Its name decides, or, if it exists and kinds share the name, its content.
        """

    def reads_json(self, content: Mapping) -> bool:
        """Whether what `tokenizer_json.find` returns is of this kind."""
        return False  # a kind that Hugging Face does not have

    def json_settings(self, content: Mapping) -> dict[str, bool]:
        """The `TokenizerOptions` that what `tokenizer_json.find` returns decides.

        One that it does not decide, or that has no effect on this kind, is absent.
        """
        return {}

    def find(self, folder: FolderFiles) -> VocabularyFile | None:
        """The vocabulary of this kind in the folder of a checkpoint, if there is one."""
        if file := self.find_own_file(folder):
            return file
        content = tokenizer_json.find(folder)
        is_ours = content is not None and self.reads_json(content)
        return VocabularyFile(folder, tokenizer_json.NAME) if is_ours else None

    def find_own_file(self, folder: FolderFiles) -> VocabularyFile | None:
        """Like `find`, of the files that this kind writes."""
        file = VocabularyFile(folder, self.vocabulary_file)
        return file if file.exists else None

    # --- What they contain -----------------------------------------------------------

    @abc.abstractmethod
    def load(self, file: VocabularyFile, options) -> Tokenizer:
        """Makes the tokenizer for a file and the `TokenizerOptions`."""

    @abc.abstractmethod
    def load_vocabulary(self, file: VocabularyFile) -> Vocabulary:
        """Reads the vocabulary alone, with its `read_files`."""

    @abc.abstractmethod
    def parse(self, content: bytes) -> list[str]:
        """The tokens by id that a `vocabulary_file` contains; ValueError if it is not
        one.
        """

    def is_same_file(self, name: str, content: bytes, other: bytes) -> bool:
        """Whether two contents of one of the `Tokenizer.files` mean the same."""
        return content == other

    def read_files(self, file: VocabularyFile) -> dict[str, bytes]:
        """The files of a vocabulary by name; a tokenizer.json may stand for them."""
        return {self.vocabulary_file: file.content}

    # --- Flags -----------------------------------------------------------------------

    def resolve(self, options, file: VocabularyFile) -> Mapping[str, object]:
        """The values of the `TokenizerOptions` that are left open, by name."""
        lowers, strips = options.do_lower_case is not False, options.strip_accents
        return {
            "do_lower_case": lowers,
            "strip_accents": lowers if strips is None else strips,
            "split_cjk": options.split_cjk is not False,
        }

    def hugging_face_settings(self, config: Mapping) -> Mapping[str, object]:
        """The `Tokenizer.settings` that a tokenizer_config.json asks for; None for open
        ones.
        """
        lowers, strips = config.get("do_lower_case"), config.get("strip_accents")
        # An uncased one may leave it open, and then the vocabulary decides; see `load`.
        return {
            "do_lower_case": lowers,
            "strip_accents": False if strips is None and lowers is False else strips,
            "split_cjk": config.get("tokenize_chinese_chars"),
        }

    # --- Other tokens ----------------------------------------------------------------

    def with_tokens(self, tokenizer: Tokenizer, tokens: list[str]) -> Tokenizer | None:
        """A tokenizer with these tokens; None if no words can be added to this kind."""
        return None
