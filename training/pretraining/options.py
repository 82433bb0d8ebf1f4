"""The flags of pre-training."""

import dataclasses
import functools

import options
from errors import UserError
from modeling.objectives.table import OBJECTIVES
from text.tokenizers.table import TokenizerOptions
from training.distillation.options import WordDistillationOptions
from training.run.options import RunOptions


def _field_of(objective):
    return functools.partial(
        options.field, only_for={"objective": objective}, identity=True
    )


_permuted = _field_of("permuted")
_replaced_tokens = _field_of("replaced_tokens")
_span_corruption = _field_of("span_corruption")


@dataclasses.dataclass(frozen=True)
class ObjectiveOptions(options.Group):
    """The objective.

    Flags of single objectives are arguments of their constructors.
    """

    objective: str = options.field(
        "masked_lm_next_sentence",
        choices=tuple(OBJECTIVES),
        help="What to learn. masked_lm_next_sentence: BERT's; masked words, and whether "
        "the second of two spans follows the first. masked_lm: masked words alone. "
        "masked_lm_sentence_order: ALBERT's; masked words, and whether two spans are "
        "swapped; needs records of create_pretraining_data.py --instances=sentence_order. "
        "All others need records of create_pretraining_data.py --masking=dynamic. "
        "next_token: language modelling, for a config whose attention_direction is "
        "left_to_right or right_to_left. bidirectional_lm: both directions at once, for an "
        "ELMo. replaced_tokens: ELECTRA's; a generator fills masks, and a discriminator, "
        "the encoder to use later, finds the tokens that are not the original ones. "
        "permuted: XLNet's; spans of tokens, predicted in a random order. "
        "span_corruption: T5's; a decoder writes the spans that the encoder's text lacks; "
        "needs --vocab_file.",
        identity=True,
        common=True,
    )
    generator_hidden_size: float = _replaced_tokens(
        0.25,
        help="For replaced_tokens: the generator's share of hidden_size. The released "
        "small model has 1.0, base 0.33333, large 0.25.",
        above=0,
        at_most=1,
    )
    generator_layers: float = _replaced_tokens(
        1.0,
        help="For replaced_tokens: the generator's share of num_hidden_layers.",
        above=0,
        at_most=1,
    )
    disc_weight: float = _replaced_tokens(
        50.0,
        help="For replaced_tokens: the factor of the discriminator's loss.",
        above=0,
    )
    mask_alpha: int = _permuted(
        6,
        help="For permuted: a span of n tokens is in a context of n * mask_alpha // "
        "mask_beta tokens, without other spans.",
        at_least=1,
    )
    mask_beta: int = _permuted(1, help="For permuted: see --mask_alpha.", at_least=1)
    mem_len: int = _permuted(
        0,
        help="For permuted, on records of create_pretraining_data.py "
        "--instances=contiguous: how many positions of the rows before it a row sees. "
        "XLNet's release has 384.",
        at_most=1 << 20,
        at_least=0,
    )
    noise_density: float = _span_corruption(
        0.15,
        help="For span_corruption: the share of tokens that a text loses.",
        above=0,
        below=1,
    )
    mean_noise_span_length: float = _span_corruption(
        3.0,
        help="For span_corruption: the mean number of tokens of the spans that a text "
        "loses.",
        at_least=1,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.mask_alpha < self.mask_beta:
            raise UserError(
                f"--mask_alpha={self.mask_alpha}: must be at least --mask_beta, "
                f"{self.mask_beta}, so that a span has a context"
            )

    def make_objective(self, name: str | None = None, **rows):
        """The `Objective` with this name; by default, the chosen one.

        Args:
            rows: what it needs to know of the records; see `Needs.rows`.
        """
        kind = OBJECTIVES[name or self.objective]
        own = {option: getattr(self, option) for option in kind.options}
        return kind.load()(**own, **rows)


@dataclasses.dataclass(frozen=True)
class PretrainingOptions(
    TokenizerOptions, ObjectiveOptions, WordDistillationOptions, RunOptions
):
    """Pre-training. The release's flags, then ours."""

    input_file: list[str] = options.field(
        [],
        help="TFRecord files, plain or gzip: comma-separated names and globs.",
        common=True,
    )
    max_predictions_per_seq: int = options.field(
        20,
        help="Number of masked positions in each record.",
        at_most=options.MOST_TOKENS,
        at_least=1,
        identity=True,
    )
    train_batch_size: int = options.field(
        32,
        help="Records per update, over all replicas and micro-batches.",
        at_most=options.MOST_ROWS,
        at_least=1,
        identity=True,
        common=True,
    )
    learning_rate: float = options.field(
        5e-5, help="The peak learning rate.", above=0, identity=True, common=True
    )
    num_train_steps: int = options.field(
        100_000,
        help="Number of updates of the whole run.",
        at_most=2**31 - 1,
        at_least=1,
        identity=True,
        common=True,
    )
    num_warmup_steps: int = options.field(
        10_000,
        help="Updates over which the learning rate rises.",
        at_most=2**31 - 1,
        at_least=0,
        identity=True,
        common=True,
    )
    max_eval_steps: int = options.field(
        100,
        help="Maximum number of batches per evaluation; records are never repeated.",
        at_least=1,
    )

    dry_run: bool = options.field(
        False,
        help="Only run a few updates, say what the whole training takes, and write "
        "nothing.",
        only_for={"do_train": options.GIVEN},
    )
    eval_input_file: list[str] = options.field(
        [], help="Held-out records to evaluate on; by default, input_file.", common=True
    )
    vocab_file: str | None = options.field(
        None,
        help="The vocabulary of the records; checked, and copied to output_dir. By "
        "default, the one that their description names, if it is still there. --do_export "
        "needs it.",
    )

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_export):
            raise UserError(
                "nothing to do; pass at least one of --do_train, --do_eval and --do_export"
            )
        if (self.do_train or self.do_eval) and not self.input_file:
            raise UserError("--do_train and --do_eval need --input_file")
        self.check_supplied("bert_config_file")
        if self.eval_every_steps and not self.eval_input_file:
            raise UserError("--eval_every_steps needs --eval_input_file")

    @property
    def training_settings(self) -> dict:
        return super().training_settings | self.distillation_settings

    def files(self) -> list[str]:
        teacher = [self.distill_from] if self.distill_from else []
        return [
            *self.input_file,
            *self.eval_input_file,
            *teacher,
            *super().files(),
        ]
