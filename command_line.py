"""Reads the command line of a script into its options, or says what is wrong with it.

    if __name__ == "__main__":
        command_line.run(main, Options)

Flags are defined when the script runs, not when it is imported, so tests can import
scripts and build `Options(...)` themselves.
"""

import contextlib
import dataclasses
import functools
import gc
import logging
import math
import os
import re
import sys
import textwrap
import types
import typing

from absl import app, flags

import extensions
import options
from errors import UserError

_OUT_OF_MEMORY = "not enough memory; lower the sizes, or those of the batches and files"
_LONGEST = 2000  # characters of a message, which may quote what it found
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127  # of 32 bits, in which models compute
# Characters that end a line or move a terminal's cursor.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _value_type(annotation):
    """`int | None` -> int; other annotations are returned unchanged."""
    if isinstance(annotation, types.UnionType):
        (annotation,) = (a for a in typing.get_args(annotation) if a is not type(None))
    return annotation


class _Number(flags.ArgumentParser):
    """Parses a finite number: an int of 64 bits, or a float within the range of 32."""

    def __init__(self, number_type, may_be_infinite=False):
        self._type = number_type
        self._may_be_infinite = may_be_infinite
        self.syntactic_help = {int: "a whole number", float: "a number"}[number_type]

    def parse(self, argument):
        try:
            number = self._type(argument)
        except ValueError:
            raise ValueError(f"must be {self.syntactic_help}") from None
        if self._type is int:
            if not -(2**63) <= number < 2**63:
                raise ValueError("must be from -2^63 to 2^63 - 1")
        elif math.isnan(number) or (math.isinf(number) and not self._may_be_infinite):
            raise ValueError("must be a finite number")
        elif not abs(number) <= _LARGEST_FLOAT and not math.isinf(number):
            raise ValueError("must be from -3.4e38 to 3.4e38")
        return number

    def flag_type(self):
        return self._type.__name__


class _Numbers(flags.ArgumentParser):
    """Parses a comma-separated list of numbers."""

    def __init__(self, number_type, may_be_infinite=False):
        self._type = number_type
        self._number = _Number(number_type, may_be_infinite)
        names = {int: "whole numbers", float: "numbers"}
        self.syntactic_help = f"a comma-separated list of {names[number_type]}"

    def parse(self, argument):
        if isinstance(argument, list):  # a default
            return argument
        return [self._item(item) for item in argument.split(",")]

    def _item(self, item):
        try:
            return self._number.parse(item)
        except ValueError as error:
            raise ValueError(f"{item!r}, one of the list, {error}") from None

    def flag_type(self):
        return f"comma-separated list of {self._type.__name__}"


class _Switch(flags.BooleanParser):
    """Parses true and false."""

    def parse(self, argument):
        try:
            return super().parse(argument)
        except ValueError:
            raise ValueError("must be true or false") from None


class _TextsParser(flags.ListParser):
    """Parses a comma-separated list of texts, none of them empty."""

    def parse(self, argument):
        texts = super().parse(argument)
        if "" in texts or argument and not texts:
            raise ValueError("a name is missing before, between or after the commas")
        return texts


