"""Tokenizes text into WordPieces, or whole words, in a TensorFlow graph, for SavedModels.

It equals text/tokenizers/wordpiece.py and family/elmo/tokenizer.py.
"""

import hashlib
import itertools
import os

import tensorflow as tf

from family.elmo import tokenizer as whole_words
from text.graphs.graph_tokenizer import by_rows
from text.graphs.words_graph import WordsGraph
from text.tokenizers import wordpiece
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.word_by_word import WordByWord


class _FileGraph(WordsGraph):
    """Looks words up in the file of a vocabulary."""

    def __init__(self, tokenizer: WordByWord, folder: str, name: str):
        super().__init__(tokenizer.vocabulary, tokenizer.splitter)
        vocab_file = os.path.join(folder, name)
        self._renames = _write(tokenizer.vocabulary, vocab_file) > 0
        self._ids = _table(vocab_file, key=tf.string)
        self._tokens = _table(vocab_file, key=tf.int64)

    def tokens(self, ids):
        return self._tokens.lookup(tf.cast(ids, tf.int64))

    def _lookup(self, words):
        return tf.cast(self._ids.lookup(words), tf.int32)


class WordPieceGraph(_FileGraph):
    """Turns text into WordPieces in a graph."""

    def __init__(self, tokenizer: wordpiece.WordPiece, folder: str):
        super().__init__(tokenizer, folder, wordpiece.VOCABULARY_FILE)
        tokens = tokenizer.vocabulary.tokens
        self._spelled = tf.constant([*tokens, ""]) if self._renames else None
        self._longest_piece = max(map(len, tokens))

    def tokens(self, ids):
        if self._spelled is not None:
            return tf.gather(self._spelled, tf.minimum(ids, self.vocab_size))
        return super().tokens(ids)

    def word_pieces(self, words):
        lengths = tf.strings.length(words, unit="UTF8_CHAR")
        # The id of a word that is one piece; -1 if it must be split.
        ids = tf.where(
            lengths <= wordpiece.LONGEST_WORD, self._lookup(words), self.unk_id
        )
        numbers, pieces, sizes = self._take_apart(words, lengths, tf.where(ids < 0))
        failed = tf.boolean_mask(numbers, pieces < 0)[:, None]
        unknown = tf.fill(tf.shape(failed)[:1], self.unk_id)
        ids = tf.tensor_scatter_nd_update(ids, failed, unknown)
        fits = tf.gather(ids, numbers) < 0
        ones = tf.squeeze(tf.where(ids >= 0), 1)
        numbers, pieces, sizes = (
            tf.concat([whole, tf.boolean_mask(taken_apart, fits)], 0)
            for whole, taken_apart in (
                (ones, numbers),
                (tf.gather(ids, ones), pieces),
                (tf.gather(lengths, ones), sizes),
            )
        )
        order = tf.argsort(numbers, stable=True)
        numbers = tf.gather(numbers, order)
        return tuple(
            by_rows(tf.gather(values, order), numbers, tf.size(words))
            for values in (pieces, sizes)
        )

    def _take_apart(self, words, lengths, places):
        """Finds the longest pieces from the left, for all words at once.

        Args:
            words, lengths: string and int32 [n].
            places: int64 [m, 1], the words to split.
        Returns:
            word numbers int64, ids and sizes int32; those of a word in order. An id is -1
            if nothing in the vocabulary begins the rest of a word.
        """
        numbers = tf.squeeze(places, 1)

        def step(mark, numbers, rest, left, pieces):
            size = tf.range(1, 1 + tf.minimum(tf.reduce_max(left), self._longest_piece))
            beginnings = tf.strings.substr(
                rest[:, None], tf.zeros_like(size)[None], size[None], "UTF8_CHAR"
            )
            ids = self._lookup(tf.strings.join([mark, beginnings]))  # [m, sizes]
            fits = (ids >= 0) & (size <= left[:, None])
            length = tf.reduce_max(tf.where(fits, size, 0), axis=1)
            id = tf.gather(ids, tf.maximum(length - 1, 0), batch_dims=1)
            id = tf.where(length > 0, id, -1)
            new = (numbers, id, length)
            pieces = [tf.concat(pair, 0) for pair in zip(pieces, new, strict=True)]
            has_rest = (length > 0) & (length < left)
            numbers, rest, left, length = (
                tf.boolean_mask(x, has_rest) for x in (numbers, rest, left, length)
            )
            left -= length
            rest = tf.strings.substr(rest, length, left, "UTF8_CHAR")
            return tf.constant("##"), numbers, rest, left, pieces

        none = tf.zeros([0], tf.int32)
        *_, pieces = tf.while_loop(
            lambda mark, numbers, *_: tf.size(numbers) > 0,
            step,
            [
                tf.constant(""),
                numbers,
                tf.gather(words, numbers),
                tf.gather(lengths, numbers),
                [tf.cast(none, tf.int64), none, none],
            ],
            shape_invariants=[tf.TensorShape([]), *[tf.TensorShape([None])] * 3]
            + [[tf.TensorShape([None])] * 3],
        )
        return pieces


class WholeWordsGraph(_FileGraph):
    """Turns text into the ids of its words in a graph."""

    def __init__(self, tokenizer: whole_words.WholeWords, folder: str):
        super().__init__(tokenizer, folder, whole_words.VOCABULARY_FILE)
        ids = tokenizer.vocabulary.ids
        self._special = tf.constant([ids[token] for token in whole_words.SPECIAL])

    def word_pieces(self, words):
        ids = self._lookup(words)
        is_special = tf.reduce_any(ids[:, None] == self._special, axis=1)
        ids = tf.where((ids < 0) | is_special, self.unk_id, ids)
        sizes = tf.strings.length(words, unit="UTF8_CHAR")
        return tuple(
            tf.RaggedTensor.from_row_lengths(x, tf.ones_like(x), validate=False)
            for x in (ids, sizes)
        )


# === Files ===========================================================================


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
