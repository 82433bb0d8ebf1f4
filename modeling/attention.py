"""The part of attention whose tensors have a number for each pair of positions.

At 512 tokens these are most of what a training keeps for its gradients. Where a compiler
has the whole program, they are computed again instead: it merges most of what they take
with the products around them, and only those of one layer exist at a time.
"""

from collections.abc import Callable

import keras

from modeling import custom_gradients, fusion

_FEWEST = 128  # positions from which on it is worth another product


def of_pairs(function: Callable, *tensors):
    """function(*tensors), of which the gradients may keep the tensors alone.

    Args:
        function: reads no other tensors that have gradients.
        tensors: of which the first is [b, n, s (from), d].
    """
    seq_length = tensors[0].shape[2]  # None if it varies by batch
    is_long = seq_length is None or seq_length >= _FEWEST
    if not (
        is_long and fusion.is_whole_program() and custom_gradients.are_written_out()
    ):
        return function(*tensors)

    def again(*tensors):  # is called later, too
        with fusion.whole_program(), custom_gradients.written_out():
            return function(*tensors)

    return keras.remat(again)(*tensors)
