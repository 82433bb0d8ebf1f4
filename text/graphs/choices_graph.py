"""Answers multiple choice in a TensorFlow graph, for SavedModels.

A request is a context and its continuations, laid out like the rows of run_swag.py.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from text.graphs import packing_graph, row_chunks
from text.graphs.graph_tokenizer import GraphTokenizer


def choose(
    tokenizer: GraphTokenizer,
    predict: Callable[[dict], dict],
    context: tf.Tensor,
    start: tf.Tensor,
    choices: tf.Tensor,
    max_seq_length: int,
) -> dict[str, tf.Tensor]:
    """The choice with the highest score.

    Args:
        predict: input_ids, input_mask, segment_ids, int32 [rows, choices, s] -> logits,
            float32 [rows, choices].
        context, start: string [b]; `start` precedes every choice.
        choices: string [b, c], padded with empty ones at the end.
    Returns:
        dict of predicted, int32 [b], 0 if there is no choice; probabilities, float32
        [b, c], 0 for padding.
    """
    # An empty choice exists if one after it is not empty.
    exists = tf.cumsum(tf.cast(choices != "", tf.int32), axis=1, reverse=True) > 0
    places = tf.where(exists)  # [n, 2]: request, number of the choice
    request = places[:, 0]
    # No row takes more tokens, so a long context is cut before it is copied per choice.
    space = tf.gather(tf.where(start == "", "", " "), request)
    choice = tf.strings.join([space, tf.gather_nd(choices, places)])
    context, start = (tokenizer.encode(x)[:, :max_seq_length] for x in (context, start))
    continuation = (
        tf.gather(start, request),
        tokenizer.encode(choice)[:, :max_seq_length],
    )
    batch = packing_graph.pack(
        tokenizer,
        tf.gather(context, request),
        tf.concat(continuation, axis=1),
        max_seq_length,
    )
    # Rows of one choice each, because a choice's score does not depend on the others.
    batch = {name: values[:, None] for name, values in batch.items()}
    logits = row_chunks.run_in_chunks(predict, batch)["logits"][:, 0]
    lowest = tf.fill(tf.shape(choices), tf.constant(-math.inf, tf.float64))
    logits = tf.cast(logits, tf.float64)
    scores = tf.tensor_scatter_nd_update(lowest, places, logits)  # [b, c]
    probabilities = tf.where(exists, tf.nn.softmax(scores), 0.0)
    candidates = tf.pad(probabilities, [[0, 0], [0, 1]])  # argmax needs at least one
    return {
        "predicted": tf.argmax(candidates, axis=1, output_type=tf.int32),
        "probabilities": tf.cast(probabilities, tf.float32),
    }
