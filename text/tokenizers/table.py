"""Lists the kinds of tokenizers, and defines the flags they share."""

import contextlib
import dataclasses
import re
import typing
from collections.abc import Mapping

import extensions
import options
from errors import UserError, setting
from files import hub, sources
from text.tokenizers import recorded_settings, sentencepiece_files, tokenizer_json
from text.tokenizers.kind import Kind
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


def kind_of(vocab_file: str) -> Kind:
    """The kind of a vocabulary file, or of the one in a folder."""
    vocab_file = _file(vocab_file)
    if not tokenizer_json.is_path(vocab_file):
        kinds = reversed(TOKENIZERS.values())
        return next(kind for kind in kinds if kind.reads(vocab_file))
    content = tokenizer_json.read(vocab_file)
    for kind in reversed(TOKENIZERS.values()):
        if kind.reads_json(content):
            return kind
    raise UserError(
        f"{vocab_file}: model.type is {content['model']['type']}, which is not supported "
        f"with this pre_tokenizer; use a model of the kind {', '.join(TOKENIZERS)}"
        f"{extensions.hint()}"
    )


def kind_of_tokenizer(tokenizer: Tokenizer) -> Kind:
    """The kind that a tokenizer is of."""
    kinds = TOKENIZERS.values()
    return next(kind for kind in kinds if kind.tokenizer is type(tokenizer))


def load_vocabulary(vocab_file: str) -> Vocabulary:
    """Reads a vocabulary of any kind."""
    vocab_file = _file(vocab_file)
    with _name_real_format(vocab_file):
        return kind_of(vocab_file).load_vocabulary(vocab_file)


@contextlib.contextmanager
def _name_real_format(vocab_file):
    """Says so if a file that cannot be read as a vocab.txt is SentencePiece's."""
    try:
        yield
    except UserError as error:
        if kind_of(vocab_file) is not TOKENIZERS["wordpiece"]:
            raise
        content, is_json = sources.content(vocab_file), vocab_file.endswith(".json")
        if sentencepiece_files.is_model(content):
            what = (
                "is a SentencePiece model, not a vocab.txt; give it a name that ends in "
                ".model"
            )
        elif content.startswith(_MERGES):
            what = (
                "lists the merges of a BPE vocabulary; pass the .json file next to it, "
                "which lists the tokens"
            )
        elif _SCORED.match(content):
            what = (
                "lists SentencePiece's pieces and their scores; pass the .model file next "
                "to it"
            )
        elif is_json and not tokenizer_json.is_path(vocab_file):
            what = f"is not a vocabulary that a tokenizer here reads{extensions.hint()}"
        else:
            raise
        raise UserError(f"{vocab_file}: {what}") from error


def _file(path):
    """The file, if a path is a folder or an address."""
    path = hub.local(path, "vocabulary")
    if not sources.is_folder(path):
        return path
    vocab_file = find_vocabulary(path)
    if not vocab_file:
        names = dict.fromkeys(kind.vocabulary_file for kind in TOKENIZERS.values())
        names[tokenizer_json.NAME] = None
        raise UserError(
            f"{path}: contains no {' or '.join(names)}; pass the vocabulary's own path"
        )
    return vocab_file


def find_vocabulary(folder: str) -> str | None:
    """The vocabulary in the folder of a checkpoint, if there is one."""
    for kind in TOKENIZERS.values():
        if path := kind.find_own_file(folder):
            return path
    path = tokenizer_json.path_in(folder)
    return path if tokenizer_json.is_path(path) else None


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

    def fill_in(self, vocab_file: str) -> typing.Self:
        """These flags; what is not given is as the files next to a vocabulary say."""
        vocab_file = _file(vocab_file)
        kind, chosen = kind_of(vocab_file), self._following(vocab_file)
        if all(getattr(chosen, name) is not None for name in kind.text_flags):
            return chosen  # nothing is looked for
        with _name_real_format(vocab_file):
            return chosen.or_else(recorded_settings.of_vocabulary(vocab_file, kind))

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
        vocab_file = _file(vocab_file)
        kind = kind_of(vocab_file)
        with _name_real_format(vocab_file):
            return kind.load(vocab_file, self.fill_in(vocab_file))

    def resolve(self, vocab_file: str) -> Mapping[str, object]:
        """See `Kind.resolve`; raises as `load_tokenizer` does."""
        chosen = self.fill_in(vocab_file)
        with _name_real_format(vocab_file):
            values = kind_of(vocab_file).resolve(chosen, vocab_file)
        return {"split_cjk": chosen.split_cjk, **values}

    def _following(self, vocab_file: str) -> typing.Self:
        """These options, and what the vocabulary says if it is a tokenizer.json."""
        vocab_file = _file(vocab_file)
        if not tokenizer_json.is_path(vocab_file):
            return self
        content = tokenizer_json.read(vocab_file)
        decided = kind_of(vocab_file).json_settings(content)
        for name, value in decided.items():
            is_default = getattr(self, name) == getattr(TokenizerOptions, name)
            if not is_default and getattr(self, name) != value:
                raise UserError(
                    f"{vocab_file}: its normalizer splits text differently; leave out "
                    f"{setting(name)}, or pass {setting(name, value)}"
                )
        return dataclasses.replace(self, **decided)
