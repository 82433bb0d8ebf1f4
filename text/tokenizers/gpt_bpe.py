"""Tokenizes text into the BPE pieces of GPT-1, with character offsets.

The characters of a word are its first pieces, the last one with </w>; then the two
neighbors that come first in the list of merges become one piece, again and again. A
character that is not in the vocabulary is unknown. Everything is lowercased.

There are two ways to find the words. OpenAI's, see text/tokenizers/gpt_words.py, is the one
that the released weights were trained with, and needs more packages. Hugging Face's is
BERT's: accents are removed and every punctuation mark is a word.

The vocabulary is two files: OpenAI's encoder_bpe_40000.json, tokens to ids, and
vocab_40000.bpe, two pieces per line; or the same as Hugging Face's vocab.json and
merges.txt.
"""

import functools
import glob
import hashlib
import os
import re
import sys

import tokenizers

from errors import UserError
from text.files import sources
from text.tokenizers import (
    bpe_files,
    gpt_words,
    recorded_settings,
    tokenizer_json,
    tokenizer_json_writing,
)
from text.tokenizers.gpt_words import HuggingFaceWords, OpenAiWords
from text.tokenizers.tokenizer import GENERIC_CLASSES
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary
from text.tokenizers.word_by_word import Splitter, WordByWord

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
MERGES = "merges.txt"
_RELEASED = re.compile(r"encoder_bpe(.*)\.json")  # with vocab$1.bpe


class GptBpe(WordByWord):
    """Turns text into pieces exactly like Hugging Face's OpenAI GPT tokenizer.

    Attributes:
        merges: pairs of pieces, the first to merge first.
        sizes: int of each piece, its characters; 1 for the unknown.
        words: the name of the way to find words.
    Source: openai/finetune-transformer-lm@a69b5c4 text_utils.py, TextEncoder; transformers
        5.23.0, OpenAIGPTTokenizer.
    """

    vocabulary_file = "vocab.json"
    hugging_face_classes = (
        None,  # not said
        "OpenAIGPTTokenizer",
        "OpenAIGPTTokenizerFast",
        *GENERIC_CLASSES,
    )
    finds_answers_by_offset = True
    flags = text_flags = ("gpt_words",)
    words = "hugging_face"

    def __init__(
        self,
        vocabulary: Vocabulary,
        merges: list[tuple[str, str]],
        splitter: Splitter | None = None,
    ):
        super().__init__(vocabulary, splitter or HuggingFaceWords())
        self.merges = merges
        self.sizes = [len(token.removesuffix(END)) for token in vocabulary.tokens]
        self.sizes[vocabulary.unk_id] = 1
        self._model = tokenizers.models.BPE(
            vocab=vocabulary.ids,
            merges=merges,
            unk_token=UNKNOWN,
            end_of_word_suffix=END,
        )

    @classmethod
    def reads(cls, vocab_file):
        """See `Tokenizer`; a vocab.json may be another kind's, so its content decides."""
        if _RELEASED.fullmatch(os.path.basename(vocab_file)):
            return True
        if not vocab_file.endswith(".json") or not sources.is_file(vocab_file):
            return False
        return f'{END}"'.encode() in bpe_files.content(vocab_file)

    @classmethod
    def reads_json(cls, content):
        return tokenizer_json.is_gpt(content)

    @classmethod
    def find_own_file(cls, folder):
        path = os.path.join(folder, cls.vocabulary_file)
        if sources.exists(path) and cls.reads(path):
            return path
        found = sources.matching(os.path.join(glob.escape(folder), "encoder_bpe*.json"))
        found = [path for path in found if not path.endswith(recorded_settings.SUFFIX)]
        return found[0] if len(found) == 1 else None

    @classmethod
    def resolved(cls, options, vocab_file):
        """See `Tokenizer`.

        Raises:
            UserError: flags ask for what this kind cannot do.
        """
        allowed = {
            "do_lower_case": (None, True),
            "strip_accents": (None,),
            "split_cjk": (None, True),
        }
        for name, values in allowed.items():
            if getattr(options, name) not in values:
                raise UserError(
                    f"--{name} does not apply to GPT's vocabulary, whose text is always "
                    "lowercased; leave it out, and see --gpt_words"
                )
        words = options.gpt_words or _words_found()
        return {"do_lower_case": True, "split_cjk": True, "gpt_words": words}

    @classmethod
    def load(cls, vocab_file, options):
        words = cls.resolved(options, vocab_file)["gpt_words"]
        (kind,) = (kind for kind in (GptBpe, OpenAiGptBpe) if kind.words == words)
        return kind(*_read(vocab_file))

    @classmethod
    def load_vocabulary(cls, vocab_file):
        return _read(vocab_file)[0]

    @classmethod
    def parse(cls, content):
        return bpe_files.tokens_by_id(content)

    @property
    def settings(self):
        return {"vocab_sha256": self.vocabulary.digest, "gpt_words": self.words}

    @classmethod
    def hugging_face_settings(cls, said):
        return {"gpt_words": said.get("gpt_words")}  # ours alone

    @property
    def hugging_face_config(self):
        kind = {"normalized": False, "special": True}
        return {
            "tokenizer_class": "OpenAIGPTTokenizer",
            "unk_token": UNKNOWN,
            # Most of them are not in the file.
            "added_tokens_decoder": {
                str(self.vocabulary.ids[token]): kind | {"content": token}
                for token in GPT.tokens
            },
            "gpt_words": self.words,
        }

    @classmethod
    def read_files(cls, vocab_file):
        if tokenizer_json.is_path(vocab_file):
            contents = tokenizer_json.gpt_files(vocab_file, GPT)
        else:
            contents = bpe_files.contents(
                vocab_file,
                merges_path(vocab_file),
                "GPT's vocabulary is two files in one folder, encoder_bpe_40000.json and "
                f"vocab_40000.bpe, or {cls.vocabulary_file} and {MERGES}",
            )
        return dict(zip((cls.vocabulary_file, MERGES), contents, strict=True))

    @property
    def hugging_face_json(self):
        return tokenizer_json_writing.gpt(self.vocabulary, self.merges, END)

    def split(self, word):
        pieces = self._model.tokenize(word)
        ids = [piece.id for piece in pieces]
        return ids, [self.sizes[id] for id in ids]

    def decomposes(self, text):
        return False  # whatever it does, it is part of the vocabulary

    def graph(self, folder):
        # It loads TensorFlow, which workers that write records do not need.
        from text.tokenizers.gpt_bpe_graph import GptBpeGraph

        return GptBpeGraph(self, folder)


