"""Checks what Python passes as arguments, of whatever library, by declared rules.

    @check(path=path, batch_size=whole(at_least=1))
    def load(path, batch_size=32): ...

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
from training import backend
from errors import UserError, count, write_as_arguments
from modeling.architectures.config import EncoderConfig
from modeling.optimizers.table import OptimizerSettings
from text.tokenizers.table import TokenizerOptions

Text = str | tuple[str, str]
# Takes the name of an argument and its value; returns the value as it is used, or raises
# UserError.
Rule = Callable[[str, object], object]

# What Hugging Face's tokenizers and Keras Hub's call inputs.
_THEIR_NAMES = {
    "attention_mask": "input_mask",
    "padding_mask": "input_mask",
    "token_type_ids": "segment_ids",
    "token_ids": "input_ids",
}
_TEXT_FLAGS = [field.name for field in dataclasses.fields(TokenizerOptions)]
_LARGEST = float(np.finfo(np.float32).max)
# Control characters, and what stands for bytes that are not UTF-8.
_NOT_IN_PATHS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check(**rules: Rule) -> Callable[[Callable], Callable]:
    """Checks the arguments of a function, each by the rule of its name.

    A default is not checked. Errors are one line, also those of files, and name arguments
    where scripts have flags; see `errors.setting`.
    """

    def decorate(function):
        signature = inspect.signature(function)
        defaults = {n: p.default for n, p in signature.parameters.items()}
        names = {*defaults, *_TEXT_FLAGS}

        @functools.wraps(function)
        def call(*positional, **by_name):
            bound = signature.bind(*positional, **by_name)
            try:
                for name, value in bound.arguments.items():
                    if name in rules and value is not defaults[name]:
                        bound.arguments[name] = rules[name](name, value)
                with write_as_arguments(names):
                    return function(*bound.args, **bound.kwargs)
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                raise UserError(f"{where}{error.strerror or error}") from error

        return call

    return decorate


def show(value):
    """What a value is, for a message: the beginning, in one line."""
    return f"{' '.join(repr(value).split()):.60}"


def texts(name: str, value: Iterable[Text]) -> Iterable[Text]:
    """Texts to go through once: a list, a generator, an array, a column of a table.

    Raises:
        UserError: it is a single string, or has no order.
    """
    if hasattr(value, "to_numpy"):  # pandas, whose indices may not be positions
        value = value.to_numpy()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str | bytes):
        raise UserError(
            f"{name} is {show(value)}, a single string; pass a list of them"
        )
    if isinstance(value, Mapping | Set) or not isinstance(value, Iterable):
        raise UserError(
            f"{name} is {show(value)}; pass a list of strings, or of pairs of strings"
        )
    return value


def list_of_texts(name: str, value: Iterable[Text]) -> list[Text]:
    """The same as a list."""
    value = texts(name, value)
    return value if isinstance(value, list) else list(value)


def parts(text: Text, number: int, name: str = "text") -> tuple[str, str | None]:
    """A text, or a pair of texts.

    Args:
        number, name: the text's, for a message.
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
        f"{name} {number}: is {show(text)}; it must be a string, or a pair of strings"
    )


def checked_texts(at_least: int = 0) -> Rule:
    """A list of texts, and of nothing else."""

    def rule(name, value):
        value = list_of_texts(name, value)
        for number, text in enumerate(value):
            parts(text, number, name)
        if len(value) < at_least:
            raise UserError(f"{name} is empty; pass at least one")
        return value

    return rule


def label_array(labels: Iterable, num_texts: int) -> np.ndarray:
    """Labels as an array of numbers, [num_texts, ...].

    Raises:
        UserError: they are not numbers, or not as many as there are texts.
    """
    if isinstance(labels, str | bytes | Mapping | Set):
        raise UserError(f"labels is {show(labels)}; pass a list of numbers")
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
        raise UserError(f"labels is {show(labels)}; pass a list of numbers")
    if len(values) != num_texts:
        raise UserError(
            f"{count(num_texts, 'text')}, but {count(len(values), 'label')}"
        )
    if _is_numbers(values):
        return values
    wrong = next((i for i, v in enumerate(values) if not _is_numbers(np.array(v))), 0)
    raise UserError(
        f"label {wrong}: is {show(values.tolist()[wrong])}; labels must be numbers, such "
        "as the index of each in a list of names"
    )


