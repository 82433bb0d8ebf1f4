"""English prose that every machine has: the documentation of its Python packages.

    python collect_documentation.py --output_file=train.txt --held_out_file=held_out.txt

Writes the documentation strings of the standard library and of the packages that this
project requires, a sentence a line and an empty line between modules, as
create_pretraining_data.py reads them. Nothing is imported and nothing fetched.
"""

import dataclasses
import hashlib

import options
from text import documentation
from text.errors import UserError
from text.files import replacing
from text.progress import Progress

_FEWEST_SENTENCES = 2  # of a module; a pair needs as many


@dataclasses.dataclass(frozen=True)
class Options:
    output_file: str = options.field(help="Text file to write.")
    held_out_file: str | None = options.field(
        None, help="Text file for the modules that are kept for evaluation."
    )
    held_out_every: int = options.field(
        20, help="Keep one of so many modules for evaluation, chosen by name."
    )
    max_modules: int = options.field(
        0, help="Take no more than so many modules, evenly spread; 0: all."
    )

    def __post_init__(self):
        if self.held_out_every < 2:
            raise UserError(
                f"--held_out_every={self.held_out_every}: must be at least 2"
            )
        if self.max_modules < 0:
            raise UserError(f"--max_modules={self.max_modules}: must not be negative")
        if self.held_out_file == self.output_file:
            raise UserError(f"{self.output_file}: named for both output files")


def main(given: Options) -> None:
    files = documentation.source_files()
    if 0 < given.max_modules < len(files):
        step = len(files) / given.max_modules
        files = [files[int(i * step)] for i in range(given.max_modules)]
    modules = {True: [], False: []}  # by whether they are held out
    seen = set()
    with Progress("collecting documentation", len(files), "files") as progress:
        for package, path in files:
            sentences = []
            for text in documentation.strings(path):
                # Aliases and wrappers repeat what they stand for.
                digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
                if digest not in seen:
                    seen.add(digest)
                    sentences += documentation.sentences(text)
            if len(sentences) >= _FEWEST_SENTENCES:
                name = f"{package}/{path.rpartition(package)[2]}".encode()
                number = int.from_bytes(hashlib.blake2b(name).digest()[:8])
                is_held_out = bool(given.held_out_file) and (
                    number % given.held_out_every == 0
                )
                modules[is_held_out].append(sentences)
            progress.advance(1)
    _write(given.output_file, modules[False])
    if given.held_out_file:
        _write(given.held_out_file, modules[True])


def _write(path, modules):
    with replacing(path, "w") as file:
        for sentences in modules:
            file.write("\n".join(sentences) + "\n\n")
    total = sum(map(len, modules))
    print(f"{path}: {len(modules):,} modules, {total:,} sentences")


if __name__ == "__main__":
    options.run(main, Options)
