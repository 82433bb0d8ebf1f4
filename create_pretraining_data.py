"""Turns text into TFRecord files for pre-training.

    python create_pretraining_data.py --input_file='corpus/*.txt' \\
        --output_file='records/part.tfrecord@16' --vocab_file=vocab/vocab.txt

The text is tokenized once, in pieces. Then all --dupe_factor passes over it are planned,
and the records are written in random order. Memory use does not grow with the text. If a
run is interrupted, the same command continues it and produces the same bytes.
"""

import collections
import dataclasses
import importlib.util
import logging
import os
import re

import command_line
import options
from errors import UserError, count
from files import inputs, sources
from text.corpus import formats
from text.corpus.formats import FORMATS
from text.generation import estimation
from text.generation.generate import generate
from text.generation.settings import GenerationOptions, Settings
from text.inspection.table import make_inspector
from text.instances.masking import prediction_counts
from text.tokenizers.table import DECOMPOSITION_WARNING, OpenVocabulary

_MOST_FILES = 99_999  # or commands; the numbers have five digits


@dataclasses.dataclass(frozen=True)
class Options(GenerationOptions):
    """The flags of the records, and those of the script itself."""

    input_file: list[str] = options.field(
        help=f"Text files, UTF-8, {inputs.PACKED}: comma-separated names and globs."
    )
    output_file: list[str] = options.field(
        help="TFRecord files to write, comma-separated. NAME@16 means sixteen files "
        "NAME-00000-of-00016 and so on. The description is written next to the first "
        "file, with the suffix .description.json; run_pretraining.py checks its flags "
        "against it."
    )
    keep_share: float = options.field(
        0.1,
        help="Share of the predicted tokens that stay unchanged.",
        at_least=0,
        at_most=1,
    )
    num_workers: int = options.field(
        0,
        help="Number of processes; 0 uses one per core. The records do not depend on it.",
        only_for={"runner": options.ABSENT},
        at_least=0,
        at_most=4096,
    )
    num_shards: int = options.field(
        1,
        help="Number of commands, such as the tasks of a job array, that write these "
        "records together, all with the same other flags and at the same time. The "
        "records do not depend on it.",
        only_for={"runner": options.ABSENT},
        at_least=1,
        at_most=_MOST_FILES,
    )
    shard_index: int = options.field(
        0,
        help="Which of the --num_shards commands this is; the first is 0.",
        at_least=0,
    )
    overwrite: bool = options.field(
        False, help="Replace output files made from other flags or text."
    )
    dry_run: bool = options.field(
        False,
        help="Only read a sample of the text, say what the records will be and what "
        "writing them takes, and write nothing.",
        only_for={"runner": options.ABSENT},
    )
    runner: str = options.field(
        "",
        help="Write the records as an Apache Beam pipeline on this runner, such as "
        "DirectRunner, DataflowRunner, FlinkRunner or SparkRunner. They do not depend on "
        "the runner, but are not those of a command without one. Input and output may be "
        "on any file system that Beam reaches.",
    )
    beam_options: str = options.field(
        "",
        help="Beam's own flags, in quotes; --beam_options='--project=P --region=R'.",
        only_for={"runner": options.GIVEN},
    )

    def __post_init__(self):
        super().__post_init__()
        if self.shard_index >= self.num_shards:
            raise UserError(
                f"--shard_index={self.shard_index}: must be from 0 to "
                f"{self.num_shards - 1}, below --num_shards"
            )
        if self.runner and self.make().rows_per_batch:
            raise UserError(
                f"--instances={self.instances} is not for --runner, which writes records "
                "in no order"
            )
        if self.runner and self.deduplicate:
            raise UserError(
                "--deduplicate is not for --runner, whose workers share no disk; leave one "
                "of them out"
            )
        total = self.mask_share + self.keep_share + self.random_share
        if abs(total - 1) > 1e-6:
            raise UserError(
                f"--mask_share, --keep_share and --random_share add up to {total:g}; they "
                "must add up to 1"
            )


_MUCH_UNKNOWN = 0.05
# What follows the "@" of a number of files, or is meant as one.
_NUMBER = re.compile(r"[+-]?(\d[\d._]*(e[+-]?\d+)?)?", re.I)


def main(flags: Options) -> None:
    vocabulary = OpenVocabulary.open(flags.vocab_file)
    flags = flags.fill_in(vocabulary)
    names = [field.name for field in dataclasses.fields(GenerationOptions)]
    values = {name: getattr(flags, name) for name in names}
    values |= vocabulary.resolve(flags)
    pipeline = _pipeline(flags) if flags.runner else None
    settings = Settings(
        input_files=tuple(formats.expand(flags.input_file, flags.input_format)),
        output_files=_output_files(flags.output_file, pipeline is not None),
        **values,
    )
    _warn_of_lost_predictions(flags)
    num_workers = flags.num_workers or os.cpu_count() or 1
    if flags.dry_run:
        needs = estimation.estimate(settings, num_workers, flags.num_shards)
        print(*needs.lines(), sep="\n")
        return
    if pipeline:
        description, was_there = pipeline.generate(
            settings, flags.input_file, flags.overwrite
        )
    else:
        description, was_there = generate(
            settings,
            num_workers,
            flags.overwrite,
            (flags.shard_index, flags.num_shards),
        )
    if flags.shard_index:
        _say(
            f"Shard {flags.shard_index} of {flags.num_shards}: the records are finished"
        )
        return
    if was_there:
        _say("Already finished: this command's records exist.")
    _report(description, settings, vocabulary.vocabulary)


