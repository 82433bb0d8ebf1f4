"""Checks what Python passes as texts, labels and numbers, of whatever library.

What is wrong is said in one line, with the name of the argument.
"""

import functools
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Set

import numpy as np

import options
from errors import UserError

Text = str | tuple[str, str]

# Flags in messages, but where a message names the command that takes them.
_FLAG = re.compile(r"(?<!\.py )--(?=\w)")


def named(function: Callable) -> Callable:
    """Makes the errors of a function name arguments where scripts have flags."""

    @functools.wraps(function)
    def call(*positional, **by_name):
        try:
            return function(*positional, **by_name)
        except UserError as error:
            raise UserError(_FLAG.sub("", str(error))) from error

    return call


def iterate_texts(texts: Iterable[Text]) -> Iterable[Text]:
    """Texts to go through once: a list, a generator, an array, a column of a table.

    Raises:
        UserError: it is a single string, or has no order.
    """
    if hasattr(texts, "to_numpy"):  # pandas, whose indices may not be positions
        texts = texts.to_numpy()
    if isinstance(texts, np.ndarray):
        texts = texts.tolist()
    if isinstance(texts, str | bytes):
        raise UserError(f"texts is {texts!r:.60}, a single string; pass a list of them")
    if isinstance(texts, Mapping | Set) or not isinstance(texts, Iterable):
        raise UserError(
            f"texts is {texts!r:.60}; pass a list of strings, or of pairs of strings"
        )
    return texts


def list_texts(texts: Iterable[Text]) -> list[Text]:
    """The same as a list."""
    texts = iterate_texts(texts)
    return texts if isinstance(texts, list) else list(texts)


def parts(text: Text, number: int) -> tuple[str, str | None]:
    """A text, or a pair of texts.

    Args:
        number: the text's, for a message.
    Raises:
        UserError: it is something else.
    """
    if isinstance(text, str):
        return text, None
    if isinstance(text, tuple | list) and len(text) == 2:
        first, second = text
        if isinstance(first, str) and isinstance(second, str):
            return first, second
    raise UserError(
        f"text {number}: is {text!r:.60}; it must be a string, or a pair of strings"
    )


def label_array(labels: Iterable, num_texts: int) -> np.ndarray:
    """Labels as an array of numbers, [num_texts, ...].

    Raises:
        UserError: they are not numbers, or not as many as there are texts.
    """
    if isinstance(labels, Iterable) and not hasattr(labels, "__array__"):
        labels = list(labels)
    try:
        values = np.asarray(labels)
        if values.dtype == object:  # such as pandas's integers that may be missing
            values = np.array(values.tolist())
    except ValueError:
        raise UserError(
            "labels are of different lengths; each must be a number, or an array of the "
            "same shape"
        ) from None
    if values.ndim == 0:
        raise UserError(f"labels is {labels!r:.60}; pass a list of numbers")
    if len(values) != num_texts:
        raise UserError(f"{num_texts} texts, but {len(values)} labels")
    if _is_numbers(values):
        return values
    wrong = next((i for i, v in enumerate(values) if not _is_numbers(np.array(v))), 0)
    raise UserError(
        f"label {wrong}: is {values.tolist()[wrong]!r:.60}; labels must be numbers, such "
        "as the index of each in a list of names"
    )


def _is_numbers(values):
    return values.dtype.kind in "biuf" and bool(np.isfinite(values).all())


def check_number(name: str, value, *, is_whole: bool = True, **bounds) -> None:
    """Refuses what is not a number within `options.Bounds(**bounds)`.

    Raises:
        UserError: it is not.
    """
    kind = numbers.Integral if is_whole else numbers.Real
    allowed = options.Bounds(**bounds)
    if not isinstance(value, kind) or isinstance(value, bool) or value not in allowed:
        noun = "a whole number" if is_whole else "a number"
        raise UserError(f"{name}={value!r:.60}: must be {noun} {allowed}".rstrip())
