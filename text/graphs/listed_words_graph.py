"""Looks words up in the file of a vocabulary, in a TensorFlow graph, for SavedModels."""

import hashlib
import itertools
import os

import tensorflow as tf

from text.graphs.words_graph import WordsGraph
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.word_by_word import WordByWord


class ListedWordsGraph(WordsGraph):
    """Splits text into words; a subclass looks them, or their pieces, up."""

    def __init__(self, tokenizer: WordByWord, folder: str, name: str):
        super().__init__(tokenizer.vocabulary, tokenizer.splitter)
        vocab_file = os.path.join(folder, name)
        self.renames = _write(tokenizer.vocabulary, vocab_file) > 0
        self._ids = _table(vocab_file, key=tf.string)
        self._tokens = _table(vocab_file, key=tf.int64)

    def tokens(self, ids):
        return self._tokens.lookup(tf.cast(ids, tf.int64))

    def lookup(self, words):
        return tf.cast(self._ids.lookup(words), tf.int32)


def _write(vocabulary: Vocabulary, path: str) -> int:
    """Writes the vocabulary with unique lines, as a lookup table requires.

    No text becomes an empty line or one that is repeated later, so they get unique names;
    returns how many did.
    """
    names_in_use, renamed = set(vocabulary.tokens), 0
    with tf.io.gfile.GFile(path, "w") as file:
        for id, token in enumerate(vocabulary.tokens):
            if not token or vocabulary.ids[token] != id:
                names = (f"[line{id}{'_' * n}]" for n in itertools.count())
                token = next(name for name in names if name not in names_in_use)
                renamed += 1
            file.write(f"{token}\n")
    return renamed


def _table(vocab_file, key):
    """Token to id or id to token; -1 and "" for missing ones."""
    initializer = _LinesOfFile(vocab_file, key)
    return tf.lookup.StaticHashTable(initializer, -1 if key == tf.string else "")


class _LinesOfFile(tf.lookup.TextFileInitializer):
    """Fills a table, and names it by its content.

    A table without a name (`experimental_is_anonymous`) is a new, empty one in each run of
    a graph session, as in TensorFlow Serving. Tables of one name are one table in a
    process; so models with different vocabularies need different names, and equal exports
    equal ones.
    """

    def __init__(self, vocab_file, key):
        line, number = (
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        with tf.io.gfile.GFile(vocab_file, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        self._name_of_table = f"vocabulary_{digest}_{key.name}"
        super().__init__(
            vocab_file,
            key_dtype=key,
            key_index=line if key == tf.string else number,
            value_dtype=tf.int64 if key == tf.string else tf.string,
            value_index=number if key == tf.string else line,
        )

    @property
    def _shared_name(self):
        return self._name_of_table
