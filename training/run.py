"""What all training scripts share: flags, devices, where a run starts."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator

import numpy as np

import options
from modeling.encoders.config import EncoderConfig
from serving import portable
from text.errors import UserError
from text.files import anywhere
from text.tokenizers import wordpiece
from text.tokenizers.vocabulary import Vocabulary
from training import checkpoint, determinism, distribution, loop, report, run_folder
from training.layouts import hugging_face

# isort: split
import tensorflow as tf

TASK_FILE = "task.json"  # what a fine-tuned model was trained to do, and on which text


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """The release's flags that all its training scripts had, then ours."""

    bert_config_file: str = options.field(
        help="The architecture: a bert_config.json or a Hugging Face config.json. It is "
        "copied to output_dir, where other tools look for it."
    )
    output_dir: str = options.field(help="Folder for checkpoints and reports.")
    init_checkpoint: str | None = options.field(
        None,
        help="Weights to start from: prefix, directory, or Hugging Face model. Its "
        "optimizer slots and step are not used. Ignored if output_dir already holds a "
        "checkpoint.",
    )
    max_seq_length: int = options.field(128, help="Maximum number of tokens per row.")
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
        help=f"Of {', '.join(portable.FORMATS)}: write the network in these, too; each "
        "needs its requirements-*.txt.",
    )
    eval_batch_size: int = options.field(8, help="Rows per evaluation batch.")
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
        choices=distribution.KINDS,
        help="one: a single device. mirrored: all GPUs of this host. multi_worker: the "
        "hosts in TF_CONFIG, which share output_dir. tpu: a TPU.",
    )
    gradient_accumulation_steps: int = options.field(
        1, help="Micro-batches per update on every replica; saves memory."
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
    bias_correction: bool = options.field(
        False,
        help="Correct Adam's moments in the first updates, which the release does not; "
        "steadier on small data sets.",
    )
    seed: int = options.field(12345, help="Determines weights, data order and dropout.")
    keep_checkpoint_max: int = options.field(
        5, help="Number of checkpoints to keep; 0 keeps all."
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
            "log_every_steps",
            "max_skipped_updates",
        )
        self.check_at_least(0, "keep_checkpoint_max", "eval_every_steps")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"--seed={self.seed}: must be from 0 to {2**31 - 1}")
        if self.export_formats and self.export_dtype != "float32":
            raise UserError("--export_formats: only with --export_dtype=float32")
        portable.check_installed(self.export_formats)
        if self.uses_tpu:
            self._check_tpu()

    def check_at_least(self, lowest, *names: str) -> None:
        """Raises:
        UserError: one of these flags, or of their lists, is below `lowest`.
        """
        for name in names:
            value = getattr(self, name)
            for number in value if isinstance(value, list) else [value]:
                if not number >= lowest:
                    wanted = f"at least {lowest}" if lowest else "not negative"
                    raise UserError(f"--{name}={number}: must be {wanted}")

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
        return self.tpu_name or self.master or distribution.LOCAL_TPU

    def _check_tpu(self):
        if self._tpu == distribution.LOCAL_TPU:
            return
        for path in self.files():
            if not path.startswith("gs://"):
                raise UserError(
                    f"{path}: the hosts of the TPU {self._tpu!r} are other machines, which "
                    "cannot read or write local files; give gs:// paths, or, on a TPU VM, "
                    f"--tpu_name={distribution.LOCAL_TPU}"
                )

    def strategy(self):
        """Connects to the devices; to be called before TensorFlow looks for any."""
        determinism.configure(self.deterministic, self.allow_tf32)
        return distribution.make(
            "tpu" if self.uses_tpu else self.distribution,
            tpu=self._tpu,
            zone=self.tpu_zone,
            project=self.gcp_project,
        )

    def settings(
        self,
        *,
        num_train_steps: int,
        num_warmup_steps: int,
        learning_rate: float,
        batch_size: int,
        seed: int,
    ) -> loop.Settings:
        """The loop's settings: these numbers, the others by the flags."""
        return loop.Settings(
            num_train_steps=num_train_steps,
            num_warmup_steps=num_warmup_steps,
            learning_rate=learning_rate,
            batch_size=batch_size,
            accumulation_steps=self.gradient_accumulation_steps,
            seed=seed,
            xla=self.xla,
            bias_correction=self.bias_correction,
            max_skipped_updates=self.max_skipped_updates,
            steps_per_call=self.iterations_per_loop,
            save_every_steps=self.save_checkpoints_steps,
            keep_checkpoints=self.keep_checkpoint_max,
            log_every_steps=self.log_every_steps,
            eval_every_steps=self.eval_every_steps,
        )


