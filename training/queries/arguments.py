"""Checks what Python passes as texts, labels and numbers, of whatever library.

What is wrong is said in one line, with the name of the argument.
"""

import dataclasses
import functools
import inspect
import numbers
import os
import re
from collections.abc import Callable, Iterable, Mapping, Set

import numpy as np

import options
from errors import UserError
from modeling.optimizers.table import SCHEDULES, OptimizerSettings, optimizers
from text.progress import count
from text.tokenizers.table import TokenizerOptions

Text = str | tuple[str, str]

# What Hugging Face's tokenizers and Keras Hub's call inputs.
_THEIR_NAMES = {
    "attention_mask": "input_mask",
    "padding_mask": "input_mask",
    "token_type_ids": "segment_ids",
    "token_ids": "input_ids",
}
_TEXT_FLAGS = [field.name for field in dataclasses.fields(TokenizerOptions)]


def named(function: Callable) -> Callable:
    """Makes the errors of a function name its arguments where scripts have flags.

    Flags that are not arguments stay: they are of the script that the message is about.
    """
    names = {*inspect.signature(function).parameters, *_TEXT_FLAGS}
    # Not in `convert_checkpoint.py --vocab_file`.
    flag = re.compile(rf"(?<!\.py )--((?:{'|'.join(names)})\b)(=true\b|=false\b)?")

    def argument(match):
        return match[1] + (match[2] or "").replace("t", "T").replace("f", "F")

    @functools.wraps(function)
    def call(*positional, **by_name):
        try:
            return function(*positional, **by_name)
        except UserError as error:
            raise UserError(flag.sub(argument, str(error))) from error

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
    if isinstance(labels, str | bytes | Mapping | Set):
        raise UserError(f"labels is {labels!r:.60}; pass a list of numbers")
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
        raise UserError(
            f"{count(num_texts, 'text')}, but {count(len(values), 'label')}"
        )
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


def check_text_flags(text: Mapping[str, bool]) -> None:
    """Refuses other names than those of `TokenizerOptions`, and other values than bools.

    Raises:
        UserError: there is one.
    """
    for name, value in text.items():
        if name not in _TEXT_FLAGS:
            raise UserError(
                f"{name}: no such argument; those of text are {', '.join(_TEXT_FLAGS)}"
            )
        if not isinstance(value, bool):
            raise UserError(f"{name}={value!r:.60}: must be True or False")


def check_optimizer(learning_rate: float, settings: Mapping) -> None:
    """Refuses what is no setting of an optimizer, and values that it cannot have.

    Raises:
        UserError: there is one.
    """
    setting_names = {field.name for field in dataclasses.fields(OptimizerSettings)}
    if unknown := settings.keys() - setting_names:
        raise UserError(
            f"{', '.join(sorted(unknown))}: no setting of an optimizer; they are "
            f"{', '.join(sorted(setting_names))}"
        )
    made = OptimizerSettings(**settings)
    floats = [f.name for f in dataclasses.fields(made) if f.type is float]
    numbers = {name: getattr(made, name) for name in floats}
    for name, value in {"learning_rate": learning_rate, **numbers}.items():
        bounds = (
            {"above": 0, "at_most": 1}
            if name == "layerwise_lr_decay"
            else {"at_least": 0}
        )
        check_number(name, value, is_whole=False, **bounds)
    for name, value, allowed in (
        ("optimizer", made.optimizer, optimizers()),
        ("lr_schedule", made.lr_schedule, (None, *SCHEDULES)),
    ):
        if value not in allowed:
            names = ", ".join(filter(None, allowed))
            raise UserError(f"{name}={value!r}: must be one of {names}")
    for name in settings.keys() & made.unused().keys():
        other, chosen, having = made.unused()[name]
        raise UserError(
            f"{name}: {other}={chosen} does not have it, only {', '.join(having)}"
        )


def requests(value: Iterable) -> Iterable:
    """Requests to a task.

    Raises:
        UserError: it is a single one, or nothing to go through.
    """
    if isinstance(value, str | bytes | Mapping):
        raise UserError(f"requests is {value!r:.60}, a single one; pass a list of them")
    if not isinstance(value, Iterable):
        raise UserError(f"requests is {value!r:.60}; pass a list of them")
    return value


def encoder_inputs(inputs: Mapping) -> dict:
    """What an encoder reads; of lists, arrays.

    Raises:
        UserError: something is missing or has another name.
    """
    if not isinstance(inputs, Mapping):
        raise UserError(
            f"inputs is {inputs!r:.60}; pass what `tokenize` or `inputs` returns, or texts "
            "to `embed`"
        )
    input_names = ("input_ids", "input_mask", "segment_ids")
    for name in inputs:
        if name not in input_names:
            ours = _THEIR_NAMES.get(name)
            hint = f", which is {ours} here" if ours else ""
            raise UserError(
                f"inputs has {name!r:.60}{hint}; it may have {', '.join(input_names)}"
            )
    if "input_ids" not in inputs:
        raise UserError("inputs has no input_ids; pass what `tokenize` returns")
    return {
        name: np.asarray(values, np.int32) if isinstance(values, list) else values
        for name, values in inputs.items()
    }


def path(name: str, value: str | os.PathLike) -> str:
    """A path as a shell would pass it.

    Raises:
        UserError: it is none, or that of a file of Keras.
    """
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise UserError(f"{name}={value!r:.60}: must be the path of a file or folder")
    if os.fspath(value).endswith(".keras"):
        raise UserError(f"{value}: is a file of Keras; use keras.models.load_model")
    return os.path.expanduser(os.fspath(value))
