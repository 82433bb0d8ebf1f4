"""Collects English prose found on every machine: its Python packages' documentation.

    python recipes/collect_documentation.py --output_file=train.txt \\
        --held_out_file=held_out.txt

It writes the docstrings of the standard library and of the packages that this project
requires, one sentence per line, with an empty line between modules, in the format that
create_pretraining_data.py reads. It imports and downloads nothing.

With --package_dir, it also writes a fine-tuning task in files that run_classifier.py reads:
which package does a sentence come from? The dev set comes from the held-out modules.
"""

import collections
import dataclasses
import hashlib
import os
import sys

if __name__ == "__main__":
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import command_line
import options
from errors import UserError
from files import local, protected
from recipes import documentation
from text.progress import Progress

_FEWEST_SENTENCES = 2  # per module; a pair needs two
_FEWEST_WORDS = 6  # for a sentence that might reveal its package


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    output_file: str = options.field(help="The text file to write.")
    held_out_file: str | None = options.field(
        None, help="Text file for the modules held out for evaluation."
    )
    held_out_every: int = options.field(
        20, help="Hold out one in this many modules, chosen by name.", at_least=2
    )
    max_modules: int = options.field(
        0, help="Use at most this many modules, evenly spaced; 0 uses all.", at_least=0
    )
    package_dir: str | None = options.field(
        None,
        help="Folder for train.tsv and dev.tsv: sentences with their packages.",
        only_for={"held_out_file": options.GIVEN},  # has the dev set
    )
    package_sentences: int = options.field(
        120, help="Sentences per package in train.tsv.", at_least=1
    )
    package_dev_sentences: int = options.field(
        100, help="Sentences per package in dev.tsv.", at_least=1
    )

    def __post_init__(self):
        super().__post_init__()
        if self.held_out_file and (
            os.path.realpath(self.held_out_file) == os.path.realpath(self.output_file)
        ):
            raise UserError(
                f"{self.output_file}: --output_file and --held_out_file must differ"
            )


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training.storage.folder import Folder


def main(flags: Options) -> None:
    files = documentation.source_files()
    outputs = filter(None, (flags.output_file, flags.held_out_file))
    protected.refuse(outputs, [path for _, path in files])
    if 0 < flags.max_modules < len(files):
        step = len(files) / flags.max_modules
        files = [files[int(i * step)] for i in range(flags.max_modules)]
    modules = {True: [], False: []}  # by whether they are held out
    seen = set()
    with Progress("collecting documentation", len(files), "files") as progress:
        for package, path in files:
            sentences = []
            for text in documentation.strings(path):
                # Aliases and wrappers repeat the docstrings of their originals.
                digest = _digest(text)
                if digest not in seen:
                    seen.add(digest)
                    sentences += documentation.sentences(text)
            if len(sentences) >= _FEWEST_SENTENCES:
                name = f"{package}/{path.rpartition(package)[2]}".encode()
                number = int.from_bytes(hashlib.blake2b(name).digest()[:8])
                is_held_out = bool(flags.held_out_file) and (
                    number % flags.held_out_every == 0
                )
                modules[is_held_out].append((package, sentences))
            progress.advance(1)
    packages = _choose_packages(flags, modules) if flags.package_dir else {}
    if packages:
        _write_packages(Folder.open(flags.package_dir), packages)
    _write(flags.output_file, modules[False])
    if flags.held_out_file:
        _write(flags.held_out_file, modules[True])


def _write(path, modules):
    with local.replacing(path, "w") as file:
        for _, sentences in modules:
            file.write("\n".join(sentences) + "\n\n")
    total = sum(len(sentences) for _, sentences in modules)
    print(f"{path}: {len(modules):,} modules, {total:,} sentences")


def _choose_packages(flags: Options, modules):
    """By set, equally many sentences of each package that has enough for both sets."""
    # A sentence of two modules could be in both sets, or belong to two packages.
    everywhere = collections.Counter(
        sentence
        for some in modules.values()
        for _, sentences in some
        for sentence in set(sentences)
    )
    sets = {}
    for name, is_held_out, number in (
        ("train", False, flags.package_sentences),
        ("dev", True, flags.package_dev_sentences),
    ):
        pools = collections.defaultdict(dict)
        for package, sentences in modules[is_held_out]:
            for sentence in sentences:
                fits = len(sentence.split()) >= _FEWEST_WORDS and "\t" not in sentence
                if fits and everywhere[sentence] == 1:
                    pools[package][sentence] = None
        # By digest: the same choice every time, and no runs from one module.
        sets[name] = {
            package: sorted(pool, key=_digest)[:number]
            for package, pool in pools.items()
            if len(pool) >= number
        }
    packages = sorted(sets["train"].keys() & sets["dev"])
    if len(packages) < 2:
        raise UserError(
            f"{len(packages)} packages have {flags.package_sentences} sentences, and "
            f"{flags.package_dev_sentences} in held-out modules; at least 2 are needed; "
            "use more modules"
        )
    return {
        name: {package: chosen[package] for package in packages}
        for name, chosen in sets.items()
    }


def _write_packages(folder, sets):
    files = {}
    for name, chosen in sets.items():
        lines = ["text\tlabel"]
        for package, sentences in chosen.items():
            lines += (f"{text}\t{package}" for text in sentences)
        files[f"{name}.tsv"] = "".join(f"{line}\n" for line in lines)
    for path, chosen in zip(folder.write_files(files), sets.values(), strict=True):
        print(f"{path}: sentences of {len(chosen)} packages: {', '.join(chosen)}")


def _digest(text):
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


if __name__ == "__main__":
    command_line.run(main, Options)
