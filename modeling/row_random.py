"""Random numbers from a hash of integers, the same on every backend.

Those of a row depend on the run's seed, their purpose, the row's number in the run and the
position in the row. So one device, eight replicas, micro-batches and a resumed run draw
the same numbers.
"""

import math

import keras
import numpy as np
from keras import ops

_STRIDE = 0x9E3779B9  # 2**32 / golden ratio; odd, so that all its multiples differ
# The rounds of a 32-bit hash in which each bit of the input flips each bit of the output
# half of the time: how far to shift, and what to multiply by.
_ROUNDS = ((16, 0x7FEB352D), (15, 0x846CA68B))
_LAST_SHIFT = 16


def uniform(seed: int, purpose: int, rows, width: int):
    """Draws numbers from [0, 1).

    Args:
        seed: of the run.
        purpose: what the numbers are for; each purpose has numbers of its own.
        rows: int tensor [b], numbers of rows; taken modulo 2**32.
        width: how many numbers each row gets.
    Returns:
        float32 tensor [b, width], multiples of 2**-24.
    """
    high = ops.right_shift(bits(seed, purpose, rows, width), _word(8))
    # Through int32, because not every device converts unsigned integers to floats.
    return ops.cast(ops.cast(high, "int32"), "float32") * 2.0**-24


def bits(seed: int, purpose: int, rows, width: int):
    """Draws 32 random bits per position: uint32 [b, width]; arguments as for `uniform`.

    A row has two words of state. With one, rows whose words happened to be close would
    share some of their numbers.
    """
    key = _hash_number(seed ^ _hash_number(purpose))
    rows = _wrap(ops.cast(rows, "uint32"))
    first = _hash(ops.bitwise_xor(rows, _word(key)))[:, None]
    second = _hash(ops.bitwise_xor(rows, _word(_hash_number(key + 1))))[:, None]
    positions = np.arange(width, dtype=np.uint32) * np.uint32(_STRIDE)
    positions = ops.convert_to_tensor(positions)[None]
    return _hash(ops.bitwise_xor(first, _hash(_wrap(ops.add(second, positions)))))


def states(seed, purposes) -> list[tuple]:
    """What `words` draws from, for each purpose.

    Args:
        seed: int32 tensor [2].
        purposes: ints.
    Returns:
        for each purpose, two uint32 scalars.
    """
    parts = _wrap(ops.cast(ops.convert_to_tensor(seed, "int32"), "uint32"))
    hashes = [_hash_number(purpose) for purpose in purposes]
    key = _hash(ops.bitwise_xor(parts[0], _word(hashes)))
    first = _hash(ops.bitwise_xor(parts[1], key))
    second = _hash(ops.bitwise_xor(parts[1], _hash(_wrap(ops.add(key, _word(1))))))
    return list(zip(ops.unstack(first), ops.unstack(second), strict=True))


def part(state: tuple, number) -> tuple:
    """The state of a numbered part of what a state is for; an int or an int32 scalar."""
    step = _wrap(ops.multiply(ops.cast(number, "uint32"), _word(_STRIDE)))
    return tuple(_hash(_wrap(ops.add(word, step))) for word in state)


def words(state: tuple, shape):
    """Draws 32 random bits for each place of a tensor of this shape: uint32.

    Unlike `bits`, for many numbers of few states: at half the work, two states may share
    numbers here and there, but never a run of them.
    """
    first, second = state
    # In two parts, because compilers store what only depends on the shape.
    middle = (len(shape) + 1) // 2
    outer, inner = math.prod(shape[:middle]), math.prod(shape[middle:])
    step = _wrap(ops.multiply(ops.cast(inner, "uint32"), _word(_STRIDE)))
    begins = _wrap(ops.add(second, _multiples(outer, step)))
    places = ops.add(begins[:, None], _multiples(inner, _word(_STRIDE))[None])
    places = ops.reshape(_wrap(places), shape)
    return _hash(ops.bitwise_xor(first, places))


def _multiples(number, step):
    """uint32 [number]: 0, step, 2 * step, ..."""
    return _wrap(ops.multiply(ops.cast(ops.arange(number), "uint32"), step))


def _wrap(words):
    """Modulo 2**32, because Keras on torch keeps uint32 in 64 bits."""
    if keras.backend.standardize_dtype(words.dtype) == "uint32":
        return words
    return ops.bitwise_and(words, 2**32 - 1)


def below(words, share: float):
    """bool, True with the probability `share`, for random words."""
    return ops.less(words, _word(round(share * 2**32)))


def _hash(words):
    """uint32 -> uint32, one to one."""
    for shift, factor in _ROUNDS:
        words = ops.bitwise_xor(words, ops.right_shift(words, _word(shift)))
        words = _wrap(ops.multiply(words, _word(factor)))
    return ops.bitwise_xor(words, ops.right_shift(words, _word(_LAST_SHIFT)))


def _hash_number(number: int) -> int:
    """Like `_hash`, for a Python number; avoids 0, which `_hash` leaves unchanged."""
    word = (number + _STRIDE) % 2**32
    for shift, factor in _ROUNDS:
        word ^= word >> shift
        word = word * factor % 2**32
    return word ^ word >> _LAST_SHIFT


def _word(number):
    return ops.convert_to_tensor(np.uint32(number))
