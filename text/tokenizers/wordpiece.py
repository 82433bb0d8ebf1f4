"""Tokenizes text into WordPieces with character offsets."""

import dataclasses
import pathlib
import re

from absl import logging

from errors import UserError, setting
from text.tokenizers import tokenizer_json, wordpiece_json
from text.tokenizers.kind import Kind, hugging_face_classes
from text.tokenizers.tokenizer import HuggingFaceFiles
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.word_by_word import WordByWord
from text.tokenizers.word_splitter import SWITCHES, WordSplitter

LONGEST_WORD = 200  # characters; longer words are [UNK]

_SYLLABLE = re.compile("[\uac00-\ud7a3]")
# The share of tokens with syllables from which on a vocabulary is meant for them. English
# BERT's cased one has 10 of 28,996; multilingual BERT's, 3,271 of 119,547.
_KOREAN = 0.01

_UNCASED_RELEASES = (
    "uncased_L-24_H-1024_A-16",
    "uncased_L-12_H-768_A-12",
    "multilingual_L-12_H-768_A-12",
    "chinese_L-12_H-768_A-12",
)
_CASED_RELEASES = (
    "cased_L-12_H-768_A-12",
    "cased_L-24_H-1024_A-16",
    "multi_cased_L-12_H-768_A-12",
)


class WordPiece(WordByWord):
    """Turns text into WordPieces exactly like the release's FullTokenizer.

    Source: google-research/bert@eedf571 tokenization.py.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        split_cjk: bool = True,
    ):
        super().__init__(
            vocabulary, WordSplitter(do_lower_case, strip_accents, split_cjk)
        )
        self._longest_piece = max(map(len, vocabulary.tokens)) + len("##")

    @classmethod
    def of(cls, vocabulary: Vocabulary, options) -> "WordPiece":
        """Makes the tokenizer for a loaded vocabulary and `TokenizerOptions`."""
        switches = WordSplitter.of(options).settings
        return cls(vocabulary, **switches)

    @property
    def files(self):
        if self.vocabulary.files:
            return self.vocabulary.files
        lines = (f"{token}\n" for token in self.vocabulary.tokens)
        return {VOCABULARY_FILE: "".join(lines).encode()}

    @property
    def settings(self):
        return {"vocab_sha256": self.vocabulary.digest, **self.splitter.settings}

    def hugging_face(self):
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.splitter.do_lower_case,
            "strip_accents": self.splitter.strip_accents,
            "tokenize_chinese_chars": self.splitter.split_cjk,
        }
        json = wordpiece_json.to_json(
            self.vocabulary, self.splitter.settings, LONGEST_WORD
        )
        return HuggingFaceFiles(config, json)

    def check_release(self, path):
        check_case(self.splitter.do_lower_case, path)

    def split(self, word):
        """See `WordByWord`: the longest piece_ids from the left, or [UNK] if none fits."""
        unknown = [self.vocabulary.unk_id], [len(word)]
        if len(word) > LONGEST_WORD:
            return unknown
        ids = self.vocabulary.ids
        if word in ids:
            return [ids[word]], [len(word)]
        piece_ids, sizes = [], []
        prefix = ""
        while word:
            piece = prefix + word[: self._longest_piece]
            while piece not in ids:
                piece = piece[:-1]
                if piece == prefix:
                    return unknown
            piece_ids.append(ids[piece])
            sizes.append(len(piece) - len(prefix))
            word = word[sizes[-1] :]
            prefix = "##"
        return piece_ids, sizes


def check_case(do_lower_case: bool, path: str | None) -> None:
    """Refuses a case that contradicts the released model named in a path, if any.

    Source: google-research/bert@eedf571 tokenization.py,
        validate_case_matches_checkpoint.
    """
    releases = _CASED_RELEASES if do_lower_case else _UNCASED_RELEASES
    for name in pathlib.PurePosixPath(path or "").parts[-2:]:
        if name in releases:
            case = "cased" if do_lower_case else "lowercased"
            raise UserError(
                f"{setting('do_lower_case', do_lower_case)} does not match {path}: {name} "
                f"was trained on {case} text; pass "
                f"{setting('do_lower_case', not do_lower_case)}"
            )


# === Files ===========================================================================

VOCABULARY_FILE = "vocab.txt"


class WordPieceKind(Kind):
    """The vocab.txt of BERT, which may have any name."""

    graph = "text.graphs.wordpiece_graph:WordPieceGraph"
    learner = "text.tokenizers.learning.wordpiece_learning:WordPieceLearner"
    tokenizer = WordPiece
    vocabulary_file = VOCABULARY_FILE
    hugging_face_classes = hugging_face_classes("BertTokenizer", kind="wordpiece")
    text_flags = SWITCHES

    def reads(self, file):
        return True

    def reads_json(self, content):
        return wordpiece_json.is_wordpiece(content)

    def json_settings(self, content):
        return tokenizer_json.bert_settings(content)

    def load(self, file, options):
        vocabulary = self.load_vocabulary(file)
        return WordPiece.of(vocabulary, _keeping_syllables(options, vocabulary))

    def resolve(self, options, file):
        if options.strip_accents is None and options.do_lower_case is not False:
            options = _keeping_syllables(options, self.load_vocabulary(file))
        return super().resolve(options, file)

    def load_vocabulary(self, file):
        files = self.read_files(file)
        vocabulary = Vocabulary.load(file.path, files[VOCABULARY_FILE])
        if file.json is None:
            if file.name == VOCABULARY_FILE:
                wordpiece_json.check_same_tokens(vocabulary, file.folder)
            _refuse_marked_pieces(vocabulary)
        vocabulary.files = files
        return vocabulary

    def parse(self, content):
        lines = content.decode("utf-8-sig").rstrip().split("\n")
        return [line.strip() for line in lines]

    def read_files(self, file):
        if file.json is None:
            return super().read_files(file)
        return {VOCABULARY_FILE: wordpiece_json.vocab_txt(file.path, file.json)}

    def with_tokens(self, tokenizer, tokens):
        return WordPiece(Vocabulary(tokens), **tokenizer.splitter.settings)


def _refuse_marked_pieces(vocabulary):
    """Refuses a list of SentencePiece's pieces, which WordPiece would never find."""
    marked = [token for token in vocabulary.tokens if token[:1] == "\u2581"]
    if len(marked) > 0.1 * len(vocabulary):
        raise UserError(
            f"{vocabulary.path}: lists the pieces of a SentencePiece model, such as "
            f"{marked[-1]!r}; pass the .model file next to it as {setting('vocab_file')}"
        )


def _keeping_syllables(options, vocabulary):
    """The options; where they leave it open, a Korean vocabulary keeps accents.

    Differs from the release, with which none of its pieces would ever be found.
    """
    if options.strip_accents is not None or options.do_lower_case is False:
        return options
    number = sum(map(bool, map(_SYLLABLE.search, vocabulary.tokens)))
    if number < _KOREAN * len(vocabulary):
        return options
    logging.log_first_n(
        logging.WARNING,
        "%s: %d tokens have Hangul syllables, so accents are kept (--strip_accents=false), "
        "because removing them takes syllables apart; pass --strip_accents=true to do as "
        "the 2018 release does",
        1,
        vocabulary.path,
        number,
    )
    return dataclasses.replace(options, strip_accents=False)
