"""Declares options as the fields of frozen dataclasses, and checks them.

A field states its type, default and help once:

    @dataclasses.dataclass(frozen=True)
    class Options(options.Group):
        input_file: list[str] = options.field(help="Text files: comma-separated globs.")
        max_seq_length: int = options.field(128, help="Length of a record.", at_least=8)

What a field declares (bounds, which other flag it is for) is checked by `Group`; a class
that must check more does it in `__post_init__` and raises UserError. command_line.py makes
flags of them.
"""

import collections
import dataclasses
import enum
import math
import types
from collections.abc import Collection, Mapping
from typing import NamedTuple

from errors import UserError

MOST_ROWS = 1 << 20  # in a batch; TensorFlow makes room for all of them at once
MOST_TOKENS = 1 << 17  # in a row; attention compares each with each
_REQUIRED = dataclasses.MISSING


class _Presence(enum.Enum):
    GIVEN = 1
    ABSENT = 2


# Conditions of `only_for`: the other flag has any value but its default, or has that.
GIVEN, ABSENT = _Presence


class Bounds(NamedTuple):
    """The range of a number, or of each in a list."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def __contains__(self, number) -> bool:
        # Not turned around: nan is in no range.
        return (
            (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.at_most is None or number <= self.at_most)
            and (self.below is None or number < self.below)
        )

    def __str__(self):
        if None not in (self.at_least, self.at_most):
            return f"from {_number(self.at_least)} to {_number(self.at_most)}"
        return " and ".join(
            f"{name.replace('_', ' ')} {_number(bound)}"
            for name, bound in self._asdict().items()
            if bound is not None
        )


def _number(value):
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def field(
    default=_REQUIRED,
    *,
    help: str,
    choices: Collection[str] | None = None,
    may_be_infinite: bool = False,
    only_for: Mapping[str, object] = types.MappingProxyType({}),
    identity: bool | str = False,
    distinct: bool = False,
    common: bool = False,
    **bounds: float,
):
    """Declares one option; without a default, the flag is required and may not be empty.

    Args:
        default: the value if the flag is absent.
        help: the text shown by --help.
        choices: the allowed values of a string flag; those of a table may change until
            the flags are defined.
        may_be_infinite: whether a float flag takes inf and -inf; none takes nan.
        only_for: without which the flag would have no effect, so that it is refused: the
            name of another flag, and the value or tuple of values that it must have, GIVEN
            or ABSENT.
        identity: whether a run with another value is another run, which cannot continue
            this one, see `identity`; or the name of another flag without which it is not.
        distinct: whether an item of a list may occur only once.
        common: whether most users set it, so that --help explains it.
        bounds: of a number or the numbers of a list; see `Bounds`.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "bounds": Bounds(**bounds),
        "may_be_infinite": may_be_infinite,
        "only_for": only_for,
        "identity": identity,
        "distinct": distinct,
        "common": common,
    }
    if isinstance(default, list):
        return dataclasses.field(
            default_factory=lambda: list(default), metadata=metadata
        )
    # Keyword-only, so that optional fields may precede required ones.
    return dataclasses.field(default=default, kw_only=True, metadata=metadata)


def override(group: type, name: str, default, **changes):
    """Declares an option of a base class anew, with another default, help or the like.

    All else that the base declares, such as bounds, holds for it, too.
    """
    (declared,) = (f for f in dataclasses.fields(group) if f.name == name)
    bounds = declared.metadata["bounds"]._asdict()
    others = {k: v for k, v in declared.metadata.items() if k != "bounds"}
    return field(default, **others | bounds | changes)


class Group:
    """Base of dataclasses of options; checks what their fields declare.

    A field that was not made by `field` is no option.
    """

    def __post_init__(self):
        by_name = {f.name: f for f in dataclasses.fields(self) if f.metadata}
        for item in by_name.values():
            _check_value(item, getattr(self, item.name))
        for item in by_name.values():
            if getattr(self, item.name) != default_of(item):
                for other, condition in item.metadata["only_for"].items():
                    _check_effect(self, item, by_name[other], condition)

    def set_environment(self) -> None:
        """Sets what libraries read while they are loaded; only a command line calls it."""


def _check_value(item, value):
    values, bounds = (
        value if isinstance(value, list) else [value],
        item.metadata["bounds"],
    )
    if not values and default_of(item) != []:
        raise UserError(f"--{item.name}= is empty; list at least one")
    for number in values:
        if isinstance(number, str) and "\0" in number:
            raise UserError(f"--{item.name}={number!r}: contains a NUL character")
        if isinstance(number, float) and not math.isfinite(number):
            if math.isnan(number) or not item.metadata["may_be_infinite"]:
                raise UserError(f"--{item.name}={number}: must be a finite number")
        if number is not None and bounds != Bounds() and number not in bounds:
            raise UserError(f"--{item.name}={number}: must be {bounds}")
    if item.metadata["distinct"] and len(set(values)) < len(values):
        [(repeated, _)] = collections.Counter(values).most_common(1)
        raise UserError(f"--{item.name}: {repeated} is repeated; list it once")


def _check_effect(options, item, other, condition):
    flag, value = f"--{item.name}", getattr(options, other.name)
    is_given = value != default_of(other)
    if condition is GIVEN:
        if not is_given:
            raise UserError(
                f"{flag} has no effect without --{other.name}; add it, or remove {flag}"
            )
    elif condition is ABSENT:
        if is_given:
            raise UserError(
                f"{flag} has no effect with --{other.name}; remove one of them"
            )
    else:
        if str(value).lower() not in _values_of(condition):
            raise UserError(
                f"{flag} has no effect with --{other.name}={value}; it is for "
                f"{spell(other.name, condition)}"
            )


def _values_of(condition):
    return condition if isinstance(condition, tuple) else (condition,)


def spell(other: str, condition) -> str:
    """A condition of `only_for`, but ABSENT, as flags: --kind=a, b or c."""
    if condition is GIVEN:
        return f"--{other}"
    *values, last = _values_of(condition)
    return f"--{other}=" + (f"{', '.join(values)} or {last}" if values else last)


def identity(options: Group) -> dict:
    """The options that identify a run, by name: with another value, it is another run."""
    by_name = {item.name: item for item in dataclasses.fields(options)}

    def counts(needed):
        if isinstance(needed, str):
            return getattr(options, needed) != default_of(by_name[needed])
        return needed

    return {
        name: getattr(options, name)
        for name, item in by_name.items()
        if counts(item.metadata["identity"])
    }


def default_of(item: dataclasses.Field):
    """The value of an option whose flag is absent."""
    made = item.default_factory is not dataclasses.MISSING
    return item.default_factory() if made else item.default


def is_required(item: dataclasses.Field) -> bool:
    """Whether an option must be given."""
    return item.default is _REQUIRED and item.default_factory is dataclasses.MISSING


def words(**flags) -> list[str]:
    """Flags as a command line has them; a list is joined by commas."""
    return [f"--{name}={_word(value)}" for name, value in flags.items()]


def _word(value):
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else value
