"""Gives every flag of every script values that nobody should, and runs what is accepted.

python -m benchmarks.hostile_flags --minutes=30 [--scripts=predict,run_ner]

What a command may do is in tests/hostile.py. tests/test_hostile_flags.py does the same for
a small sample of the commands; this runs a random one, as long as there is time, and prints
every command that does anything else.
"""

import collections
import dataclasses
import json
import pathlib
import random
import sys
import tempfile
import time

import command_line
import options
from tests import hostile


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    minutes: float = options.field(30.0, help="Run accepted commands for so long.")
    scripts: list[str] = options.field([], help="Which scripts; by default, all.")
    jobs: int = options.field(2, help="Commands at a time.")
    seed: int = options.field(0, help="Of the sample.")
    report_file: str | None = options.field(
        None, help="Write every outcome here as JSON lines."
    )


def main(chosen: Options) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        base, cases = pathlib.Path(temporary), []
        for script in chosen.scripts or hostile.SCRIPTS:
            flags = hostile.make_files(script, base / script)
            cases += hostile.cases(script, flags)
        accepted = hostile.accepted(base, cases)
        print(f"{len(cases)} commands; {len(accepted)} are accepted", flush=True)
        run = [case for case in accepted if case.script not in hostile.ONLY_READ]
        plain = [case for case in run if not case.flag]
        random.Random(chosen.seed).shuffle(run)
        counts = collections.Counter()
        until = time.monotonic() + 60 * chosen.minutes
        for outcome in hostile.run(base, plain + run, jobs=chosen.jobs, until=until):
            counts[outcome["kind"]] += 1
            if chosen.report_file:
                with open(chosen.report_file, "a") as file:
                    file.write(json.dumps(outcome) + "\n")
            if not hostile.is_good(outcome):
                print(hostile.described(outcome), flush=True)
        print(f"{counts.total()} of them were run: {dict(counts)}")


if __name__ == "__main__":
    # Otherwise each fork would run this file again.
    sys.modules["__main__"].__spec__ = None
    del sys.modules["__main__"].__file__
    command_line.run(main, Options)
