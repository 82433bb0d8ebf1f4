"""Declares the interface of a tokenizer as a TensorFlow graph, for SavedModels."""

import abc
import functools
import os
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from text.tokenizers.vocabulary import CLS, MASK, Vocabulary

NUM_POINTS = 0x110000
_PAGE = 256  # code points that share a row of a table


class GraphTokenizer(tf.Module, abc.ABC):
    """Returns what a `Tokenizer` returns; made from one and a folder for its files, which a
    SavedModel includes.

    Attributes:
        libraries: the packages whose operations it needs, in addition to TensorFlow's own;
            a program imports them before it loads a SavedModel.
        cls_id: int; None if rows begin with text and there is none.
        mask_id, mask: int, and str, the token with that id; None if there is none.
        others: see `Vocabulary` and `SpecialTokens`.
    """

    libraries: tuple[str, ...] = ()

    def __init__(self, vocabulary: Vocabulary):
        super().__init__()
        self._vocabulary = vocabulary
        self.vocab_size = len(vocabulary)
        self.pad_id = vocabulary.pad_id
        self.cls_id = vocabulary.special_ids.get(CLS)
        self.sep_id = vocabulary.sep_id
        self.unk_id, self.end_id = vocabulary.unk_id, vocabulary.end_id
        # A tf.Module would make lists of its own of these.
        self.head, self.between = vocabulary.head, vocabulary.between
        self.tail = vocabulary.tail
        self.mask_id = vocabulary.special_ids.get(MASK)
        self.mask = None if self.mask_id is None else vocabulary.mask
        self.second_segment = vocabulary.second_segment
        self.last_segment = vocabulary.last_segment
        self.document_first = vocabulary.document_first
        encode = tf.function(self.pieces_with_offsets, autograph=False)
        # A tf.Module saves functions of its own accord, but does not look into this.
        self._trace = functools.cache(encode.get_concrete_function)

    @property
    def num_special_tokens(self) -> int:
        """How many special tokens a row of two texts has."""
        return len(self.head) + len(self.between) + len(self.tail)

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """string [n] -> int32 [n, (tokens)]; invalid UTF-8 counts as U+FFFD."""
        return self.encode_with_offsets(texts)[0]

    def encode_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        """string [n] -> ids, starts, ends, each int32 [n, (tokens)].

        Starts and ends are character offsets; see `Tokenizer.encode_with_offsets`.
        """
        # Once, for all signatures of an export.
        trace = self._trace(tf.TensorSpec([None], tf.string))
        return trace(tf.convert_to_tensor(texts, tf.string))

    @abc.abstractmethod
    def pieces_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        """`encode_with_offsets`, as a subclass writes it; it is traced once."""

    def tokens(self, ids: tf.Tensor) -> tf.Tensor:
        """int [...] -> string [...], as the vocabulary spells them."""
        return tf.gather(tf.constant(self._vocabulary.tokens), ids)

    def text_of(self, ids: tf.Tensor) -> tf.Tensor:
        """int32 [n, t] -> string [n]; see `Vocabulary.text_of`."""
        vocabulary = self._vocabulary
        silent = np.zeros(self.vocab_size, bool)
        silent[[*vocabulary.never_text, self.sep_id]] = True
        ids = tf.where(ids < self.vocab_size, ids, self.unk_id)
        is_over = tf.cumsum(tf.cast(ids == self.end_id, tf.int32), axis=1) > 0
        kept = tf.where(~(is_over | tf.gather(silent, ids)))
        rows, ids = kept[:, 0], tf.gather_nd(ids, kept)
        pieces = tf.gather(tf.constant(vocabulary.texts), ids)
        written = tf.cumsum(tf.cast(pieces != "", tf.int32), exclusive=True)
        before = tf.gather(written, tf.searchsorted(rows, rows))  # its row began
        joins = tf.gather(vocabulary.joins_next, ids[:-1])
        joins = tf.concat([[True], joins], 0)[: tf.size(ids)] | (written == before)
        joins |= tf.gather(vocabulary.is_joined, ids)
        pieces = tf.where(joins, pieces, tf.strings.join([" ", pieces]))
        number = tf.shape(is_over)[0]
        return tf.strings.unsorted_segment_join(pieces, rows, number)


def assets(folder: str, files: Mapping[str, bytes]) -> list[tf.saved_model.Asset]:
    """Writes files that belong to a SavedModel, by name."""
    made = []
    for name, content in files.items():
        path = os.path.join(folder, name)
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(content)
        made.append(tf.saved_model.Asset(path))
    return made


def of_code_points(table: np.ndarray) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function from code points to the entries of an int32 table [NUM_POINTS].

    Rows of 256 entries that are equal are kept once.
    """
    pages, numbers = np.unique(table.reshape(-1, _PAGE), axis=0, return_inverse=True)
    numbers = tf.constant(numbers.reshape(-1), tf.int32)
    pages = tf.constant(pages, tf.int32)

    def look_up(points):
        page = tf.gather(numbers, points // _PAGE)
        return tf.gather_nd(pages, tf.stack([page, points % _PAGE], axis=-1))

    return look_up


def row_numbers(limits: tf.Tensor) -> tf.Tensor:
    """The row of each value of a ragged tensor: int32 [values].

    TensorFlow's own value_rowids() and repeat() need memory for rows x longest row.

    Args:
        limits: int [rows], where each row ends; all limits are >= 0 and ascend.
    """
    limits = tf.concat([[0], tf.cast(limits, tf.int32)], 0)
    return tf.searchsorted(limits[1:], tf.range(limits[-1]), side="right")


def begins(*columns: tf.Tensor) -> tf.Tensor:
    """bool [n]: whether an entry differs from the one before it in any of int [n]."""
    differs = [column[1:] != column[:-1] for column in columns]
    differs = functools.reduce(tf.logical_or, differs)
    return tf.concat([[True], differs], 0)[: tf.size(columns[0])]


def ends(rows: tf.Tensor) -> tf.Tensor:
    """bool [n]: whether an entry differs from the one after it."""
    return tf.concat([rows[1:] != rows[:-1], [True]], 0)[: tf.size(rows)]


def by_rows(values: tf.Tensor, rows: tf.Tensor, number) -> tf.RaggedTensor:
    """The values of each of `number` rows; rows int32 [n], ascending."""
    return tf.RaggedTensor.from_value_rowids(
        values, tf.cast(rows, tf.int64), tf.cast(number, tf.int64), validate=False
    )


def num_bytes(points: tf.Tensor) -> tf.Tensor:
    """int32: of each code point in UTF-8."""
    sizes = [tf.cast(points >= first, tf.int32) for first in (0x80, 0x800, 0x10000)]
    return 1 + sum(sizes)
