"""The flags of pre-training."""

import dataclasses

import extensions
import options
from errors import UserError
from modeling.objectives.table import OBJECTIVES
from text.tokenizers.table import TokenizerOptions
from training.distillation.options import WordDistillationOptions
from training.run.options import RunOptions

_GROUPS = tuple(kind.group for kind in OBJECTIVES.values() if kind.group)


@dataclasses.dataclass(frozen=True)
class ObjectiveOptions(*_GROUPS, options.Group):
    """The objective."""

    objective: str = options.field(
        "masked_lm_next_sentence",
        choices=tuple(OBJECTIVES),
        help="What to learn. masked_lm_next_sentence: BERT's; masked words, and whether "
        "the second of two spans follows the first. masked_lm: masked words alone. "
        "One whose name does not begin with masked_lm needs records of "
        "create_pretraining_data.py --masking=dynamic."
        + extensions.help_of("objective"),
        identity=True,
        common=True,
    )

    @property
    def objective_class(self) -> type:
        """That of the chosen `Objective`."""
        return OBJECTIVES[self.objective].load()

    def make_objective(self, **rows):
        """The chosen `Objective`.

        Args:
            rows: what it needs to know of the records; see `Needs.rows`.
        """
        names = OBJECTIVES[self.objective].options
        own = {name: getattr(self, name) for name in names}
        return self.objective_class(**own, **rows)


@dataclasses.dataclass(frozen=True)
class PretrainingOptions(
    TokenizerOptions, ObjectiveOptions, WordDistillationOptions, RunOptions
):
    """Pre-training. The release's flags, then ours."""

    input_file: list[str] = options.field(
        [],
        help="TFRecord files, plain or gzip: comma-separated names and globs. With "
        "weights, as in 'wiki-*:0.7,books-*:0.3', each is a source that gives this share "
        "of the rows, and begins anew where it ends.",
        common=True,
    )
    source_temperature: float | None = options.field(
        None,
        help="Mix the names and globs of --input_file, with the numbers of their records "
        "to the power of 1 / this as their weights. With 1, all records are read equally "
        "often; the higher, the more often those of small sources.",
        only_for={"input_file": options.GIVEN},
        at_least=1,
        may_be_infinite=True,
    )
    max_predictions_per_seq: int = options.field(
        20,
        help="Number of masked positions in each record.",
        at_most=options.MOST_TOKENS,
        at_least=1,
        identity=True,
    )
    masked_lm_prob: float | None = options.field(
        None,
        help="Share of tokens to predict, for records of create_pretraining_data.py "
        "--masking=dynamic, up to --max_predictions_per_seq; both may differ from those of "
        "the records. By default, what the records were made with.",
        above=0,
        at_most=1,
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
    num_decay_steps: int = options.field(
        0,
        help="For wsd and wsd_sqrt: the last updates of the run, during which the learning "
        "rate falls. 0: it stays at its peak, and a later run decays.",
        at_most=2**31 - 1,
        at_least=0,
        identity=True,
    )
    keep_optimizer: bool = options.field(
        False,
        help="Continue --init_checkpoint with its optimizer's slots and its step, which "
        "--num_train_steps counts, too. The other flags may change from there on. The same "
        "records are read from where that run stopped.",
        only_for={"do_train": options.GIVEN, "init_checkpoint": options.GIVEN},
        identity=True,
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
        stable = self.num_train_steps - self.num_decay_steps
        if self.num_decay_steps and stable < self.num_warmup_steps:
            raise UserError(
                f"--num_decay_steps={self.num_decay_steps}: with --num_warmup_steps="
                f"{self.num_warmup_steps}, this is more than --num_train_steps="
                f"{self.num_train_steps}; lower one of them"
            )
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