def _is_numbers(values):
    return values.dtype.kind in "biuf" and bool(np.isfinite(values).all())


def whole(**bounds: int) -> Rule:
    """A rule: a whole number within `options.Bounds(**bounds)`."""
    return functools.partial(_check_number, numbers.Integral, options.Bounds(**bounds))


def number(**bounds: float) -> Rule:
    """A rule: a finite number within `options.Bounds(**bounds)`."""
    return functools.partial(_check_number, numbers.Real, options.Bounds(**bounds))


def _check_number(kind, bounds, name, value):
    is_one = isinstance(value, kind) and not isinstance(value, bool)
    # Models compute with 32 bits; nan is at most nothing.
    if not is_one or not abs(value) <= _LARGEST or value not in bounds:
        noun = "a whole number" if kind is numbers.Integral else "a number"
        raise UserError(f"{name}={show(value)}: must be {noun} {bounds}".rstrip())
    return value


batch_size = whole(at_least=1, at_most=options.MOST_ROWS)


def one_of(*choices: str) -> Rule:
    """A rule: one of some strings."""

    def check(name, value):
        if not isinstance(value, str) or value not in choices:
            listed = " or ".join(map(repr, choices))
            listed = f"one of {', '.join(choices)}" if len(choices) > 2 else listed
            raise UserError(f"{name}={show(value)}: must be {listed}")
        return value

    return check


def switch(name: str, value: bool) -> bool:
    """A rule: True or False."""
    if not isinstance(value, bool | np.bool_):
        raise UserError(f"{name}={show(value)}: must be True or False")
    return bool(value)


def text(name: str, value: str) -> str:
    """A rule: a string."""
    if not isinstance(value, str):
        raise UserError(f"{name} is {show(value)}; it must be a string")
    return value


def name(name: str, value: str) -> str:
    """A rule: what a name of Keras may begin with."""
    if "/" in text(name, value):
        raise UserError(f"{name}={show(value)}: must not have a slash")
    return value


def _flags(noun: str, names: type, group: type) -> Rule:
    """A rule for `**` arguments: what flags of these names may be.

    Args:
        noun: what they are, for a message.
        names: a dataclass with a field for each, and perhaps for other arguments.
        group: the `options.Group` that declares the flags.
    """
    of_names = {field.name for field in dataclasses.fields(names)}
    fields = {f.name: f for f in dataclasses.fields(group) if f.name in of_names}

    def check(_, values):
        for name, value in values.items():
            if name not in fields:
                raise UserError(
                    f"{name}: no such argument; {noun} are {', '.join(sorted(fields))}"
                )
            if value is not options.default_of(fields[name]):
                _rule_of(fields[name])(name, value)
        return values

    return check


def _rule_of(field):
    """The rule that a field declares."""
    if field.metadata["choices"]:
        return one_of(*field.metadata["choices"])
    if field.type in (bool, bool | None):
        return switch
    assert field.type is float, field
    return number(**field.metadata["bounds"]._asdict())


text_flags = _flags("those of text", TokenizerOptions, TokenizerOptions)


def optimizer_settings(group: type) -> Rule:
    """A rule for `**` arguments: `OptimizerSettings`, which a group of flags declares."""
    return _flags("the settings of an optimizer", OptimizerSettings, group)


def check_effect(settings: Mapping) -> None:
    """Refuses settings of an optimizer that would have no effect.

    Raises:
        UserError: there is one.
    """
    unused = OptimizerSettings(**settings).settings_without_effect()
    for name in settings.keys() & unused.keys():
        other, chosen, having = unused[name]
        raise UserError(
            f"{name}: {other}={chosen} does not have it, only {', '.join(having)}"
        )


def requests(name: str, value: Iterable) -> list:
    """A rule: requests to a task."""
    if isinstance(value, str | bytes | Mapping):
        raise UserError(f"{name} is {show(value)}, a single one; pass a list of them")
    if isinstance(value, np.ndarray) and value.ndim:
        value = value.tolist()
    if not isinstance(value, Iterable) or isinstance(value, np.ndarray):
        raise UserError(f"{name} is {show(value)}; pass a list of them")
    return list(value)


