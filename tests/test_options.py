"""Options are flags: types, defaults, what a wrong command line says."""

import dataclasses
import os
import subprocess
import sys

import pytest
from absl import flags

import command_line
import options
from errors import UserError

PROGRAM = """
import dataclasses
import logging
import command_line
import options
from errors import UserError

@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    names: list[str] = options.field(help="Names.")
    path: str = options.field(help="A path.")
    count: int = options.field(3, help="A count.")
    share: float | None = options.field(None, help="A share.")
    bound: float = options.field(0.0, help="A bound.", may_be_infinite=True)
    rates: list[float] = options.field([1.0], help="Rates.", at_most=1000)
    rows: int = options.field(1, help="Rows.", at_most=1_000_000)
    is_on: bool = options.field(True, help="A switch.")
    kind: str = options.field("a", choices=("a", "b"), help="A kind.")
    output_dir: str | None = options.field(None, help="A folder.")

def main(given):
    if given.path == "bad":
        raise UserError("bad: is bad; choose a good one")
    if given.path == "odd":
        raise UserError("a name\\nof two\\rlines: is bad")
    if given.path == "gone":
        open("/no/such/file")
    if given.path == "/gone":
        open(given.path)
    if given.path == "large":
        bytearray(2**62)
    if given.path == "full":
        raise MemoryError
    if given.path == "long":
        raise UserError("text:1: " + "x" * 10**6 + " is not a tag; fix it")
    if given.path == "larger":
        raise type("ResourceExhaustedError", (Exception,), {})("OOM for 9 GB; more\\nof it")
    if given.path == "stop":
        raise KeyboardInterrupt
    if given.path == "library":
        logging.getLogger("library").info("an address was asked")
        logging.getLogger("library").warning("a file is odd")
    if given.path == "bug":
        raise ValueError("our mistake")
    if given.path.endswith("encode"):
        given.path.encode()
    if given.path == "print":
        given = given.names[0]
    print(given)

if __name__ == "__main__":
    command_line.run(main, Options)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "job.py"
    path.write_text(PROGRAM)
    return path


def run(program, *arguments, text=True):
    result = subprocess.run(
        [sys.executable, str(program), *arguments],
        env={"PYTHONPATH": options.__file__.rpartition("/")[0]},
        capture_output=True,
        text=text,
        timeout=60,
    )
    return result.returncode, result.stdout, result.stderr


def test_flags_become_fields(program):
    status, said, _ = run(
        program, "--names=x,y", "--path=p", "--noshare", "--nois_on", "--kind=b"
    )
    assert status == 2  # only switches have a --no
    status, said, _ = run(program, "--names=x,y", "--path=p", "--nois_on", "--share=1")
    assert status == 0
    assert said == (
        "Options(names=['x', 'y'], path='p', count=3, share=1.0, bound=0.0, rates=[1.0], "
        "rows=1, is_on=False, kind='a', output_dir=None)\n"
    )


@pytest.mark.parametrize(
    "arguments, status, line",
    [
        ([], 2, "--names, --path required (see job.py --help)"),
        (["--path=p"], 2, "--names required (see job.py --help)"),
        (["--nmaes=x"], 2, "Unknown command line flag 'nmaes'. Did you mean: names ?"),
        (["--count=many"], 2, "--count=many: must be a whole number (see"),
        (["--share=half"], 2, "--share=half: must be a number (see job.py --help)"),
        (
            ["--share=nan"],
            2,
            "--share=nan: must be a finite number (see job.py --help)",
        ),
        (
            ["--share=1e39"],
            2,
            "--share=1e39: must be from -3.4e38 to 3.4e38 (see job.py",
        ),
        (["--share=-1e999"], 2, "--share=-1e999: must be a finite number (see"),
        (
            ["--bound=nan"],
            2,
            "--bound=nan: must be a finite number (see job.py --help)",
        ),
        (["--rates=1,inf"], 2, "--rates=1,inf: 'inf', one of the list, must be a"),
        ([f"--count={2**63}"], 2, f"--count={2**63}: must be from -2^63 to 2^63 - 1"),
        ([f"--count={'9' * 400}"], 2, f"--count={'9' * 400}: must be from -2^63"),
        (["--names=x", "--path=p", "--rates=1,1001"], 1, "error: --rates=1001.0:"),
        (["--names=x", "--path=p", "--rows=1000001"], 1, "error: --rows=1000001:"),
        (["--is_on=maybe"], 2, "--is_on=maybe: must be true or false (see"),
        (
            ["--is_on", "True"],
            2,
            "unexpected argument 'True'; write --is_on or --is_on=T",
        ),
        (["--is_on", "0"], 2, "unexpected argument '0'; write --nois_on or --is_on=0"),
        (["--names=", "--path=p"], 2, "--names= is empty (see job.py --help)"),
        (["--names=x", "--path="], 2, "--path= is empty (see job.py --help)"),
        (["--names=x", "--path=p", "--output_dir="], 1, "error: --output_dir=: is"),
        (["--names=x,", "--path=p"], 2, "--names=x,: a name is missing"),
        (["--names=\n", "--path=p"], 2, "--names= : a name is missing before"),
        (["--kind=c"], 2, "--kind=c: value should be one of <a|b>"),
        (["--names=x", "--path=p", "y"], 2, "unexpected argument 'y'; every option is"),
        (["--names=x", "--path=bad"], 1, "error: bad: is bad; choose a good one"),
        (["--names=x", "--path=odd"], 1, r"error: a name\nof two\rlines: is bad"),
        (["--names=x", "--path=gone"], 1, "error: /no/such/file: No such file or"),
        (["--names=x", "--path=/gone"], 1, "error: --path=/gone: No such file or dir"),
        (["--names=x", "--path=stop"], 130, "interrupted"),
        (["--names=x", "--path=large"], 1, "error: not enough memory; lower the sizes"),
        (["--names=x", "--path=full"], 1, "error: not enough memory; lower the sizes"),
        (["--names=x", "--path=long"], 1, "error: text:1: xxx"),
        (["--names=x", "--path=larger"], 1, "error: not enough memory; lower the"),
    ],
    ids=str,
)
def test_what_a_user_can_mend_is_one_line(program, arguments, status, line):
    found, said, complained = run(program, *arguments)
    assert found == status and said == ""
    assert complained.startswith(f"job.py: {line}")
    assert complained.count("\n") == 1 and "()" not in complained
    assert len(complained) < 2000


def test_a_long_message_keeps_its_remedy(program):
    _, _, complained = run(program, "--names=x", "--path=long")
    assert complained.endswith("xxx is not a tag; fix it\n") and " ... " in complained


def test_a_bound_may_be_infinite(program):
    assert "bound=-inf" in run(program, "--names=x", "--path=p", "--bound=-inf")[1]


def test_a_name_need_not_be_utf_8(program):
    """It is used as it is, or refused where TensorFlow would encode it."""
    name = os.fsencode("na\xefve".encode("latin-1"))
    status, said, _ = run(program, b"--names=" + name, "--path=print", text=False)
    assert (status, said) == (0, name + b"\n")
    for flag, arguments in {
        b"--path=": [b"--path=" + name + b"encode", "--names=x"],
        b"--output_dir=": [b"--output_dir=" + name, "--names=x", "--path=p"],
    }.items():
        status, _, complained = run(program, *arguments, text=False)
        assert status == 1 and complained.count(b"\n") == 1
        assert complained.startswith(b"job.py: error: " + flag + rb"na\udcefve")
        assert complained.endswith(b": the name is not valid UTF-8; rename it\n")


def test_an_output_dir_is_a_folder(program):
    status, _, complained = run(
        program, "--names=x", "--path=p", f"--output_dir={program}"
    )
    assert status == 1
    assert (
        complained
        == f"job.py: error: --output_dir={program}: is not a folder; name one\n"
    )
    for folder in (program.parent, program.parent / "new"):
        assert run(program, "--names=x", "--path=p", f"--output_dir={folder}")[0] == 0


def test_help_ends_quietly_if_nobody_reads_it(program):
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, str(program), "--help"],
        env={"PYTHONPATH": options.__file__.rpartition("/")[0]},
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (0, b"")


def test_of_what_libraries_say_only_warnings_are_printed(program):
    status, _, complained = run(program, "--names=x", "--path=library")
    assert status == 0
    assert "a file is odd" in complained and complained.count("\n") == 1


def test_our_own_mistakes_keep_their_traceback(program):
    status, _, complained = run(program, "--names=x", "--path=bug")
    assert status == 1
    assert "Traceback" in complained and "ValueError: our mistake" in complained


def test_help_lists_every_flag(program):
    status, said, _ = run(program, "--help")
    assert status == 0
    required, others = said.split("This script:")
    assert "--path\n      A path." in required and "--count" not in required
    for flag in ("count=3", "share", "nois_on", "kind=a  (a | b)"):
        assert f"  --{flag}\n" in others


@dataclasses.dataclass(frozen=True)
class Mutable(options.Group):
    names: list[str] = options.field(["a"], help="Names.")


def test_a_default_list_is_not_shared():
    Mutable().names.append("b")
    assert Mutable().names == ["a"]


def test_flags_are_defined_apart_from_the_global_ones():
    values = flags.FlagValues()
    command_line.define(Mutable, values)
    values(["program", "--names=x,y"])
    assert command_line.from_flags(Mutable, values).names == ["x", "y"]
    assert "names" not in flags.FLAGS


def test_a_type_that_no_flag_holds_is_our_mistake():
    @dataclasses.dataclass(frozen=True)
    class Wrong(options.Group):
        names: bytes = options.field(b"", help="No.")

    with pytest.raises(TypeError, match="names: no flag supports the type"):
        command_line.define(Wrong, flags.FlagValues())


@dataclasses.dataclass(frozen=True)
class Shared(options.Group):
    """Sharing. Of flags."""

    kind: str = options.field("a", help="A kind. More.", common=True, identity=True)
    size: int = options.field(1, help="A size.", only_for={"kind": ("b", "c")})
    rate: float | None = options.field(
        None, help="A rate.", above=0, below=1, only_for={"size": options.GIVEN}
    )
    path: str = options.field("", help="A path.", only_for={"rate": options.ABSENT})


@dataclasses.dataclass(frozen=True)
class Job(Shared):
    names: list[str] = options.field([], help="Names.", distinct=True, identity=True)
    counts: list[int] = options.field(
        [1], help="Counts.", at_least=1, at_most=2_000, identity="size"
    )


@pytest.mark.parametrize(
    "values, message",
    [
        ({"counts": [3, 0]}, "--counts=0: must be from 1 to 2,000"),
        ({"rate": 1.0}, "--rate=1.0: must be above 0 and below 1"),
        ({"rate": float("nan")}, "--rate=nan: must be a finite number"),
        ({"names": ["x", "y", "x"]}, "--names: x is repeated; list it once"),
        ({"names": ["a\0b"]}, r"--names='a\x00b': contains a NUL character"),
        ({"counts": []}, "--counts= is empty; list at least one"),
        ({"size": 2}, "--size has no effect with --kind=a; it is for --kind=b or c"),
        (
            {"rate": 0.5},
            "--rate has no effect without --size; add it, or remove --rate",
        ),
        (
            {"kind": "C", "size": 2, "rate": 0.5, "path": "p"},
            "--path has no effect with --rate; remove one of them",
        ),
    ],
)
def test_what_a_field_declares_is_checked(values, message):
    with pytest.raises(UserError) as refusal:
        Job(**values)
    assert str(refusal.value) == message


def test_what_is_declared_may_be_kept():
    assert Job(kind="C", size=2, rate=0.5, counts=[1, 2_000]).size == 2
    assert Job(size=1, path="p").rate is None  # the default of a flag is never refused


def test_what_is_declared_anew_keeps_all_but_its_default():
    @dataclasses.dataclass(frozen=True)
    class Other(Job):
        counts: list[int] = options.override(Job, "counts", [2])
        rate: float | None = options.override(Job, "rate", 0.5, help="Its own.")

    assert Other(size=2, kind="b").counts == [2]
    for values, message in [
        ({"counts": [0]}, "--counts=0: must be from 1 to 2,000"),
        ({"rate": 1.0}, "--rate=1.0: must be above 0 and below 1"),
        ({"rate": 0.1}, "--rate has no effect without --size"),
    ]:
        with pytest.raises(UserError, match=message):
            Other(**values)
    helps = {f.name: f.metadata["help"] for f in dataclasses.fields(Other)}
    assert (helps["counts"], helps["rate"]) == ("Counts.", "Its own.")


def test_a_run_is_identified_by_what_says_so():
    assert options.identity(Job(names=["x"])) == {"kind": "a", "names": ["x"]}
    assert options.identity(Job(path="p")) == options.identity(Job())
    sized = Job(kind="b", size=2)
    assert options.identity(sized) == {"kind": "b", "names": [], "counts": [1]}


def test_options_that_nothing_would_check_are_our_mistake():
    @dataclasses.dataclass(frozen=True)
    class Unchecked:
        count: int = options.field(0, help="A count.", at_least=0)

    with pytest.raises(TypeError, match="Unchecked: must be an options.Group"):
        command_line.define(Unchecked, flags.FlagValues())
