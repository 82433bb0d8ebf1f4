"""Defines command-line flags as the fields of frozen dataclasses.

A field states its type, default and help once:

    @dataclasses.dataclass(frozen=True)
    class Options:
        input_file: list[str] = options.field(help="Text files: comma-separated globs.")
        max_seq_length: int = options.field(128, help="Length of every record.")
        __post_init__ checks combinations of options and raises UserError.

    if __name__ == "__main__":
        options.run(main, Options)

Flags are defined when the script runs, not when it is imported, so tests can import
scripts and build `Options(...)` themselves.
"""

import contextlib
import dataclasses
import functools
import gc
import os
import re
import sys
import types
import typing

from absl import app, flags

from text.errors import UserError

_REQUIRED = dataclasses.MISSING
# Characters that end a line or move a terminal's cursor.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def field(default=_REQUIRED, *, help: str, choices: tuple[str, ...] | None = None):
    """Declares one option; without a default, the flag is required.

    Args:
        default: the value if the flag is absent.
        help: the text shown by --help.
        choices: the allowed values of a string flag.
    """
    metadata = {"help": help, "choices": choices}
    if isinstance(default, list):
        return dataclasses.field(
            default_factory=lambda: list(default), metadata=metadata
        )
    # Keyword-only, so that optional fields may precede required ones.
    return dataclasses.field(default=default, kw_only=True, metadata=metadata)


def _value_type(annotation):
    """`int | None` -> int; other annotations are returned unchanged."""
    if isinstance(annotation, types.UnionType):
        (annotation,) = (a for a in typing.get_args(annotation) if a is not type(None))
    return annotation


class _Number(flags.ArgumentParser):
    """Parses a number."""

    def __init__(self, number_type):
        self._type = number_type
        self.syntactic_help = {int: "a whole number", float: "a number"}[number_type]

    def parse(self, argument):
        try:
            return self._type(argument)
        except ValueError:
            raise ValueError(f"must be {self.syntactic_help}") from None

    def flag_type(self):
        return self._type.__name__


class _Numbers(flags.ArgumentParser):
    """Parses a comma-separated list of numbers."""

    def __init__(self, number_type):
        self._type = number_type
        names = {int: "whole numbers", float: "numbers"}
        self.syntactic_help = f"a comma-separated list of {names[number_type]}"

    def parse(self, argument):
        if isinstance(argument, list):  # a default
            return argument
        try:
            return [self._type(number) for number in argument.split(",")]
        except ValueError:
            raise ValueError(f"{argument!r} is not {self.syntactic_help}") from None

    def flag_type(self):
        return f"comma-separated list of {self._type.__name__}"


class _Texts(flags.ListParser):
    """Parses a comma-separated list of texts, none of them empty."""

    def parse(self, argument):
        texts = super().parse(argument)
        if "" in texts:
            raise ValueError("a name is missing before, between or after the commas")
        return texts


def words(**flags) -> list[str]:
    """Flags as a command line has them; a list is joined by commas."""
    return [f"--{name}={_word(value)}" for name, value in flags.items()]


def _word(value):
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else value


