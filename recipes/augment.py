"""Writes several versions of every text, for a student to learn from.

    python -m recipes.augment --input_file=glue/SST-2/train.tsv --text_columns=sentence \\
        --output_file=my/train_augmented.tsv --init_checkpoint=pretraining_output \\
        --vocab_file=vocab/vocab.txt

A masked LM replaces words by others that fit, as for TinyBERT (arXiv:1909.10351);
--ngram_probability keeps only a few words (arXiv:1903.12136). The rest of a text stays as
it is, and so do the other columns. The same flags give the same rows.
"""

import csv
import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import command_line
import options
from errors import UserError
from files import compression, inputs, local, protected, tables
from text.progress import Progress
from training.queries.options import QueryOptions

_TEXT = "text"  # the column of a file of lines
_ROWS_AT_ONCE = 256  # whose masks are sorted by length
_NOT_IN_TSV = {"\t": "a tab", "\n": "a line feed", "\r": "a carriage return"}


@dataclasses.dataclass(frozen=True)
class Options(QueryOptions):
    input_file: str = options.field(
        help="The texts: .tsv or .csv with a header, .jsonl, or any other file with one "
        f"text per line; {inputs.PACKED}. - reads lines from standard input."
    )
    output_file: str = options.field(
        help="Where to write the rows: .csv, .jsonl, or .tsv for any other name."
    )
    init_checkpoint: str = options.field(
        help="A checkpoint with a masked-LM head: prefix, directory or "
        "hf://organization/name[@revision]."
    )
    text_columns: list[str] = options.field(
        [_TEXT],
        help="The columns to rewrite. For pairs, list both, or the one to rewrite.",
        distinct=True,
    )
    num_copies: int = options.field(
        20,
        help="How many versions of a row to draw; those that repeat are left out.",
        at_most=10_000,
        at_least=1,
    )
    keep_original: bool = options.field(
        True, help="Write every row itself before its copies."
    )
    mask_probability: float = options.field(
        0.4,
        help="Probability that a word of a copy is masked and replaced.",
        at_least=0,
        at_most=1,
    )
    top_k: int = options.field(
        15, help="Choose among this many of the most probable words.", at_least=1
    )
    ngram_probability: float = options.field(
        0.0,
        help="Probability that only 1 to 5 adjacent words of a copy are kept.",
        at_least=0,
        at_most=1,
    )
    max_seq_length: int = options.field(
        128,
        help="Maximum number of tokens in a row of the network, which contains a text "
        "twice; of longer texts, it reads the part around a word.",
        at_most=options.MOST_TOKENS,
        at_least=16,
    )
    batch_size: int = options.field(
        64, help="Rows of the network per batch.", at_most=options.MOST_ROWS, at_least=1
    )
    random_seed: int = options.field(
        12345, help="Seed of all random choices.", at_least=0
    )

    def __post_init__(self):
        super().__post_init__()
        if compression.is_packed(self.output_file):
            suffix = os.path.splitext(self.output_file)[1]
            raise UserError(
                f"--output_file={self.output_file}: is not compressed; leave {suffix} out"
            )
        if not self.mask_probability and not self.ngram_probability:
            raise UserError(
                "--mask_probability and --ngram_probability are both 0, so all copies "
                "would be the same; raise one of them"
            )

    @property
    def output_form(self) -> str:
        return tables.form_of(self.output_file) or "tsv"


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training.queries import mask_filling, query
from recipes import rewriting


class Text(NamedTuple):
    """A text to rewrite: its ids and words, and what becomes of it in each copy."""

    text: str
    ids: list[int]
    words: list[rewriting.Word]
    changes: list[rewriting.Change]


@dataclasses.dataclass
class CopyCounts:
    """What is reported at the end."""

    rows: int = 0
    copies: int = 0
    repeated: int = 0
    unchanged: int = 0  # rows without a copy
    empty: int = 0  # lines


def main(flags: Options) -> None:
    """Does what the flags ask for."""
    read = [flags.input_file, flags.vocab_file, flags.bert_config_file]
    protected.check_output(flags.output_file, [*read, flags.init_checkpoint])
    tokenizer, config, model = mask_filling.load(flags)
    query.check_length(flags, config)
    # A row that cannot be read is found now, not in an hour.
    is_file = flags.input_file != inputs.STANDARD_INPUT
    total = sum(1 for _ in _read(flags, CopyCounts())) if is_file else None
    counts = CopyCounts()
    local.remove_temporaries(os.path.realpath(flags.output_file))
    with local.replacing(flags.output_file, "w") as file:
        with Progress("rewriting", total, "rows") as progress:
            write = None
            for some in _augment(flags, tokenizer, model, counts):
                for values, copies in some:
                    write = write or _writer(flags.output_form, file, list(values))
                    for row in [values] * flags.keep_original + copies:
                        write(row)
                progress.advance(len(some))
        if not counts.rows:
            raise UserError(f"{inputs.name(flags.input_file)}: contains no text")
    _report(flags, counts)


