"""Packs ids as `[CLS] a [SEP] b [SEP]` in a TensorFlow graph, for SavedModels.

It equals text/instances/packing.py, which names its source, and uses only core TensorFlow
operations.
"""

import tensorflow as tf

from text.graphs.graph_tokenizer import GraphTokenizer


def pack(
    tokenizer: GraphTokenizer,
    a: tf.RaggedTensor,
    b: tf.RaggedTensor | None,
    max_seq_length: int,
) -> dict[str, tf.Tensor]:
    """Joins the ids of one text or two; equal to `packing.pack`.

    Args:
        a, b: int32 [n, (tokens)] without special ids; b is None if there is one text.
    Returns:
        input_ids, input_mask, segment_ids: int32 [n, longest row].
    """
    a_lengths = tf.cast(a.row_lengths(), tf.int32)
    begin, tail = len(tokenizer.head), len(tokenizer.tail)
    if b is None:
        a_lengths = tf.minimum(a_lengths, max_seq_length - 2)
        first_sep = b_begin = b_end = a_lengths[:, None] + begin
    else:
        b_lengths = tf.cast(b.row_lengths(), tf.int32)
        a_lengths, b_lengths = _truncated_lengths(
            a_lengths, b_lengths, max_seq_length - tokenizer.num_special_tokens
        )
        first_sep = a_lengths[:, None] + begin
        b_begin = first_sep + len(tokenizer.between)
        b_end = b_begin + b_lengths[:, None]
    last = b_end + (tail - 1)
    columns = tf.range(tf.reduce_max(tf.concat([[[0]], last], 0)) + 1)[None]
    ids = _token(a, columns - begin)
    in_b = columns >= b_begin
    segments = tf.zeros_like(columns + first_sep)
    if b is not None:
        ids = tf.where(in_b, _token(b, columns - b_begin), ids)
        ids = tf.where((columns >= first_sep) & ~in_b, tokenizer.sep_id, ids)
        segments = tf.cast(in_b, tf.int32) * tokenizer.second_segment
    for place, id in enumerate(tokenizer.head):
        ids = tf.where(columns == place, id, ids)
    for place, id in enumerate(tokenizer.tail):
        ids = tf.where(columns == b_end + place, id, ids)
    if tokenizer.last_segment is not None:
        segments = tf.where(columns == last, tokenizer.last_segment, segments)
    is_token = columns <= last
    mask = tf.cast(is_token, tf.int32)
    return {
        "input_ids": tf.where(is_token, ids, tokenizer.pad_id),
        "input_mask": mask,
        "segment_ids": segments * mask,
    }


def both_orders(
    tokenizer: GraphTokenizer,
    a: tf.RaggedTensor,
    b: tf.RaggedTensor,
    max_seq_length: int,
) -> dict[str, tf.Tensor]:
    """Both orders of two texts, int32 [n, 2, longest row]; see `packing.both_orders`."""
    first, second = (
        pack(tokenizer, *pair, max_seq_length) for pair in ((a, b), (b, a))
    )
    # Both orders of a pair are equally long, so the longest rows are, too.
    return {name: tf.stack([first[name], second[name]], axis=1) for name in first}


def _token(ids, columns):
    """The token of each row at each column; arbitrary if there is none."""
    places = tf.cast(ids.row_starts(), tf.int32)[:, None] + columns
    flat = tf.concat([ids.flat_values, [0]], 0)
    return tf.gather(flat, tf.clip_by_value(places, 0, tf.size(flat) - 1))


def _truncated_lengths(a_lengths, b_lengths, max_num_tokens):
    """Same as `packing.truncated_lengths`."""
    surplus = tf.maximum(a_lengths + b_lengths - max_num_tokens, 0)
    from_a = tf.minimum(surplus, tf.maximum(a_lengths - b_lengths, 0))
    from_b = tf.minimum(surplus, tf.maximum(b_lengths - a_lengths, 0))
    rest = surplus - from_a - from_b
    return a_lengths - from_a - rest // 2, b_lengths - from_b - (rest + 1) // 2
