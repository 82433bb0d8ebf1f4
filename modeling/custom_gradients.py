"""Gradients that are written out, because automatic ones are slower.

Only training asks for them. Elsewhere they would cost: each is traced as a function of its
own, and a SavedModel with them takes twice as long to write and to load.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator

from keras import ops

_wanted: contextvars.ContextVar[bool] = contextvars.ContextVar("wanted", default=False)


@contextlib.contextmanager
def use_gradients(wanted: bool = True) -> Iterator[None]:
    """Functions that `with_gradient` decorates have its gradients, if called in here."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def are_written_out() -> bool:
    """Whether the caller is within `use_gradients`."""
    return _wanted.get()


def with_gradient(function: Callable) -> Callable:
    """Decorates a function that comes with its gradient.

    Args:
        function: as for `keras.ops.custom_gradient`: maps tensors to a result, and to the
            function of its gradient.
    Returns:
        the function of the result alone. It has that gradient within `use_gradients`, and
        the backend's elsewhere.
    """
    differentiable = ops.custom_gradient(function)

    @functools.wraps(function)
    def call(*args):
        return differentiable(*args) if are_written_out() else function(*args)[0]

    return call