def check_division(
    flag: str, batch_size: int, replicas: int, micro_batches: int = 1
) -> None:
    """Raises:
    UserError: replicas and micro-batches cannot share the batch evenly.
    """
    if batch_size % (replicas * micro_batches):
        raise UserError(
            f"--{flag}={batch_size} is not divisible by {replicas} replicas x "
            f"{micro_batches} micro-batches"
        )


def read_config(given: RunOptions) -> EncoderConfig:
    """The architecture, which has a position for every token of a row.

    Raises:
        UserError: the file cannot be read or is no config, or has too few positions.
    """
    path = given.bert_config_file
    config = checkpoint.read_config(path)
    if given.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={given.max_seq_length} is more than "
            f"max_position_embeddings={config.max_position_embeddings} of {path}"
        )
    return config


def make_tokenizer(given) -> wordpiece.Tokenizer:
    """That of --vocab_file and the flags beside it, held to --init_checkpoint.

    Raises:
        UserError: the vocabulary cannot be read, or init_checkpoint wants another one or
            other flags.
    """
    wordpiece.check_case(given.do_lower_case, given.init_checkpoint)
    tokenizer = given.tokenizer(Vocabulary.load(given.vocab_file))
    if given.init_checkpoint:
        source = checkpoint.resolve(given.init_checkpoint)
        folder = checkpoint.folder_of(source)
        hugging_face.check_tokenizer(source, tokenizer.splitter)
        _check_ids(tokenizer.vocabulary, os.path.join(folder, "vocab.txt"))
        check_text(tokenizer, folder)
    return tokenizer


def check_text(tokenizer: wordpiece.Tokenizer, folder: str) -> dict:
    """Holds text to what a fine-tuning run wrote of its own.

    Returns:
        all that it wrote, or nothing where there was none.
    Raises:
        UserError: other flags, or another vocabulary.
    """
    path = os.path.join(folder, TASK_FILE)
    state = anywhere.read_json(path)
    if not isinstance(state, dict):  # absent, or somebody else's
        return {}
    for name, value in tokenizer.settings.items():
        if state.get(name, value) == value:
            continue
        if name == "vocab_sha256":
            raise UserError(
                f"{path}: the model was trained with another vocabulary; give the "
                "vocab.txt beside it"
            )
        raise UserError(
            f"{path}: the model was trained with {name}={state[name]}, and this is "
            f"{value}; give the same flags"
        )
    return state


def _check_ids(vocabulary, path):
    """Rows that training never reached may have new tokens: those named [unused...]."""
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        return
    with anywhere.access(path), tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        known = [
            line.strip() for line in content.decode("utf-8-sig").rstrip().split("\n")
        ]
    except UnicodeDecodeError:  # as where it is packed
        return
    for id, (token, learned) in enumerate(zip(vocabulary.tokens, known, strict=False)):
        if token != learned and not learned.startswith("[unused"):
            raise UserError(
                f"{vocabulary.path}:{id + 1}: {token!r} stands where {path}, beside the "
                f"checkpoint, has {learned!r}; give that one, or move it away if the "
                "checkpoint is not of it"
            )


def check_vocabulary(
    vocabulary: Vocabulary, given: RunOptions, config: EncoderConfig
) -> None:
    """Raises:
    UserError: the network has no row for some token.
    """
    if len(vocabulary) > config.vocab_size:
        raise UserError(
            f"{given.vocab_file}: {len(vocabulary)} tokens, more than "
            f"vocab_size={config.vocab_size} of {given.bert_config_file}; another "
            "vocabulary?"
        )


@contextlib.contextmanager
def held(strategy, directory: str, log: report.Report) -> Iterator[None]:
    """Keeps other trainings out of a directory; see `run_folder.held`.

    Raises:
        UserError: another training has it; on every host.
    """
    with contextlib.ExitStack() as stack:
        hold = run_folder.held(directory, log.say)
        distribution.on_chief(strategy, lambda: stack.enter_context(hold))
        yield


