"""Encodes texts that contain a literal [MASK] in a TensorFlow graph, for SavedModels.

It equals text/tasks/mask_tokens.py.
"""

import tensorflow as tf

from text.graphs.graph_tokenizer import GraphTokenizer, row_numbers
from text.tasks.mask_tokens import SPACES_AT_END


def encode(tokenizer: GraphTokenizer, texts: tf.Tensor) -> tf.RaggedTensor:
    """Texts to ids, including those of [MASK]: string [n] -> int32 [n, (tokens)]."""
    parts = tf.strings.split(texts, sep=tokenizer.mask)  # at least one per text
    place = tf.ragged.range(parts.row_lengths()).flat_values  # of a part in its text
    is_last = tf.concat([place[1:] == 0, [True]], 0)[: tf.size(place)]
    stripped = tf.strings.regex_replace(parts.flat_values, SPACES_AT_END, "")
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