def define(options_class, flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines one absl flag for each field of a dataclass.

    Raises:
        TypeError: no flag supports a field's type, or nothing would check the fields.
    """
    if not issubclass(options_class, options.Group):
        raise TypeError(f"{options_class.__name__}: must be an options.Group")
    annotations = typing.get_type_hints(options_class)
    for item in dataclasses.fields(options_class):
        default = None if options.is_required(item) else options.default_of(item)
        value_type = _value_type(annotations[item.name])
        common = {
            "name": item.name,
            "default": default,
            "help": item.metadata["help"],
            "flag_values": flag_values,
        }
        if item.metadata["choices"]:
            flags.DEFINE_enum(enum_values=item.metadata["choices"], **common)
        elif value_type is bool:
            flags.DEFINE_bool(**common)
            flag_values[item.name].parser = _Switch()
        elif value_type in (int, float):
            parser = _Number(value_type, item.metadata["may_be_infinite"])
            flags.DEFINE(parser, **common)
        elif value_type is str:
            flags.DEFINE_string(**common)
        elif value_type == list[str]:
            flags.DEFINE(
                _TextsParser(), serializer=flags.CsvListSerializer(","), **common
            )
        elif value_type in (list[int], list[float]):
            (number_type,) = typing.get_args(value_type)
            parser = _Numbers(number_type, item.metadata["may_be_infinite"])
            flags.DEFINE(parser, serializer=flags.CsvListSerializer(","), **common)
        else:
            raise TypeError(f"{item.name}: no flag supports the type {value_type}")


def from_flags(options_class, flag_values: flags.FlagValues = flags.FLAGS):
    """Builds the dataclass from parsed flags."""
    return options_class(
        **{f.name: flag_values[f.name].value for f in dataclasses.fields(options_class)}
    )


def read(
    options_class, arguments: list[str], flag_values: flags.FlagValues = flags.FLAGS
):
    """The options of a command line; `define` has defined the flags.

    Args:
        arguments: the program, and what follows it.
    Raises:
        flags.Error: an argument is not one of these flags, or one that is required is
            missing.
        UserError: values are not allowed, alone or together.
    """
    try:
        unexpected = flag_values(arguments)[1:]  # flags after it were not read
    except flags.IllegalFlagValueError as error:
        hint = extensions.hint() if "should be one of" in str(error) else ""
        raise flags.IllegalFlagValueError(f"{error}{hint}") from error
    if unexpected:
        raise _unexpected_argument(
            unexpected[0], arguments[-len(unexpected) - 1], flag_values
        )
    if missing := _required_flags([None], options_class, flag_values):
        raise flags.Error(f"{', '.join(missing)} required")
    if empty := _required_flags(["", []], options_class, flag_values):
        raise flags.Error(f"{empty[0]}= is empty")
    parsed = from_flags(options_class, flag_values)
    _check_output_dir(parsed)
    return parsed


def _unexpected_argument(argument, before, flag_values):
    """Refuses what is not a flag, after another argument."""
    name = before.lstrip("-")
    hint = "every option is a --flag"
    is_switch = name in flag_values and flag_values[name].boolean
    if is_switch and argument.lower() in ("true", "false", "1", "0"):
        short = name if argument.lower() in ("true", "1") else f"no{name}"
        hint = f"write --{short} or --{name}={argument}"
    return flags.Error(f"unexpected argument {argument!r}; {hint}")


def _required_flags(values, options_class, flag_values):
    """The required flags that have one of some values."""
    return [
        f"--{item.name}"
        for item in dataclasses.fields(options_class)
        if options.is_required(item) and flag_values[item.name].value in values
    ]


def _flag_of(path, options_class, flag_values=flags.FLAGS):
    """`--name=` of the flag that was given a path; empty if it came from elsewhere."""
    for item in dataclasses.fields(options_class):
        value = flag_values[item.name].value
        if path == value or isinstance(value, list) and path in value:
            return f"--{item.name}="
    return ""


# --- Help ----------------------------------------------------------------------------

_HELP = {"--help", "-help", "-h", "--helpfull"}
_MOST_LINES, _WIDTH = 60, 92


def _print_help(options_class, in_full):
    """Prints the help, in full if it is short or asked for, and ends the program."""
    lines = _full_help(options_class)
    if not in_full and len(lines) > _MOST_LINES:
        lines = _short_help(options_class)
    try:
        print(*lines, sep="\n", flush=True)
    except BrokenPipeError:  # from `head`; Python would report it when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def _groups(options_class) -> dict[str, list[dataclasses.Field]]:
    """The options by title: required, common, the classes', those of special cases."""
    nearest = options_class.__mro__
    owners = {
        name: owner
        for owner in reversed(nearest)
        for name in owner.__dict__.get("__annotations__", {})
    }
    groups = {"Required": [], "Most used": []}
    groups |= {_title(owner): [] for owner in nearest}
    for item in sorted(
        dataclasses.fields(options_class), key=lambda f: nearest.index(owners[f.name])
    ):
        conditions = item.metadata["only_for"].items()
        needed = [pair for pair in conditions if pair[1] is not options.ABSENT]
        if options.is_required(item):
            title = "Required"
        elif item.metadata["common"]:
            title = "Most used"
        elif needed:
            title = f"Only with {options.spell(*needed[0])}"
        else:
            title = _title(owners[item.name])
        groups.setdefault(title, []).append(item)
    return {title: items for title, items in groups.items() if items}


def _title(owner):
    """What the first sentence of a class says its flags are about."""
    is_script = owner.__name__ == "Options"
    return "This script" if is_script else (owner.__doc__ or "").split(".")[0]


def _about():
    return (sys.modules["__main__"].__doc__ or "").strip().splitlines()


def _flag(item):
    default = None if options.is_required(item) else options.default_of(item)
    if default is None or default == []:
        return f"--{item.name}"
    if isinstance(default, bool):
        return f"--{item.name}" if not default else f"--no{item.name}"
    return options.words(**{item.name: default})[0]


def _full_help(options_class):
    lines = _about()
    for title, items in _groups(options_class).items():
        lines += ["", f"{title}:"]
        for item in items:
            choices = " | ".join(item.metadata["choices"] or ())
            lines.append(f"  {_flag(item)}" + (f"  ({choices})" if choices else ""))
            indent = " " * 6
            lines += textwrap.wrap(
                item.metadata["help"],
                _WIDTH,
                initial_indent=indent,
                subsequent_indent=indent,
            )
    return lines


def _short_help(options_class):
    """A line for a flag that most users set, the names of the others."""
    summary, usage, *_ = "\n".join(_about()).split("\n\n")
    lines, others = [summary, "", *usage.splitlines()], []
    groups = _groups(options_class)
    explained = {"Required", "Most used", *({} if "Most used" in groups else groups)}
    for title, items in groups.items():
        if title in explained:
            lines += ["", f"{title}:"]
            for item in items:
                sentence = re.split(r"(?<=[.;]) ", item.metadata["help"])[0]
                line = f"  {_flag(item):26} {sentence.rstrip(';.')}"
                lines += textwrap.wrap(
                    line, _WIDTH, subsequent_indent=" " * 29, max_lines=2
                )
        else:
            flags_of = " ".join(f"--{item.name}" for item in items)
            others += textwrap.wrap(
                f"{title}: {flags_of}",
                _WIDTH,
                initial_indent="  ",
                subsequent_indent="      ",
                break_on_hyphens=False,
            )
    more = ["", "More flags:", *others] if others else []
    return [*lines, *more, "", "--helpfull explains every flag in full."]


@functools.cache
def parse(options_class):
    """Reads the command line and checks the flags and their combinations.

    It does so once: called again, it returns the same options. A script whose imports
    take long calls it before them, so that --help and mistakes are answered at once.

    Ends the program after --help, with --only_check_args, and on mistakes; see `run`.
    """
    gc.freeze()  # else the end of the program looks through all that has been loaded
    if _HELP & set(sys.argv[1:]):
        _print_help(options_class, in_full="--helpfull" in sys.argv)
    # Scripts run on TensorFlow; checks of flags may already load Keras, which reads it.
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    os.environ["KERAS_BACKEND"] = "tensorflow"
    define(options_class)
    try:
        with _one_line_errors(options_class):
            parsed = read(options_class, sys.argv)
            if not flags.FLAGS.only_check_args:
                parsed.set_environment()
    except flags.Error as error:
        line = " ".join(str(error).split()).removeprefix("flag ")
        _fail(2, f"{line} (see {_program()} --help)")
    if flags.FLAGS.only_check_args:
        print(f"{_program()}: the flags are valid")
        sys.exit(0)
    if backend != "tensorflow":
        print(
            f"note: KERAS_BACKEND={backend} has no effect here; scripts always run on "
            "TensorFlow",
            file=sys.stderr,
        )
    return parsed


def run(main, options_class) -> None:
    """Parses the command line and calls `main(options)`; never returns.

    Errors that a user can fix (a wrong flag, `UserError`, an operating system error) end in
    one line on stderr and exit status 1 (2 for the command line itself); Ctrl-C exits with
    130. Any other exception is our bug and keeps its traceback.
    """
    parsed = parse(options_class)
    # What has been loaded stays. Looking through all of TensorFlow for garbage, again and
    # again, takes a fourteenth of a short run.
    gc.freeze()
    sys.stdout.reconfigure(errors="surrogateescape")  # names may be any bytes

    def call(argv):
        # absl prints what libraries tell programmers, such as each address they ask.
        logging.getLogger().setLevel(logging.WARNING)
        with _one_line_errors(options_class):
            sys.exit(main(parsed))

    app.run(call, flags_parser=lambda argv: argv[:1])


def _check_output_dir(parsed):
    path = getattr(parsed, "output_dir", None)
    if path == "":
        raise UserError("--output_dir=: is empty; name a folder")
    if path and not _is_utf8(path):
        raise _not_utf8(f"--output_dir={path}")
    if path and os.path.lexists(path) and not os.path.isdir(path):
        raise UserError(f"--output_dir={path}: is not a folder; name one")


def _is_utf8(path):
    # Python represents other bytes of a name by surrogates, which TensorFlow refuses.
    return not re.search("[\udc80-\udcff]", path)


def _name_in(text, options_class, flag_values=flags.FLAGS):
    """The name of a file in a text that cannot be encoded, with its flag; None if none."""
    for item in dataclasses.fields(options_class):
        value = flag_values[item.name].value
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, str) and not _is_utf8(path) and path in text:
                return f"--{item.name}={path}"
    return text if not _is_utf8(text) and os.path.lexists(text) else None


