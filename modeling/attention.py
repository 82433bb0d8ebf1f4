"""The part of attention whose tensors have a number for each pair of positions.

At 512 tokens, these would be most of what a training keeps for its gradients. Much longer
rows are read in blocks.
"""

from collections.abc import Callable

from keras import ops

from modeling import block_attention, fusion, layers

_FEWEST = 128  # positions; with fewer, another product costs more than it saves


def documents(inputs):
    """int32 [b, s]: the number of each token's document, ascending; None if a row is one.

    Args:
        inputs: those of an encoder; see `Encoder.call`.
    """
    if (positions := inputs.get("position_ids")) is None:
        return None
    return ops.cumsum(ops.cast(positions == 0, "int32"), axis=1)


def attend(
    query,
    key,
    value,
    *biases,
    bias_scores: Callable,
    rate: float,
    dropouts: Callable,
    seen: block_attention.Seen | None = None,
    direction: str = "both",
):
    """[b, s, n * d]: the mean of the values by the softmax of what each query gives.

    Args:
        query: [b, n, s, d].
        key: [b, n, d, k].
        value: [b, n, k, d].
        biases: tensors that have gradients, for `bias_scores`.
        bias_scores: maps query times key [b, n, s, k] and the biases to float32 scores; it
            reads no other tensors that have gradients.
        rate: of dropout of the probabilities.
        dropouts: makes the key of their dropout, as `layers.Dropouts` does.
        seen, direction: if given, rows are read in blocks, and `bias_scores` is not
            called; see `block_attention.attend`.
    """
    words = dropouts.key(rate)

    def of_heads(query, key, value, *biases):
        # Not fused: a CPU's own softmax is faster than what a compiler makes of it.
        probs = ops.softmax(bias_scores(ops.matmul(query, key), *biases))
        probs = layers.fused_dropout(ops.cast(probs, value.dtype), rate, *words)
        return ops.matmul(probs, value)

    if seen is None:
        context = of_pairs(of_heads, query, key, value, *biases)
    else:
        key = ops.swapaxes(key, -1, -2)
        context = block_attention.attend(
            query, key, value, seen, direction, rate, words
        )
    batch, heads, length, size = ops.shape(context)
    context = ops.transpose(context, (0, 2, 1, 3))
    return ops.reshape(context, (batch, length, heads * size))


def of_pairs(function: Callable, *tensors):
    """function(*tensors); in a whole program, gradients compute it again.

    Args:
        function: reads no other tensors that have gradients.
        tensors: the first one is [b, n, s (from), d].
    """
    seq_length = tensors[0].shape[2]  # None if it varies by batch: it may be long
    if seq_length is not None and seq_length < _FEWEST:
        return function(*tensors)
    return fusion.recompute(function, *tensors)
