"""Tokenizes text into BPE pieces with character offsets, like RoBERTa and GPT-2, or GPT-1.

A word is first cut into its smallest pieces; then the two neighbors that come first in a
list of merges become one piece, again and again.

RoBERTa's smallest pieces are the UTF-8 bytes of a word and of the space before it, written
as printable characters. So every text has pieces, and they give it back: there are no
unknown tokens, no normalization and no lowercasing.

GPT-1's are the characters of a word, the last one with </w>; one that is not in the
vocabulary is unknown. The words are those of transformers, which are BERT's: everything is
lowercased, accents are removed and every punctuation mark is a word. OpenAI's code found
them with spaCy and ftfy.

A vocabulary is two files as Hugging Face writes them: vocab.json, tokens to ids, and
merges.txt, two pieces per line. GPT-1's may have OpenAI's names, encoder_bpe_40000.json and
vocab_40000.bpe.
"""

import abc
import glob
import hashlib
import os
import re
from collections.abc import Container

import numpy as np
import tokenizers

from errors import UserError, setting
from files import json_files, sources
from text.tokenizers import recorded_settings, tokenizer_json
from text.tokenizers.cleaner import Filled
from text.tokenizers.kind import Kind, hugging_face_classes
from text.tokenizers.tokenizer import HuggingFace, Tokenizer
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary
from text.tokenizers.word_by_word import WordByWord
from text.tokenizers.wordpiece import WordSplitter

VOCABULARY_FILE, MERGES = "vocab.json", "merges.txt"
_SURROGATES = re.compile("[\ud800-\udfff]")  # lone ones have no UTF-8

Merges = list[tuple[str, str]]  # pairs of pieces, the first to merge first


class BpeKind(Kind):
    """What vocabularies with a list of merges have in common."""

    vocabulary_file = VOCABULARY_FILE

    special: SpecialTokens
    layout: str  # a sentence about the two files, for the error

    @classmethod
    def merges_path(cls, vocab_file: str) -> str:
        """Where the merges of a vocabulary are."""
        return os.path.join(os.path.dirname(vocab_file), MERGES)

    @staticmethod
    @abc.abstractmethod
    def of_json(path: str, special: SpecialTokens) -> tuple[bytes, bytes]:
        """The two files that a tokenizer.json stands for."""

    @abc.abstractmethod
    def vocabulary_of(self, path: str, tokens: list[str], digest: str) -> Vocabulary:
        """Makes a vocabulary of the tokens of a file; raises as `load` does."""

    def load(self, vocab_file, options):
        self.resolved(options, vocab_file)  # refuses what has no effect
        return self.tokenizer(*self._read(vocab_file))

    def load_vocabulary(self, vocab_file):
        return self._read(vocab_file)[0]

    def parse(self, content):
        return _tokens_by_id(content)

    @classmethod
    def read_files(cls, vocab_file):
        if tokenizer_json.is_path(vocab_file):
            contents = cls.of_json(vocab_file, cls.special)
        else:
            paths = vocab_file, cls.merges_path(vocab_file)
            for path in paths:
                if not sources.is_file(path):
                    raise UserError(f"{path}: no such file; {cls.layout}")
            contents = map(sources.content, paths)
        return dict(zip((VOCABULARY_FILE, MERGES), contents, strict=True))

    def _read(self, path) -> tuple[Vocabulary, Merges]:
        content, merges_content = self.read_files(path).values()
        try:
            tokens = _tokens_by_id(content)
        except ValueError as error:
            raise UserError(f"{path}: not a vocabulary: {error}") from error
        digest = hashlib.sha256(content + merges_content).hexdigest()
        in_file = set(tokens)  # special tokens that are added to them are in no merge
        vocabulary = self.vocabulary_of(path, tokens, digest)
        merges = _merges(
            self.merges_path(path), merges_content, in_file, os.path.basename(path)
        )
        return vocabulary, merges


# === Files ============================================================================


def _tokens_by_id(content: bytes) -> list[str]:
    """The tokens of a JSON object of tokens and the ids 0, 1, 2 and so on, or
    ValueError.
    """
    ids = json_files.parse(content)
    if not isinstance(ids, dict) or not ids:
        raise ValueError("not an object of tokens and ids")
    for token, id in ids.items():
        if type(id) is not int or not 0 <= id < len(ids):
            raise ValueError(
                f"{token!r} has the id {id!r}; {len(ids)} tokens have the ids 0 to "
                f"{len(ids) - 1}, each once"
            )
    tokens = [""] * len(ids)
    for token, id in ids.items():
        if tokens[id]:
            raise ValueError(f"{tokens[id]!r} and {token!r} have the same id, {id}")
        tokens[id] = token
    return tokens


