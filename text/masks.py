"""Knows texts in which [MASK] is spelled out, in Python and in a graph."""

import tensorflow as tf

from text.graph_tokenization import GraphTokenizer
from text.tokenization import Tokenizer
from text.vocabulary import MASK


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Text to ids, those of [MASK] among them; without [CLS] and [SEP]."""
    first, *others = text.split(MASK)
    ids = tokenizer.encode(first)
    for part in others:
        ids += [tokenizer.vocabulary.mask_id, *tokenizer.encode(part)]
    return ids


def encode_in_graph(tokenizer: GraphTokenizer, texts: tf.Tensor) -> tf.RaggedTensor:
    """The same, string [n] -> int32 [n, (tokens)]."""
    parts = tf.strings.split(texts, sep=MASK)  # at least one of each text
    ids = tokenizer.encode(parts.flat_values)  # [parts, (tokens)]
    place = tf.ragged.range(parts.row_lengths()).flat_values  # of a part in its text
    masks = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.reduce_sum(tf.minimum(place, 1))], tokenizer.mask_id),
        tf.minimum(place, 1),
    )
    ids = tf.concat([masks, ids], axis=1)
    return tf.RaggedTensor.from_row_splits(
        ids.flat_values, tf.gather(ids.row_splits, parts.row_splits)
    )
