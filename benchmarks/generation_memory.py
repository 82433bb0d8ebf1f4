"""Measures create_pretraining_data.py's peak memory for a text and ten times as much.

python -m benchmarks.generation_memory --vocab_file=vocab/vocab.txt [--input_file='*.txt']
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import command_line
import options
from benchmarks.generation import TextOptions

_SCRIPT = pathlib.Path(__file__).parent.parent / "create_pretraining_data.py"


@dataclasses.dataclass(frozen=True)
class Options(TextOptions):
    dupe_factor: int = options.field(1, help="Passes over the text.")
    times: int = options.field(
        10, help="How many times as much text to compare with it."
    )


def run(chosen: Options, texts: tuple, folder: str, copies: int, num_workers: int):
    """Runs the script; returns its instances and the peak of its largest process in MB.

    Args:
        texts: their paths and format.
    """
    paths, input_format = texts
    links = os.path.join(folder, f"texts-{copies}")
    os.makedirs(links, exist_ok=True)
    for number, path in enumerate(paths * copies):
        link = os.path.join(links, f"{number:06d}.txt")
        if not os.path.exists(link):
            os.symlink(os.path.abspath(path), link)
    records = os.path.join(folder, "records")
    process = subprocess.Popen(
        [
            sys.executable,
            str(_SCRIPT),
            f"--input_file={links}/*.txt",
            f"--input_format={input_format}",
            f"--vocab_file={chosen.vocab_file}",
            f"--output_file={records}",
            f"--dupe_factor={chosen.dupe_factor}",
            f"--num_workers={num_workers}",
        ],
        stdout=subprocess.DEVNULL,
    )
    # ru_maxrss is the maximum over the process and those that it has waited for.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    with open(f"{records}.description.json", encoding="utf-8") as file:
        instances = json.load(file)["instances"]
    for path in (records, f"{records}.description.json"):
        os.remove(path)
    return instances, usage.ru_maxrss / 1000


def main(chosen: Options) -> None:
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        texts = chosen.texts(folder)
        for num_workers in (1, 2):
            peaks = []
            for copies in (1, chosen.times):
                instances, peak = run(chosen, texts, folder, copies, num_workers)
                peaks.append(peak)
                lines.append(
                    f"{num_workers:9}{copies:7}{instances:13,}{peak:10.0f}"
                    f"{peak / peaks[0]:12.2f}"
                )
    print("Peak memory of the largest process\n")
    print("processes  text x   instances        MB   against x 1")
    print("\n".join(lines))


if __name__ == "__main__":
    command_line.run(main, Options)
