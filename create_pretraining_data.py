"""Text to TFRecords for pre-training: masked tokens and sentence pairs.

    python create_pretraining_data.py --input_file='corpus/*.txt' \\
        --output_file='records/part.tfrecord@16' --vocab_file=vocab/vocab.txt

The text is tokenized once, in pieces. Then all --dupe_factor passes over it are planned,
and the records are written in random order. Memory does not grow with the text. If a run is
interrupted, the same command continues it and ends with the same bytes.
"""

import collections
import dataclasses
import os

import options
from text.corpus import formats
from text.errors import UserError
from text.files import inputs
from text.generation import stages
from text.instances import packing
from text.instances.masking import prediction_counts
from text.tokenizers import wordpiece


@dataclasses.dataclass(frozen=True)
class Options:
    input_file: list[str] = options.field(
        help="Text files, UTF-8, plain or .gz: comma-separated names and globs."
    )
    output_file: list[str] = options.field(
        help="TFRecord files to write, comma-separated. NAME@16 means sixteen files "
        "NAME-00000-of-00016 and so on. The description is written next to the first "
        "file, with the suffix .description.json; run_pretraining.py checks its flags "
        "against it."
    )
    vocab_file: str = options.field(help="The WordPiece vocabulary.")
    do_lower_case: bool = options.field(
        True, help="Lower-case the text; for uncased vocabularies."
    )
    do_whole_word_mask: bool = options.field(
        False, help="Mask all pieces of a word, or none."
    )
    max_seq_length: int = options.field(128, help="Tokens per record, at least 8.")
    max_predictions_per_seq: int = options.field(
        20, help="Maximum number of tokens to predict per record."
    )
    random_seed: int = options.field(12345, help="Seed of all random choices.")
    dupe_factor: int = options.field(
        10, help="Passes over the text, each with different pairs and masks."
    )
    masked_lm_prob: float = options.field(0.15, help="Share of tokens to predict.")
    short_seq_prob: float = options.field(
        0.1, help="Share of documents in each pass that get shorter sequences."
    )

    # What the release does not have.
    input_format: str = options.field(
        "sentences",
        choices=formats.FORMATS,
        help="sentences: one per line, an empty line ends a document, as in the release. "
        "paragraphs: running text, one paragraph per line, an empty line ends a document. "
        "files: running text, one document per file, lines broken anywhere, empty lines "
        "between paragraphs. jsonl: one JSON object per line, each a document.",
    )
    json_field: str = options.field(
        "text", help="The key of the text, with --input_format=jsonl."
    )
    documents_span_files: bool = options.field(
        False,
        help="Let a document continue in the next file unless an empty line ends it, as "
        "in the release.",
    )
    strip_accents: bool | None = options.field(
        None,
        help="Remove accents, and decompose Hangul; by default, follows --do_lower_case.",
    )
    split_cjk: bool = options.field(
        True, help="Make every Chinese character a separate word."
    )
    word_boundaries: str = options.field(
        "pieces",
        choices=("pieces", "spaces"),
        help="What counts as a whole word. pieces: a piece and the ## pieces after it, as "
        "in the release. spaces: anything between two spaces, for text that was segmented "
        "into words beforehand.",
    )
    mask_share: float = options.field(
        0.8, help="Share of the predicted tokens that become [MASK]."
    )
    keep_share: float = options.field(
        0.1, help="Share of the predicted tokens that stay unchanged."
    )
    random_share: float = options.field(
        0.1, help="Share of the predicted tokens that are replaced by a random one."
    )
    random_next_sentences: bool = options.field(
        True,
        help="Take half of the second sentences from other documents. If false, every "
        "pair is consecutive; for text that is a single document.",
    )
    gzip_compress: bool = options.field(False, help="Compress the records with gzip.")
    num_workers: int = options.field(
        0,
        help="Number of processes; 0 uses one per core. The records do not depend on it.",
    )
    overwrite: bool = options.field(
        False, help="Replace output files that were made with other flags or text."
    )

    def __post_init__(self):
        _at_least(self, 8, "max_seq_length")
        _at_least(self, 1, "max_predictions_per_seq", "dupe_factor")
        _at_least(self, 0, "random_seed", "num_workers")
        _at_most(self, _LONGEST, "max_seq_length", "max_predictions_per_seq")
        _at_most(self, _MOST_PASSES, "dupe_factor")
        for name in ("masked_lm_prob", "short_seq_prob", *_SHARES):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"--{name}={getattr(self, name)}: must be from 0 to 1")
        if not self.masked_lm_prob:
            raise UserError("--masked_lm_prob=0: there would be nothing to predict")
        total = sum(getattr(self, name) for name in _SHARES)
        if abs(total - 1) > 1e-6:
            raise UserError(
                f"--mask_share, --keep_share and --random_share add up to {total:g}; they "
                "must add up to 1"
            )
        if self.word_boundaries == "spaces" and not self.do_whole_word_mask:
            raise UserError("--word_boundaries=spaces needs --do_whole_word_mask")


