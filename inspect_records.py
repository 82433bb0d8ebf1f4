"""Shows pre-training records as readable text, checks whole files, and reports on them.

    python inspect_records.py --input_file='records/part.tfrecord-*' \\
        --vocab_file=vocab/vocab.txt --report_file=records/report.html

It checks each record and the statistics of all records, also against the description that
create_pretraining_data.py wrote. The exit status is 0 if everything is correct, and 1 if
something is wrong; each problem is one line of the output.
"""

import dataclasses
import os
import sys

import command_line
import options
from errors import UserError
from files import inputs, protected, sources
from text.inspection import inspect, inspection_page, words
from text.records import descriptions
from text.tokenizers.table import load_vocabulary


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    input_file: list[str] = options.field(
        help="TFRecord files, plain or gzip: comma-separated names and globs."
    )
    vocab_file: str | None = options.field(
        None,
        help="The vocabulary of the records; by default, the one that their description "
        "names, if it is still there.",
    )
    num_shown: int = options.field(
        3, help="Number of records to print as text.", at_least=0
    )
    max_records: int = options.field(
        0,
        help="Number of records to read from each file's beginning; 0 reads all.",
        at_least=0,
    )
    masked_lm_prob: float | None = options.field(
        None,
        help="Expected share of predicted tokens; by default, taken from the description; "
        "without one, not checked.",
        above=0,
        at_most=1,
    )
    report_file: str = options.field(
        "", help="Write a report here: a self-contained HTML file with plots."
    )


def main(flags: Options) -> int:
    # A file's name need not be valid UTF-8.
    sys.stdout.reconfigure(errors="backslashreplace")
    paths = descriptions.records_among(inputs.expand(flags.input_file))
    described = inspect.find_descriptions(paths)
    vocab_file = flags.vocab_file or _vocabulary_of(described)
    vocabulary = load_vocabulary(vocab_file)
    if flags.report_file:
        protected.refuse([flags.report_file], [*paths, vocab_file])
        sources.refuse_remote(flags.report_file)
        os.makedirs(os.path.dirname(flags.report_file) or ".", exist_ok=True)
    inspection = inspect.Inspection(
        vocabulary,
        described,
        masked_lm_prob=flags.masked_lm_prob,
        max_records=flags.max_records,
        num_shown=flags.num_shown,
    )
    inspection.read(paths)
    if inspection.shown and inspection.inspector.instances.masks.are_drawn:
        print(f"{words.LEGEND}\n")
    for where, record in inspection.shown:
        print(f"{words.text(where, record, inspection.inspector)}\n")
    if inspection.statistics:
        for name, value in inspection.statistics.lines():
            print(f"{name + ':':<16}{value}")
    if flags.max_records:
        print(f"Only the first {flags.max_records:,} records of each file were read.")
    for line in inspection.violations.lines():
        print(line)
    total = inspection.violations.total
    print(
        f"{inspection.num_records:,} records in {len(paths)} file(s): "
        + (f"{total:,} violation(s)" if total else "no problems found")
    )
    if flags.report_file:
        inspection_page.write(flags.report_file, paths, inspection)
        print(f"Report: {flags.report_file}")
    return int(total > 0)


def _vocabulary_of(described) -> str:
    """Where the vocabulary of records is; they are compared with it later."""
    vocabularies = (description.vocab_file for description in described.values())
    if path := next(filter(None, vocabularies), None):
        return path
    raise UserError(
        "--vocab_file is required: there is no description of these records, or the "
        "vocabulary that it names is not there"
    )


if __name__ == "__main__":
    command_line.run(main, Options)