def _merges(
    path: str, content: bytes, tokens: Container[str], vocabulary_file: str
) -> Merges:
    """The pairs of pieces that are merged, first to last, one per line of a file.

    Args:
        tokens: those that may be merged.
        vocabulary_file: the name of the file with the tokens, for errors.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 ({error})") from error
    pairs, seen = [], set()
    for number, line in _numbered(text):
        pieces = tuple(line.split(" "))
        if len(pieces) != 2 or not all(pieces):
            raise UserError(
                f"{path}:{number}: {line[:60]!r} is not two pieces with a space between "
                "them"
            )
        for piece in (*pieces, "".join(pieces)):
            if piece not in tokens:
                raise UserError(
                    f"{path}:{number}: {piece!r} is not in {vocabulary_file}; use the "
                    "merges that belong to it"
                )
        if pieces in seen:
            raise UserError(f"{path}:{number}: {line!r} is repeated; remove the line")
        seen.add(pieces)
        pairs.append(pieces)
    return pairs


def same_merges(first: bytes, second: bytes) -> bool:
    """Whether two files of merges have the same pairs, whatever version they name."""
    lines = (
        [line for _, line in _numbered(content.decode("utf-8", errors="replace"))]
        for content in (first, second)
    )
    return next(lines) == next(lines)


def _numbered(text):
    """The lines with pairs, and their numbers."""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        # The first line is a comment; elsewhere, # is a piece like others.
        if line and not (number == 1 and line.startswith("#version")):
            yield number, line


# === RoBERTa's ========================================================================


# RoBERTa separates two texts with two tokens, and has no segments.
ROBERTA = SpecialTokens(
    ("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
    separators=2,
    second_segment=0,
    continuation="",  # it is a word's beginning that is marked, with its space
)
SPACE = "\u0120"  # the character for the byte of a space


def byte_characters() -> list[str]:
    """The character that stands for each byte, by byte.

    Printable bytes stand for themselves, the others are numbered from U+0100.

    Source: openai/gpt-2@9b63575 src/encoder.py, bytes_to_unicode.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


class ByteSplitter:
    """Splits text into words, which `ByteBpe` then splits into pieces."""

    def __init__(self):
        self._words = _word_splitter()

    def chunks(self, text: str) -> list[str]:
        """The words, each with the space before it, their bytes as characters.

        The text gets a space before it, so that its first word is like the others.
        """
        return [word for word, _ in self._words.pre_tokenize_str(f" {_clean(text)}")]

    def words(self, chunk: str) -> list[str]:
        return [chunk]

    def decomposes(self, text: str) -> bool:
        return False


class ByteBpe(Tokenizer):
    """Turns text into pieces exactly like Hugging Face's RoBERTa tokenizer.

    Attributes:
        merges: the `Merges`.
    Source: facebookresearch/fairseq@3d262bb fairseq/data/encoders/gpt2_bpe_utils.py, whose
        ids after dict.txt are those of vocab.json.
    """

    def __init__(self, vocabulary: Vocabulary, merges: Merges):
        self.vocabulary = vocabulary
        self.merges = merges
        model = tokenizers.models.BPE(vocab=vocabulary.ids, merges=merges)
        self._plain = tokenizers.Tokenizer(model)
        self._aligned = tokenizers.Tokenizer(model)
        for tokenizer in (self._plain, self._aligned):
            tokenizer.pre_tokenizer = _word_splitter()
        # Offsets leave out the space before a word, which takes a quarter of the time.
        self._aligned.post_processor = tokenizers.processors.ByteLevel(
            trim_offsets=True, add_prefix_space=False
        )

    @property
    def settings(self):
        return {"vocab_sha256": self.vocabulary.digest}

    @property
    def files(self):
        return ByteBpeKind.read_files(self.vocabulary.path)

    def hugging_face(self):
        # Without the entry for the mask, transformers would keep a space before it.
        mask = {"content": self.vocabulary.mask, "lstrip": True, "rstrip": False}
        kind = {"__type": "AddedToken", "normalized": False, "single_word": False}
        config = {"tokenizer_class": "RobertaTokenizer", "mask_token": kind | mask}
        return HuggingFace(
            config, tokenizer_json.byte_bpe(self.vocabulary, self.merges)
        )

    def encode(self, text):
        return self._plain.encode(_clean(text)).ids

    def encode_words(self, text):
        ids = np.array(self.encode(text), self.vocabulary.id_type)
        starts = ~self.vocabulary.is_continuation[ids]
        starts[:1] = True
        return ids.tobytes(), starts.tobytes()

    def encode_with_offsets(self, text):
        """Pieces of one character's bytes share its offsets; a piece of spaces alone is
        empty and ends where the next one starts.
        """
        encoded = self._aligned.encode(_clean(text))
        starts, ends = zip(*encoded.offsets, strict=True) if encoded.ids else ((), ())
        return encoded.ids, list(starts), list(ends)


