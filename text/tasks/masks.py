"""Encodes texts that contain a literal [MASK], in Python and in a graph.

What [MASK] is called depends on the vocabulary. White space before it belongs to it.
"""

import re

import tensorflow as tf

from text.tokenizers.graph_tokenizer import GraphTokenizer, row_numbers
from text.tokenizers.tokenizer import Tokenizer

# Unicode's white space; the \s of Python and that of RE2 differ from it.
_SPACES = "[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+$"


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Text to ids, including those of [MASK]; without [CLS] and [SEP]."""
    vocabulary = tokenizer.vocabulary
    *before, last = text.split(vocabulary.mask)
    ids = []
    for part in before:
        part = re.sub(_SPACES, "", part)
        ids += [*tokenizer.encode(part), vocabulary.mask_id]
    return [*ids, *tokenizer.encode(last)]


def encode_in_graph(tokenizer: GraphTokenizer, texts: tf.Tensor) -> tf.RaggedTensor:
    """The same, string [n] -> int32 [n, (tokens)]."""
    parts = tf.strings.split(texts, sep=tokenizer.mask)  # at least one per text
    place = tf.ragged.range(parts.row_lengths()).flat_values  # of a part in its text
    is_last = tf.concat([place[1:] == 0, [True]], 0)[: tf.size(place)]
    stripped = tf.strings.regex_replace(parts.flat_values, _SPACES, "")
    ids = tokenizer.encode(tf.where(is_last, parts.flat_values, stripped))
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
