"""Makes, trains and queries a task's models, for all trials of a command."""

import dataclasses
import functools
import json
import math
import os
import tempfile

import numpy as np

import options
from training.run import capacity, checks, distribution, loop, report
from training.run.settle import TrainableModel, check_text
from training.storage import adapters, checkpoint_contents
from training.storage.folder import CONFIG, TASK, TEXT, Folder
from training.storage.source import ModelFolder, Source
from errors import UserError, count
from modeling import layers
from modeling.distillation.distilled import Agreement
from modeling.objectives import low_rank
from modeling.objectives.frozen_layers import FrozenLayers
from modeling.objectives.with_language_model import WithLanguageModel
from serving import export_folder
from text.progress import Progress
from training.finetuning.options import FineTuningOptions
from training.finetuning.sets import Set, Sets
from training.finetuning.stopping import Stopping, load
from training.finetuning.task import Predictions, Task
from training.finetuning.trials import Trial
from training.run.run import Run, identity_of, load_start

_PADDING = -1e9  # in outputs, after the tokens of a row
_OF_TRAINING_ALONE = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
)
_SMALL_SET = 10_000  # examples
_IN_MEMORY = 1 << 28  # bytes of the outputs for a set; more are in a file


class DivergedError(UserError):
    """A trial's numbers are not finite; other trials may succeed."""