def define(options_class, flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines one absl flag for each field of a dataclass.

    Raises:
        TypeError: no flag supports a field's type.
    """
    annotations = typing.get_type_hints(options_class)
    for item in dataclasses.fields(options_class):
        default = None if _is_required(item) else default_of(item)
        value_type = _value_type(annotations[item.name])
        required = "Required. " if _is_required(item) else ""
        common = {
            "name": item.name,
            "default": default,
            "help": required + item.metadata["help"],
            "flag_values": flag_values,
            # --help lists the flags of the module that has the program's name.
            "module_name": sys.argv[0],
        }
        if item.metadata["choices"]:
            flags.DEFINE_enum(enum_values=item.metadata["choices"], **common)
        elif value_type is bool:
            flags.DEFINE_bool(**common)
        elif value_type in (int, float):
            flags.DEFINE(_Number(value_type), **common)
        elif value_type is str:
            flags.DEFINE_string(**common)
        elif value_type == list[str]:
            flags.DEFINE(_Texts(), serializer=flags.CsvListSerializer(","), **common)
        elif value_type in (list[int], list[float]):
            (number_type,) = typing.get_args(value_type)
            flags.DEFINE(
                _Numbers(number_type), serializer=flags.CsvListSerializer(","), **common
            )
        else:
            raise TypeError(f"{item.name}: no flag supports the type {value_type}")


def from_flags(options_class, flag_values: flags.FlagValues = flags.FLAGS):
    """Builds the dataclass from parsed flags."""
    return options_class(
        **{f.name: flag_values[f.name].value for f in dataclasses.fields(options_class)}
    )


def default_of(item: dataclasses.Field):
    """The value of an option whose flag is absent."""
    made = item.default_factory is not dataclasses.MISSING
    return item.default_factory() if made else item.default


def _is_required(item):
    return item.default is _REQUIRED and item.default_factory is dataclasses.MISSING


def _missing(options_class, flag_values=flags.FLAGS):
    """The required flags that were not set."""
    return [
        f"--{item.name}"
        for item in dataclasses.fields(options_class)
        if _is_required(item) and flag_values[item.name].value is None
    ]


def _flag_of(path, options_class, flag_values=flags.FLAGS):
    """`--name=` of the flag that was given a path; empty if it came from elsewhere."""
    for item in dataclasses.fields(options_class):
        value = flag_values[item.name].value
        if path == value or isinstance(value, list) and path in value:
            return f"--{item.name}="
    return ""


@functools.cache
def parse(options_class):
    """Reads the command line and checks the flags and their combinations.

    It does so once: called again, it returns the same options. A script whose imports
    take long calls it before them, so that --help and mistakes are answered at once.

    Ends the program after --help, with --only_check_args, and on mistakes; see `run`.
    """
    gc.freeze()  # else the end of the program looks through all that has been loaded
    define(options_class)
    app.define_help_flags()
    _read_command_line(options_class)
    with _one_line_errors(options_class):
        given = from_flags(options_class)
        _check_output_dir(given)
    if flags.FLAGS.only_check_args:
        print(f"{_program()}: the flags are valid")
        sys.exit(0)
    return given


def run(main, options_class) -> None:
    """Parses the command line and calls `main(options)`; never returns.

    Errors that a user can fix (a wrong flag, `UserError`, an operating system error) end in
    one line on stderr and exit status 1 (2 for the command line itself); Ctrl-C exits with
    130. Any other exception is our bug and keeps its traceback.
    """
    given = parse(options_class)
    # What has been loaded stays. Looking through all of TensorFlow for garbage, again and
    # again, takes a fourteenth of a short run.
    gc.freeze()

    def call(argv):
        with _one_line_errors(options_class):
            sys.exit(main(given))

    app.run(call, flags_parser=lambda argv: argv[:1])


def _check_output_dir(given):
    path = getattr(given, "output_dir", None)
    if path and os.path.exists(path) and not os.path.isdir(path):
        raise UserError(f"--output_dir={path}: is a file; name a folder")


def _read_command_line(options_class):
    program = _program()
    try:
        arguments = flags.FLAGS(sys.argv)
    except flags.Error as error:
        line = " ".join(str(error).split()).removeprefix("flag ")
        _fail(2, f"{line} (see {program} --help)")
    except (SystemExit, BrokenPipeError):  # --help; absl ends it with 1
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # from `head`; Python would report it when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    if missing := _missing(options_class):
        _fail(2, f"{', '.join(missing)} required (see {program} --help)")
    if len(arguments) > 1:
        _fail(2, f"unexpected argument {arguments[1]!r}; every option is a --flag")


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
    except KeyboardInterrupt as interrupt:
        _fail(130, str(interrupt) or "interrupted")


def _program():
    return os.path.basename(sys.argv[0])


def _fail(status, message):
    # One line, even if a name in the message contains a line feed.
    message = _CONTROL.sub(lambda found: repr(found[0])[1:-1], message)
    print(f"{_program()}: {message}", file=sys.stderr)
    sys.exit(status)
