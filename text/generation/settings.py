"""Defines the flags that determine the bytes of records, and where these are written."""

import dataclasses

import options
from errors import UserError
from text.corpus import formats
from text.files import inputs
from text.instances.kinds import RowOptions
from text.records import descriptions
from text.tokenizers.kinds import TokenizerOptions
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import MASK

_LONGEST = 1 << 15
_MOST_PASSES = 10_000


@dataclasses.dataclass(frozen=True)
class GenerationOptions(TokenizerOptions, RowOptions):
    """The flags that, together with the text, determine the bytes of the records."""

    vocab_file: str = options.field(
        help="The vocabulary: a WordPiece vocab.txt, a SentencePiece .model, vocab.json "
        "or its folder for byte-level BPE, or encoder_bpe_40000.json for GPT-1's BPE."
    )
    random_seed: int = options.field(12345, help="Seed of all random choices.")
    dupe_factor: int = options.field(
        10, help="Passes over the text, each with different pairs and masks."
    )
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
    gzip_compress: bool = options.field(False, help="Compress the records with gzip.")

    def __post_init__(self):
        self.check_range(8, _LONGEST, "max_seq_length")
        self.check_range(1, _LONGEST, "max_predictions_per_seq")
        self.check_range(1, _MOST_PASSES, "dupe_factor")
        self.check_range(0, None, "random_seed")
        shares = ("masked_lm_prob", "short_seq_prob", "mask_share", "random_share")
        self.check_range(0, 1, *shares)
        if not self.masked_lm_prob:
            raise UserError(
                "--masked_lm_prob=0: leaves nothing to predict; must be above 0"
            )
        rows = self.make()
        if self.dupe_factor > 1 and not (
            rows.passes_differ or rows.masks.passes_differ
        ):
            raise UserError(
                f"--dupe_factor={self.dupe_factor}: with --instances={self.instances} and "
                f"--masking={self.masking}, every pass would write the same records; use "
                "--dupe_factor=1"
            )
        self.check_range(1, self.max_seq_length, "ngram")
        if self.ngram == 1 and not self.favor_shorter_ngram:
            raise UserError("--favor_shorter_ngram=false needs --ngram=2 or more")
        if self.lone_sentences != "extend" and self.instances != "sentence_order":
            raise UserError(
                f"--lone_sentences={self.lone_sentences} needs --instances=sentence_order"
            )
        self.check_range(0, None, "rows_per_batch", "reuse_len")
        for name in ("rows_per_batch", "reuse_len"):
            if getattr(self, name) and not rows.in_order:
                raise UserError(
                    f"--{name}={getattr(self, name)} needs --instances=contiguous"
                )
        if self.word_boundaries == "spaces" and not self.do_whole_word_mask:
            raise UserError("--word_boundaries=spaces needs --do_whole_word_mask")

    def make_tokenizer(self) -> Tokenizer:
        """Makes the tokenizer.

        Raises:
            UserError: it does not fit the vocabulary's release, or cannot hide words as
                the records must.
        """
        tokenizer = self.load_tokenizer(self.vocab_file)
        tokenizer.check_release(self.vocab_file)
        vocabulary = tokenizer.vocabulary
        self.make().check(vocabulary)
        if MASK not in vocabulary.special_ids:
            if self.make().masks.are_drawn:
                raise UserError(
                    f"{vocabulary.no_mask}; pass --masking=dynamic, which leaves the text "
                    "whole"
                )
            if self.do_whole_word_mask:
                raise UserError(f"{vocabulary.no_mask}; leave out --do_whole_word_mask")
        return tokenizer

    def check_range(self, least: float, most: float | None, *names: str) -> None:
        """Raises:
        UserError: one of these flags is out of range.
        """
        for name in names:
            value = getattr(self, name)
            # Not turned around: nan is in no range.
            if not (value >= least and (most is None or value <= most)):
                wanted = f"at least {least}"
                if most is not None:
                    wanted = f"from {least} to {most}"
                raise UserError(f"--{name}={value}: must be {wanted}")


@dataclasses.dataclass(frozen=True)
class Settings(GenerationOptions):
    """The resolved flags, the input files, the output files, and what may be read."""

    input_files: tuple[str, ...] = ()
    output_files: tuple[str, ...] = ()
    max_line_mb: int = inputs.MAX_LINE_MB

    @property
    def description_file(self) -> str:
        return self.output_files[0] + descriptions.SUFFIX

    @property
    def work_folder(self) -> str:
        return self.output_files[0] + descriptions.UNFINISHED

    @property
    def settings_file(self) -> str:
        """The file from which tasks read the settings."""
        return f"{self.work_folder}/settings.json"
