"""Whole words, separated by spaces, with character offsets: for an ELMo's vocabulary."""

import hashlib
import os
from collections.abc import Iterable

from errors import UserError
from text.files import inputs, sources
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary
from text.tokenizers.word_by_word import WordByWord
from text.tokenizers.wordpiece import WordSplitter

PAD, UNK, BEGIN, END = SPECIAL = ("<PAD>", "<UNK>", "<S>", "</S>")
_SPECIAL_TOKENS = SpecialTokens(names=(PAD, UNK, BEGIN, END, None), continuation="\n")


class SpaceSplitter(WordSplitter):
    """Cuts text at white space, and changes nothing."""

    final_sigmas = composes_hangul = False

    def __init__(self, do_lower_case=False, strip_accents=False, split_cjk=False):
        super().__init__(False, False, False)
        self.table = _Unchanged()

    def chunks(self, text):
        return text.split()

    def words(self, text):
        return text.split()

    def changes_unassigned(self, character):
        return False


class _Unchanged(dict):
    def __missing__(self, code_point):
        character = chr(code_point)
        return " " if character.isspace() else character


class WholeWords(WordByWord):
    """Text to the ids of its words; those that the vocabulary lacks are unknown."""

    vocabulary_file = "words.txt"
    hugging_face_classes = ()

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(vocabulary, SpaceSplitter())
        self._never_text = {*SPECIAL}

    @classmethod
    def of(cls, words: Iterable[str]) -> "WholeWords":
        """Makes the tokenizer for these words, each once, after the special tokens."""
        distinct = dict.fromkeys(word for word in words if word not in SPECIAL)
        tokens = [*SPECIAL, *distinct]
        return cls(_vocabulary(tokens, "", _content(tokens)))

    @classmethod
    def reads(cls, vocab_file):
        """See `Tokenizer`; any vocabulary or list may be called words.txt, so the first
        line decides.
        """
        if os.path.basename(vocab_file) != cls.vocabulary_file:
            return False
        if not sources.is_file(vocab_file):
            return False
        return next(iter(inputs.lines(vocab_file)), "").strip() == PAD

    @classmethod
    def find_own_file(cls, folder):
        path = super().find_own_file(folder)
        return path if path and cls.reads(path) else None

    @classmethod
    def strips_accents(cls, options):
        del options
        return False

    @classmethod
    def load(cls, vocab_file, options):
        del options
        return cls(cls.load_vocabulary(vocab_file))

    @classmethod
    def load_vocabulary(cls, vocab_file):
        with sources.opened(vocab_file) as file:
            content = file.read()
        tokens = list(inputs.lines(vocab_file))
        for number, token in enumerate(tokens, start=1):
            if token.split() != [token]:
                raise UserError(
                    f"{vocab_file}:{number}: {token!r:.40} is not one word; list words "
                    f"without spaces, one per line, the first being {' '.join(SPECIAL)}"
                )
        return _vocabulary(tokens, vocab_file, content)

    @classmethod
    def parse(cls, content):
        return content.decode("utf-8").rstrip("\n").split("\n")

    @property
    def files(self):
        return {self.vocabulary_file: _content(self.vocabulary.tokens)}

    @property
    def hugging_face_config(self):
        raise UserError("Hugging Face has no tokenizer for a vocabulary of whole words")

    @property
    def hugging_face_json(self):
        return self.hugging_face_config  # it refuses

    @property
    def settings(self):
        return {"vocab_sha256": self.vocabulary.digest}

    def split(self, word):
        """See `WordByWord`: the word itself."""
        vocabulary = self.vocabulary
        known = word not in self._never_text
        id = vocabulary.ids.get(word, vocabulary.unk_id) if known else vocabulary.unk_id
        return [id], [len(word)]

    def graph(self, folder):
        # It loads TensorFlow, which workers that write records do not need.
        from text.tokenizers.whole_words_graph import WholeWordsGraph

        return WholeWordsGraph(self, os.path.join(folder, self.vocabulary_file))


def _content(tokens):
    return "".join(f"{token}\n" for token in tokens).encode()


def _vocabulary(tokens, path, content):
    digest = hashlib.sha256(content).hexdigest()
    return Vocabulary(tokens, path=path, digest=digest, special=_SPECIAL_TOKENS)