def _not_utf8(path):
    return UserError(f"{path}: the name is not valid UTF-8; rename it")


@contextlib.contextmanager
def _one_line_errors(options_class):
    """Ends the program on what a user can fix."""
    try:
        yield
    except UserError as error:
        _fail(1, f"error: {error}")
    except OSError as error:
        where = ""
        if error.filename:
            where = f"{_flag_of(error.filename, options_class)}{error.filename}: "
        _fail(1, f"error: {where}{error.strerror or error}")
    except UnicodeEncodeError as error:
        if not (path := _name_in(error.object, options_class)):
            raise
        _fail(1, f"error: {_not_utf8(path)}")
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        _fail(1, f"error: {_OUT_OF_MEMORY}{reason}")
    except Exception as error:
        if type(error).__name__ != "ResourceExhaustedError":  # TensorFlow's
            raise
        match = re.search(r"OOM [^;\[\n]*(\[[\d,]*\])?", str(error))
        reason = f" ({match[0]})" if match else ""  # without TensorFlow's stack
        _fail(1, f"error: {_OUT_OF_MEMORY}{reason}")
    except KeyboardInterrupt as interrupt:
        _fail(130, str(interrupt) or "interrupted")


def _program():
    spec = sys.modules["__main__"].__spec__
    if spec and spec.origin == sys.argv[0]:
        return f"python -m {spec.name}"
    return os.path.basename(sys.argv[0])


def _fail(status, message):
    if len(message) > _LONGEST:  # its beginning says where, its end what to do
        message = f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 4 :]}"
    # One line, even if a name in the message contains a line feed.
    message = _CONTROL.sub(lambda match: repr(match[0])[1:-1], message)
    print(f"{_program()}: {message}", file=sys.stderr)
    sys.exit(status)
