"""Writes the text of a dump's articles, one sentence per line, as generation reads it.

python -m benchmarks.wiki_text --dump=/tmp/dump.xml --output_file=/tmp/text.txt
"""

import dataclasses
import itertools
from collections.abc import Sequence

import command_line
import options
from files import local, sources
from text.corpus import formats
from text.corpus.formats import TextOptions
from text.corpus.text_format import FileSpan
from text.generation import work


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    dump: str = options.field(help="The dump.")
    output_file: str = options.field(help="The text.")
    num_workers: int = options.field(1, help="Processes that read.", at_least=1)


def text_of(piece: Sequence[FileSpan]) -> bytes:
    """Its sentences, each on a line, and an empty line after each article."""
    reading = TextOptions(input_format="wikipedia")
    sentences = itertools.chain.from_iterable(
        formats.read(span, reading) for span in piece
    )
    return "".join(f"{sentence or ''}\n" for sentence in sentences).encode()


def main(chosen: Options) -> None:
    files = [(chosen.dump, sources.status(chosen.dump))]
    pieces = formats.pieces(files, "wikipedia", sources.size(chosen.dump))
    tasks = ((piece,) for piece in pieces)
    with (
        work.Workers(chosen.num_workers) as workers,
        local.replacing(chosen.output_file) as file,
    ):
        for text in workers.results(text_of, tasks):
            file.write(text)


if __name__ == "__main__":
    command_line.run(main, Options)
