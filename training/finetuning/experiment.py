"""Makes, trains and queries a task's models, for all trials of a command."""

import contextlib
import dataclasses
import functools
import json
import os

import numpy as np

from training.backend import tf
from training.run import checks, distribution, loop, report
from training.storage import checkpoint, run_folder
from errors import UserError
from modeling.distillation.distilled import Agreement
from modeling.objectives.with_language_model import WithLanguageModel
from serving import export_folder
from text.progress import Progress
from training.finetuning.sets import Sets
from training.finetuning.stopping import Stopping, load
from training.finetuning.task import Predictions, Task
from training.finetuning.trials import Trial, varied
from training.interchange import hugging_face, hugging_face_task

_PADDING = -1e9  # in outputs, after the tokens of a row
_OF_TRAINING_ALONE = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
)
_SMALL_SET = 10_000  # examples


class DivergedError(UserError):
    """A trial's numbers are not finite; other trials may succeed."""


class Experiment:
    """What all trials of a command share; makes, trains and queries a model.

    Args:
        strategy: of another experiment of the command; by default, that of the flags.
        name: what its lines begin with, if it is not the command's own model.
    """

    def __init__(self, task: Task, given, strategy=None, name: str = ""):
        self.task, self.given, self.name = task, given, name
        self.config = checks.read_config(given)
        given.check_features(self.config)
        checks.check_vocabulary(
            task.tokenizer.vocabulary, self.config, given.bert_config_file
        )
        if given.do_export:
            export_folder.check_place(given.output_dir)
        # Must precede anything that makes TensorFlow look for devices.
        self.strategy = strategy or given.strategy()
        self.chief = distribution.is_chief(self.strategy)
        self.log = self._report(given.output_dir, 1, 1)
        distribution.on_chief(
            self.strategy, lambda: export_folder.recover(given.output_dir)
        )
        self._recall()
        self.sets = Sets(task, given, self.strategy, self.log)

    @property
    def teacher(self):
        """The `Teacher`, if this is a student's."""
        return self.sets.teacher

    def _recall(self):
        """Checks that the weights were trained for this task, text, network and labels.

        Training may start from the weights of another task.
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
        state = checks.check_text(self.task.tokenizer, folder)
        if state:
            self._check_network(os.path.join(folder, run_folder.CONFIG))
            path, _ = run_folder.text_settings(folder)
            if os.path.basename(path) == run_folder.TEXT:
                state = {}  # pre-training notes nothing about a head
        elif hugging_face.is_weights(source):
            state = hugging_face_task.read_task(source)
        mine, learned = type(self.task).__name__, state.get("task")
        if learned and learned != mine:
            raise UserError(
                f"{folder}: contains a model of the task {learned}, not {mine}; run the "
                "script that trained it, or choose another folder"
            )
        if state:
            self.task.restore(state)
            given.check_lstm(folder, state)

    def _check_network(self, path):
        """Compares configs, because not every difference shows in the shapes."""
        if not tf.io.gfile.exists(path):
            return
        learned = dataclasses.asdict(checkpoint.read_config(path))
        for name, value in dataclasses.asdict(self.config).items():
            was = learned.get(name)  # None in a config of another architecture
            if name not in _OF_TRAINING_ALONE and was != value:
                raise UserError(
                    f"{self.given.bert_config_file}: {name} is {value!r}, but {was!r} in "
                    f"{path}, with which the model was trained; use that file"
                )

    def read(self, splits: list[str]) -> None:
        """Makes the rows of these sets."""
        for split in splits:
            self.sets.read(split)

    def check_place(self, trials: list[Trial]) -> None:
        """Refuses a run that cannot begin, before any file of another run is replaced.

        Raises:
            UserError: output_dir contains another run, or none to evaluate.
        """
        directory = self.given.output_dir
        if self.given.do_train:
            identity = self.identity(varied(trials))
            run_folder.check_settings(directory, identity, self.defaults())
        elif not (run_folder.holds_weights(directory) or self.given.init_checkpoint):
            raise checks.no_checkpoint(directory)

    def held(self) -> contextlib.AbstractContextManager:
        """Keeps other trainings out of output_dir, where this one trains."""
        if not self.given.do_train:
            return contextlib.nullcontext()
        return checks.held(self.strategy, self.given.output_dir, self.log)

    def check_batches(self, trials: list[Trial]) -> None:
        given, replicas = self.given, self.strategy.num_replicas_in_sync
        for name in ("eval_batch_size", "predict_batch_size"):
            checks.check_division(name, getattr(given, name), replicas)
        for trial in trials if given.do_train else ():
            checks.check_division(
                "train_batch_size",
                trial.train_batch_size,
                replicas,
                given.gradient_accumulation_steps,
            )
            if not self.num_train_steps(trial):
                raise UserError(
                    f"{self.num_examples} training examples do not fill a "
                    f"batch of --train_batch_size={trial.train_batch_size} in "
                    f"{trial.num_train_epochs:g} epochs; lower it"
                )

    def _report(self, directory, total_steps, batch_size):
        return report.Report(
            directory,
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
        given = self.given
        objective = given.with_lstm(self.task.objective())
        if given.lm_loss_weight:
            objective = WithLanguageModel(objective, given.lm_loss_weight)
        try:
            objective.check(self.config)
        except ValueError as error:
            raise UserError(f"{given.bert_config_file}: {error}") from error
        if self.teacher:
            objective = self.teacher.distilled(objective)
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
        """The settings that identify a run: with any of them changed, it is another run."""
        given = self.given
        names = (
            "init_checkpoint",
            "init_encoder_only",
            "dtype",
            "allow_tf32",
            "warmup_proportion",
            "early_stopping_patience",
            "length_buckets",
            "lm_loss_weight",
            "max_seq_length",
        )
        identity = {
            "task": type(self.task).__name__,
            **varied,
            **{name: getattr(given, name) for name in names},
            **given.recipe,
            **given.lstm_settings,
            **given.distillation_settings,
            "distill_live": given.distill_live,
            "teacher_sha256": self.teacher and self.teacher.digest,
            **self.task.settings(),
            **self.task.tokenizer.settings,
            **dataclasses.asdict(self.config),
            "training_examples": self.sets.digest("train"),
        }
        # As it will be read back: JSON turns tuples into lists.
        return json.loads(json.dumps(identity | self._stopping()))

    def defaults(self) -> dict:
        """Values for settings that a run of an earlier version did not note."""
        known = checks.defaults(self.given, self.config) | {"teacher_sha256": None}
        known |= {"task": type(self.task).__name__}
        return known | self.given.without_teacher | self._stopping()

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
        """Begins or resumes a training; refuses one that cannot begin before changing
        anything in its directory.
        """
        run_folder.check_settings(directory, identity, self.defaults())
        self.start(trainer, directory)
        self.prepare(directory, identity, trainer)

    def prepare(
        self, directory: str, identity: dict, trainer: loop.Trainer | None = None
    ) -> None:
        """Writes what a training and its model need to its directory; see `run.prepare`."""
        given = self.given

        def write():
            taken_up = run_folder.steps(directory) and given.early_stopping_patience
            checks.prepare(
                directory,
                identity,
                self.config,
                given.init_checkpoint,
                defaults=self.defaults(),
                trainer=trainer,
            )
            # What is left is from an abandoned run, or will soon be outdated.
            if trainer and not taken_up:
                run_folder.forget_best(directory)
            state = {
                "task": type(self.task).__name__,
                **(given.lstm_settings if given.lstm else {}),
                **self.task.state(),
                **self.task.tokenizer.settings,
            }
            content = json.dumps(state, ensure_ascii=False, indent=2) + "\n"
            path = functools.partial(os.path.join, directory)
            run_folder.write_file(path(run_folder.TASK), content)
            run_folder.write_vocabulary(directory, self.task.tokenizer)

        distribution.on_chief(self.strategy, write)

    def start(self, trainer: loop.Trainer, directory: str) -> None:
        given = self.given
        if given.do_train:
            required = self._required(trainer)
        elif run_folder.best_of(directory):
            load(trainer, checkpoint.resolve(directory), self.log)
            return
        else:
            # An untrained head answers at random. One on the sequence output does not
            # use the pooler, which Hugging Face then omits.
            encoder = trainer.model.encoder
            required = tuple(trainer.weights)
            if trainer.measured.sequence_outputs:
                heads = (
                    name for name in required if not name.startswith(encoder.scope)
                )
                required = (*encoder.required, *heads)
        checks.start(
            trainer,
            directory,
            given.init_checkpoint,
            self.log,
            required=required,
            trains=given.do_train,
            encoder_only=given.init_encoder_only,
        )

    def check_start(self, trial: Trial) -> None:
        """Refuses an unusable init_checkpoint before rows are written.

        Raises:
            UserError: see `checkpoint.load`.
        """
        given = self.given
        if given.init_checkpoint and not run_folder.steps(given.output_dir):
            trainer = self.trainer(trial)
            checks.load_start(
                trainer,
                given.init_checkpoint,
                self._required(trainer),
                given.init_encoder_only,
            )

    def _required(self, trainer):
        """The names of the variables that a training may not begin at random."""
        if self.given.init_encoder_only:
            return trainer.model.encoder.required
        return trainer.objective.required(trainer.model)

    # --- Training --------------------------------------------------------------------

    def train(self, trainer: loop.Trainer, trial: Trial, directory: str) -> None:
        """Trains one trial to its end; the model then has its final weights."""
        data = self.sets.read("train")
        total = trainer.settings.num_train_steps
        log = self._report(directory, total, trial.train_batch_size)
        stopping = Stopping(self, trainer, directory)
        if trainer.progress.step >= total or stopping.enough():
            log.say(f"already finished: {trainer.progress.step} updates are done")
        else:
            log.say(f"{total} updates of {trial.train_batch_size} rows")
            with checks.interruptible(directory):
                self._train(trainer, trial, data, directory, log, stopping)
        # Also for a run that was killed when only this was left to do.
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
                f"loss or gradient was not finite in {error.count} consecutive updates, "
                f"starting at step {error.step}; lower --learning_rate, or check the "
                "training set for numbers that are not finite"
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
        what = ": ".join(filter(None, (self.name, f"predicting {split}")))
        with Progress(what, rows_, "rows", brief=True, starts_slowly=True) as progress:
            batches = trainer.predict(
                lambda part: data.file.evaluation(batch_size, part=part), len(order)
            )
            for numbers, (batch, sums) in zip(order, batches, strict=True):
                real = numbers >= 0
                for name, values in batch.items():
                    if name in trainer.measured.sequence_outputs:
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
                    f"{split}: the model's {name} are not finite, so its weights are "
                    "unusable; train again with a lower --learning_rate"
                )
        predictions = Predictions(
            split, data.examples, data.notes, data.example_numbers, outputs
        )
        return predictions, trainer.values(total)

    def _padded(self, values):
        width = self.given.max_seq_length - values.shape[1]
        padding = [(0, 0), (0, width), *[(0, 0)] * (values.ndim - 2)]
        return np.pad(values, padding, constant_values=_PADDING)

    def agreement(self, trainer: loop.Trainer, split: str) -> dict[str, float]:
        """How far a model's answers are from the teacher's, which rows contain."""
        data, size = self.sets.read(split), self.given.eval_batch_size
        values = trainer.evaluate(
            lambda part: data.file.evaluation(size, part=part),
            len(data.file.in_order(size)),
            Agreement(trainer.measured),
        )
        return {name: value for name, value in values.items() if name != "loss"}

    def score(self, trainer: loop.Trainer, split: str):
        """The predictions of an evaluation set, and its scores by name."""
        predictions, values = self.predict(trainer, split, self.given.eval_batch_size)
        scores = self.task.score(predictions)
        return predictions, {"loss": values["loss"], **scores}