def _report(flags: Options, counts):
    originals = f"{counts.rows} rows and " if flags.keep_original else ""
    print(
        f"{flags.output_file}: {originals}{counts.copies} copies; {counts.repeated} more "
        "were equal to another text of their row and left out",
        file=sys.stderr,
    )
    if counts.unchanged:
        print(f"rows without a copy: {counts.unchanged}", file=sys.stderr)
    if counts.empty:
        print(f"empty lines that were skipped: {counts.empty}", file=sys.stderr)


# === Rewriting =======================================================================


def _augment(flags: Options, tokenizer, model, counts) -> Iterator[list[tuple]]:
    """Yields lists of rows, each with its copies."""
    vocabulary = tokenizer.vocabulary
    candidates = rewriting.candidates_of(vocabulary)
    if not candidates.any():
        raise UserError(
            f"{vocabulary.path}: contains no whole words to put into a text"
        )
    filler = mask_filling.Filler(
        model,
        candidates,
        top_k=flags.top_k,
        pad_id=vocabulary.pad_id,
        max_seq_length=flags.max_seq_length,
        batch_size=flags.batch_size,
    )
    rows = enumerate(_read(flags, counts))
    while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        texts = [
            _draw(flags, tokenizer, values[column], (number, place))
            for number, values in some
            for place, column in enumerate(flags.text_columns)
        ]
        copies = _rewrite(flags, texts, filler, vocabulary)
        yield [(values, _copies(flags, values, copies, counts)) for _, values in some]


def _copies(flags: Options, values, copies, counts) -> list[dict]:
    """The distinct copies of a row, whose columns are the next of `copies`."""
    columns = flags.text_columns
    original = tuple(values[column] for column in columns)
    of_columns = [next(copies) for _ in columns]
    kept = rewriting.distinct(original, zip(*of_columns, strict=True))
    counts.rows += 1
    counts.copies += len(kept)
    counts.repeated += flags.num_copies - len(kept)
    counts.unchanged += not kept
    return [values | dict(zip(columns, copy, strict=True)) for copy in kept]


def _draw(flags: Options, tokenizer, text, numbers) -> Text:
    ids, words = rewriting.split(tokenizer, text)
    return Text(
        text,
        ids,
        words,
        [
            rewriting.draw(
                (flags.random_seed, *numbers, copy),
                words,
                flags.mask_probability,
                flags.ngram_probability,
            )
            for copy in range(flags.num_copies)
        ],
    )


def _rewrite(flags: Options, texts, filler, vocabulary) -> Iterator[list[str]]:
    """Yields the copies of each text; a word is asked for once, for all of them."""
    asked = [sorted({n for c in text.changes for n in c.words}) for text in texts]
    pieces = filler.find(
        [
            rewriting.mask_word(
                text.ids, text.words[number], vocabulary, flags.max_seq_length
            )
            for text, numbers in zip(texts, asked, strict=True)
            for number in numbers
        ]
    )
    spelled = iter(np.array(vocabulary.texts, object)[pieces])
    for text, numbers in zip(texts, asked, strict=True):
        candidates = {number: next(spelled) for number in numbers}
        yield [
            rewriting.rewrite(text.text, text.words, change, candidates)
            for change in text.changes
        ]


# === Files ===========================================================================


def _read(flags: Options, counts) -> Iterator[dict]:
    """Yields the rows of the input, which the output can hold."""
    path, columns = flags.input_file, None
    name = inputs.name(path)
    if tables.form_of(path):
        rows = tables.read(path, max_line_mb=flags.max_line_mb)
    else:
        lines = inputs.lines(path, max_line_mb=flags.max_line_mb)
        rows = ((number, {_TEXT: line}) for number, line in enumerate(lines, start=1))
    for number, values in rows:
        where = f"{name}:{number}"
        if not tables.form_of(path) and not values[_TEXT].strip():
            counts.empty += 1
            continue
        columns = columns or values.keys()
        _check(flags, where, values, columns)
        yield values


def _check(flags: Options, where, values, columns):
    for column in flags.text_columns:
        tables.text(values, column, where, "--text_columns")
    if flags.output_form == "jsonl":
        return
    if values.keys() != columns:
        raise UserError(
            f"{where}: has the keys {', '.join(values)}, the first row "
            f"{', '.join(columns)}; a table needs the same in all rows, so write a .jsonl"
        )
    if flags.output_form == "tsv":
        for text in (*values, *map(_cell, values.values())):
            for character, what in _NOT_IN_TSV.items():
                if character in text:
                    raise UserError(
                        f"{where}: contains {what}, which a .tsv cannot hold; write a "
                        ".csv or a .jsonl"
                    )
        if len(values) == 1 and not any(values.values()):
            raise UserError(
                f"{where}: an empty text, which a .tsv of one column cannot hold; remove "
                "it, or write a .csv or a .jsonl"
            )


def _writer(form, file, columns):
    """What writes a row; a table's header is written now."""
    if form == "jsonl":
        return lambda values: file.write(json.dumps(values, ensure_ascii=False) + "\n")

    def write(cells):
        if form == "csv":
            csv.writer(file, lineterminator="\n").writerow(cells)
        else:
            file.write("\t".join(cells) + "\n")

    write(columns)
    return lambda values: write([_cell(values[column]) for column in columns])


def _cell(value) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    command_line.run(main, Options)