_LONGEST = 1 << 15
_MOST_PASSES = 10_000
_MUCH_UNKNOWN = 0.05
_SHARES = ("mask_share", "keep_share", "random_share")


def _at_least(given, least, *names):
    for name in names:
        if getattr(given, name) < least:
            raise UserError(
                f"--{name}={getattr(given, name)}: must be at least {least}"
            )


def _at_most(given, most, *names):
    for name in names:
        if getattr(given, name) > most:
            raise UserError(f"--{name}={getattr(given, name)}: must be at most {most}")


def main(given: Options) -> None:
    wordpiece.check_case(given.do_lower_case, given.vocab_file)
    fields = {field.name for field in dataclasses.fields(stages.Settings)}
    values = {k: v for k, v in dataclasses.asdict(given).items() if k in fields}
    if given.strip_accents is None:
        values["strip_accents"] = given.do_lower_case
    settings = stages.Settings(
        input_files=tuple(inputs.expand(given.input_file)),
        output_files=_output_files(given.output_file),
        **values,
    )
    _warn_of_lost_predictions(given)
    description, was_there = stages.generate(
        settings, given.num_workers or os.cpu_count() or 1, given.overwrite
    )
    if was_there:
        _say("Already finished: the records of this very command are there.")
    _report(description, settings)


def _output_files(patterns):
    files = []
    for pattern in patterns:
        name, at, count = pattern.rpartition("@")
        if at and count.isdigit() and name:
            total = int(count)
            if not total:
                raise UserError(f"--output_file={pattern}: names no file")
            files += [f"{name}-{i:05d}-of-{total:05d}" for i in range(total)]
        else:
            files.append(pattern)
    if not files or "" in files:
        raise UserError("--output_file: a name is empty")
    [(name, times)] = collections.Counter(map(os.path.realpath, files)).most_common(1)
    if times > 1:
        raise UserError(f"--output_file: {name} is named twice")
    return tuple(files)


def _warn_of_lost_predictions(given):
    wanted = int(prediction_counts(given.max_seq_length, given.masked_lm_prob))
    lost = 1 - given.max_predictions_per_seq / wanted
    if lost > 0:
        _say(
            f"warning: --masked_lm_prob={given.masked_lm_prob:g} asks for {wanted} "
            f"predictions in {given.max_seq_length} tokens, and "
            f"--max_predictions_per_seq={given.max_predictions_per_seq} loses {lost:.0%} "
            f"of them; {wanted} would lose none"
        )


def _report(description, settings):
    counts = collections.Counter(description.counts)
    tokens, pairs = counts["tokens"], counts["instances"]
    _say(
        f"Text: {counts['documents']:,} documents, {counts['sentences']:,} sentences, "
        f"{tokens:,} tokens, {counts['unknown_tokens'] / tokens:.2%} of them [UNK]"
    )
    _say(
        f"Records: {pairs:,} instances in {len(settings.output_files)} file(s), "
        f"{counts['instance_tokens'] / pairs:.1f} tokens and "
        f"{counts['predictions'] / pairs:.1f} predictions each, "
        f"{counts['random_next'] / pairs:.1%} with a random next sentence"
    )
    for path in settings.output_files[:4]:
        _say(f"  {path}")
    if len(settings.output_files) > 4:
        _say(f"  ... {settings.output_files[-1]}")
    _say(f"Description: {settings.description_file}")
    planned = counts["instance_tokens"] - packing.NUM_SPECIAL_TOKENS * pairs
    cut = counts["truncated_tokens"] / (planned + counts["truncated_tokens"])
    _say(f"{cut:.1%} of the paired tokens were cut off to fit")
    if counts["empty_sentences"]:
        _say(f"{counts['empty_sentences']:,} lines without a token were passed over")
    if counts["unpaired_sentences"]:
        _say(
            f"{counts['unpaired_sentences'] // settings.dupe_factor:,} sentences at a "
            "document's end had no next one and were left out"
        )
    if counts["long_sentences"]:
        hint = ""
        if settings.input_format == "sentences":
            hint = "; if lines are paragraphs, give --input_format=paragraphs"
        _say(
            f"warning: {counts['long_sentences']:,} sentences are longer than a whole "
            "record and lose what does not fit" + hint
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
            f"sentences {wordpiece.DECOMPOSITION_WARNING}"
        )
    if counts["unknown_tokens"] > _MUCH_UNKNOWN * tokens:
        _say(
            f"warning: {counts['unknown_tokens'] / tokens:.0%} of the tokens are [UNK]; "
            "is the vocabulary of another language, or learned with other "
            "--do_lower_case, --strip_accents or --split_cjk?"
        )


def _say(line):
    print(line, flush=True)


if __name__ == "__main__":
    options.run(main, Options)