def _word_splitter():
    return tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)


def _clean(text):
    """The text with U+FFFD for lone surrogates, which have no bytes in UTF-8."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


class ByteBpeKind(BpeKind):
    """RoBERTa's vocab.json and merges.txt."""

    graph = "text.graphs.bpe_graph:ByteBpeGraph"
    learner = "text.tokenizers.learning.word_learning:ByteBpeLearner"
    tokenizer = ByteBpe
    special, of_json = ROBERTA, staticmethod(tokenizer_json.byte_bpe_files)
    layout = (
        "a byte-level vocabulary is two files in one folder, "
        f"{VOCABULARY_FILE} and {MERGES}"
    )
    hugging_face_classes = hugging_face_classes("byte_bpe", "RobertaTokenizer")

    def reads(self, vocab_file):
        return vocab_file.endswith(".json")

    def reads_json(self, content):
        return tokenizer_json.is_byte_level(content)

    def vocabulary_of(self, path, tokens, digest):
        present = set(tokens)
        if missing := [token for token in ROBERTA.names if token not in present]:
            raise UserError(
                f"{path}: has no token {' or '.join(missing)}; RoBERTa's vocab.json "
                f"contains {' '.join(ROBERTA.names)}, unlike GPT-2's encoder.json"
            )
        characters = byte_characters()
        if missing := [byte for byte in range(256) if characters[byte] not in present]:
            raise UserError(
                f"{path}: has no token for {len(missing)} of the 256 bytes, such as "
                f"{characters[missing[0]]!r} for {missing[0]:#04x}; it is not a byte-level "
                "vocabulary"
            )
        bytes_of = {character: byte for byte, character in enumerate(characters)}
        special = set(ROBERTA.names)
        return Vocabulary(
            tokens,
            path=path,
            digest=digest,
            special=ROBERTA,
            texts=[t if t in special else _text_of_bytes(t, bytes_of) for t in tokens],
            # After a special token, too, a piece begins a word: `Masks` see to that.
            is_continuation=[t not in special and t[:1] != SPACE for t in tokens],
        )


def _text_of_bytes(token, bytes_of):
    """What a token stands for, without the space before it; or the token itself."""
    try:
        text = bytes(bytes_of[character] for character in token).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return token
    return text.removeprefix(" ") if text.isprintable() else token


# === GPT's ============================================================================


END = "</w>"
UNKNOWN = "<unk>"
# `start a classify`, and `start a delimiter b classify`, without segments; padded with 0,
# the id of the unknown. Their ids come after those of the file, if they are not in it.
GPT = SpecialTokens(
    (UNKNOWN, UNKNOWN, "_start_", "_delimiter_", None),
    second_segment=0,
    continuation="",  # it is a word's end that is marked
    end="_classify_",
)
_RELEASED = re.compile(r"encoder_bpe(.*)\.json")  # with vocab$1.bpe
_NO_CHARACTER = "\U0010ffff"  # instead of them; it is in no vocabulary

_normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
_form_d = tokenizers.normalizers.NFD()
_cutter = tokenizers.pre_tokenizers.BertPreTokenizer()


def _encodable(text):
    return text if text.isascii() else _SURROGATES.sub(_NO_CHARACTER, text)


class GptWords(WordSplitter):
    """BERT's words as the package tokenizers finds them.

    It differs from `WordSplitter` in characters that are newer than its tables, in those
    for private use, which it removes, and in the Greek final sigma.

    Source: transformers 5.23.0, OpenAIGPTTokenizer.
    """

    final_sigmas = False

    def __init__(self, *switches: bool):
        del switches  # there is one way alone
        super().__init__()
        # Letters around a character show whether it is a word of its own.
        self.table = Filled(lambda p: " ".join(self.words(f"a{chr(p)}a"))[1:-1])

    def words(self, text):
        text = _normalizer.normalize_str(_encodable(text))
        return [word for word, _ in _cutter.pre_tokenize_str(text)]

    def decomposed(self, text):
        return _form_d.normalize_str(_encodable(text))

    def changes_unassigned(self, character):
        return _normalizer.normalize_str(character) != character


