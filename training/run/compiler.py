"""Which parts of a training step TensorFlow compiles on CPUs; see modeling/fusion.py."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import numpy as np

from training.backend import tf, uid

_NAMES = 1 << 17  # more than an update's functions need; to count as far takes 50 ms
# With fewer weights, compiling (seconds) takes longer than it saves.
_FEWEST_WEIGHTS = 3_000_000

# What compiling an update with XLA costs, in tokens that could have been trained on: those
# of 1,500 updates of 32 rows of 128, fine-tuning's defaults. An H200 takes 92 s to compile
# BERT-Base's, and 60 ms for an update of 128 rows in bfloat16, which makes it four times
# this. But slower GPUs, float32 and small batches train on fewer tokens in that time.
TOKENS_PER_PROGRAM = 1_500 * 32 * 128


def for_model(model) -> Callable | None:
    """The compiler for `fusion.fuse_with` while this model trains, uncompiled as a whole.

    None on GPUs, for which it was never measured: they are faster with all in one program.
    """
    weights = sum(v.shape.num_elements() for v in model.weights)
    on_cpu = not tf.config.list_logical_devices("GPU")
    return compile_function if on_cpu and weights >= _FEWEST_WEIGHTS else None


@contextlib.contextmanager
def steady_names(slot: int, wanted: bool = True) -> Iterator[None]:
    """Gives what is traced in here, and the function it is part of, names that do not vary.

    TensorFlow puts a number into each name, from a counter that also runs elsewhere, and
    finds a kept program by the names of its functions. So the counter is moved on to the
    next of few numbers; a function has its own name when all of it is traced.

    Args:
        slot: even, below 8; for each function another. What is traced last in a process
            has 0, so that a process that traces nothing else reaches the same number.
    """
    if wanted:
        _move_on_to(slot)
    yield
    if wanted:
        _move_on_to(slot + 1)


def _move_on_to(slot):
    while uid() % (8 * _NAMES) != slot * _NAMES:
        pass


def trace_function(function: Callable) -> Callable:
    """Traces `function` once for the shapes and constants of each call.

    A call is then one operation, until TensorFlow puts those of the function in its place.
    """

    @functools.cache
    def of_tensors(constants):
        return tf.function(_around(function, constants), autograph=False)

    return _of_tensors(of_tensors)


def compile_function(function: Callable) -> Callable:
    """Compiles `function` and its gradient for the shapes and constants of each call.

    Args:
        function: takes tensors, and hashable constants, by position; returns tensors.
    """

    @functools.cache
    def of_tensors(constants):
        return _with_gradient(_around(function, constants))

    return _of_tensors(of_tensors)


def _around(function, constants):
    """A function of the tensors alone, which puts the constants at their places."""

    def call_merged(*tensors):
        args = list(tensors)
        for place, value in constants:
            args.insert(place, value)
        return function(*args)

    return call_merged


def _of_tensors(make):
    """Calls what `make` returns for the constants among the arguments."""

    def call(*args):
        constants = tuple((i, x) for i, x in enumerate(args) if not _is_array(x))
        # A variable would be passed as such, and read at another time.
        tensors = [tf.convert_to_tensor(x) for x in args if _is_array(x)]
        return make(constants)(*tensors)

    return call


def _is_array(value):
    return tf.is_tensor(value) or isinstance(value, np.ndarray)


def _with_gradient(function):
    forward = tf.function(function, jit_compile=True, autograph=False)

    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def backward(tensors, upstream):
        floats = [x for x in tensors if x.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            results = function(*tensors)
        gradients = iter(
            tape.gradient(
                results,
                floats,
                output_gradients=tf.nest.pack_sequence_as(results, upstream),
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
        )
        return [next(gradients) if x.dtype.is_floating else None for x in tensors]

    @tf.custom_gradient
    def call(*tensors):
        return forward(*tensors), lambda *upstream: backward(tensors, upstream)

    return call
