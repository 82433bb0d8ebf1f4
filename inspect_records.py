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

import options
from errors import UserError
from text.files import inputs, protected, sources
from text.inspection import inspect, report, words
from text.records import descriptions
from text.tokenizers import kinds


@dataclasses.dataclass(frozen=True)
class Options:
    input_file: list[str] = options.field(
        help="TFRecord files, plain or gzip: comma-separated names and globs."
    )
    vocab_file: str | None = options.field(
        None,
        help="The vocabulary of the records; by default, the one that their description "
        "names, if it is still there.",
    )
    num_shown: int = options.field(3, help="Number of records to print as text.")
    max_records: int = options.field(
        0, help="Number of records to read from each file's beginning; 0 reads all."
    )
    masked_lm_prob: float | None = options.field(
        None,
        help="Expected share of predicted tokens; by default, taken from the description; "
        "without one, not checked.",
    )
    report_file: str = options.field(
        "", help="Write a report here: a self-contained HTML file with plots."
    )

    def __post_init__(self):
        for name in ("num_shown", "max_records"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name}={getattr(self, name)}: must be at least 0")
        if self.masked_lm_prob is not None and not 0 < self.masked_lm_prob <= 1:
            raise UserError(
                f"--masked_lm_prob={self.masked_lm_prob:g}: must be above 0, at most 1"
            )


def main(given: Options) -> int:
    # A file's name need not be valid UTF-8.
    sys.stdout.reconfigure(errors="backslashreplace")
    paths = descriptions.records_among(inputs.expand(given.input_file))
    described = inspect.find_descriptions(paths)
    vocab_file = given.vocab_file or _vocabulary_of(described)
    vocabulary = kinds.load_vocabulary(vocab_file)
    if given.report_file:
        protected.refuse([given.report_file], [*paths, vocab_file])
        sources.refuse_remote(given.report_file)
        os.makedirs(os.path.dirname(given.report_file) or ".", exist_ok=True)
    found = inspect.Inspection(
        vocabulary,
        described,
        masked_lm_prob=given.masked_lm_prob,
        max_records=given.max_records,
        num_shown=given.num_shown,
    )
    found.read(paths)
    if found.shown and (found.instances.masks.are_drawn or found.instances.masks.given):
        print(f"{words.LEGEND}\n")
    for where, record in found.shown:
        print(f"{words.text(where, record, found.instances, vocabulary)}\n")
    if found.statistics:
        for name, value in found.statistics.lines():
            print(f"{name + ':':<16}{value}")
    for line in found.advice():
        print(line)
    if given.max_records:
        print(f"Only the first {given.max_records:,} records of each file were read.")
    for line in found.violations.lines():
        print(line)
    total = found.violations.total
    print(
        f"{found.num_records:,} records in {len(paths)} file(s): "
        + (f"{total:,} violation(s)" if total else "no problems found")
    )
    if given.report_file:
        report.write(given.report_file, paths, found)
        print(f"Report: {given.report_file}")
    return int(total > 0)


def _vocabulary_of(described) -> str:
    """Where the vocabulary of records is; they are compared with it later."""
    found = (description.vocab_file for description in described.values())
    if path := next(filter(None, found), None):
        return path
    raise UserError(
        "--vocab_file is required: there is no description of these records, or the "
        "vocabulary that it names is not there"
    )


if __name__ == "__main__":
    options.run(main, Options)
