"""Measures create_pretraining_data.py's speed by stage, with one process and with two.

python -m benchmarks.generation --vocab_file=vocab/vocab.txt [--input_file='*.txt']
"""

import dataclasses
import os
import resource
import statistics
import tempfile
import time

import command_line
import options
from files import inputs
from recipes import documentation
from text.corpus import formats
from text.generation import work
from text.generation.generate import generate
from text.generation.settings import Settings

_STAGES = ("1/3 tokenizing", "2/3 planning", "3/3 writing")


@dataclasses.dataclass(frozen=True)
class TextOptions(options.Group):
    """Text and vocabulary."""

    vocab_file: str = options.field("vocab/vocab.txt", help="The vocabulary.")
    input_file: list[str] = options.field(
        [],
        help="Text files; by default, the documentation strings of installed packages.",
    )
    input_format: str = options.field(
        "files", choices=formats.FORMATS, help="As for create_pretraining_data.py."
    )

    def texts(self, folder: str) -> tuple[list[str], str]:
        """Paths of the text and its format; the default is written into the folder."""
        if self.input_file:
            return inputs.expand(self.input_file), self.input_format
        return [_write_documentation(folder)], "sentences"


@dataclasses.dataclass(frozen=True)
class Options(TextOptions):
    dupe_factor: list[str] = options.field(
        ["1", "5", "10"], help="Passes over the text; one row for each."
    )
    max_seq_length: int = options.field(128, help="Tokens per record.")
    max_predictions_per_seq: int = options.field(20, help="Predictions per record.")
    repeats: int = options.field(
        3, help="How often to time each, in turns; medians are printed."
    )


def _write_documentation(folder: str) -> str:
    """Writes the documentation of installed packages, one sentence per line."""
    path = os.path.join(folder, "documentation.txt")
    with open(path, "w", encoding="utf-8") as file:
        for _, source in documentation.source_files():
            for text in documentation.strings(source):
                lines = documentation.sentences(text)
                file.writelines(f"{line}\n" for line in lines)
            file.write("\n")
    return path


class Timed(work.Workers):
    """Workers that note how long each stage took."""

    seconds: dict[str, float] = {}

    def do_all(self, tasks, total, what, unit, scale=1.0):
        begun = time.monotonic()
        outcomes = super().do_all(tasks, total, what, unit, scale)
        self.seconds[what] = time.monotonic() - begun
        return outcomes


def cpu_seconds() -> float:
    """User and system time of this process and of those that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run(settings: Settings, num_workers: int) -> tuple[dict, dict]:
    """Generates once; returns the counts, and seconds by stage with `all` and `cpu`."""
    cpu, begun = cpu_seconds(), time.monotonic()
    description, _ = generate(settings, num_workers, overwrite=True)
    seconds = dict(Timed.seconds)
    seconds |= {"all": time.monotonic() - begun, "cpu": cpu_seconds() - cpu}
    for path in (*settings.output_files, settings.description_file):
        os.remove(path)
    return description.counts, seconds


def measure(chosen: Options, texts: tuple, folder: str, dupe_factor: int):
    """Returns counts, and the median of each figure for one process and for two.

    Args:
        texts: their paths and format.
    """
    paths, input_format = texts
    settings = Settings(
        input_files=tuple(paths),
        output_files=(os.path.join(folder, "records"),),
        vocab_file=chosen.vocab_file,
        input_format=input_format,
        json_field="text",
        do_lower_case=True,
        strip_accents=True,
        split_cjk=True,
        do_whole_word_mask=False,
        word_boundaries="pieces",
        max_seq_length=chosen.max_seq_length,
        max_predictions_per_seq=chosen.max_predictions_per_seq,
        random_seed=12345,
        dupe_factor=dupe_factor,
        masked_lm_prob=0.15,
        short_seq_prob=0.1,
        mask_share=0.8,
        random_share=0.1,
        random_next_sentences=True,
        gzip_compress=False,
    )
    rows = {1: [], 2: []}
    for _ in range(chosen.repeats):
        for num_workers, row in rows.items():
            counts, seconds = run(settings, num_workers)
            row.append(seconds)
    megabytes = sum(map(os.path.getsize, settings.input_files)) / 1e6
    medians = {
        num_workers: {name: statistics.median(s[name] for s in row) for name in row[0]}
        for num_workers, row in rows.items()
    }
    return counts, megabytes, medians


def main(chosen: Options) -> None:
    work.Workers = Timed
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        texts = chosen.texts(folder)
        for dupe_factor in map(int, chosen.dupe_factor):
            counts, megabytes, medians = measure(chosen, texts, folder, dupe_factor)
            for num_workers, seconds in medians.items():
                tokenizing, planning, writing = (seconds[stage] for stage in _STAGES)
                instances = counts["instances"]
                lines.append(
                    f"{dupe_factor:4}{num_workers:10}{instances:12,}"
                    f"{megabytes / tokenizing:10.1f}"
                    f"{counts['tokens'] / tokenizing / 1e6:12.2f}"
                    f"{instances / planning:14,.0f}{instances / writing:14,.0f}"
                    f"{instances / (planning + writing):14,.0f}"
                    f"{seconds['all']:9.1f}{seconds['cpu']:9.1f}"
                    f"{medians[1]['all'] / seconds['all']:9.2f}"
                )
    print(
        f"Medians of {chosen.repeats} runs, after start-up; {megabytes:.1f} MB of text,"
    )
    print(f"{counts['tokens']:,} tokens, {chosen.max_seq_length} tokens per record;")
    print("starting processes takes half a second of the first stage\n")
    print(f"{'':26}{'tokenizing':>22}{'planning':>14}{'writing':>14}{'both':>14}")
    print(
        f"dupe processes   instances      MB/s  M tokens/s"
        f"{'instances/s':>14}{'instances/s':>14}{'instances/s':>14}"
        f"{'all, s':>9}{'CPU, s':>9}{'speed-up':>9}"
    )
    print("\n".join(lines))


if __name__ == "__main__":
    command_line.run(main, Options)
