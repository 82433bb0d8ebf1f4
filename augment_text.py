"""Writes several versions of every text, for a student to learn from.

    python augment_text.py --input_file=glue/SST-2/train.tsv --text_columns=sentence \\
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

import options
from errors import UserError
from text.files import inputs, local, protected, sources, tables
from text.progress import Progress
from text.tokenizers.kinds import TokenizerOptions

_TEXT = "text"  # the column of a file of lines
_ROWS_AT_ONCE = 256  # whose masks are sorted by length
_NOT_IN_TSV = {"\t": "a tab", "\n": "a line feed", "\r": "a carriage return"}


@dataclasses.dataclass(frozen=True)
class Options(TokenizerOptions):
    input_file: str = options.field(
        help="The texts: .tsv or .csv with a header, .jsonl, or any other file with one "
        "text per line; plain or .gz. - reads lines from standard input."
    )
    output_file: str = options.field(
        help="Where to write the rows: .csv, .jsonl, or .tsv for any other name."
    )
    init_checkpoint: str = options.field(
        help="A checkpoint with a masked-LM head: prefix or directory."
    )
    vocab_file: str | None = options.field(
        None, help="The vocabulary; by default, the one next to the weights."
    )
    bert_config_file: str | None = options.field(
        None,
        help="The architecture; by default, bert_config.json next to the weights, or the "
        "config.json of a Hugging Face model.",
    )
    text_columns: list[str] = options.field(
        [_TEXT],
        help="The columns to rewrite. For pairs, list both, or the one to rewrite.",
    )
    num_copies: int = options.field(
        20,
        help="How many versions of a row to draw; those that repeat are left out.",
        most=10_000,
    )
    keep_original: bool = options.field(
        True, help="Write every row itself before its copies."
    )
    mask_probability: float = options.field(
        0.4, help="Probability that a word of a copy is masked and replaced."
    )
    top_k: int = options.field(
        15, help="Choose among this many of the most probable words."
    )
    ngram_probability: float = options.field(
        0.0, help="Probability that only 1 to 5 adjacent words of a copy are kept."
    )
    max_seq_length: int = options.field(
        128,
        help="Maximum number of tokens in a row of the network, which contains a text "
        "twice; of longer texts, it reads the part around a word.",
        most=options.MOST_TOKENS,
    )
    batch_size: int = options.field(
        64, help="Rows of the network per batch.", most=options.MOST_ROWS
    )
    random_seed: int = options.field(12345, help="Seed of all random choices.")

    def __post_init__(self):
        for name in ("num_copies", "top_k", "batch_size"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name}={getattr(self, name)}: must be at least 1")
        for name in ("mask_probability", "ngram_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"--{name}={getattr(self, name)}: must be from 0 to 1")
        if self.output_file.endswith(".gz"):
            raise UserError(
                f"--output_file={self.output_file}: is not compressed; leave .gz out"
            )
        if not self.mask_probability and not self.ngram_probability:
            raise UserError(
                "--mask_probability and --ngram_probability are both 0, so all copies "
                "would be the same; raise one of them"
            )
        if self.random_seed < 0:
            raise UserError(f"--random_seed={self.random_seed}: must be at least 0")
        if self.max_seq_length < 16:
            raise UserError(
                f"--max_seq_length={self.max_seq_length}: must be at least 16"
            )
        if not self.text_columns or len(set(self.text_columns)) < len(
            self.text_columns
        ):
            raise UserError(
                f"--text_columns={','.join(self.text_columns)}: list columns, each of "
                "them once"
            )

    @property
    def output_form(self) -> str:
        return tables.form_of(self.output_file) or "tsv"


if __name__ == "__main__":
    options.parse(Options)  # --help and mistakes are answered before TensorFlow loads

from training.queries import mask_filling
from text.tasks import augmentation


class Text(NamedTuple):
    """A text to rewrite: its ids and words, and what becomes of it in each copy."""

    text: str
    ids: list[int]
    words: list[augmentation.Word]
    changes: list[augmentation.Change]


@dataclasses.dataclass
class Counts:
    """What is reported at the end."""

    rows: int = 0
    copies: int = 0
    repeated: int = 0
    unchanged: int = 0  # rows without a copy
    empty: int = 0  # lines


def main(given: Options) -> None:
    """Does what the flags ask for.

    Raises:
        UserError: flags, rows, vocabulary and weights do not match.
    """
    _check_paths(given)
    tokenizer, config, model = mask_filling.load(given)
    if given.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={given.max_seq_length}: the model has only "
            f"max_position_embeddings={config.max_position_embeddings}"
        )
    # A row that cannot be read is found now, not in an hour.
    is_file = given.input_file != inputs.STANDARD_INPUT
    total = sum(1 for _ in _read(given, Counts())) if is_file else None
    counts = Counts()
    local.remove_temporaries(os.path.realpath(given.output_file))
    with local.replacing(given.output_file, "w") as file:
        with Progress("rewriting", total, "rows") as progress:
            write = None
            for some in _augmented(given, tokenizer, model, counts):
                for values, copies in some:
                    write = write or _writer(given.output_form, file, list(values))
                    for row in [values] * given.keep_original + copies:
                        write(row)
                progress.advance(len(some))
        if not counts.rows:
            raise UserError(f"{inputs.name(given.input_file)}: contains no text")
    _report(given, counts)


def _report(given, counts):
    originals = f"{counts.rows} rows and " if given.keep_original else ""
    print(
        f"{given.output_file}: {originals}{counts.copies} copies; {counts.repeated} more "
        "were equal to another text of their row and left out",
        file=sys.stderr,
    )
    if counts.unchanged:
        print(f"rows without a copy: {counts.unchanged}", file=sys.stderr)
    if counts.empty:
        print(f"empty lines that were skipped: {counts.empty}", file=sys.stderr)


# === Rewriting =======================================================================


def _augmented(given, tokenizer, model, counts) -> Iterator[list[tuple]]:
    """Yields lists of rows, each with its copies."""
    vocabulary = tokenizer.vocabulary
    candidates = augmentation.candidates_of(vocabulary)
    if not candidates.any():
        raise UserError(
            f"{vocabulary.path}: contains no whole words to put into a text"
        )
    filler = mask_filling.Filler(
        model,
        candidates,
        top_k=given.top_k,
        pad_id=vocabulary.pad_id,
        max_seq_length=given.max_seq_length,
        batch_size=given.batch_size,
    )
    rows = enumerate(_read(given, counts))
    while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        texts = [
            _drawn(given, tokenizer, values[column], (number, place))
            for number, values in some
            for place, column in enumerate(given.text_columns)
        ]
        copies = _rewritten(given, texts, filler, vocabulary)
        yield [(values, _copies(given, values, copies, counts)) for _, values in some]


def _copies(given, values, copies, counts) -> list[dict]:
    """The distinct copies of a row, whose columns are the next of `copies`."""
    columns = given.text_columns
    original = tuple(values[column] for column in columns)
    of_columns = [next(copies) for _ in columns]
    kept = augmentation.distinct(original, zip(*of_columns, strict=True))
    counts.rows += 1
    counts.copies += len(kept)
    counts.repeated += given.num_copies - len(kept)
    counts.unchanged += not kept
    return [values | dict(zip(columns, copy, strict=True)) for copy in kept]


def _drawn(given, tokenizer, text, numbers) -> Text:
    ids, words = augmentation.split(tokenizer, text)
    return Text(
        text,
        ids,
        words,
        [
            augmentation.draw(
                (given.random_seed, *numbers, copy),
                words,
                given.mask_probability,
                given.ngram_probability,
            )
            for copy in range(given.num_copies)
        ],
    )


def _rewritten(given, texts, filler, vocabulary) -> Iterator[list[str]]:
    """Yields the copies of each text; a word is asked for once, for all of them."""
    asked = [sorted({n for c in text.changes for n in c.words}) for text in texts]
    found = filler.find(
        [
            augmentation.masked(
                text.ids, text.words[number], vocabulary, given.max_seq_length
            )
            for text, numbers in zip(texts, asked, strict=True)
            for number in numbers
        ]
    )
    spelled = iter(np.array(vocabulary.texts, object)[found])
    for text, numbers in zip(texts, asked, strict=True):
        candidates = {number: next(spelled) for number in numbers}
        yield [
            augmentation.rewritten(text.text, text.words, change, candidates)
            for change in text.changes
        ]


# === Files ===========================================================================


def _check_paths(given):
    """Refuses now what would otherwise fail at the end."""
    path = given.output_file
    sources.refuse_remote(path)
    if os.path.isdir(path):
        raise UserError(f"{path}: is a folder; name a file in it")
    read = [given.input_file, given.vocab_file, given.bert_config_file]
    protected.refuse([path], [*read, given.init_checkpoint])
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise UserError(
            f"{path}: there is no folder {folder}; create it, or choose another "
            "--output_file"
        )


def _read(given, counts) -> Iterator[dict]:
    """Yields the rows of the input, which the output can hold."""
    path, columns = given.input_file, None
    name = inputs.name(path)
    if tables.form_of(path):
        rows = tables.read(path)
    else:
        lines = enumerate(inputs.lines(path), start=1)
        rows = ((number, {_TEXT: line}) for number, line in lines)
    for number, values in rows:
        where = f"{name}:{number}"
        if not tables.form_of(path) and not values[_TEXT].strip():
            counts.empty += 1
            continue
        columns = columns or values.keys()
        _check(given, where, values, columns)
        yield values


def _check(given, where, values, columns):
    for column in given.text_columns:
        tables.text(values, column, where, "--text_columns")
    if given.output_form == "jsonl":
        return
    if values.keys() != columns:
        raise UserError(
            f"{where}: has the keys {', '.join(values)}, the first row "
            f"{', '.join(columns)}; a table needs the same in all rows, so write a .jsonl"
        )
    if given.output_form == "tsv":
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
    if form == "tsv":
        write = _write_tsv(file)
    else:
        write = csv.writer(file, lineterminator="\n").writerow
    write(columns)
    return lambda values: write([_cell(values[column]) for column in columns])


def _write_tsv(file):
    return lambda cells: file.write("\t".join(cells) + "\n")


def _cell(value) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    options.run(main, Options)
