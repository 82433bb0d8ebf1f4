"""Trains a task's model: one of the trainings that a command asks for."""

import contextlib
import dataclasses
import functools
import itertools
import json
import os

import numpy as np

from serving import export
from text.errors import UserError
from text.progress import Progress
from training import checkpoint, distribution, loop, report, run, run_folder
from training.finetuning.sets import Sets
from training.finetuning.stopping import Stopping, load
from training.finetuning.task import Predictions, Task
from training.layouts import hugging_face

# isort: split
import tensorflow as tf

_PADDING = -1e9  # in outputs, behind the tokens of a row
_OF_TRAINING_ALONE = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
)
_SMALL_SET = 10_000  # examples


@dataclasses.dataclass(frozen=True)
class Trial:
    """One setting of what a search varies."""

    learning_rate: float
    train_batch_size: int
    num_train_epochs: float
    seed: int

    def __str__(self):
        return (
            f"rate{self.learning_rate}-batch{self.train_batch_size}"
            f"-epochs{self.num_train_epochs}-seed{self.seed}"
        )


def every_trial(given) -> list[Trial]:
    product = itertools.product(
        given.learning_rate,
        given.train_batch_size,
        given.num_train_epochs,
        range(given.seed, given.seed + given.num_trials),
    )
    return [Trial(*values) for values in dict.fromkeys(product)]


def varied(trials: list[Trial]) -> dict:
    """What the settings of a command say of its trials."""
    if len(trials) == 1:
        return dataclasses.asdict(trials[0])
    return {"searched": [str(trial) for trial in trials]}


class DivergedError(UserError):
    """A trial's numbers are not finite; another one's may be."""


