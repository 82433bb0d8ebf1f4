"""Reads long texts in windows in a TensorFlow graph, for SavedModels.

It equals text/instances/text_windows.py, and uses only core TensorFlow operations.
"""

import tensorflow as tf


def windows(
    ids: tf.RaggedTensor, length: int, stride: int, most: int | None = None
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """The windows over texts; equal to `text_windows.windows` of each.

    Args:
        ids: int32 [b, (tokens)].
        most: the most windows of a text, from its beginning.
    Returns:
        int32 [windows, (tokens)]; and int32 [windows], the text of each, ascending.
    """
    sizes = tf.cast(ids.row_lengths(), tf.int32)
    number = 1 + (tf.maximum(sizes - length, 0) + stride - 1) // stride
    if most:
        number = tf.minimum(number, most)
    text = tf.repeat(tf.range(tf.size(number)), number)
    before = tf.gather(tf.cumsum(number, exclusive=True), text)
    first = (tf.range(tf.size(text)) - before) * stride
    stop = tf.minimum(first + length, tf.gather(sizes, text))
    begin = tf.gather(tf.cast(ids.row_starts(), tf.int32), text)
    tokens = tf.ragged.range(begin + first, begin + stop)
    return tokens.with_flat_values(tf.gather(ids.flat_values, tokens.flat_values)), text


def pool(values: tf.Tensor, texts: tf.Tensor, number: tf.Tensor, pooling: str):
    """float32 [windows, n], int32 [windows] -> [number, n]; see `text_windows.pool`."""
    pool = {
        "mean": tf.math.unsorted_segment_mean,
        "max": tf.math.unsorted_segment_max,
        "first": tf.math.unsorted_segment_mean,  # of the only one
    }[pooling]
    return pool(values, texts, number)


def shares(values: tf.Tensor, texts: tf.Tensor, number: tf.Tensor, pooling: str):
    """What times each window's value, float32 [windows], adds up to the pooled value."""
    is_read = tf.ones_like(values)
    if pooling == "max":
        highest = tf.math.unsorted_segment_max(values, texts, number)
        is_read = tf.cast(tf.equal(values, tf.gather(highest, texts)), values.dtype)
    read = tf.math.unsorted_segment_sum(is_read, texts, number)
    return is_read / tf.gather(read, texts)
