"""The flags of all fine-tuning scripts; see `training.run.options`."""

import dataclasses
import itertools
import os
from collections.abc import Mapping

import extensions
import options
from errors import UserError
from files.inputs import LineOptions
from modeling.architectures.config import POOLINGS
from modeling.architectures.features import FEATURES, LSTM_LAYERS
from text.tokenizers.table import TokenizerOptions
from training.distillation.options import DistillationOptions
from training.finetuning.trials import Trial
from training.run.options import RunOptions

# In bfloat16, contributions would not add up.
_FLOAT32_INSIDE = ("float32", "float16")


@dataclasses.dataclass(frozen=True)
class FineTuningOptions(TokenizerOptions, DistillationOptions, RunOptions, LineOptions):
    """Fine-tuning. The release's flags, then ours."""

    vocab_file: str | None = options.field(
        None,
        help="The vocabulary of the checkpoint; by default, the one next to "
        "--init_checkpoint, or that of the run in --output_dir.",
        common=True,
    )
    do_predict: bool = options.field(
        False, help="Predict the test set at the end.", common=True
    )
    train_batch_size: list[int] = options.field(
        [32],
        help="Rows per update, over all replicas; a list is searched.",
        at_most=options.MOST_ROWS,
        at_least=1,
        common=True,
    )
    predict_batch_size: int = options.field(
        8, help="Rows per prediction batch.", at_most=options.MOST_ROWS, at_least=1
    )
    learning_rate: list[float] = options.field(
        [5e-5], help="The peak learning rate; a list is searched.", above=0, common=True
    )
    num_train_epochs: list[float] = options.field(
        [3.0],
        help="Passes over the training set; a list is searched.",
        at_most=1e6,
        above=0,
        common=True,
    )
    warmup_proportion: float = options.field(
        0.1,
        help="Share of the updates over which the learning rate rises.",
        at_least=0,
        at_most=1,
        identity=True,
    )

    layerwise_lr_decay: float = options.field(
        1.0,
        help="Factor f that lowers the learning rate of lower layers. The head has the "
        "full rate, the pooler f times the rate, the top layer f squared times the rate, "
        "and so on down to the embeddings. 1 gives all the same rate."
        + extensions.help_of("layerwise_lr_decay"),
        above=0,
        at_most=1,
        identity=True,
    )

    freeze_layers: int | None = options.field(
        None,
        help="Train neither the embeddings nor this many layers above them; 0 freezes the "
        "embeddings alone. Saves time and memory.",
        at_least=0,
        identity=True,
        only_for={"features": options.ABSENT},
    )

    lora_rank: int | None = options.field(
        None,
        help="Train, of the encoder, only a product of two matrices of this rank for each "
        "kernel in --lora_targets, which is added to it. Checkpoints contain these and the "
        "head, so that resuming needs the same --init_checkpoint.",
        at_least=1,
        identity=True,
        only_for={"features": options.ABSENT, "freeze_layers": options.ABSENT},
    )
    lora_alpha: float | None = options.field(
        None,
        help="Factor of the products, times the rank; by default, the rank.",
        above=0,
        identity=True,
        only_for={"lora_rank": options.GIVEN},
    )
    lora_targets: list[str] | None = options.field(
        None,
        help="Dense layers, by the end of their names, such as query, key, value, "
        "attention/output/dense, intermediate/dense or output/dense; by default those of "
        "queries and values or, without attention, projections.",
        distinct=True,
        identity=True,
        only_for={"lora_rank": options.GIVEN},
    )

    log_every_steps: int = options.override(RunOptions, "log_every_steps", 50)
    eval_every_steps: int = options.override(
        RunOptions, "eval_every_steps", 0, identity="early_stopping_patience"
    )
    num_trials: int = options.field(
        1,
        help="Number of seeds to try, starting with --seed. The best run on the dev set "
        "is kept; the mean, the deviation and failed runs are reported.",
        at_most=10_000,
        at_least=1,
    )
    early_stopping_patience: int = options.field(
        0,
        help="Stop after this many evaluations without improvement, and keep the best. "
        "Without --eval_every_steps, evaluates once per epoch. 0 trains to the end.",
        at_least=0,
        identity=True,
    )
    length_buckets: bool = options.field(
        True,
        help="Put rows of similar length in one batch, and pad it to its longest row "
        "only; with XLA, which compiles each length, to one of fewer lengths. A TPU always "
        "pads to --max_seq_length.",
        identity=True,
    )
    init_encoder_only: bool = options.field(
        False,
        help="Take the encoder of --init_checkpoint without its head.",
        identity=True,
        only_for={"do_train": options.GIVEN, "init_checkpoint": options.GIVEN},
    )

    lm_loss_weight: float = options.field(
        0.0,
        help="For a language model that reads in one direction: while training, also "
        "predict every next token, and add this times the loss."
        + extensions.help_of("lm_loss_weight"),
        at_least=0,
        identity=True,
        only_for={"distill_from": options.ABSENT, "features": options.ABSENT},
    )

    lstm_layers: int = options.field(
        0,
        help="Number of BiLSTM layers to train between the encoder and the head, as in "
        "the paper's table 5.",
        at_most=100,
        at_least=0,
    )
    lstm_size: int | None = options.field(
        None,
        help="Units per BiLSTM layer and direction; 768 by default.",
        at_most=1 << 17,
        at_least=1,
    )

    features: str | None = options.field(
        None,
        choices=tuple(FEATURES),
        help="Freeze the encoder and train BiLSTM layers on these of its outputs: two, "
        "unless --lstm_layers gives another number. mix: a learned weighted sum of the "
        "embeddings and all layers, times a learned factor."
        + extensions.help_of("features"),
    )

    distill_live: bool = options.field(
        False,
        help="Ask the teacher about every batch, instead of once about every row.",
        identity=True,
        only_for={"distill_from": options.GIVEN},
    )
    unlabeled_file: list[str] = options.field(
        [],
        help="With a teacher and --hard_weight=0: more training examples, in files like "
        "the training set (with the same header). Their paths are used as given, not "
        "looked up in the folder of the data; their labels are not read.",
        only_for={"distill_from": options.GIVEN},
    )

    min_agreement: float = options.field(
        0.99,
        help="Refuse an export of fewer bits than float32 if less than this share of its "
        "predictions on the dev set is the same.",
        at_least=0,
        at_most=1,
        only_for={"export_precision": ("bfloat16", "float16", "int8")},
    )

    export_attributions: bool = options.field(
        False,
        help="Add a signature to the export that explains each answer: what each token "
        "contributes to it, by integrated gradients. For predict.py --explain.",
        only_for={"do_export": options.GIVEN, "export_precision": _FLOAT32_INSIDE},
    )

    explain_mistakes: int = options.field(
        0,
        help="In mistakes.html, show what each word contributed to this many of the worst "
        "mistakes, by integrated gradients.",
        at_least=0,
        at_most=100,
        only_for={"do_eval": options.GIVEN},
    )

    def __post_init__(self):
        super().__post_init__()
        if self.lstm_size and not self.num_lstm_layers:
            raise UserError(
                f"--lstm_size={self.lstm_size} has no effect without BiLSTM layers; pass "
                "--lstm_layers, or remove it"
            )
        if not (self.do_train or self.do_eval or self.do_predict or self.do_export):
            raise UserError(
                "nothing to do; pass at least one of --do_train, --do_eval, --do_predict "
                "and --do_export"
            )
        self.check_supplied("vocab_file", "bert_config_file")
        if self.features and self.do_train and not self.init_checkpoint:
            raise UserError(
                f"--features={self.features}: a frozen encoder needs --init_checkpoint"
            )
        for name in ("freeze_layers", "lora_rank"):
            value = getattr(self, name)
            if value is not None and self.do_train and not self.init_checkpoint:
                raise UserError(
                    f"--{name}={value}: frozen layers need --init_checkpoint"
                )
        if self.lora_rank and self.init_checkpoint:
            base, output = map(os.path.abspath, (self.init_checkpoint, self.output_dir))
            if base == output:
                raise UserError(
                    f"--output_dir={self.output_dir}: is the folder of --init_checkpoint, "
                    "which would then mean the adapters, not their base; choose another"
                )
        no_training_set = getattr(self, "train_file", None) == ""
        if self.do_train and no_training_set and not self.unlabeled_file:
            raise UserError(
                "--train_file= is empty; name the training set or, with --distill_from, "
                "--unlabeled_file"
            )
        if self.unlabeled_file and self.hard_weight:
            raise UserError(
                f"--hard_weight={self.hard_weight}: the rows of --unlabeled_file have no "
                "labels; pass --hard_weight=0"
            )
        if self.num_lstm_layers and "litert" in self.export_formats:
            raise UserError(
                "--export_formats=litert: LiteRT's converter fails on BiLSTM layers; use "
                "onnx, or the SavedModels"
            )
        if self.seed + self.num_trials > 2**31:
            raise UserError(
                f"--seed={self.seed} and {self.num_trials - 1} more: must be below {2**31}"
            )

    @property
    def trials(self) -> list[Trial]:
        """Every combination of the values that a search varies."""
        product = itertools.product(
            self.learning_rate,
            self.train_batch_size,
            self.num_train_epochs,
            range(self.seed, self.seed + self.num_trials),
        )
        return [Trial(*values) for values in dict.fromkeys(product)]

    @property
    def training_settings(self) -> dict:
        names = (
            *("freeze_layers", "lora_rank", "lora_alpha", "lora_targets"),
            *("lm_loss_weight", "distill_live"),
        )
        own = {name: getattr(self, name) for name in names}
        return super().training_settings | own | self.distillation_settings

    @property
    def memory_use(self):
        # The gradients of frozen layers need less.
        is_frozen = self.features or self.lora_rank or self.freeze_layers is not None
        return super().memory_use | ({"keeps": "nothing"} if is_frozen else {})

    @property
    def low_rank_alpha(self) -> float:
        """The factor of low-rank products, times their rank; 0 without any."""
        return self.lora_alpha or self.lora_rank or 0.0

    def files(self) -> list[str]:
        teacher = [self.distill_from] if self.distill_from else []
        return [*super().files(), *teacher, *self.unlabeled_file]

    @property
    def needs_labels(self) -> bool:
        """Whether training examples must have labels."""
        return not self.distill_from or self.hard_weight > 0

    @property
    def evaluates(self) -> bool:
        """Whether the first evaluation set is needed."""
        searches = len(self.trials) > 1
        watches = self.eval_every_steps or self.early_stopping_patience
        return bool(self.do_eval or (self.do_train and (searches or watches)))

    @property
    def compares(self) -> bool:
        """Whether an export is compared with float32, on the first evaluation set."""
        return self.do_export and self.export_precision != "float32"

    @property
    def num_lstm_layers(self) -> int:
        """How many the network has; the paper's number if the encoder is frozen."""
        return self.lstm_layers or (LSTM_LAYERS if self.features else 0)

    @property
    def lstm(self):
        """The `BiLstm` of the network; None if it has no such layers."""
        from modeling.bilstm import BiLstm

        if not self.num_lstm_layers:
            return None
        # An export with cuDNN's LSTM would be useless without a GPU.
        fused = not (self.xla or self.do_export)
        lstm = BiLstm(self.num_lstm_layers, fused=fused)
        return lstm._replace(size=self.lstm_size) if self.lstm_size else lstm

    @property
    def lstm_settings(self) -> dict:
        """What identifies a run: `lstm_layers` as given, the size, what is read."""
        size = self.lstm.size if self.lstm else None
        settings = {"lstm_layers": self.lstm_layers, "lstm_size": size}
        return settings | ({"features": self.features} if self.features else {})

    def with_lstm(self, objective):
        """An objective, told of the BiLSTM layers.

        Raises:
            UserError: it makes a network that cannot have any.
        """
        if self.lstm:
            if not hasattr(objective, "with_layers"):
                raise UserError(
                    f"--lstm_layers: {type(objective).__name__} makes its own network, "
                    "without BiLSTM layers; remove the flag"
                )
            return objective.with_layers(self.lstm, self.features)
        return objective

    def check_features(self, config) -> None:
        """Raises:
        UserError: the encoder has not as many layers as --features needs.
        """
        number = config.num_hidden_layers
        if self.features and number < FEATURES[self.features]:
            raise UserError(
                f"--features={self.features}: {self.bert_config_file} has only "
                f"num_hidden_layers={number}"
            )

    def check_lstm(self, folder: str, state: dict) -> None:
        """Compares the BiLSTM layers with those of a trained model.

        Args:
            state: what the model's task.json says.
        Raises:
            UserError: they differ.
        """
        learned = {"lstm_layers": 0, "lstm_size": None}
        learned |= {name: state[name] for name in learned if name in state}
        if state.get("features"):
            learned["features"] = state["features"]
        if learned == self.lstm_settings:
            return
        if learned.get("features") == self.features:
            learned.pop("features", None)
        had = " ".join(f"--{name}={value}" for name, value in learned.items())
        raise UserError(
            f"{folder}: the model was trained with {had}; pass the same"
            if learned["lstm_size"]
            else f"{folder}: the model has no BiLSTM layers; remove --lstm_layers"
        )


def flags_of_run(
    group: type[FineTuningOptions], folder: str, state: Mapping
) -> FineTuningOptions:
    """The flags with which a run's script exports its model.

    Args:
        group: the script's flags.
        state: the run's task.json.
    """
    names = ("lstm_layers", "lstm_size", "features")
    flags = state["flags"] | {name: state[name] for name in names if name in state}
    return group(**flags, output_dir=folder, do_export=True)


@dataclasses.dataclass(frozen=True)
class PooledOptions(FineTuningOptions):
    """The head. It reads one vector of each row."""

    pooling: str | None = options.field(
        None,
        choices=POOLINGS,
        help="What the head reads: the first token, the last, or the mean of all. By "
        "default, the first; if attention_direction is left_to_right, the last.",
    )

    def __post_init__(self):
        if self.pooling and self.num_lstm_layers:
            flag = "--lstm_layers" if self.lstm_layers else "--features"
            raise UserError(
                f"--pooling={self.pooling} has no effect with {flag}: the head reads the "
                "states of BiLSTM layers; remove one of them"
            )
        super().__post_init__()

    def network_changes(self, config):
        if self.pooling in (None, config.row_pooling):
            return {}
        return {"pooling": self.pooling}