class Experiment:
    """What all trials of one command share, and how a model is made, trained and asked."""

    def __init__(self, task: Task, given):
        self.task, self.given = task, given
        self.config = run.read_config(given)
        run.check_vocabulary(task.tokenizer.vocabulary, given, self.config)
        if given.do_export:
            export.check_place(given.output_dir)
        # Before anything that makes TensorFlow look for devices.
        self.strategy = given.strategy()
        self.chief = distribution.is_chief(self.strategy)
        self.log = self._report(given.output_dir, 1, 1)
        distribution.on_chief(self.strategy, lambda: export.recover(given.output_dir))
        self._recall()
        self.sets = Sets(task, given, self.strategy, self.log)

    def _recall(self):
        """Holds answers to what the weights were trained for: task, text, network, labels.

        Training may begin with the weights of another task.
        """
        given = self.given
        if given.do_train:
            return
        if run_folder.holds_weights(given.output_dir):
            folder, source = given.output_dir, ""
        elif given.init_checkpoint:
            source = checkpoint.resolve(given.init_checkpoint)
            folder = checkpoint.folder_of(source)
        else:
            return
        state = run.check_text(self.task.tokenizer, folder)
        if state:
            self._check_network(os.path.join(folder, "bert_config.json"))
        elif hugging_face.is_weights(source):
            state = hugging_face.read_task(source)
        mine, learned = type(self.task).__name__, state.get("task")
        if learned and learned != mine:
            raise UserError(
                f"{folder}: holds a model of the task {learned}, and this is {mine}; give "
                "the script of its training, or another folder"
            )
        if state:
            self.task.restore(state)

    def _check_network(self, path):
        """Shapes do not show every difference, nor do fewer layers."""
        if not tf.io.gfile.exists(path):
            return
        learned = dataclasses.asdict(checkpoint.read_config(path))
        for name, value in dataclasses.asdict(self.config).items():
            if name not in _OF_TRAINING_ALONE and learned[name] != value:
                raise UserError(
                    f"{self.given.bert_config_file}: {name} is {value!r}, but "
                    f"{learned[name]!r} in {path}, with which the model was trained; give "
                    "that one"
                )

    def read(self, splits: list[str]) -> None:
        """Makes the rows of these sets."""
        for split in splits:
            self.sets.read(split)

    def check_place(self, trials: list[Trial]) -> None:
        """Refuses, before anything of another run is replaced, what cannot begin.

        Raises:
            UserError: output_dir holds another run, or none to evaluate.
        """
        directory = self.given.output_dir
        if self.given.do_train:
            identity = self.identity(varied(trials))
            run_folder.check_settings(directory, identity, self.defaults())
        elif not (run_folder.holds_weights(directory) or self.given.init_checkpoint):
            raise run.no_checkpoint(directory)

    def held(self) -> contextlib.AbstractContextManager:
        """Keeps other trainings out of output_dir, where this one trains."""
        if not self.given.do_train:
            return contextlib.nullcontext()
        return run.held(self.strategy, self.given.output_dir, self.log)

    def check_batches(self, trials: list[Trial]) -> None:
        given, replicas = self.given, self.strategy.num_replicas_in_sync
        for name in ("eval_batch_size", "predict_batch_size"):
            run.check_division(name, getattr(given, name), replicas)
        for trial in trials if given.do_train else ():
            run.check_division(
                "train_batch_size",
                trial.train_batch_size,
                replicas,
                given.gradient_accumulation_steps,
            )
            if not self.num_train_steps(trial):
                raise UserError(
                    f"{self.num_examples} training examples make no "
                    f"batch of --train_batch_size={trial.train_batch_size} in "
                    f"{trial.num_train_epochs:g} epochs; lower it"
                )

    def _report(self, directory, total_steps, batch_size):
        return report.Report(
            directory, total_steps=total_steps, batch_size=batch_size, active=self.chief
        )

    @property
    def num_examples(self) -> int:
        """Of the training set."""
        return len(self.sets.examples("train"))

    @property
    def is_small(self) -> bool:
        """Whether another seed may score quite differently."""
        return self.num_examples < _SMALL_SET

    def num_train_steps(self, trial: Trial) -> int:
        # As the release counts: examples, of which windows may make more rows.
        return int(self.num_examples / trial.train_batch_size * trial.num_train_epochs)

    def trainer(self, trial: Trial) -> loop.Trainer:
        given, objective = self.given, self.task.objective()
        steps = self.num_train_steps(trial) if given.do_train else 1
        settings = given.settings(
            num_train_steps=steps,
            num_warmup_steps=int(steps * given.warmup_proportion),
            learning_rate=trial.learning_rate,
            batch_size=trial.train_batch_size,
            seed=trial.seed,
        )
        if given.early_stopping_patience and not given.eval_every_steps:
            epoch = steps / trial.num_train_epochs
            settings = dataclasses.replace(
                settings, eval_every_steps=max(1, round(epoch))
            )
        trainer = loop.Trainer(
            self.strategy,
            lambda: objective.network(self.config, seed=trial.seed, dtype=given.dtype),
            objective,
            settings,
        )
        self.log.say(trainer.description)
        return trainer

    def identity(self, varied: dict) -> dict:
        """What makes a run this run: with any of it changed, a resume would be another."""
        given = self.given
        names = (
            "init_checkpoint",
            "init_encoder_only",
            "dtype",
            "allow_tf32",
            "bias_correction",
            "warmup_proportion",
            "early_stopping_patience",
            "length_buckets",
            "max_seq_length",
        )
        identity = {
            **varied,
            **{name: getattr(given, name) for name in names},
            **self.task.settings(),
            **self.task.tokenizer.settings,
            **dataclasses.asdict(self.config),
            "training_examples": self.sets.digest("train"),
        }
        # As it is read back: JSON has lists where Python has tuples.
        return json.loads(json.dumps(identity | self._stopping()))

    def defaults(self) -> dict:
        """What a run of an earlier version counts as that it did not note."""
        return run.defaults(self.given, self.config) | self._stopping()

    def _stopping(self) -> dict:
        """What decides when an early-stopped run ends."""
        given = self.given
        if not given.early_stopping_patience:
            return {}
        return {
            "eval_every_steps": given.eval_every_steps,
            "dev_examples": self.sets.digest(self.task.eval_sets[0]),
        }

    def begin(self, trainer: loop.Trainer, directory: str, identity: dict) -> None:
        """Begins or takes up a training; what cannot begin is refused before it changes
        anything in its directory.
        """
        run_folder.check_settings(directory, identity, self.defaults())
        self.start(trainer, directory)
        self.prepare(directory, identity, trainer)

    def prepare(
        self, directory: str, identity: dict, trainer: loop.Trainer | None = None
    ) -> None:
        """Puts into the directory of a training what it and its model need; see run."""
        given = self.given

        def write():
            taken_up = run_folder.steps(directory) and given.early_stopping_patience
            run.prepare(
                directory,
                identity,
                self.config,
                given.init_checkpoint,
                defaults=self.defaults(),
                trainer=trainer,
            )
            # What is left is of an abandoned run, or soon older than the weights.
            if trainer and not taken_up:
                run_folder.forget_best(directory)
            state = {
                "task": type(self.task).__name__,
                **self.task.state(),
                **self.task.tokenizer.settings,
            }
            content = json.dumps(state, ensure_ascii=False, indent=2) + "\n"
            run_folder.write_file(os.path.join(directory, run.TASK_FILE), content)
            with open(given.vocab_file, "rb") as file:
                run_folder.write_file(os.path.join(directory, "vocab.txt"), file.read())

        distribution.on_chief(self.strategy, write)

    def start(self, trainer: loop.Trainer, directory: str) -> None:
        given = self.given
        if given.do_train:
            required = trainer.model.encoder.required
        elif run_folder.best_of(directory):
            load(trainer, checkpoint.resolve(directory), self.log)
            return
        else:
            # A head without training answers at random. One that stands on the sequence
            # does not see the pooler, which Hugging Face then leaves out.
            encoder = trainer.model.encoder
            required = tuple(trainer.weights)
            if trainer.objective.sequence_outputs:
                heads = (
                    name for name in required if not name.startswith(encoder.scope)
                )
                required = (*encoder.required, *heads)
        run.start(
            trainer,
            directory,
            given.init_checkpoint,
            self.log,
            required=required,
            trains=given.do_train,
            encoder_only=given.init_encoder_only,
        )

    def check_start(self, trial: Trial) -> None:
        """Refuses, before rows are written, an init_checkpoint that cannot be taken.

        Raises:
            UserError: see `checkpoint.load`.
        """
        given = self.given
        if given.init_checkpoint and not run_folder.steps(given.output_dir):
            trainer = self.trainer(trial)
            required = trainer.model.encoder.required
            run.load_start(
                trainer, given.init_checkpoint, required, given.init_encoder_only
            )

    # --- Training --------------------------------------------------------------------

    def train(self, trainer: loop.Trainer, trial: Trial, directory: str) -> None:
        """Trains to the end of one trial, and leaves the model with its final weights."""
        data = self.sets.read("train")
        total = trainer.settings.num_train_steps
        log = self._report(directory, total, trial.train_batch_size)
        stopping = Stopping(self, trainer, directory)
        if trainer.progress.step >= total or stopping.enough():
            log.say(f"already finished: {trainer.progress.step} updates are done")
        else:
            log.say(f"{total} updates of {trial.train_batch_size} rows")
            with run.interruptible(directory):
                self._train(trainer, trial, data, directory, log, stopping)
        # Also of a run that was killed when all but this was done.
        if picture := log.draw():
            log.say(f"finished; curves are in {picture}")
        stopping.take_best()

    def _train(self, trainer, trial, data, directory, log, stopping):
        total = trainer.settings.num_train_steps
        batches = functools.partial(
            data.file.training,
            trial.train_batch_size,
            seed=trial.seed,
            num_batches=total,
        )
        try:
            trainer.train(
                lambda first, part: batches(first_batch=first, part=part),
                directory,
                log,
                stopping.evaluate if trainer.settings.eval_every_steps else None,
                stopping.enough,
            )
        except loop.NotFiniteError as error:
            raise DivergedError(
                f"loss or gradient was not finite in {error.count} updates in a row, from "
                f"step {error.step} on; lower --learning_rate, or look for numbers "
                "that are not finite in the training set"
            ) from error

    # --- Prediction ------------------------------------------------------------------

    def predict(self, trainer: loop.Trainer, split: str, batch_size: int):
        """The predictions of a set, and its losses and metrics.

        Raises:
            UserError: the model's scores are not finite.
        """
        data = self.sets.read(split)
        order = data.file.in_order(batch_size)
        outputs, total = {}, 0.0
        rows_ = len(data.file)
        with Progress(f"predicting {split}", rows_, "rows", brief=True) as progress:
            batches = trainer.predict(
                lambda part: data.file.evaluation(batch_size, part=part), len(order)
            )
            for numbers, (batch, sums) in zip(order, batches, strict=True):
                real = numbers >= 0
                for name, values in batch.items():
                    if name in trainer.objective.sequence_outputs:
                        values = self._padded(values)
                    if name not in outputs:
                        shape = (len(data.file), *values.shape[1:])
                        outputs[name] = np.zeros(shape, values.dtype)
                    outputs[name][numbers[real]] = values[real]
                total = total + sums
                progress.advance(int(real.sum()))
        for name, values in outputs.items():
            if not np.isfinite(values).all():
                raise DivergedError(
                    f"{split}: the model's {name} are not finite; its weights are spoilt: "
                    "train again with a lower --learning_rate"
                )
        predictions = Predictions(
            split, data.examples, data.notes, data.example_numbers, outputs
        )
        return predictions, trainer.values(total)

    def _padded(self, values):
        width = self.given.max_seq_length - values.shape[1]
        padding = [(0, 0), (0, width), *[(0, 0)] * (values.ndim - 2)]
        return np.pad(values, padding, constant_values=_PADDING)

    def score(self, trainer: loop.Trainer, split: str):
        """The predictions of an evaluation set, and its numbers by name."""
        predictions, values = self.predict(trainer, split, self.given.eval_batch_size)
        scores = self.task.score(predictions)
        return predictions, {"loss": values["loss"], **scores}
