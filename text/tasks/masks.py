"""Encodes texts that contain a literal [MASK], in Python and in a graph."""

import tensorflow as tf

from text.tokenizers.graph_tokenizer import GraphTokenizer, row_numbers
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import MASK


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Text to ids, including those of [MASK]; without [CLS] and [SEP]."""
    first, *others = text.split(MASK)
    ids = tokenizer.encode(first)
    for part in others:
        ids += [tokenizer.vocabulary.mask_id, *tokenizer.encode(part)]
    return ids


def encode_in_graph(tokenizer: GraphTokenizer, texts: tf.Tensor) -> tf.RaggedTensor:
    """The same, string [n] -> int32 [n, (tokens)]."""
    parts = tf.strings.split(texts, sep=MASK)  # at least one per text
    ids = tokenizer.encode(parts.flat_values)  # [parts, (tokens)]
    place = tf.ragged.range(parts.row_lengths()).flat_values  # of a part in its text
    follows = tf.where(place > 0)[:, 0]  # the parts that follow a [MASK]
    values = tf.concat(
        [tf.fill(tf.shape(follows), tokenizer.mask_id), ids.flat_values], 0
    )
    part = tf.cast(row_numbers(ids.row_limits()), tf.int64)  # of each id
    keys = tf.concat([2 * follows, 2 * part + 1], 0)
    sizes = tf.cast(place > 0, tf.int64) + ids.row_lengths()
    starts = tf.concat([[0], tf.cumsum(sizes)], 0)
    return tf.RaggedTensor.from_row_splits(
        tf.gather(values, tf.argsort(keys, stable=True)),
        tf.gather(starts, parts.row_splits),
    )