def encoder_inputs(inputs: Mapping, config: EncoderConfig) -> dict:
    """What an encoder reads; of lists, arrays.

    Values are checked where they are at hand: in arrays of numpy and tensors in the
    memory of the CPU, and not in what TensorFlow or JAX traces.

    Raises:
        UserError: something is missing, has another name, or cannot be read.
    """
    if not isinstance(inputs, Mapping):
        raise UserError(
            f"inputs is {show(inputs)}; pass what `tokenize` or `inputs` returns, or "
            "texts to `embed`"
        )
    most = {
        "input_ids": config.vocab_size,
        "input_mask": 2,
        "segment_ids": config.type_vocab_size if config.has_segments else np.inf,
    }
    for name in inputs:
        if name not in most:
            ours = _THEIR_NAMES.get(name) if isinstance(name, str) else None
            hint = f", which is {ours} here" if ours else ""
            raise UserError(
                f"inputs has {show(name)}{hint}; it may have {', '.join(most)}"
            )
    if "input_ids" not in inputs:
        raise UserError("inputs has no input_ids; pass what `tokenize` returns")
    read = {name: _array(name, value) for name, value in inputs.items()}
    shape = _shape(read["input_ids"])
    for name, value in read.items():
        pairs = zip(shape, _shape(value), strict=False)
        if any(one != other for one, other in pairs if None not in (one, other)):
            raise UserError(
                f"{name} has the shape {_shape(value)}, but input_ids {shape}; pass what "
                "`tokenize` returns"
            )
        _check_range(name, value, most[name])
    length = shape[-1] if shape else None
    if length is not None and not 0 < length <= config.max_position_embeddings:
        raise UserError(
            f"inputs has rows of {length} tokens; this model reads from 1 to "
            f"{config.max_position_embeddings}"
        )
    return read


def _shape(value):
    """() of what is no array; sizes that a function of TensorFlow leaves open are None."""
    shape = getattr(value, "shape", ())
    return (None, None) if getattr(shape, "rank", 0) is None else tuple(shape)


def _array(name, value):
    """A row of numbers for each text, as they are or of a list."""
    if isinstance(value, list):
        try:
            value = np.array(value, np.int32)
        except (TypeError, ValueError, OverflowError):
            raise UserError(
                f"{name} is {show(value)}; it must be rows of whole numbers, all of the "
                "same length"
            ) from None
    dtype = getattr(value, "dtype", None)
    kinds = ("int", "uint", "bool") + ("float",) * (name == "input_mask")
    kind = str(getattr(dtype, "name", dtype))
    if len(_shape(value)) != 2 or not kind.startswith(kinds):
        raise UserError(
            f"{name} is {show(value)}; it must be whole numbers, [texts, tokens]"
        )
    return value


def _check_range(name, value, below):
    device = str(getattr(value, "device", "")).upper()  # what JAX traces has none
    has_values = hasattr(value, "numpy") or backend.NAME == "jax"
    values = np.asarray(value) if "CPU" in device and has_values else value
    if not isinstance(values, np.ndarray) or not values.size:
        return
    for number in (values.min(), values.max()):
        if not 0 <= number < below:
            raise UserError(f"{name} has {number}; it must be from 0 to {below - 1:g}")


def training(value: bool | None) -> None:
    """Refuses what does not say whether a model is in training.

    Raises:
        UserError: it is not True, False, None or a tensor.
    """
    if value is not None and not hasattr(value, "dtype"):
        switch("training", value)


def path(name: str, value: str | os.PathLike) -> str:
    """A rule: a path as a shell would pass it."""
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str) or not given:
        raise UserError(f"{name}={show(value)}: must be the path of a file or folder")
    if wrong := _NOT_IN_PATHS.search(given):
        raise UserError(
            f"{name}={show(given)}: has the character {wrong[0]!r}, which is not allowed "
            "in a path; rename the file or folder"
        )
    if given.endswith(".keras"):
        raise UserError(f"{given}: is a file of Keras; use keras.models.load_model")
    return os.path.expanduser(given)
