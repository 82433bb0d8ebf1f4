"""The flags of all training scripts.

Declaring them loads neither TensorFlow nor Keras, so that --help answers at once. Methods
for a run import what they need.
"""

import dataclasses

import options
from errors import UserError
from modeling.optimizers.table import HAVE_LOWEST_RATE, OPTIMIZERS, WITHOUT, Recipe
from serving import portable
from text.files import sources

_LOCAL_TPU = "local"  # as TensorFlow calls the TPU of a TPU VM


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """The flags shared by all of the release's training scripts, then ours."""

    bert_config_file: str | None = options.field(
        None,
        help="The architecture: a bert_config.json or a Hugging Face config.json. It is "
        "copied to output_dir, where other tools look for it. By default, the one next to "
        "--init_checkpoint, or that of the run in --output_dir.",
    )
    output_dir: str = options.field(help="Folder for checkpoints and reports.")
    init_checkpoint: str | None = options.field(
        None,
        help="Weights to start from: prefix, directory, or Hugging Face model. Its "
        "optimizer slots and step are not used. Ignored if output_dir already holds a "
        "checkpoint.",
    )
    change_network: bool = options.field(
        False,
        help="Let what the weights compute differ from the config next to "
        "--init_checkpoint, such as hidden_act, num_attention_heads or "
        "attention_direction.",
    )
    max_seq_length: int = options.field(
        128, help="Maximum number of tokens per row.", most=options.MOST_TOKENS
    )
    do_train: bool = options.field(False, help="Train.")
    do_eval: bool = options.field(False, help="Evaluate at the end.")
    do_export: bool = options.field(
        False,
        help="Write SavedModels to output_dir/export at the end: raw text in, answers "
        "out.",
    )
    export_dtype: str = options.field(
        "float32",
        choices=("float32", "mixed_bfloat16"),
        help="Type of the matrix products in the export.",
    )
    export_formats: list[str] = options.field(
        [],
        help="Also write the network in any of these formats: "
        f"{', '.join(portable.FORMATS)}. Each needs its requirements/*.txt.",
    )
    eval_batch_size: int = options.field(
        8, help="Rows per evaluation batch.", most=options.MOST_ROWS
    )
    save_checkpoints_steps: int = options.field(
        1000, help="Updates between checkpoints."
    )
    iterations_per_loop: int = options.field(
        1000, help="Maximum number of updates between returns to Python."
    )
    use_tpu: bool = options.field(False, help="Same as --distribution=tpu.")
    tpu_name: str | None = options.field(
        None,
        help="The TPU's name or grpc:// address, if it is on another machine; files must "
        "then be on gs://. By default, the TPU of this machine ('local').",
    )
    tpu_zone: str | None = options.field(None, help="The TPU's zone.")
    gcp_project: str | None = options.field(None, help="The TPU's project.")
    master: str | None = options.field(
        None, help="The TPU's address, if --tpu_name is not given."
    )
    num_tpu_cores: int = options.field(
        8, help="Has no effect: the TPU reports its number of cores."
    )

    distribution: str = options.field(
        "one",
        choices=("one", "mirrored", "multi_worker", "tpu"),
        help="one: a single device. mirrored: all GPUs of this host. multi_worker: the "
        "hosts in TF_CONFIG, which share output_dir. tpu: a TPU.",
    )
    gradient_accumulation_steps: int = options.field(
        1, help="Micro-batches per update on every replica; saves memory."
    )
    recompute: bool = options.field(
        False,
        help="Keep only the outputs of each layer for the gradients and compute the rest "
        "again; saves memory, for one more forward pass per update.",
    )
    dtype: str = options.field(
        "float32",
        choices=("float32", "mixed_bfloat16"),
        help="Type of the matrix products; weights are always float32.",
    )
    xla: bool = options.field(False, help="Compile with XLA.")
    deterministic: bool | None = options.field(
        None,
        help="Make GPUs compute the same bits every time, which is slower. CPUs and TPUs "
        "always do.",
    )
    allow_tf32: bool = options.field(
        False,
        help="Let GPUs round the factors of float32 matrix products to TF32, which is "
        "faster but keeps only 10 of 23 fraction bits.",
    )
    optimizer: str = options.field(
        "adam_weight_decay",
        choices=tuple(OPTIMIZERS),
        help="adam_weight_decay: BERT's; after the warm-up, the learning rate jumps down "
        "and falls linearly. electra_adam: the same without the jump. lamb: "
        "adam_weight_decay with updates scaled to the norm of each variable, for batches "
        "of thousands of rows. fairseq_adam: RoBERTa's; corrects Adam's bias and decays "
        "every variable; the rate falls linearly from its peak. openai_adam: GPT's; "
        "corrects Adam's bias, also in the weight decay; the rate falls linearly. "
        "openai_adam_cosine: the same, but the rate jumps down to half a cosine wave. "
        "openai_adam_constant: the same, but the rate stays at its peak. xlnet_adam: "
        "XLNet's; Adam if --weight_decay=0, otherwise BERT's that also decays the biases "
        "of queries; the rate falls linearly from its peak. xlnet_adam_cosine: the same, "
        "but the rate falls in half a cosine wave. adagrad: ELMo's, without weight decay; "
        "the rate, 0.2 in the release, stays at its peak. adafactor: T5's, without weight "
        "decay; the rate stays at its peak during the warm-up, then falls with the inverse "
        "root of the step. adafactor_constant: the same, but the rate rises during the "
        "warm-up and stays at its peak.",
    )
    bias_correction: bool = options.field(
        False,
        help="Apply Adam's bias correction, which the release omits; steadier on small "
        "data sets. fairseq_adam always does.",
    )
    adam_beta_2: float = options.field(
        0.999, help="Decay of Adam's second moment; 0.98 for RoBERTa."
    )
    weight_decay: float = options.field(
        0.01,
        help="Share of a variable that an update subtracts, times the learning rate; "
        "0.1 for fine-tuning RoBERTa.",
    )
    clip_norm: float = options.field(
        1.0, help="Maximum norm of an update's gradient; 0 does not clip."
    )
    lr_decay_power: float = options.field(
        1.0,
        help="The learning rate falls with this power of the share of updates left; 1 is "
        "a straight line.",
    )
    min_lr_ratio: float = options.field(
        0.0,
        help="For xlnet_adam: the share of the learning rate to which it falls; 0.001 in "
        "XLNet's pre-training.",
    )
    seed: int = options.field(
        12345, help="Seed for initial weights, data order and dropout."
    )
    keep_checkpoint_max: int = options.field(
        5, help="Number of checkpoints to keep; 0 keeps all."
    )
    keep_checkpoints_at: list[int] = options.field(
        [],
        help="Steps at which a checkpoint is saved and kept, whatever "
        "--keep_checkpoint_max says. A search keeps those of its best run.",
    )
    log_every_steps: int = options.field(100, help="Updates between reports.")
    eval_every_steps: int = options.field(
        0, help="Updates between evaluations during training; 0 disables them."
    )
    max_skipped_updates: int = options.field(
        10,
        help="Updates with a non-finite loss or gradient are skipped; after this many in "
        "a row, the run stops.",
    )

    def __post_init__(self):
        self.check_at_least(
            1,
            "max_seq_length",
            "eval_batch_size",
            "save_checkpoints_steps",
            "iterations_per_loop",
            "gradient_accumulation_steps",
            "keep_checkpoints_at",
            "log_every_steps",
            "max_skipped_updates",
        )
        self.check_at_least(0, "keep_checkpoint_max", "eval_every_steps")
        self._check_optimizer()
        if not 0 < self.adam_beta_2 < 1:
            raise UserError(
                f"--adam_beta_2={self.adam_beta_2}: must be between 0 and 1"
            )
        if not 0 < self.lr_decay_power < float("inf"):
            raise UserError(f"--lr_decay_power={self.lr_decay_power}: must be above 0")
        if not 0 <= self.min_lr_ratio < 1:
            raise UserError(
                f"--min_lr_ratio={self.min_lr_ratio}: must be at least 0 and below 1"
            )
        if self.min_lr_ratio and self.optimizer not in HAVE_LOWEST_RATE:
            raise UserError(
                f"--min_lr_ratio={self.min_lr_ratio}: only --optimizer="
                f"{' or '.join(HAVE_LOWEST_RATE)} has it, not {self.optimizer}"
            )
        for name in ("weight_decay", "clip_norm"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UserError(f"--{name}={getattr(self, name)}: must not be negative")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"--seed={self.seed}: must be from 0 to {2**31 - 1}")
        if self.export_formats and self.export_dtype != "float32":
            raise UserError("--export_formats needs --export_dtype=float32")
        portable.check_known(self.export_formats)
        if self.export_formats:
            from training import backend  # noqa: F401  loads TensorFlow quietly

            portable.check_installed(self.export_formats)
        if self.uses_tpu:
            self._check_tpu()

    def _check_optimizer(self):
        """Refuses settings that the optimizer does not have."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in WITHOUT.get(self.optimizer, ()):
            value = getattr(self, name)
            if value != defaults[name]:
                raise UserError(
                    f"--{name}={value}: --optimizer={self.optimizer} does not have it; "
                    "leave it out"
                )

    def network_changes(self, config) -> dict:
        """Keys of the config that flags change."""
        del config
        return {}

    def check_supplied(self, *names: str) -> None:
        """Raises:
        UserError: one of these flags is absent, and so is all that could supply it.
        """
        absent = [f"--{name}" for name in names if getattr(self, name) is None]
        is_new = not sources.is_remote(self.output_dir) and not sources.is_folder(
            self.output_dir
        )
        if absent and is_new and not self.init_checkpoint:
            raise UserError(
                f"{', '.join(absent)} required: there is no --init_checkpoint, and no run "
                "in --output_dir, that would supply them"
            )

    def check_at_least(self, lowest, *names: str) -> None:
        """Raises:
        UserError: one of these flags, or an item of its list, is below `lowest`.
        """
        for name in names:
            value = getattr(self, name)
            for number in value if isinstance(value, list) else [value]:
                if not number >= lowest:
                    wanted = f"be at least {lowest}" if lowest else "not be negative"
                    raise UserError(f"--{name}={number}: must {wanted}")

    @property
    def uses_tpu(self) -> bool:
        return self.use_tpu or self.distribution == "tpu"

    def files(self) -> list[str]:
        """What the run reads and writes; a script adds its own."""
        return [
            self.output_dir,
            *([self.init_checkpoint] if self.init_checkpoint else []),
        ]

    @property
    def _tpu(self) -> str:
        return self.tpu_name or self.master or _LOCAL_TPU

    def _check_tpu(self):
        if self._tpu == _LOCAL_TPU:
            return
        for path in self.files():
            if not path.startswith("gs://"):
                raise UserError(
                    f"{path}: the TPU {self._tpu!r} runs on other machines, which cannot "
                    "read or write local files; use gs:// paths or, on a TPU VM, "
                    f"--tpu_name={_LOCAL_TPU}"
                )

    def strategy(self):
        """Connects to the devices; call it before TensorFlow looks for any."""
        from training.run import determinism, distribution

        determinism.configure(self.deterministic, self.allow_tf32)
        return distribution.make(
            "tpu" if self.uses_tpu else self.distribution,
            tpu=self._tpu,
            zone=self.tpu_zone,
            project=self.gcp_project,
        )

    @property
    def recipe(self) -> dict:
        """How gradients become an update: the flags that are fields of `Recipe`."""
        names = (field.name for field in dataclasses.fields(Recipe))
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def settings(
        self,
        *,
        num_train_steps: int,
        num_warmup_steps: int,
        learning_rate: float,
        batch_size: int,
        seed: int,
    ):
        """The `loop.Settings`: these numbers, and the rest from the flags."""
        from training.run import loop

        return loop.Settings(
            num_train_steps=num_train_steps,
            num_warmup_steps=num_warmup_steps,
            learning_rate=learning_rate,
            batch_size=batch_size,
            accumulation_steps=self.gradient_accumulation_steps,
            recompute=self.recompute,
            seed=seed,
            xla=self.xla,
            recipe=Recipe(**self.recipe),
            max_skipped_updates=self.max_skipped_updates,
            steps_per_call=self.iterations_per_loop,
            save_every_steps=self.save_checkpoints_steps,
            keep_checkpoints=self.keep_checkpoint_max,
            keep_checkpoints_at=tuple(self.keep_checkpoints_at),
            log_every_steps=self.log_every_steps,
            eval_every_steps=self.eval_every_steps,
        )
