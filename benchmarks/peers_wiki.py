"""Measures reading a wiki's dump side by side with WikiExtractor and mwparserfromhell.

    python -m benchmarks.peers_wiki --peers_python=peers/bin/python --dump=/tmp/dump.xml

The environment of --peers_python needs the packages wikiextractor and mwparserfromhell. A
plain dump, because WikiExtractor unpacks in one process. Every turn is a whole command that
writes the text of the articles to a file: ours splits it into sentences, too, and theirs do
not; WikiExtractor leaves templates out, as ours does; for mwparserfromhell see
`peers_wiki_theirs.py`. Commands are bound to --num_cores cores, and have as many processes
that parse.
"""

import dataclasses
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import command_line
import options
from benchmarks import turns
from files import sources


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    dump: str = options.field(help="The dump, NAME.xml.")
    peers_python: str = options.field(
        help="Python with wikiextractor and mwparserfromhell."
    )
    num_cores: list[int] = options.field([1, 2], help="Cores, one table for each.")
    rounds: int = options.field(3, help="Commands of each; medians are printed.")
    json_file: str | None = options.field(None, help="Also writes all figures there.")


def _systems(flags: Options, num_cores: int, folder: str) -> dict[str, turns.Command]:
    written = f"{folder}/text"
    bound = ["taskset", "--cpu-list", f"0-{num_cores - 1}"]
    commands = {
        "ours": [
            *(sys.executable, "-m", "benchmarks.wiki_text", f"--dump={flags.dump}"),
            *(f"--output_file={written}", f"--num_workers={num_cores}"),
        ],
        "WikiExtractor": [
            *(flags.peers_python, "-m", "wikiextractor.WikiExtractor", flags.dump),
            *("--no-templates", "--quiet", f"--processes={num_cores}"),
            f"--output={written}",
        ],
        "mwparserfromhell": [
            *(flags.peers_python, "-m", "benchmarks.peers_wiki_theirs"),
            *(flags.dump, written, str(num_cores)),
        ],
    }

    def size_written(_):
        path = pathlib.Path(written)
        files = path.rglob("*") if path.is_dir() else [path]
        size = sum(os.path.getsize(file) for file in files if file.is_file())
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return {"written": size}

    return {
        name: turns.Command([*bound, *command], size_written)
        for name, command in commands.items()
    }


def main(flags: Options) -> None:
    """Prints a table for each number of cores."""
    megabytes = sources.size(flags.dump) / 1e6
    columns = {
        "MB/s": lambda some: format(
            megabytes / statistics.median(turn["seconds"] for turn in some), ".2f"
        ),
        "MB written": lambda some: format(some[0]["written"] / 1e6, ".1f"),
    }
    every = {}
    for num_cores in flags.num_cores:
        with tempfile.TemporaryDirectory() as folder:
            systems = _systems(flags, num_cores, folder)
            figures = turns.take(systems, flags.rounds)
        print(f"{megabytes:.0f} MB of XML, {num_cores} core(s)")
        print(turns.table(figures, columns))
        every |= {
            f"{name}, {num_cores} core(s)": some for name, some in figures.items()
        }
    turns.write(flags.json_file, dataclasses.asdict(flags), every)


if __name__ == "__main__":
    command_line.run(main, Options)