def _pipeline(flags: Options):
    if not importlib.util.find_spec("apache_beam"):
        raise UserError(
            f"--runner={flags.runner}: Apache Beam is not installed; run "
            "pip install -r requirements/beam.txt"
        )
    logging.disable(logging.WARNING)  # of Beam, about parts of it that are not used
    from text.generation.beam import Pipeline

    logging.disable(logging.NOTSET)
    return Pipeline(flags.runner, flags.beam_options)


def _output_files(patterns, may_be_remote):
    files = []
    for pattern in patterns:
        name, at, count = pattern.rpartition("@")
        if at and _NUMBER.fullmatch(count):
            total = int(count) if count.isascii() and count.isdecimal() else 0
            is_counted = name and not name.endswith("@")
            if not is_counted or not 1 <= total <= _MOST_FILES:
                raise UserError(
                    f"--output_file={pattern}: must name from 1 to {_MOST_FILES:,} files, "
                    "as in NAME@16"
                )
            files += [f"{name}-{i:05d}-of-{total:05d}" for i in range(total)]
        else:
            files.append(pattern)
    if not files or "" in files:
        raise UserError("--output_file: a name is empty")
    for path in files:
        if not may_be_remote:
            sources.refuse_remote(path)
    [(name, times)] = collections.Counter(map(os.path.realpath, files)).most_common(1)
    if times > 1:
        raise UserError(f"--output_file: {name} is named twice")
    return tuple(files)


def _warn_of_lost_predictions(flags: Options):
    wanted = int(prediction_counts(flags.max_seq_length, flags.masked_lm_prob))
    lost = 1 - flags.max_predictions_per_seq / wanted
    if lost > 0:
        _say(
            f"warning: --masked_lm_prob={flags.masked_lm_prob:g} asks for {wanted} "
            f"predictions in {flags.max_seq_length} tokens, but "
            f"--max_predictions_per_seq={flags.max_predictions_per_seq} loses {lost:.0%} "
            f"of them; {wanted} would lose none"
        )


def _report(description, settings, vocabulary):
    counts = collections.Counter(description.counts)
    inspector = make_inspector(settings, vocabulary)
    tokens, number = counts["tokens"], counts["instances"]
    _say(
        f"Text: {count(counts['documents'], 'document')}, "
        f"{count(counts['sentences'], 'sentence')}, "
        f"{count(tokens, 'token')}, {counts['unknown_tokens'] / tokens:.2%} of them [UNK]"
    )
    predictions = ""
    if counts["predictions"]:
        predictions = f" and {counts['predictions'] / number:.1f} predictions"
    _say(
        f"Records: {count(number, 'instance')} in "
        f"{count(len(settings.output_files), 'file')}, "
        f"{counts['instance_tokens'] / number:.1f} tokens{predictions} each"
    )
    for path in settings.output_files[:4]:
        _say(f"  {path}")
    if len(settings.output_files) > 4:
        _say(f"  ... {settings.output_files[-1]}")
    _say(f"Description: {settings.description_file}")
    for line in FORMATS[settings.input_format].report(counts):
        _say(line)
    for line in inspector.report(counts, settings.dupe_factor):
        _say(line)
    if settings.deduplicate:
        documents = count(counts["duplicate_documents"], "document")
        paragraphs = count(counts["duplicate_paragraphs"], "paragraph")
        _say(f"Left out {documents} and {paragraphs} of others that occurred before")
    if counts["empty_sentences"]:
        _say(f"Skipped {count(counts['empty_sentences'], 'line')} without tokens")
    if counts["long_sentences"]:
        hint = ""
        if settings.input_format == "sentences":
            hint = "; if lines are paragraphs, add --input_format=paragraphs"
        _say(
            f"warning: {counts['long_sentences']:,} sentences are longer than a whole "
            f"record and {inspector.long_sentences}{hint}"
        )
    if counts["predictions_over_maximum"]:
        _say(
            f"warning: --max_predictions_per_seq left out "
            f"{counts['predictions_over_maximum']:,} predictions that --masked_lm_prob "
            "asks for"
        )
    if counts["decomposed_sentences"]:
        _say(
            f"warning: in {counts['decomposed_sentences']:,} of {counts['sentences']:,} "
            f"sentences {DECOMPOSITION_WARNING}"
        )
    if counts["unknown_tokens"] > _MUCH_UNKNOWN * tokens:
        _say(
            f"warning: {counts['unknown_tokens'] / tokens:.0%} of the tokens are [UNK]; "
            "check that the vocabulary is for this language and was learned with the same "
            "--do_lower_case, --strip_accents and --split_cjk"
        )


def _say(line):
    print(line, flush=True)


if __name__ == "__main__":
    command_line.run(main, Options)
