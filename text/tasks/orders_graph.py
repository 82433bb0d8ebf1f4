"""Packs a pair of texts in both orders in a TensorFlow graph; equal to orders.py."""

import tensorflow as tf

from text.instances import pack_graph
from text.tokenizers.graph_tokenizer import GraphTokenizer


def pack(
    tokenizer: GraphTokenizer,
    a: tf.RaggedTensor,
    b: tf.RaggedTensor,
    max_seq_length: int,
) -> dict[str, tf.Tensor]:
    """Joins the ids of two texts in both orders; see `pack_graph.pack`.

    Returns:
        input_ids, input_mask, segment_ids: int32 [n, 2, longest row].
    """
    first, second = (
        pack_graph.pack(tokenizer, *pair, max_seq_length) for pair in ((a, b), (b, a))
    )
    # Both orders of a pair are equally long, so the longest rows are, too.
    return {name: tf.stack([first[name], second[name]], axis=1) for name in first}
