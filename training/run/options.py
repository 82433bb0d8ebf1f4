"""The flags of all training scripts.

Declaring them loads neither TensorFlow nor Keras, so that --help answers at once. Methods
for a run import what they need.
"""

import dataclasses

import extensions
import options
from training.run import program_cache
from errors import UserError
from files import sources
from modeling.optimizers.table import (
    SCHEDULES,
    OptimizerSettings,
    optimizers,
    usual_schedules,
)
from serving import portable

_LOCAL_TPU = "local"  # as TensorFlow calls the TPU of a TPU VM


@dataclasses.dataclass(frozen=True)
class RunOptions(options.Group):
    """Training, devices, checkpoints and exports. The release's flags, then ours."""

    bert_config_file: str | None = options.field(
        None,
        help="The architecture: a bert_config.json or a Hugging Face config.json. It is "
        "copied to output_dir, where other tools look for it. By default, the one next to "
        "--init_checkpoint, or that of the run in --output_dir.",
        common=True,
    )
    output_dir: str = options.field(help="Folder for checkpoints and reports.")
    init_checkpoint: str | None = options.field(
        None,
        help="Weights to start from: prefix, directory, Hugging Face model, or "
        "hf://organization/name[@revision] on its hub. Its optimizer slots and step are "
        "not used, unless a pre-training asks for them. Not read if output_dir already "
        "holds a checkpoint.",
        identity=True,
        common=True,
    )
    change_network: bool = options.field(
        False,
        help="Let what the weights compute differ from the config next to "
        "--init_checkpoint, such as hidden_act, num_attention_heads or "
        "attention_direction.",
    )
    max_seq_length: int = options.field(
        128,
        help="Maximum number of tokens per row.",
        at_most=options.MOST_TOKENS,
        at_least=1,
        identity=True,
        common=True,
    )
    do_train: bool = options.field(False, help="Train.", common=True)
    do_eval: bool = options.field(False, help="Evaluate at the end.", common=True)
    do_export: bool = options.field(
        False,
        help="Write SavedModels to output_dir/export at the end: raw text in, answers "
        "out.",
        common=True,
    )
    export_precision: str = options.field(
        "float32",
        choices=portable.PRECISIONS,
        help="Type in which an export stores its weights; ONNX and LiteRT have float32, "
        "float16 and int8. A SavedModel multiplies in bfloat16 if this is bfloat16 or "
        "int8, otherwise in float32.",
        only_for={"do_export": options.GIVEN},
    )
    export_formats: list[str] = options.field(
        [],
        help="Also write the network in any of these formats: "
        f"{', '.join(portable.FORMATS)}. Each needs its requirements/*.txt.",
        only_for={"do_export": options.GIVEN},
    )
    eval_batch_size: int = options.field(
        8, help="Rows per evaluation batch.", at_most=options.MOST_ROWS, at_least=1
    )
    save_checkpoints_steps: int = options.field(
        1000, help="Updates between checkpoints.", at_least=1
    )
    iterations_per_loop: int = options.field(
        1000, help="Maximum number of updates between returns to Python.", at_least=1
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
        1, help="Micro-batches per update on every replica; saves memory.", at_least=1
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
        identity=True,
    )
    xla: bool | None = options.field(
        None,
        help="Compile updates, evaluations and predictions as a whole with XLA. By "
        "default, on GPUs without --deterministic.",
    )
    xla_cache_dir: str | None = options.field(
        None,
        help="Folder for compiled programs, which the next start loads in seconds. By "
        "default, with a GPU, ~/.cache/bert-programs if it can be written. "
        f"{program_cache.NONE}: keep no programs.",
    )
    deterministic: bool | None = options.field(
        None,
        help="Make GPUs compute the same bits every time, which is slower; also without "
        "XLA, unless --xla is given. CPUs and TPUs always do.",
    )
    allow_tf32: bool = options.field(
        False,
        help="Let GPUs round the factors of float32 matrix products to TF32, which is "
        "faster but keeps only 10 of 23 fraction bits.",
        identity=True,
    )
    optimizer: str = options.field(
        "adam_weight_decay",
        choices=optimizers(),
        help="How a gradient changes the weights; what a release used comes with its "
        "learning-rate schedule. adam_weight_decay, or adam: BERT's. lamb: adam with "
        "updates scaled to the norm of each variable, for batches of thousands of rows. "
        "stable_adamw: corrects Adam's bias and limits the update of each variable. "
        "adagrad and adafactor have no weight decay." + extensions.help_of("optimizer"),
        identity=True,
    )
    lr_schedule: str | None = options.field(
        None,
        choices=tuple(SCHEDULES),
        help="How the learning rate changes; by default, --optimizer decides: "
        f"{usual_schedules()}. bert: rises during the warm-up, then jumps down to a line "
        "that falls from the peak at step 0. from_peak: rises to its peak, then falls in a "
        "line. times_warmup: the warm-up multiplies the falling line. cosine: rises, then "
        "jumps down to half a cosine wave that began with the run. constant: rises and "
        "stays at its peak. inverse_root: stays at its peak during the warm-up, then falls "
        "with the inverse root of the step. to_ratio: like from_peak, down to "
        "--min_lr_ratio. cosine_to_ratio: the same in half a cosine wave. wsd: rises and "
        "stays at its peak; in pre-training, it may fall at the end, in a line, or with "
        "wsd_sqrt fast and then slowly.",
        identity=True,
    )
    bias_correction: bool = options.field(
        False,
        help="Apply Adam's bias correction, which the release omits; steadier on small "
        "data sets. Some optimizers always do.",
        identity=True,
    )
    adam_beta_2: float = options.field(
        0.999,
        help="Decay of Adam's second moment." + extensions.help_of("adam_beta_2"),
        above=0,
        below=1,
        identity=True,
    )
    weight_decay: float = options.field(
        0.01,
        help="Share of a variable that an update subtracts, times the learning rate."
        + extensions.help_of("weight_decay"),
        at_least=0,
        identity=True,
    )
    clip_norm: float = options.field(
        1.0,
        help="Maximum norm of an update's gradient; 0 does not clip.",
        at_least=0,
        identity=True,
    )
    lr_decay_power: float = options.field(
        1.0,
        help="The learning rate falls with this power of the share of updates left; 1 is "
        "a straight line.",
        above=0,
        identity=True,
    )
    min_lr_ratio: float = options.field(
        0.0,
        help="For to_ratio, cosine_to_ratio, wsd and wsd_sqrt: the share of the learning "
        "rate to which it falls." + extensions.help_of("min_lr_ratio"),
        at_least=0,
        below=1,
        identity=True,
    )
    seed: int = options.field(
        12345,
        help="Seed for initial weights, data order and dropout.",
        at_least=0,
        below=2**31,
        identity=True,
    )
    keep_checkpoint_max: int = options.field(
        5, help="Number of checkpoints to keep; 0 keeps all.", at_least=0
    )
    keep_checkpoints_at: list[int] = options.field(
        [],
        help="Steps at which a checkpoint is saved and kept, whatever "
        "--keep_checkpoint_max says. A search keeps those of its best run.",
        at_least=1,
    )
    log_every_steps: int = options.field(
        100, help="Updates between reports.", at_least=1
    )
    eval_every_steps: int = options.field(
        0,
        help="Updates between evaluations during training; 0 disables them.",
        at_least=0,
    )
    max_skipped_updates: int = options.field(
        10,
        help="Updates with a non-finite loss or gradient are skipped; after this many in "
        "a row, the run stops.",
        at_least=1,
    )

    def __post_init__(self):
        super().__post_init__()
        self._check_optimizer()
        portable.check_known(self.export_formats, self.export_precision)
        if self.export_formats:
            from training import backend  # noqa: F401  loads TensorFlow quietly

            portable.check_installed(self.export_formats)
        if self.uses_tpu:
            self._check_tpu()

    def _check_optimizer(self):
        """Refuses settings that optimizer or schedule do not have."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        unused = OptimizerSettings(**self.optimizer_settings).settings_without_effect()
        for name, (flag, chosen, having) in sorted(unused.items()):
            if name in defaults and (value := getattr(self, name)) != defaults[name]:
                usual = f", that of --optimizer={self.optimizer}," * (
                    flag == "lr_schedule" and not self.lr_schedule
                )
                raise UserError(
                    f"--{name}={value}: --{flag}={chosen}{usual} does not have it, only "
                    f"{', '.join(having)}; leave it out"
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
        if not absent or self.init_checkpoint or sources.is_remote(self.output_dir):
            return
        if not sources.is_folder(self.output_dir):
            raise UserError(
                f"{', '.join(absent)} required: there is no --init_checkpoint, and no run "
                "in --output_dir, that would supply them"
            )

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

    def set_environment(self):
        if not self.uses_tpu and self.xla is not False:
            program_cache.keep_programs(
                self.xla_cache_dir,
                deterministic=self.deterministic,
                allow_tf32=self.allow_tf32,
            )

    @property
    def compiles(self) -> bool:
        """Whether XLA compiles what the devices compute; looks for devices.

        TPUs do it by themselves. On GPUs, bits were only compared without XLA.
        """
        from training.run import distribution

        if self.xla is None and not self.uses_tpu and not self.deterministic:
            return bool(distribution.gpus())
        return bool(self.xla)

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
    def memory_use(self) -> dict:
        """What training keeps of a batch; arguments of `capacity.check_batch`."""
        return {
            "dtype": self.dtype,
            "keeps": "outputs" if self.recompute else "layers",
        }

    @property
    def optimizer_settings(self) -> dict:
        """The flags that are fields of `OptimizerSettings`."""
        names = (field.name for field in dataclasses.fields(OptimizerSettings))
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    @property
    def training_settings(self) -> dict:
        """What only training reads of the settings that say what weights a run has.

        Not how they are updated: rates and sizes of batches surprise nobody who evaluates.
        """
        return {"init_checkpoint": self.init_checkpoint}

    def settings(
        self,
        *,
        num_train_steps: int,
        num_warmup_steps: int,
        learning_rate: float,
        batch_size: int,
        seed: int,
    ):
        """The `loop.LoopSettings`: these numbers, and the rest from the flags."""
        from training.run import loop

        return loop.LoopSettings(
            num_train_steps=num_train_steps,
            num_warmup_steps=num_warmup_steps,
            learning_rate=learning_rate,
            batch_size=batch_size,
            accumulation_steps=self.gradient_accumulation_steps,
            recompute=self.recompute,
            seed=seed,
            xla=self.compiles,
            optimizer=OptimizerSettings(**self.optimizer_settings),
            max_skipped_updates=self.max_skipped_updates,
            steps_per_call=self.iterations_per_loop,
            save_every_steps=self.save_checkpoints_steps,
            keep_checkpoints=self.keep_checkpoint_max,
            keep_checkpoints_at=tuple(self.keep_checkpoints_at),
            log_every_steps=self.log_every_steps,
            eval_every_steps=self.eval_every_steps,
        )
