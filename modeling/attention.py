"""The part of attention whose tensors have a number for each pair of positions.

At 512 tokens these are most of what a training would keep for its gradients.
"""

from collections.abc import Callable

from modeling import fusion

_FEWEST = 128  # positions from which on it is worth another product


def of_pairs(function: Callable, *tensors):
    """function(*tensors), of which a whole program keeps no result but the last.

    Args:
        function: reads no other tensors that have gradients.
        tensors: of which the first is [b, n, s (from), d].
    """
    seq_length = tensors[0].shape[2]  # None if it varies by batch
    if seq_length is not None and seq_length < _FEWEST:
        return function(*tensors)
    return fusion.recomputed(function, *tensors)
