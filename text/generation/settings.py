"""Defines the flags that determine the bytes of records, and where these are written."""

import dataclasses

import extensions
import options
from errors import UserError
from text.corpus.formats import TextOptions
from text.instances.table import RowOptions
from text.records import descriptions
from text.tokenizers.table import TokenizerOptions
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import MASK

_LONGEST = 1 << 15


@dataclasses.dataclass(frozen=True)
class GenerationOptions(TokenizerOptions, RowOptions, TextOptions):
    """Text. With the flags of records, these determine the bytes."""

    vocab_file: str = options.field(
        help="The vocabulary: a WordPiece vocab.txt, a SentencePiece .model, or that of a "
        "model, hf://organization/name[@revision]." + extensions.help_of("vocab_file")
    )
    random_seed: int = options.field(
        12345, help="Seed of all random choices.", at_least=0
    )
    dupe_factor: int = options.field(
        10,
        help="Passes over the text, each with different pairs and masks.",
        at_least=1,
        at_most=10_000,
    )
    deduplicate: bool = options.field(
        False,
        help="Leave out documents that occurred before, and paragraphs that did: those "
        "with the same tokens. With --input_format=sentences, only documents.",
    )
    gzip_compress: bool = options.field(False, help="Compress the records with gzip.")

    def __post_init__(self):
        super().__post_init__()
        # Not declared: records from elsewhere may have other lengths.
        for name, least in (("max_seq_length", 8), ("max_predictions_per_seq", 1)):
            bounds = options.Bounds(at_least=least, at_most=_LONGEST)
            if getattr(self, name) not in bounds:
                raise UserError(f"--{name}={getattr(self, name)}: must be {bounds}")
        if self.ngram > self.max_seq_length:
            raise UserError(
                f"--ngram={self.ngram}: must be at most --max_seq_length="
                f"{self.max_seq_length}"
            )
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
        if self.word_boundaries == "spaces" and not self.do_whole_word_mask:
            raise UserError("--word_boundaries=spaces needs --do_whole_word_mask")

    def make_tokenizer(self) -> Tokenizer:
        """Makes the tokenizer."""
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


@dataclasses.dataclass(frozen=True)
class Settings(GenerationOptions):
    """The resolved flags, the input files and the output files."""

    input_files: tuple[str, ...] = ()
    output_files: tuple[str, ...] = ()

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
