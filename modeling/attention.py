"""The part of attention whose tensors have a number for each pair of positions.

At 512 tokens, these would be most of what a training keeps for its gradients.
"""

from collections.abc import Callable

from modeling import fusion

_FEWEST = 128  # positions; with fewer, another product costs more than it saves


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
