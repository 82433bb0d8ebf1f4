"""Learns BPE vocabularies: tokens, and a list of merges."""

import abc
import json
import os
from collections.abc import Callable, Mapping, Sequence

import tokenizers

from errors import UserError
from text.tokenizers import bpe
from text.tokenizers.bpe import BpeKind, ByteSplitter, Merges
from text.tokenizers.learning.word_learning import WordLearner, train


class BpeLearner(WordLearner):
    """Learns a list of merges.

    Attributes:
        kind: of the vocabulary.
    """

    kind: BpeKind

    @abc.abstractmethod
    def pieces(self) -> tuple[list[str], Merges]:
        """The tokens by id, and the merges."""

    @property
    def paths(self):
        path = self.options.output_file
        folder, name = os.path.split(path)
        return path, os.path.join(folder, self.kind.merges_name(name))

    def contents(self):
        tokens, merges = self.pieces()
        ids = {token: id for id, token in enumerate(tokens)}
        lines = ["#version: 0.2", *map(" ".join, merges)]
        return tokens, [
            json.dumps(ids, ensure_ascii=False).encode(),
            "".join(f"{line}\n" for line in lines).encode(),
        ]


class ByteBpeLearner(BpeLearner):
    """Learns a vocab.json and merges.txt of bytes.

    After the first special tokens come the bytes, then the pieces merged from them, most
    frequent first, then the last special tokens.

    Attributes:
        first_tokens, last_tokens: the special tokens, in the order of their ids.
    """

    first_tokens: tuple[str, ...]
    last_tokens: tuple[str, ...] = ()
    file_names = "end in .json"
    splitter = ByteSplitter()

    def fixed_tokens(self):
        special = len(self.first_tokens) + len(self.last_tokens)
        return special + 256, "special tokens plus all bytes"

    def check(self):
        path = self.options.output_file
        if os.path.basename(path) != bpe.VOCABULARY_FILE:
            raise UserError(
                f"--output_file={path}: a byte-level vocabulary must be named "
                f"{bpe.VOCABULARY_FILE}"
            )

    def pieces(self):
        tokens, merges = learn_merges(
            self.counts.words,
            sorted(bpe.byte_characters()),
            self.options.vocab_size - len(self.first_tokens) - len(self.last_tokens),
            self.options.min_frequency,
            lambda word: True,
        )
        return [*self.first_tokens, *tokens, *self.last_tokens], merges


def learn_merges(
    words: Mapping[str, int],
    alphabet: Sequence[str],
    size: int,
    min_frequency: int,
    is_possible: Callable[[str], bool],
    **marks: str,
) -> tuple[list[str], Merges]:
    """The tokens by id, which begin with the alphabet, and the merges.

    Args:
        is_possible: whether the alphabet can spell a word.
        marks: of BPE, by the names that the package tokenizers gives them.
    """
    model = tokenizers.Tokenizer(tokenizers.models.BPE(**marks))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=list(alphabet),  # a fixed order of ids
        show_progress=False,
        **marks,
    )
    train(model, trainer, words, is_possible)
    ids = model.get_vocab()
    merges = json.loads(model.to_str())["model"]["merges"]
    return sorted(ids, key=ids.get), list(map(tuple, merges))
