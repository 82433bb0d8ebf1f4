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
import math
import os
import re
import sys
import types
import typing

from absl import app, flags

from errors import UserError

MOST_ROWS = 1 << 20  # in a batch; TensorFlow makes room for all of them at once
MOST_TOKENS = 1 << 17  # in a row; attention compares each with each
_OUT_OF_MEMORY = "not enough memory; lower the sizes and batch sizes"
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127  # of 32 bits, in which models compute
_REQUIRED = dataclasses.MISSING
# Characters that end a line or move a terminal's cursor.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def field(
    default=_REQUIRED,
    *,
    help: str,
    choices: tuple[str, ...] | None = None,
    most: float | None = None,
    may_be_infinite: bool = False,
):
    """Declares one option; without a default, the flag is required and may not be empty.

    Args:
        default: the value if the flag is absent.
        help: the text shown by --help.
        choices: the allowed values of a string flag.
        most: the largest value of a number, or of each in a list, that makes sense. The
            smallest, and what depends on other flags, is checked by the class.
        may_be_infinite: whether a float flag takes inf and -inf; none takes nan.
    """
    bounds = {"most": most, "may_be_infinite": may_be_infinite}
    metadata = {"help": help, "choices": choices, "bounds": bounds}
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
    """Parses a finite number: an int of 64 bits, or a float within the range of 32."""

    def __init__(self, number_type, most=None, may_be_infinite=False):
        self._type = number_type
        self._most = most
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
        if self._most is not None and number > self._most:
            raise ValueError(f"must be at most {self._most:,}")
        return number

    def flag_type(self):
        return self._type.__name__


class _Numbers(flags.ArgumentParser):
    """Parses a comma-separated list of numbers."""

    def __init__(self, number_type, **bounds):
        self._type = number_type
        self._number = _Number(number_type, **bounds)
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
            flag_values[item.name].parser = _Switch()
        elif value_type in (int, float):
            parser = _Number(value_type, **item.metadata["bounds"])
            flags.DEFINE(parser, **common)
        elif value_type is str:
            flags.DEFINE_string(**common)
        elif value_type == list[str]:
            flags.DEFINE(_Texts(), serializer=flags.CsvListSerializer(","), **common)
        elif value_type in (list[int], list[float]):
            (number_type,) = typing.get_args(value_type)
            parser = _Numbers(number_type, **item.metadata["bounds"])
            flags.DEFINE(parser, serializer=flags.CsvListSerializer(","), **common)
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


def _required_but(values, options_class, flag_values=flags.FLAGS):
    """The required flags that have one of some values."""
    return [
        f"--{item.name}"
        for item in dataclasses.fields(options_class)
        if _is_required(item) and flag_values[item.name].value in values
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
    sys.stdout.reconfigure(errors="surrogateescape")  # names may be any bytes

    def call(argv):
        with _one_line_errors(options_class):
            sys.exit(main(given))

    app.run(call, flags_parser=lambda argv: argv[:1])


def _check_output_dir(given):
    path = getattr(given, "output_dir", None)
    if path == "":
        raise UserError("--output_dir=: is empty; name a folder")
    if path and not _is_utf8(path):
        raise _not_utf8(f"--output_dir={path}")
    if path and os.path.exists(path) and not os.path.isdir(path):
        raise UserError(f"--output_dir={path}: is a file; name a folder")


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
    if unexpected := arguments[1:]:  # flags after it were not read
        _refuse(unexpected[0], sys.argv[-len(unexpected) - 1])
    if missing := _required_but([None], options_class):
        _fail(2, f"{', '.join(missing)} required (see {program} --help)")
    if empty := _required_but(["", []], options_class):
        _fail(2, f"{empty[0]}= is empty (see {program} --help)")


def _refuse(argument, before):
    """Refuses what is not a flag, after another argument."""
    name = before.lstrip("-")
    hint = "every option is a --flag"
    is_switch = name in flags.FLAGS and flags.FLAGS[name].boolean
    if is_switch and argument.lower() in ("true", "false", "1", "0"):
        short = name if argument.lower() in ("true", "1") else f"no{name}"
        hint = f"write --{short} or --{name}={argument}"
    _fail(2, f"unexpected argument {argument!r}; {hint}")


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
        _fail(1, f"error: {_OUT_OF_MEMORY} ({error or 'no more'})")
    except Exception as error:
        if type(error).__name__ != "ResourceExhaustedError":  # TensorFlow's
            raise
        _fail(1, f"error: {_OUT_OF_MEMORY} ({str(error).partition('; ')[0]})")
    except KeyboardInterrupt as interrupt:
        _fail(130, str(interrupt) or "interrupted")


def _program():
    return os.path.basename(sys.argv[0])


def _fail(status, message):
    # One line, even if a name in the message contains a line feed.
    message = _CONTROL.sub(lambda found: repr(found[0])[1:-1], message)
    print(f"{_program()}: {message}", file=sys.stderr)
    sys.exit(status)
