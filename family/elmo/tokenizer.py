"""Whole words, separated by spaces, with character offsets: for an ELMo's vocabulary."""

import hashlib
from collections.abc import Iterable

from errors import UserError
from files import inputs
from text.tokenizers.cleaner import Filled
from text.tokenizers.kind import Kind
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary
from text.tokenizers.word_by_word import WordByWord
from text.tokenizers.word_splitter import WordSplitter

PAD, UNK, BEGIN, END = SPECIAL = ("<PAD>", "<UNK>", "<S>", "</S>")
VOCABULARY_FILE = "words.txt"
_SPECIAL_TOKENS = SpecialTokens(names=(PAD, UNK, BEGIN, END, None), continuation="\n")


class SpaceSplitter(WordSplitter):
    """Cuts text at white space, and changes nothing."""

    final_sigmas = composes_hangul = False

    def __init__(self, do_lower_case=False, strip_accents=False, split_cjk=False):
        super().__init__(False, False, False)
        self.table = Filled(lambda p: " " if chr(p).isspace() else chr(p))

    def chunks(self, text):
        return text.split()

    def words(self, text):
        return text.split()

    def changes_unassigned(self, character):
        return False


class WholeWords(WordByWord):
    """Text to the ids of its words; those that the vocabulary lacks are unknown."""

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(vocabulary, SpaceSplitter())
        self._never_text = {*SPECIAL}

    @classmethod
    def of(cls, words: Iterable[str]) -> "WholeWords":
        """Makes the tokenizer for these words, each once, after the special tokens."""
        distinct = dict.fromkeys(word for word in words if word not in SPECIAL)
        tokens = [*SPECIAL, *distinct]
        return cls(_vocabulary(tokens, "", _content(tokens)))

    @property
    def files(self):
        return {VOCABULARY_FILE: _content(self.vocabulary.tokens)}

    @property
    def settings(self):
        return {"vocab_sha256": self.vocabulary.digest}

    def hugging_face(self):
        raise UserError("Hugging Face has no tokenizer for a vocabulary of whole words")

    def split(self, word):
        """See `WordByWord`: the word itself."""
        id = self.vocabulary.unk_id
        if word not in self._never_text:
            id = self.vocabulary.ids.get(word, id)
        return [id], [len(word)]


class WholeWordsKind(Kind):
    """A words.txt, whose first line tells it from any other list of this name."""

    graph = "family.elmo.graph:WholeWordsGraph"
    tokenizer = WholeWords
    vocabulary_file = VOCABULARY_FILE

    def reads(self, file):
        if file.name != VOCABULARY_FILE or not file.exists:
            return False
        lines = inputs.lines(file.path, block=file.content)
        return next(iter(lines), "").strip() == PAD

    def find_own_file(self, folder):
        file = super().find_own_file(folder)
        return file if file and self.reads(file) else None

    def load(self, file, options):
        del options  # no text is changed
        return WholeWords(self.load_vocabulary(file))

    def load_vocabulary(self, file):
        content, path = file.content, file.path
        tokens = list(inputs.lines(path, block=content))
        for number, token in enumerate(tokens, start=1):
            if token.split() != [token]:
                raise UserError(
                    f"{path}:{number}: {token!r:.40} is not one word; list words "
                    f"without spaces, one per line, the first being {' '.join(SPECIAL)}"
                )
        return _vocabulary(tokens, path, content)

    def parse(self, content):
        return content.decode("utf-8").rstrip("\n").split("\n")

    def resolve(self, options, file):
        return {**super().resolve(options, file), "strip_accents": False}


def _content(tokens):
    return "".join(f"{token}\n" for token in tokens).encode()


def _vocabulary(tokens, path, content):
    digest = hashlib.sha256(content).hexdigest()
    return Vocabulary(tokens, path=path, digest=digest, special=_SPECIAL_TOKENS)