class GptBpe(WordByWord):
    """Turns text into pieces exactly like Hugging Face's OpenAI GPT tokenizer.

    Attributes:
        merges: the `Merges`.
        sizes: int of each piece, its characters; 1 for the unknown.
    Source: openai/finetune-transformer-lm@a69b5c4 text_utils.py, TextEncoder; transformers
        5.23.0, OpenAIGPTTokenizer.
    """

    finds_answers_by_offset = True

    def __init__(self, vocabulary: Vocabulary, merges: Merges):
        super().__init__(vocabulary, GptWords())
        self.merges = merges
        self.sizes = [len(token.removesuffix(END)) for token in vocabulary.tokens]
        self.sizes[vocabulary.unk_id] = 1
        self._model = tokenizers.models.BPE(
            vocab=vocabulary.ids,
            merges=merges,
            unk_token=UNKNOWN,
            end_of_word_suffix=END,
        )

    @property
    def settings(self):
        return {"vocab_sha256": self.vocabulary.digest}

    @property
    def files(self):
        return GptBpeKind.read_files(self.vocabulary.path)

    def hugging_face(self):
        kind = {"normalized": False, "special": True}
        config = {
            "tokenizer_class": "OpenAIGPTTokenizer",
            "unk_token": UNKNOWN,
            # Most of them are not in the file.
            "added_tokens_decoder": {
                str(self.vocabulary.ids[token]): kind | {"content": token}
                for token in GPT.tokens
            },
        }
        return HuggingFace(
            config, tokenizer_json.gpt(self.vocabulary, self.merges, END)
        )

    def split(self, word):
        pieces = self._model.tokenize(word)
        ids = [piece.id for piece in pieces]
        return ids, [self.sizes[id] for id in ids]

    def decomposes(self, text):
        return False  # whatever it does, it is part of the vocabulary


class GptBpeKind(BpeKind):
    """OpenAI's encoder_bpe_40000.json, or a vocab.json whose tokens have </w>."""

    graph = "text.graphs.bpe_graph:GptBpeGraph"
    learner = "text.tokenizers.learning.word_learning:GptBpeLearner"
    tokenizer = GptBpe
    special, of_json = GPT, staticmethod(tokenizer_json.gpt_files)
    layout = (
        "GPT's vocabulary is two files in one folder, encoder_bpe_40000.json and "
        f"vocab_40000.bpe, or {VOCABULARY_FILE} and {MERGES}"
    )
    hugging_face_classes = hugging_face_classes("gpt_bpe", "OpenAIGPTTokenizer")

    def reads(self, vocab_file):
        if _RELEASED.fullmatch(os.path.basename(vocab_file)):
            return True
        if not vocab_file.endswith(".json") or not sources.is_file(vocab_file):
            return False
        return f'{END}"'.encode() in sources.content(vocab_file)

    def reads_json(self, content):
        return tokenizer_json.is_gpt(content)

    def find_own_file(self, folder):
        path = os.path.join(folder, VOCABULARY_FILE)
        if sources.exists(path) and self.reads(path):
            return path
        paths = sources.matching(os.path.join(glob.escape(folder), "encoder_bpe*.json"))
        paths = [path for path in paths if not path.endswith(recorded_settings.SUFFIX)]
        return paths[0] if len(paths) == 1 else None

    @classmethod
    def merges_path(cls, vocab_file):
        folder, name = os.path.split(vocab_file)
        released = _RELEASED.fullmatch(name)
        return os.path.join(folder, f"vocab{released[1]}.bpe" if released else MERGES)

    def resolved(self, options, vocab_file):
        allowed = {
            "do_lower_case": (None, True),
            "strip_accents": (None,),
            "split_cjk": (None, True),
        }
        for name, values in allowed.items():
            if getattr(options, name) not in values:
                raise UserError(
                    f"{setting(name)} does not apply to GPT's vocabulary, whose text is "
                    "always lowercased; leave it out"
                )
        return {"do_lower_case": True, "split_cjk": True}

    def hugging_face_settings(self, config):
        return {}  # no flag changes its ids

    def vocabulary_of(self, path, tokens, digest):
        present = set(tokens)
        if UNKNOWN not in present:
            raise UserError(
                f"{path}: has no token {UNKNOWN}, which GPT's vocabulary has"
            )
        if not any(len(t) == len(END) + 1 and t.endswith(END) for t in tokens):
            raise UserError(
                f"{path}: no character has a token with {END}; it is not a vocabulary of "
                "GPT"
            )
        tokens = [*tokens, *(token for token in GPT.tokens if token not in present)]
        special = set(GPT.tokens)
        return Vocabulary(
            tokens,
            path=path,
            digest=digest,
            special=GPT,
            # A line break is no more than the space between words.
            texts=[token.removesuffix(END).strip() for token in tokens],
            is_continuation=[False] * len(tokens),  # it is not seen from a piece alone
            joins_next=[t not in special and not t.endswith(END) for t in tokens],
        )