class OpenAiGptBpe(GptBpe):
    """Turns text into pieces like OpenAI's code, with the installed ftfy and spaCy."""

    words = "openai"

    def __init__(self, vocabulary, merges):
        """Raises:
        UserError: a package is missing.
        """
        super().__init__(vocabulary, merges, OpenAiWords())

    @property
    def hugging_face_difference(self):
        return (
            "transformers finds words as --gpt_words=hugging_face does, and not as OpenAI; "
            "pass it token ids instead of text"
        )

    def encode_with_offsets(self, text):
        """See `Tokenizer`: a character that was repaired has the offsets of its original;
        a line break, those of the white space around it.
        """
        clean, begins, stops = self.splitter.located(text)
        ids, starts, ends = self.located(clean, gpt_words.cut(clean))
        return (
            ids,
            [begins[start] for start in starts],
            [stops[end - 1] for end in ends],
        )

    def check_graph(self):
        raise UserError(
            "with --gpt_words=openai, text cannot be tokenized in a SavedModel, because "
            "spaCy does not run in one; for --do_export, train with "
            "--gpt_words=hugging_face"
        )

    def graph(self, folder):
        self.check_graph()


def splitter(options) -> Splitter:
    """The words that `TokenizerOptions` ask for.

    Raises:
        UserError: a package is missing.
    """
    words = GptBpe.resolved(options, "")["gpt_words"]
    return OpenAiWords() if words == OpenAiGptBpe.words else HuggingFaceWords()


@functools.cache
def _words_found() -> str:
    """The words to use if no flag says so; says which on stderr, once per process."""
    words = OpenAiGptBpe.words if gpt_words.are_installed() else GptBpe.words
    reason = (
        "OpenAI's, because ftfy and spaCy are installed"
        if words == OpenAiGptBpe.words
        else "Hugging Face's and not OpenAI's, because ftfy and spaCy are not installed "
        "(requirements/gpt.txt)"
    )
    print(f"--gpt_words={words}: words and ids are {reason}", file=sys.stderr)
    return words


# === Files ===========================================================================


def merges_path(vocab_file: str) -> str:
    """Where the merges of a vocabulary are."""
    folder, name = os.path.split(vocab_file)
    released = _RELEASED.fullmatch(name)
    return os.path.join(folder, f"vocab{released[1]}.bpe" if released else MERGES)


def _read(path) -> tuple[Vocabulary, list[tuple[str, str]]]:
    """Reads a vocabulary and the merges next to it, or a tokenizer.json.

    Raises:
        UserError: a file is missing or malformed, or they do not fit each other.
    """
    content, merges_content = GptBpe.read_files(path).values()
    tokens = bpe_files.read(path, content)
    known = set(tokens)
    if UNKNOWN not in known:
        raise UserError(f"{path}: has no token {UNKNOWN}, which GPT's vocabulary has")
    if not any(len(token) == len(END) + 1 and token.endswith(END) for token in tokens):
        raise UserError(
            f"{path}: no character has a token with {END}; it is not a vocabulary of GPT"
        )
    name = os.path.basename(path)
    merges = bpe_files.merges(merges_path(path), merges_content, known, name)
    tokens += [token for token in GPT.tokens if token not in known]
    special = set(GPT.tokens)
    vocabulary = Vocabulary(
        tokens,
        path=path,
        digest=hashlib.sha256(content + merges_content).hexdigest(),
        special=GPT,
        texts=[_text(token) for token in tokens],
        is_continuation=[False] * len(tokens),  # it is not seen from a piece alone
        joins_next=[t not in special and not t.endswith(END) for t in tokens],
    )
    return vocabulary, merges


def _text(token):
    """What a token stands for; a line break is no more than the space between words."""
    return token.removesuffix(END).strip()
