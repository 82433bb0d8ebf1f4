"""Lists the kinds of vocabularies, opens one, and defines the flags of its tokenizer."""

import contextlib
import dataclasses
import functools
import os
import re
import typing
from collections.abc import Iterable, Mapping

import extensions
import options
from errors import UserError, setting
from files import hub, sources
from files.folder_files import FolderFiles
from text.tokenizers import recorded_settings, sentencepiece_files, tokenizer_json
from text.tokenizers.kind import Kind, VocabularyFile
from text.tokenizers.recorded_settings import FolderText
from text.tokenizers.sentencepiece import SentencePieceKind
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPieceKind

DECOMPOSITION_WARNING = (
    "accent stripping decomposes Hangul or kana with voicing marks, as in the 2018 "
    "release (a Hangul syllable becomes its letters, \u304c becomes \u304b); for Korean "
    "or Japanese text, --strip_accents=false keeps them whole"
)

_CORE = ("wordpiece", "sentencepiece")
# The last one that reads a vocabulary file is used; WordPiece, the first, takes any.
TOKENIZERS: dict[str, Kind] = {
    "wordpiece": WordPieceKind(),
    **{
        name: kind() for name, kind in extensions.load_rows("tokenizers", _CORE).items()
    },
    "sentencepiece": SentencePieceKind(),
}

# The first line of a list of merges.
_MERGES = b"#version"
# "piece TAB score", which spm_train writes next to a model.
_SCORED = re.compile(rb"[^\t\r\n]+\t-?[0-9.e+-]+\r?\n")


def kind_of_tokenizer(tokenizer: Tokenizer) -> Kind:
    """The kind that a tokenizer is of."""
    kinds = TOKENIZERS.values()
    return next(kind for kind in kinds if kind.tokenizer is type(tokenizer))


class OpenVocabulary:
    """A vocabulary of any kind, opened once: its files, and what those next to it say.

    Attributes:
        file: the file, or the first of several.
        path: of the file.
    """

    def __init__(self, text: FolderText, name: str):
        """Args:
        text: the folder.
        name: of the file in it.
        """
        self._text, self.file = text, VocabularyFile(text, name)
        self.path = self.file.path

    @classmethod
    def open(cls, path: str, known: Iterable[FolderText] = ()) -> "OpenVocabulary":
        """Finds a vocabulary; it is read when it is asked for.

        Args:
            path: a file, a folder that has one, or an address.
            known: folders that are open, in which it may be.
        Raises:
            UserError: nothing in the folder is a vocabulary.
        """
        folder, name = os.path.split(path)
        for text in known:
            if text.path == folder and text.has(name):
                return cls(text, name)
        path = hub.local(path, "vocabulary")
        if not sources.is_folder(path):
            folder, name = os.path.split(path)
            return cls(FolderText(folder), name)
        text = FolderText(path)
        if file := find_vocabulary(text):
            return cls(text, file.name)
        names = dict.fromkeys(kind.vocabulary_file for kind in TOKENIZERS.values())
        names[tokenizer_json.NAME] = None
        raise UserError(
            f"{path}: contains no {' or '.join(names)}; pass the vocabulary's own path"
        )

    @functools.cached_property
    def kind(self) -> Kind:
        """Raises UserError if it is a tokenizer.json of no kind."""
        kinds, content = reversed(TOKENIZERS.values()), self.file.json
        if content is None:
            return next(kind for kind in kinds if kind.reads(self.file))
        for kind in kinds:
            if kind.reads_json(content):
                return kind
        raise UserError(
            f"{self.path}: model.type is {content['model']['type']}, which is not "
            "supported with this pre_tokenizer; use a model of the kind "
            f"{', '.join(TOKENIZERS)}{extensions.hint()}"
        )

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """Raises UserError or OSError if it cannot be read."""
        with self._name_real_format():
            return self.kind.load_vocabulary(self.file)

    @functools.cached_property
    def settings(self) -> dict:
        """The `TokenizerOptions` that the files next to it say, by name."""
        with self._name_real_format():
            return recorded_settings.of_vocabulary(self.file, self.kind, self._text)

    def load(self, options: "TokenizerOptions") -> Tokenizer:
        """The tokenizer for these options.

        Raises:
            UserError: the vocabulary cannot be read, or what it says contradicts them.
        """
        options = options.fill_in(self)
        with self._name_real_format():
            return self.kind.load(self.file, options)

    def resolve(self, options: "TokenizerOptions") -> Mapping[str, object]:
        """The options and what they mean for this vocabulary; see `Kind.resolve`."""
        options = options.fill_in(self)
        with self._name_real_format():
            values = self.kind.resolve(options, self.file)
        return {"split_cjk": options.split_cjk, **values}

    @contextlib.contextmanager
    def _name_real_format(self):
        """Says so if a file that cannot be read as a vocab.txt is SentencePiece's."""
        try:
            yield
        except UserError as error:
            if self.kind is not TOKENIZERS["wordpiece"]:
                raise
            if what := _describe_other_format(self.file):
                raise UserError(f"{self.path}: {what}") from error
            raise


