"""Pre-trains a model on the records of create_pretraining_data.py, and evaluates it.

    python run_pretraining.py --do_train --do_eval \\
        --input_file='records/train-*.tfrecord' \\
        --eval_input_file=records/held_out.tfrecord --eval_every_steps=1000 \\
        --bert_config_file=bert_config.json --output_dir=pretraining_output \\
        --num_train_steps=10000 --num_warmup_steps=1000 --learning_rate=1e-4

By default, it learns masked words and sentence pairs, as BERT does; --objective lists what
else it can learn. If a run is killed or interrupted, the same command continues it and
ends with the same weights. The released models were trained for a million updates of 256
records (arXiv:1810.04805, A.2).
"""

import dataclasses

import options
from training.run import run_flags
from errors import UserError
from text.tokenizers.kinds import TokenizerOptions
from training.distillation.distillation_options import WordDistillationOptions
from training.pretraining.objective_options import ObjectiveOptions


@dataclasses.dataclass(frozen=True)
class Options(
    TokenizerOptions, ObjectiveOptions, WordDistillationOptions, run_flags.RunOptions
):
    """The release's flags, then ours."""

    input_file: list[str] = options.field(
        [], help="TFRecord files, plain or gzip: comma-separated names and globs."
    )
    max_predictions_per_seq: int = options.field(
        20, help="Number of masked positions in each record."
    )
    train_batch_size: int = options.field(
        32,
        help="Records per update, over all replicas and micro-batches.",
        most=options.MOST_ROWS,
    )
    learning_rate: float = options.field(5e-5, help="The peak learning rate.")
    num_train_steps: int = options.field(
        100_000, help="Number of updates of the whole run.", most=2**31 - 1
    )
    num_warmup_steps: int = options.field(
        10_000, help="Updates over which the learning rate rises.", most=2**31 - 1
    )
    max_eval_steps: int = options.field(
        100,
        help="Maximum number of batches per evaluation; records are never repeated.",
    )

    dry_run: bool = options.field(
        False,
        help="Only run a few updates, say what the whole training takes, and write "
        "nothing.",
    )
    eval_input_file: list[str] = options.field(
        [], help="Held-out records to evaluate on; by default, input_file."
    )
    vocab_file: str | None = options.field(
        None,
        help="The vocabulary of the records; checked, and copied to output_dir. By "
        "default, the one that their description names, if it is still there. --do_export "
        "needs it.",
    )

    def __post_init__(self):
        if not (self.do_train or self.do_eval or self.do_export):
            raise UserError(
                "nothing to do; pass at least one of --do_train, --do_eval and --do_export"
            )
        if (self.do_train or self.do_eval) and not self.input_file:
            raise UserError("--do_train and --do_eval need --input_file")
        if self.dry_run and not self.do_train:
            raise UserError("--dry_run tells what a training takes; pass --do_train")
        self.check_supplied("bert_config_file")
        self.check_at_least(
            1,
            "max_predictions_per_seq",
            "train_batch_size",
            "num_train_steps",
            "max_eval_steps",
        )
        self.check_at_least(0, "num_warmup_steps")
        if not 0 < self.learning_rate < float("inf"):
            raise UserError(f"--learning_rate={self.learning_rate}: must be above 0")
        if self.eval_every_steps and not self.eval_input_file:
            raise UserError("--eval_every_steps needs --eval_input_file")
        super().__post_init__()

    def files(self) -> list[str]:
        teacher = [self.distill_from] if self.distill_from else []
        return [
            *self.input_file,
            *self.eval_input_file,
            *teacher,
            *super().files(),
        ]


if __name__ == "__main__":
    options.parse(Options)  # --help and mistakes are answered before TensorFlow loads

from training.pretraining import pretrain
from training.run import distribution


@distribution.together()
def main(given: Options) -> None:
    """Does what the flags ask for; see `pretraining.pretrain`."""
    pretrain.pretrain(given)


if __name__ == "__main__":
    options.run(main, Options)
