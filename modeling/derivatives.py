"""Gradients that are written out, because automatic ones are slower.

They are for training. Without it they only cost: each is traced as a function of its own,
and a SavedModel with them takes twice as long to write and to load.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator

from keras import ops

_are_automatic: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "are_automatic", default=False
)


@contextlib.contextmanager
def automatic() -> Iterator[None]:
    """Leaves gradients to the backend, of all that is called or traced in here."""
    token = _are_automatic.set(True)
    try:
        yield
    finally:
        _are_automatic.reset(token)


def are_automatic() -> bool:
    """Whether the caller is within `automatic`."""
    return _are_automatic.get()


def written(function: Callable) -> Callable:
    """Decorates a function with its gradient; see `keras.ops.custom_gradient`.

    Args:
        function: maps tensors to a result and to the function of its gradient.
    Returns:
        the function of the result alone.
    """
    differentiable = ops.custom_gradient(function)

    @functools.wraps(function)
    def call(*args):
        return function(*args)[0] if are_automatic() else differentiable(*args)

    return call