def defaults(given: RunOptions, config: EncoderConfig) -> dict:
    """What a flag or a key of the config counts as in a run that did not note it.

    A run of an earlier version, which did not have it, then goes on.
    """
    return {
        field.name: field.default
        for of in (given, config)
        for field in dataclasses.fields(of)
        if field.default is not dataclasses.MISSING
    }


def prepare(
    directory: str,
    identity: dict,
    config: EncoderConfig,
    init_checkpoint: str | None,
    *,
    defaults: dict | None = None,
    trainer: loop.Trainer | None = None,
) -> None:
    """Makes a directory that of a training which `start` began or took up.

    Only the chief may call it, and only when nothing is left that could be refused.

    Args:
        identity, defaults: see `run_folder.check_settings`.
        trainer: of the training, unless that is a search.
    """
    source = None
    if init_checkpoint and not (trainer and run_folder.steps(directory)):
        source = checkpoint.resolve(init_checkpoint)
    for folder in (directory, os.path.join(directory, run_folder.BEST)):
        run_folder.clear(folder)
    run_folder.note_settings(directory, identity, defaults)
    path = os.path.join(directory, "bert_config.json")
    run_folder.write_file(path, config.to_json_string())
    if source and _is_inside(source, directory):
        # The run writes into the folder that holds its start. The start stays; and since
        # init_checkpoint may soon mean other weights, a resume does not need it.
        run_folder.release(source)
        if trainer:
            trainer.save(directory)


def _is_inside(path, directory):
    return os.path.realpath(path).startswith(
        os.path.join(os.path.realpath(directory), "")
    )


def start(
    trainer: loop.Trainer,
    directory: str,
    init_checkpoint: str | None,
    log: report.Report,
    *,
    required: str | tuple[str, ...],
    trains: bool,
    encoder_only: bool = False,
) -> None:
    """Takes up the run in a directory, or the weights of another checkpoint.

    Args:
        required: variables whose names begin so must be in init_checkpoint.
        trains: whether untrained weights are an honest start.
        encoder_only: of init_checkpoint, take the encoder and leave its head.
    Raises:
        UserError: there is nothing to evaluate, or a checkpoint does not fit.
    """
    step = trainer.restore(directory)
    if step is not None:
        log.say(f"going on from step {step} in {directory}")
    elif init_checkpoint:
        log.say(str(load_start(trainer, init_checkpoint, required, encoder_only)))
    elif not trains:
        raise no_checkpoint(directory)
    else:
        log.say("no --init_checkpoint: training starts from random weights")
    distribution.check_same(
        trainer.strategy,
        trainer.progress.step,
        "the newest checkpoint in output_dir is not the same on all hosts; they must "
        "share output_dir",
    )


def load_start(
    trainer: loop.Trainer,
    init_checkpoint: str,
    required: str | tuple[str, ...],
    encoder_only: bool,
) -> checkpoint.LoadReport:
    """Gives a model the weights to start from; see `start`."""
    weights, scope = trainer.weights, trainer.model.encoder.scope
    if encoder_only:
        weights = {k: v for k, v in weights.items() if k.startswith(scope)}
    return checkpoint.load(weights, init_checkpoint, required, scope)


def no_checkpoint(directory: str) -> UserError:
    """What to raise where there is nothing to evaluate."""
    return UserError(
        f"{directory}: holds no checkpoint to evaluate; give --do_train or "
        "--init_checkpoint"
    )


@contextlib.contextmanager
def interruptible(directory: str) -> Iterator[None]:
    """Lets Ctrl-C say how the run goes on."""
    try:
        yield
    except KeyboardInterrupt:
        done = run_folder.steps(directory)
        where = f"goes on from step {done[-1]}" if done else "begins this run anew"
        raise KeyboardInterrupt(f"interrupted; the same command {where}") from None


def results_lines(values: dict[str, float | int]) -> str:
    """`key = value` lines, sorted, as the release writes eval_results.txt."""
    return "".join(
        f"{name} = {value if isinstance(value, int) else str(np.float32(value))}\n"
        for name, value in sorted(values.items())
    )