def _describe_other_format(file):
    content = file.content
    if sentencepiece_files.is_model(content):
        return (
            "is a SentencePiece model, not a vocab.txt; give it a name that ends in "
            ".model"
        )
    if content.startswith(_MERGES):
        return (
            "lists the merges of a BPE vocabulary; pass the .json file next to it, which "
            "lists the tokens"
        )
    if _SCORED.match(content):
        return (
            "lists SentencePiece's pieces and their scores; pass the .model file next to "
            "it"
        )
    if file.name.endswith(".json") and file.json is None:
        return f"is not a vocabulary that a tokenizer here reads{extensions.hint()}"
    return None


def load_vocabulary(vocab_file: str) -> Vocabulary:
    """Reads a vocabulary of any kind; see `OpenVocabulary.open`."""
    return OpenVocabulary.open(vocab_file).vocabulary


def find_vocabulary(folder: FolderFiles) -> VocabularyFile | None:
    """The vocabulary in the folder of a checkpoint, if there is one."""
    for kind in TOKENIZERS.values():
        if file := kind.find_own_file(folder):
            return file
    file = VocabularyFile(folder, tokenizer_json.NAME)
    return file if file.exists else None


@dataclasses.dataclass(frozen=True)
class TokenizerOptions(options.Group):
    """Tokens. How text becomes tokens, the same for every script.

    One that is not given (None) is as the files next to the weights or to the vocabulary
    say, and otherwise as in the release.
    """

    do_lower_case: bool | None = options.field(
        None,
        help="Lowercase the text, for uncased vocabularies. By default, this and the other "
        "flags of text are as the checkpoint, the records or the vocabulary say; if they "
        "say nothing, this one is true." + extensions.help_of("do_lower_case"),
    )
    strip_accents: bool | None = options.field(
        None,
        help="Remove accents and decompose Hangul; by default, the same as "
        "--do_lower_case, but always with SentencePiece, as in the releases.",
    )
    split_cjk: bool | None = options.field(
        None,
        help="Make every Chinese character a separate word; by default true. Not for "
        "SentencePiece.",
    )

    def fill_in(self, vocabulary: OpenVocabulary) -> typing.Self:
        """These flags; what is not given is as the files next to a vocabulary say."""
        kind, chosen = vocabulary.kind, self._follow(vocabulary)
        if all(getattr(chosen, name) is not None for name in kind.text_flags):
            return chosen  # nothing is looked for
        return chosen.or_else(vocabulary.settings)

    def or_else(self, settings: Mapping[str, object]) -> typing.Self:
        """These flags; those not given are as `settings` says, by name."""
        names = {field.name for field in dataclasses.fields(TokenizerOptions)}
        absent = {
            name: value
            for name, value in settings.items()
            if name in names and getattr(self, name) is None
        }
        return dataclasses.replace(self, **absent) if absent else self

    def load_tokenizer(self, vocab_file: str) -> Tokenizer:
        """The tokenizer for a vocabulary, a file or its folder, and these flags."""
        return OpenVocabulary.open(vocab_file).load(self)

    def _follow(self, vocabulary):
        """These options, and what the vocabulary says if it is a tokenizer.json."""
        content = vocabulary.file.json
        if content is None:
            return self
        decided = vocabulary.kind.json_settings(content)
        for name, value in decided.items():
            is_default = getattr(self, name) == getattr(TokenizerOptions, name)
            if not is_default and getattr(self, name) != value:
                raise UserError(
                    f"{vocabulary.path}: its normalizer splits text differently; leave out "
                    f"{setting(name)}, or pass {setting(name, value)}"
                )
        return dataclasses.replace(self, **decided)
