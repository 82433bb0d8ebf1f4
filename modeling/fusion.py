"""Chains of elementwise operations, computed in one pass over memory.

An operation at a time, a CPU spends most of a training step outside matrix products on
reading and writing the numbers between two operations. A compiler merges such a chain;
the matrix products are faster without it. So only what `fuse` decorates is compiled, and
only within `fuse_with`.

An accelerator runs one program for everything (`whole_program`). Other things are fast
there: a branch makes the host wait, but sums over rows need no product.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator

import keras

from modeling import custom_gradients

_compiler: contextvars.ContextVar[Callable | None] = contextvars.ContextVar(
    "compiler", default=None
)


@contextlib.contextmanager
def fuse_with(compiler: Callable[[Callable], Callable] | None) -> Iterator[None]:
    """Compiles functions that `fuse` decorates, where they are called or traced in here.

    Args:
        compiler: maps a function of tensors to one that computes the same, and whose
            gradient computes it again. It is asked once for each function. None:
            operations run one at a time.
    """
    token = _compiler.set(compiler)
    try:
        yield
    finally:
        _compiler.reset(token)


_is_whole: contextvars.ContextVar[bool] = contextvars.ContextVar("whole", default=False)


@contextlib.contextmanager
def whole_program(is_whole: bool = True) -> Iterator[None]:
    """What is traced in here will be compiled as a whole, with all that surrounds it."""
    token = _is_whole.set(is_whole)
    try:
        yield
    finally:
        _is_whole.reset(token)


def is_whole_program() -> bool:
    """Whether the caller is within `whole_program`."""
    return _is_whole.get()


def recompute(function: Callable, *tensors):
    """function(*tensors), which gradients in a whole program compute again.

    So they keep the tensors alone. The compiler merges the second computation with what
    needs its result; by itself, it keeps what a first one had.

    Args:
        function: reads no other tensors that have gradients.
    """
    if not (is_whole_program() and custom_gradients.are_written_out()):
        return function(*tensors)

    def recompute(*tensors):  # is called later, too
        with whole_program(), custom_gradients.use_gradients():
            return function(*tensors)

    return keras.remat(recompute)(*tensors)


def fuse(function: Callable) -> Callable:
    """Decorates a function to be compiled within `fuse_with`.

    Args:
        function: takes tensors and Python constants, by position, and returns tensors.
    """

    @functools.cache
    def compile_once(compiler, written_out):
        def trace(*args):  # again for the gradient, which may be taken elsewhere
            with custom_gradients.use_gradients(written_out):
                return function(*args)

        return compiler(trace)

    @functools.wraps(function)
    def call(*args):
        if compiler := _compiler.get():
            return compile_once(compiler, custom_gradients.are_written_out())(*args)
        return function(*args)

    return call