class Experiment:
    """What all trials of a command share; makes, trains and queries a model.

    Args:
        model: the one that the flags name.
        strategy: of another experiment of the command; by default, that of the flags.
        name: what its lines begin with, if it is not the command's own model.
    """

    def __init__(
        self, task: Task, model: TrainableModel, strategy=None, name: str = ""
    ):
        self.task, self.model, self.name = task, model, name
        self.folder = model.folder
        flags: FineTuningOptions = model.flags
        self.flags, self.config = flags, model.config
        flags.check_features(self.config)
        checks.check_vocabulary(
            task.tokenizer.vocabulary, self.config, flags.bert_config_file
        )
        if flags.do_export:
            export_folder.check_place(flags.output_dir)
        remark = self._recall()
        # Must precede anything that makes TensorFlow look for devices.
        self.strategy = strategy or flags.strategy()
        self.chief = distribution.is_chief(self.strategy)
        self.log = self._report(self.folder, 1, 1)
        if remark:
            self.log.say(remark)
        distribution.on_chief(
            self.strategy,
            lambda: export_folder.recover(flags.output_dir, self.folder.names),
        )
        self.sets = Sets(task, flags, self.folder, self.strategy, self.log)

    @property
    def teacher(self):
        """The `Teacher`, if this is a student's."""
        return self.sets.teacher

    def _recall(self) -> str | None:
        """Checks that the weights were trained for this task, text, network and labels.

        Training may start from the weights of another task.

        Returns:
            a line for the log, as `Task.restore` does.
        """
        flags = self.flags
        if flags.do_train:
            return None
        where = self.model.earlier_run or self.model.source
        if not where:
            return None
        check_text(self.task.tokenizer, where.text)
        folder, (path, state) = where.folder, where.text.record
        if state:
            self._check_network(where)
            if os.path.basename(path) == TEXT:
                state = {}  # pre-training notes nothing about a head
        elif not self.model.earlier_run:
            state = where.format.learned_task()
        task_name, learned = type(self.task).__name__, state.get("task")
        if learned and learned != task_name:
            raise UserError(
                f"{folder}: contains a model of the task {learned}, not {task_name}; run "
                "the script that trained it, or choose another folder"
            )
        if not state:
            return None
        remark = self.task.restore(state)
        flags.check_lstm(folder, state)
        return remark

    def _check_network(self, where: ModelFolder):
        """Compares configs, because not every difference shows in the shapes."""
        path = os.path.join(where.folder, CONFIG)
        if where.config_file != path:
            return
        learned = dataclasses.asdict(where.config)
        for name, value in dataclasses.asdict(self.config).items():
            was = learned.get(name)  # None in a config of another architecture
            if name not in _OF_TRAINING_ALONE and was != value:
                raise UserError(
                    f"{self.flags.bert_config_file}: {name} is {value!r}, but {was!r} in "
                    f"{path}, with which the model was trained; use that file"
                )

    def read(self, splits: list[str]) -> None:
        """Makes the rows of these sets."""
        for split in splits:
            self.sets.read(split)
            self._check_capacity(split)

    def _check_capacity(self, split):
        """Refuses batches of a set that cannot fit."""
        flags, rows = self.flags, self.sets.read(split).file
        name, size, kept = "predict_batch_size", flags.predict_batch_size, {}
        if split == "train":
            name, size, kept = (
                "train_batch_size",
                max(flags.train_batch_size),
                flags.memory_use,
            )
        elif split in self.task.eval_sets and flags.evaluates:
            name, size = "eval_batch_size", flags.eval_batch_size
        if flags.uses_tpu:
            return
        parts = flags.gradient_accumulation_steps if split == "train" else 1
        number = size // parts // self.strategy.num_replicas_in_sync
        capacity.check_batch(
            f"--{name}={size}",
            number * (rows.layout.num_choices or 1),
            rows.longest,
            self.config,
            **{"dtype": flags.dtype} | kept,
        )

    def check_batches(self, trials: list[Trial]) -> None:
        flags, replicas = self.flags, self.strategy.num_replicas_in_sync
        for name in ("eval_batch_size", "predict_batch_size"):
            checks.check_division(name, getattr(flags, name), replicas)
        for trial in trials if flags.do_train else ():
            checks.check_division(
                "train_batch_size",
                trial.train_batch_size,
                replicas,
                flags.gradient_accumulation_steps,
            )
            rows = self.num_train_steps(trial) * trial.train_batch_size
            # Which rows are in which batch is known before the first; see `Rows.training`.
            capacity.check(f"--num_train_epochs={trial.num_train_epochs:g}", 5 * rows)
            if not rows:
                most = int(self.num_examples * trial.num_train_epochs)
                raise UserError(
                    f"{count(self.num_examples, 'training example')} in "
                    f"{count(trial.num_train_epochs, 'epoch')}: not enough for a batch of "
                    f"--train_batch_size={trial.train_batch_size}; pass {max(most, 1)} or "
                    "less, or more --num_train_epochs"
                )

    def _report(self, folder, total_steps, batch_size):
        return report.Report(
            folder,
            total_steps=total_steps,
            batch_size=batch_size,
            active=self.chief,
            model=self.name,
            percentages=self.task.has_percentages,
        )

    @property
    def num_examples(self) -> int:
        """The size of the training set."""
        return len(self.sets.examples("train"))

    @property
    def is_small(self) -> bool:
        """Whether another seed may score quite differently."""
        return self.num_examples < _SMALL_SET

    def num_train_steps(self, trial: Trial) -> int:
        # Like the release, counts examples, even if windows make more rows of them.
        return int(self.num_examples / trial.train_batch_size * trial.num_train_epochs)

    def trainer(self, trial: Trial) -> loop.Trainer:
        flags = self.flags
        objective = flags.with_lstm(self.task.objective())
        if flags.lm_loss_weight:
            objective = WithLanguageModel(objective, flags.lm_loss_weight)
        if flags.do_train and flags.freeze_layers is not None:
            objective = FrozenLayers(objective, flags.freeze_layers)
        adapts = flags.do_train and flags.lora_rank
        if adapts:
            objective = low_rank.LowRank(
                objective,
                rank=flags.lora_rank,
                alpha=flags.low_rank_alpha,
                targets=self.lora_targets,
                base=self.model.source.shapes(),
            )
        checks.check_objective(objective, self.config, flags.bert_config_file)
        if self.teacher:
            objective = self.teacher.distill(objective)
        steps = self.num_train_steps(trial) if flags.do_train else 1
        settings = flags.settings(
            num_train_steps=steps,
            num_warmup_steps=int(steps * flags.warmup_proportion),
            learning_rate=trial.learning_rate,
            batch_size=trial.train_batch_size,
            seed=trial.seed,
        )
        if flags.early_stopping_patience and not flags.eval_every_steps:
            epoch = steps / trial.num_train_epochs
            settings = dataclasses.replace(
                settings, eval_every_steps=max(1, round(epoch))
            )
        trainer = loop.Trainer(
            self.strategy,
            lambda: objective.network(self.config, seed=trial.seed, dtype=flags.dtype),
            objective,
            settings,
            **({"borrowed": low_rank.frozen_paths} if adapts else {}),
        )
        self.log.say(trainer.description)
        if adapts:
            lent = low_rank.frozen_paths(trainer.model)
            weights = {name: trainer.weights[name] for name in lent}
            required, scope = self._required_variables(trainer), trainer.model.scope
            self.model.source.load(weights, required, scope)
        return trainer

    def run(
        self,
        varied: dict | None = None,
        trial: Trial | None = None,
        folder: Folder | None = None,
    ) -> Run:
        """The run of a training, or of the use of its weights.

        Args:
            varied: what trials differ in; None if nothing is trained.
            trial: what is trained, unless that is a search.
            folder: by default, output_dir.
        """
        folder, log = folder or self.folder, self.log
        if trial:
            steps, rows = self.num_train_steps(trial), trial.train_batch_size
            log = self._report(folder, steps, rows)
        return Run(
            self.model,
            self.strategy,
            log,
            folder,
            identity=None if varied is None else self._identity(varied),
        )

    def _identity(self, varied):
        own = {"lora_targets": self.lora_targets} | varied
        parts = own, self.flags.lstm_settings, self.task.identity, self.sets.identity
        return identity_of(self.flags, self.config, self.teacher, *parts)

    def prepare(self, run: Run, is_search: bool = False) -> None:
        """Writes what a training and its model need to its folder; see `Run.prepare`."""
        folder, flags = run.folder, self.flags

        def write():
            # What is left is from an abandoned run, or will soon be outdated.
            is_taken_up = folder.steps and flags.early_stopping_patience
            if not (is_search or is_taken_up):
                folder.forget_best()
            if flags.lora_rank:
                adapters.write_note(folder, self._adapter_note)

        state = {
            "task": type(self.task).__name__,
            **self._script(),
            **(flags.lstm_settings if flags.lstm else {}),
            **self.task.state(),
            **self.task.tokenizer.settings,
        }
        content = json.dumps(state, ensure_ascii=False, indent=2) + "\n"
        run.prepare({TASK: content, **self.task.tokenizer.files}, write)

    @functools.cached_property
    def _adapter_note(self) -> adapters.Note:
        """What a training notes of the base of its adapters."""
        flags = self.flags
        with layers.shapes_only():
            scope = self.task.objective().network(self.config).scope
        base = adapters.base_weights(self.model.source, scope)
        return adapters.Note(
            base=adapters.place_of(flags.init_checkpoint),
            base_sha256=checkpoint_contents.digest(base),
            scope=list(scope),
            alpha=flags.low_rank_alpha,
        )

    @property
    def lora_targets(self) -> list[str]:
        """What adapters change; without a flag, what is usual for the architecture."""
        return self.flags.lora_targets or list(self.config.low_rank_targets)

    def _script(self) -> dict:
        """Which script this is, and its flags that the model's answers may depend on."""
        inherited = {item.name for item in dataclasses.fields(FineTuningOptions)}
        own = {
            item.name: getattr(self.flags, item.name)
            for item in dataclasses.fields(self.flags)
            if item.name not in inherited - {"max_seq_length"}
            and getattr(self.flags, item.name) != options.default_of(item)
        }
        return {"script": self.task.script, "flags": own}

    def start(self, run: Run, trainer: loop.Trainer) -> None:
        """Begins or resumes a training, or loads the weights to use."""
        if run.identity is not None:
            required = self._required_variables(trainer)
        elif run.folder.best or adapters.NAME in run.folder.names:
            load(trainer, Source.of(run.folder), self.log)
            return
        else:
            # An untrained head answers at random. Where it does not use the pooler,
            # Hugging Face omits that.
            encoder = trainer.model.encoder
            required = tuple(trainer.weights)
            if not trainer.model.reads_pooler:
                heads = (
                    name for name in required if not name.startswith(encoder.scope)
                )
                required = (*encoder.required_variables, *heads)
        run.start(trainer, required, self.flags.init_encoder_only)

    def check_start(self, trial: Trial) -> None:
        """Refuses an unusable init_checkpoint before rows are written.

        Raises:
            UserError: see `Source.load`.
        """
        flags = self.flags
        if flags.init_checkpoint and not self.folder.steps:
            trainer = self.trainer(trial)
            load_start(
                trainer,
                self.model.source,
                self._required_variables(trainer),
                flags.init_encoder_only,
            )

    def _required_variables(self, trainer):
        """The names of the variables that a training may not begin at random."""
        model = trainer.model
        required = model.encoder if self.flags.init_encoder_only else model
        return required.required_variables

    # --- Training --------------------------------------------------------------------

    def train(self, run: Run, trainer: loop.Trainer, trial: Trial) -> None:
        """Trains one trial to its end; the model then has its final weights."""
        data = self.sets.read("train")
        total, rows = trainer.settings.num_train_steps, trial.train_batch_size
        batches = {"seed": trial.seed, "num_batches": total}
        stopping = Stopping(self, trainer, run.folder)
        try:
            run.train(
                trainer,
                lambda first, part: data.file.training(
                    rows, **batches, first_batch=first, part=part
                ),
                stopping.evaluate if trainer.settings.eval_every_steps else None,
                stopping.enough,
                announce=lambda: run.log.say(self._plan(data, rows, **batches)),
            )
        except loop.NotFiniteError as error:
            raise DivergedError(
                "loss or gradient was not finite in "
                f"{count(error.count, 'consecutive update')}, starting at step "
                f"{error.step}; lower --learning_rate, or check the training set for "
                "numbers that are not finite"
            ) from error
        stopping.take_best()

    def _plan(self, data: Set, batch_size: int, *, seed: int, num_batches: int) -> str:
        text = f"{count(num_batches, 'update')} of {count(batch_size, 'row')}"
        if self.flags.compiles:
            *others, longest = data.file.training_lengths(
                batch_size, seed=seed, num_batches=num_batches
            )
            shorter = f"{', '.join(map(str, others))} or " if others else ""
            programs = count(len(others) + 1, "program")
            text += f", padded to {shorter}{longest} tokens: {programs} to compile"
        if len(data.file) > self.num_examples:
            examples = count(self.num_examples, "example")
            rows = count(len(data.file), "row")
            text += f"; an epoch counts the {examples}, not the {rows} made of them"
        return text

    # --- Prediction ------------------------------------------------------------------

    def predict(self, trainer: loop.Trainer, split: str, batch_size: int):
        """The predictions of a set, and its losses and metrics.

        Raises:
            UserError: the model's scores are not finite.
        """
        data = self.sets.read(split)
        order = data.file.in_order(batch_size)
        outputs, not_finite, total = {}, set(), 0.0
        rows_ = len(data.file)
        what = ": ".join(filter(None, (self.name, f"predicting {split}")))
        with Progress(what, rows_, "rows", brief=True, starts_slowly=True) as progress:
            batches = trainer.predict(
                lambda part: data.file.evaluation(batch_size, part=part), len(order)
            )
            for numbers, (batch, sums) in zip(order, batches, strict=True):
                real = numbers >= 0
                for name, values in batch.items():
                    if name in trainer.model.sequence_outputs:
                        values = self._pad(values)
                    if name not in outputs:
                        shape = (len(data.file), *values.shape[1:])
                        outputs[name] = _room_for(shape, values.dtype)
                    if not np.isfinite(values[real]).all():
                        not_finite.add(name)
                    outputs[name][numbers[real]] = values[real]
                total = total + sums
                progress.advance(int(real.sum()))
        if not_finite:
            raise DivergedError(
                f"{split}: the model's {' and '.join(sorted(not_finite))} are not finite, "
                "so its weights are unusable; train again with a lower --learning_rate"
            )
        predictions = Predictions(
            split, data.examples, data.notes, data.example_numbers, outputs
        )
        return predictions, trainer.values(total)

    def _pad(self, values):
        width = self.flags.max_seq_length - values.shape[1]
        padding = [(0, 0), (0, width), *[(0, 0)] * (values.ndim - 2)]
        return np.pad(values, padding, constant_values=_PADDING)

    def agreement(self, trainer: loop.Trainer, split: str) -> dict[str, float]:
        """How far a model's answers are from the teacher's, which rows contain."""
        data, size = self.sets.read(split), self.flags.eval_batch_size
        values = trainer.evaluate(
            lambda part: data.file.evaluation(size, part=part),
            len(data.file.in_order(size)),
            Agreement(trainer.for_evaluation),
        )
        return {name: value for name, value in values.items() if name != "loss"}

    def score(self, trainer: loop.Trainer, split: str):
        """The predictions of an evaluation set, and its scores by name."""
        predictions, values = self.predict(trainer, split, self.flags.eval_batch_size)
        return predictions, {**_loss_in(values), **self.task.score(predictions)}


def _room_for(shape, dtype) -> np.ndarray:
    """Zeros; many of them are in a file without a name, so that memory stays bounded."""
    if math.prod(shape) * dtype.itemsize <= _IN_MEMORY:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile() as file:  # read until the array is gone
        return np.memmap(file, dtype, "w+", shape=shape)


def _loss_in(values):
    """The loss of an evaluation, if its objective has one."""
    return {name: value for name, value in values.items() if name == "loss"}
