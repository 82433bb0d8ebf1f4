"""One fine-tuning run from a task and its flags: read, featurize, train, predict, score,
write. Knows no task's name, and nothing of steps and devices that the loop knows.

One run or a search goes the same way: sets are read first, so that bad input is met
before anything is computed; then every trial trains in a directory of its own; and the
best model is evaluated and predicts.
"""

import collections
import contextlib
import dataclasses
import functools
import gc
import hashlib
import itertools
import json
import math
import os
import time

import numpy as np

import options
from text import anywhere, rows
from text.errors import UserError
from text.progress import Progress, duration
from training import (
    checkpoint,
    distribution,
    export,
    loop,
    mistakes,
    report,
    run,
)
from training.task import Predictions, Task

# isort: split
import tensorflow as tf

_PADDING = -1e9  # in outputs, behind the tokens of a row
_TASK_FILE = "task.json"
_BEST = "best"
_EVALUATIONS = "evaluations.json"
_CHECKED = 16  # examples of real data on which an export is tried
_SMALL_SET = 10_000  # examples; below, runs of the same settings differ much


@dataclasses.dataclass(frozen=True)
class FineTuningOptions(run.RunOptions):
    """The flags of every fine-tuning script: the release's, then ours."""

    vocab_file: str = options.field(help="The vocabulary of the checkpoint.")
    do_lower_case: bool = options.field(True, help="As when it was pre-trained.")
    do_predict: bool = options.field(False, help="Answer the test set in the end.")
    train_batch_size: list[int] = options.field(
        [32], help="Rows of one update, over all replicas; a list is searched."
    )
    predict_batch_size: int = options.field(8, help="Rows of one prediction batch.")
    learning_rate: list[float] = options.field(
        [5e-5], help="Adam's rate at its peak; a list is searched."
    )
    num_train_epochs: list[float] = options.field(
        [3.0], help="How often the training set is gone through; a list is searched."
    )
    warmup_proportion: float = options.field(
        0.1, help="Share of the updates over which the learning rate rises."
    )

    log_every_steps: int = options.field(50, help="Updates between two reports.")
    strip_accents: bool | None = options.field(None, help="As when it was pre-trained.")
    split_cjk: bool = options.field(True, help="As when it was pre-trained.")
    num_trials: int = options.field(
        1,
        help="Seeds to try, from --seed on. The best run on the dev set is kept; mean, "
        "deviation and failed runs are reported.",
    )
    early_stopping_patience: int = options.field(
        0,
        help="Stop after so many evaluations without a better one, and keep the best; "
        "without --eval_every_steps there is one each epoch. 0: train to the end.",
    )
    length_buckets: bool = options.field(
        True,
        help="Pad a batch to its longest row only, and let rows of like length share one. "
        "A TPU always pads to --max_seq_length.",
    )
    init_encoder_only: bool = options.field(
        False, help="Take the encoder of --init_checkpoint and not its head."
    )

    def __post_init__(self):
        if not (self.do_train or self.do_eval or self.do_predict or self.do_export):
            raise UserError(
                "nothing to do; give --do_train, --do_eval, --do_predict, --do_export or "
                "several"
            )
        if self.init_encoder_only and not (self.do_train and self.init_checkpoint):
            raise UserError(
                "--init_encoder_only is for training from --init_checkpoint: without a "
                "head there is nothing to answer with"
            )
        self.check_at_least(1, "train_batch_size", "predict_batch_size", "num_trials")
        self.check_at_least(0, "early_stopping_patience")
        for name in ("learning_rate", "num_train_epochs"):
            for number in getattr(self, name):
                if not 0 < number < math.inf:
                    raise UserError(f"--{name}={number}: must be above 0")
        if not 0 <= self.warmup_proportion <= 1:
            raise UserError(
                f"--warmup_proportion={self.warmup_proportion}: must be from 0 to 1"
            )
        super().__post_init__()
        if self.seed + self.num_trials > 2**31:
            raise UserError(
                f"--seed={self.seed} and {self.num_trials - 1} more: must be below {2**31}"
            )


# === Sets ============================================================================


@dataclasses.dataclass
class _Set:
    """One split; its rows are in a file, and in memory what scoring needs of them."""

    split: str
    examples: list
    notes: list
    example_numbers: np.ndarray
    file: rows.Rows
    fingerprint: str


class _Sets:
    """Reads and featurizes the splits of a task.

    Rows go to TFRecord files in output_dir. Those of the training set are used again by
    the next run where examples, vocabulary and flags are the same.
    """

    def __init__(self, task: Task, given: FineTuningOptions, strategy, log):
        self.task, self.given, self.strategy, self.log = task, given, strategy, log
        self.read = functools.cache(self._read)
        self._examples = {}

    def _read(self, split: str) -> _Set:
        task, given = self.task, self.given
        examples = self._examples[split] = task.read(split)
        layout = rows.Layout(given.max_seq_length, task.num_choices, task.fields)
        fingerprint = self._fingerprint(examples, layout)
        path = os.path.join(given.output_dir, f"{self._name(split)}.tf_record")
        notes, numbers = [], []
        if split == "train":
            fresh = self._is_fresh(path, fingerprint)
            # Together: a host that is late may find what the chief wrote meanwhile.
            if distribution.any_host(self.strategy, not fresh):
                self._write(path, self._rows(examples, split), layout, fingerprint)
        else:

            def noted():
                for number, row in self._rows(examples, split):
                    notes.append(row.notes)
                    numbers.append(number)
                    yield number, row

            made = noted()
            if not distribution.is_chief(self.strategy):
                collections.deque(made, maxlen=0)  # it scores as the chief does
            self._write(path, made, layout, fingerprint)
        note = _read_json(f"{path}.json") or {}
        distribution.check_same(
            self.strategy,
            note.get("rows", -1),
            "output_dir does not hold the same files on all hosts; they must share it",
        )
        if not note["rows"]:
            raise UserError(f"{split}: none of {len(examples)} examples makes a row")
        counts = [f"; {n} {what}" for what, n in sorted(note["counts"].items()) if n]
        self.log.say(
            f"{split}: {len(examples)} examples, {note['rows']} rows{''.join(counts)}"
        )
        file = rows.Rows(
            path, layout, bucketed=given.length_buckets and not given.uses_tpu
        )
        return _Set(split, examples, notes, np.array(numbers), file, fingerprint)

    def some_examples(self, number: int) -> list:
        """The first of an evaluation or test set that was read."""
        splits = (*self.task.eval_sets, *self.task.test_sets)
        known = (self._examples[split] for split in splits if split in self._examples)
        return next(known, [])[:number]

    def _is_fresh(self, path, fingerprint):
        """Whether a file of rows is whole and of this very set."""
        note = _read_json(f"{path}.json") or {}
        if note.get("fingerprint") != fingerprint or not tf.io.gfile.exists(path):
            return False
        return tf.io.gfile.stat(path).length == note.get("bytes")

    def _rows(self, examples, split):
        self.task.counts.clear()
        total = len(examples)
        with Progress(f"rows of {split}", total, "examples", brief=True) as progress:
            for number, example in enumerate(examples):
                for row in self.task.featurize(example, split):
                    yield number, row
                progress.advance(1)

    def _write(self, path, numbered, layout, fingerprint):
        """Writes rows, and beside them what they were made of."""

        def write():
            # Without its note a file counts for nothing.
            if tf.io.gfile.exists(f"{path}.json"):
                tf.io.gfile.remove(f"{path}.json")
            number = rows.write(path, (row for _, row in numbered), layout)
            counts = dict(self.task.counts)
            note = {
                "fingerprint": fingerprint,
                "rows": number,
                "bytes": tf.io.gfile.stat(path).length,
                "counts": counts,
            }
            checkpoint.write_file(f"{path}.json", json.dumps(note, indent=2) + "\n")

        distribution.on_chief(self.strategy, write)

    def _name(self, split):
        """The release's names: train, eval, predict; further sets add their own."""
        for name, splits in (
            ("eval", self.task.eval_sets),
            ("predict", self.task.test_sets),
        ):
            if split in splits:
                return name if split == splits[0] else f"{name}_{split}"
        return split

    def _fingerprint(self, examples, layout):
        digest = hashlib.sha256()
        what = (
            layout,
            _text_settings(self.task.tokenizer),
            sorted(self.task.settings().items()),
        )
        for item in (what, *examples):
            digest.update(f"{item!r}\n".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def _read_json(path):
    if not tf.io.gfile.exists(path):
        return None
    with anywhere.access(path), tf.io.gfile.GFile(path) as file:
        try:
            return json.load(file)
        except ValueError:
            return None


# === Trials ==========================================================================


@dataclasses.dataclass(frozen=True)
class _Trial:
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


def _trials(given: FineTuningOptions) -> list[_Trial]:
    product = itertools.product(
        given.learning_rate,
        given.train_batch_size,
        given.num_train_epochs,
        range(given.seed, given.seed + given.num_trials),
    )
    return [_Trial(*values) for values in dict.fromkeys(product)]


def _text_settings(tokenizer) -> dict:
    """What makes ids of text."""
    splitter = tokenizer.splitter
    return {
        "vocab_sha256": tokenizer.vocabulary.digest,
        "do_lower_case": splitter.do_lower_case,
        "strip_accents": splitter.strip_accents,
        "split_cjk": splitter.split_cjk,
    }


class _Run:
    """What all trials of one command share, and how a model is made, trained and asked."""

    def __init__(self, task: Task, given: FineTuningOptions):
        self.task, self.given = task, given
        self.config = run.read_config(given)
        run.check_vocabulary(task.tokenizer.vocabulary, given, self.config)
        # Before anything that makes TensorFlow look for devices.
        self.strategy = given.strategy()
        self.chief = distribution.is_chief(self.strategy)
        self.log = self._report(given.output_dir, 1, 1)
        distribution.on_chief(
            self.strategy, lambda: checkpoint.prepare(given.output_dir)
        )
        self._recall()
        self.sets = _Sets(task, given, self.strategy, self.log)

    def _recall(self):
        """Holds the run to the text that its weights were trained on, and the labels."""
        given = self.given
        directories = [] if given.do_train else [given.output_dir]
        if given.init_checkpoint:
            source = checkpoint.resolve(given.init_checkpoint)
            directories.append(os.path.dirname(source))
        for directory in directories:
            path = os.path.join(directory, _TASK_FILE)
            if state := _read_json(path):
                for name, value in _text_settings(self.task.tokenizer).items():
                    if state.get(name, value) != value:
                        raise UserError(
                            f"{path}: the model was trained with {name}={state[name]}, "
                            f"and this is {value}; give the same vocabulary and flags"
                        )
                if not given.do_train:
                    self.task.restore(state)
                return

    def check_batches(self, trials: list[_Trial]) -> None:
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
        return len(self.sets.read("train").examples)

    def num_train_steps(self, trial: _Trial) -> int:
        # As the release counts: examples, of which windows may make more rows.
        return int(self.num_examples / trial.train_batch_size * trial.num_train_epochs)

    def trainer(self, trial: _Trial) -> loop.Trainer:
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
            lambda: objective.model(self.config, seed=trial.seed, dtype=given.dtype),
            objective,
            settings,
        )
        self.log.say(trainer.description)
        return trainer

    def start(self, trainer: loop.Trainer, directory: str) -> None:
        given = self.given
        if given.do_train:
            required = checkpoint.ENCODER
        else:
            required = ""  # a head without training answers at random
            if checkpoint.steps(os.path.join(directory, _BEST)):
                directory = os.path.join(directory, _BEST)
        run.start(
            trainer,
            directory,
            given.init_checkpoint,
            self.log,
            required=required,
            trains=given.do_train,
            only="bert/" if given.init_encoder_only else None,
        )

    # --- Training --------------------------------------------------------------------

    def train(self, trainer: loop.Trainer, trial: _Trial, directory: str) -> None:
        """Trains to the end of one trial, and leaves the model with its final weights."""
        data = self.sets.read("train")
        total = trainer.settings.num_train_steps
        log = self._report(directory, total, trial.train_batch_size)
        stopping = _Stopping(self, trainer, directory)
        if trainer.progress.step >= total or stopping.enough():
            log.say(f"already finished: {trainer.progress.step} updates are done")
        else:
            log.say(f"{total} updates of {trial.train_batch_size} rows")
            with run.interruptible(directory):
                self._train(trainer, trial, data, directory, log, stopping)
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
            raise UserError(
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
                raise UserError(
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


class _Stopping:
    """Evaluates while a trial trains; with patience, keeps the best and says when to stop.

    What it knows stands in a file, so that a resumed run decides as one that never
    stopped.
    """

    def __init__(self, run_: _Run, trainer: loop.Trainer, directory: str):
        self.run, self.trainer = run_, trainer
        self.patience = run_.given.early_stopping_patience
        self.directory = os.path.join(directory, _BEST)
        self.path = os.path.join(directory, _EVALUATIONS)
        history = (_read_json(self.path) or []) if self.patience else []
        # Evaluations of later steps will be repeated.
        self.history = [e for e in history if e["step"] <= trainer.progress.step]

    def evaluate(self) -> dict[str, float]:
        task = self.run.task
        _, values = self.run.score(self.trainer, task.eval_sets[0])
        if self.patience:
            step, score = self.trainer.progress.step, values[task.metric]
            better = score > max((e["score"] for e in self.history), default=-math.inf)
            if better and self.run.chief:
                tensors = {k: v.value for k, v in self.trainer.variables.items()}
                tensors["global_step"] = tf.constant(step, tf.int64)
                checkpoint.save(self.directory, step, tensors, keep=1)
            self.history = [e for e in self.history if e["step"] < step]
            self.history.append({"step": step, "score": score})
            if self.run.chief:
                checkpoint.write_file(self.path, json.dumps(self.history) + "\n")
        return values

    def enough(self) -> bool:
        if not self.patience or not self.history:
            return False
        scores = [e["score"] for e in self.history]
        return len(scores) - 1 - scores.index(max(scores)) >= self.patience

    def take_best(self) -> None:
        if self.patience and self.history:
            best = max(self.history, key=lambda e: e["score"])
            checkpoint.load(self.trainer.weights, self.directory)
            self.trainer.progress.step = best["step"]
            self.run.log.say(
                f"the best of {len(self.history)} evaluations was at step {best['step']}"
            )


# === The run =========================================================================


def finetune(task: Task, given: FineTuningOptions) -> None:
    """Does what the flags ask for.

    Raises:
        UserError: flags, files, config or checkpoint do not fit each other.
    """
    this = _Run(task, given)
    splits = [
        *(["train"] if given.do_train else []),
        *(task.eval_sets if _evaluates(given) else ()),
        *(task.test_sets if given.do_predict else ()),
    ]
    for split in splits:
        this.sets.read(split)
    trials = _trials(given)
    this.check_batches(trials)
    if given.do_train and len(trials) > 1:
        trainer = _search(this, trials)
    else:
        trainer = _single(this, trials[0])
    known = _evaluate(this, trainer) if given.do_eval else {}
    if given.do_predict:
        for split in task.test_sets:
            _predict(this, trainer, split, known.get(split))
    if given.do_export:
        distribution.on_chief(this.strategy, lambda: _export(this, trainer))


def _evaluates(given):
    searches = given.do_train and len(_trials(given)) > 1
    return bool(
        given.do_eval
        or searches
        or (
            given.do_train and (given.eval_every_steps or given.early_stopping_patience)
        )
    )


def _single(this: _Run, trial: _Trial) -> loop.Trainer:
    given = this.given
    if given.do_train:
        _prepare(this, given.output_dir, _identity(this, dataclasses.asdict(trial)))
    trainer = this.trainer(trial)
    this.start(trainer, given.output_dir)
    if given.do_train:
        this.train(trainer, trial, given.output_dir)
        if (examples := this.num_examples) < _SMALL_SET:
            this.log.say(
                f"{examples} training examples are few: another --seed may score quite "
                "differently; --num_trials=5 shows how much"
            )
    return trainer


def _prepare(this: _Run, directory: str, identity: dict) -> None:
    def prepare():
        run.prepare(directory, identity, this.config)
        if not checkpoint.steps(directory):  # what is left is of an abandoned run
            _forget_evaluations(directory)
        state = this.task.state() | _text_settings(this.task.tokenizer)
        content = json.dumps(state, ensure_ascii=False, indent=2)
        checkpoint.write_file(os.path.join(directory, _TASK_FILE), content + "\n")
        with open(this.given.vocab_file, "rb") as file:
            checkpoint.write_file(os.path.join(directory, "vocab.txt"), file.read())

    distribution.on_chief(this.strategy, prepare)


def _forget_evaluations(directory: str) -> None:
    checkpoint.remove_all(os.path.join(directory, _BEST))
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.remove(os.path.join(directory, _EVALUATIONS))


def _identity(this: _Run, varied: dict) -> dict:
    """What makes a run this run: with any of it changed, a resume would be another."""
    given = this.given
    names = (
        "init_checkpoint",
        "init_encoder_only",
        "dtype",
        "bias_correction",
        "warmup_proportion",
        "early_stopping_patience",
        "length_buckets",
    )
    identity = {
        **varied,
        **{name: getattr(given, name) for name in names},
        **this.task.settings(),
        **dataclasses.asdict(this.config),
        "training_rows": this.sets.read("train").fingerprint,
    }
    # As it is read back: JSON has lists where Python has tuples.
    return json.loads(json.dumps(identity))


def _evaluate(this: _Run, trainer: loop.Trainer) -> dict[str, Predictions]:
    """Writes the numbers of all evaluation sets; returns what was predicted."""
    given, task = this.given, this.task
    results, pages, known = {}, [], {}
    for split in task.eval_sets:
        predictions, values = this.score(trainer, split)
        known[split] = predictions
        prefix = "eval_" if split == task.eval_sets[0] else f"eval_{split}_"
        results |= {f"{prefix}{name}": value for name, value in values.items()}
        judgements = task.judge(predictions)
        pages.append(mistakes.Page(split, values, judgements, task.has_classes))
    results["loss"] = results["eval_loss"]
    results["global_step"] = trainer.progress.step
    if not this.chief:
        return known
    path = functools.partial(os.path.join, given.output_dir)
    lines = run.results_lines(results)
    checkpoint.write_file(path("eval_results.txt"), lines)
    checkpoint.write_file(
        path("eval_results.json"), json.dumps(results, indent=2, sort_keys=True) + "\n"
    )
    checkpoint.write_file(path("mistakes.html"), mistakes.render(pages))
    this.log.say(
        f"evaluated, written to {path('eval_results.txt')}: "
        f"{', '.join(lines.splitlines())}"
    )
    this.log.say(f"the worst mistakes are in {path('mistakes.html')}")
    return known


def _predict(this: _Run, trainer: loop.Trainer, split: str, known=None) -> None:
    """Writes the answers to a test set, which may have been an evaluation set before."""
    if known is None:
        known, _ = this.predict(trainer, split, this.given.predict_batch_size)
    if this.chief:
        written = this.task.write_predictions(known, this.given.output_dir)
        this.log.say(f"predicted {split}: {', '.join(written)}")


# --- The export ----------------------------------------------------------------------


def _export(this: _Run, trainer: loop.Trainer) -> None:
    """Exports the model, checked on what was read and on the task's samples."""
    given, task = this.given, this.task
    model = export.make_model(
        lambda: trainer.objective.model(this.config, dtype=given.export_dtype),
        trainer.weights,
    )
    split = task.test_sets[0]
    examples = [*task.samples(), *this.sets.some_examples(_CHECKED)]
    made = [
        (i, row) for i, e in enumerate(examples) for row in task.featurize(e, split)
    ]
    layout = rows.Layout(given.max_seq_length, task.num_choices, task.fields)
    batch = layout.pack([row for _, row in made])
    layout = rows.Layout(given.max_seq_length, task.num_choices)
    batch = {name: batch[name].astype(np.int32) for name in layout.fields}
    outputs = export.predict(model, batch)
    predictions = Predictions(
        split,
        examples,
        [row.notes for _, row in made],
        np.array([number for number, _ in made]),
        outputs,
    )
    folder = export.save(
        given.output_dir,
        export.Product(
            model=model,
            dtype=given.export_dtype,
            config=this.config,
            tokenizer=task.tokenizer,
            layout=layout,
            form=task.form,
            inputs=task.inputs,
            serve=task.serve,
            description={
                "task": type(task).__name__,
                **task.settings(),
                **task.state(),
                "global_step": trainer.progress.step,
            },
            requests=[task.request(example) for example in examples],
            answers=task.answers(predictions),
            batch={name: values[:_CHECKED] for name, values in batch.items()},
            outputs={name: values[:_CHECKED] for name, values in outputs.items()},
            formats=given.export_formats,
        ),
    )
    this.log.say(
        f"exported to {folder}; loaded by another process, it gave the same answers to "
        f"{len(examples)} requests"
    )


# --- The search ----------------------------------------------------------------------


def _search(this: _Run, trials: list[_Trial]) -> loop.Trainer:
    """Trains every trial, keeps the best; returns a trainer with its weights."""
    given, task = this.given, this.task
    this.log.say(f"{len(trials)} runs are compared by {task.metric}")
    shared = {"searched": [str(trial) for trial in trials]}
    _prepare(this, given.output_dir, _identity(this, shared))
    done = []
    for number, trial in enumerate(trials, start=1):
        this.log.say(f"run {number} of {len(trials)}: {trial}")
        done.append(_try(this, trial))
        best = max(done, key=lambda outcome: outcome["score"])
        if this.chief:
            for outcome in done:
                if outcome is not best:
                    _drop_weights(_trial_directory(given, outcome["name"]))
        gc.collect()  # a model and its functions refer to each other
    summary = _summary(task, this, done)
    _report_search(this, summary)
    trial = trials[[str(trial) for trial in trials].index(best["name"])]
    directory = _trial_directory(given, best["name"])
    if not checkpoint.steps(directory):
        # An earlier search found a better one, which is not among these.
        this.log.say(f"{trial} is trained again: its weights were not kept")
        _try(this, trial, again=True)
    trainer = this.trainer(trial)
    prefix = checkpoint.resolve(_best_directory(directory))
    checkpoint.load(trainer.weights, prefix, required="")
    trainer.progress.step = best["global_step"]
    if this.chief:
        trainer.save(given.output_dir)
    return trainer


def _trial_directory(given, name):
    return os.path.join(given.output_dir, "runs", name)


def _best_directory(directory):
    best = os.path.join(directory, _BEST)
    return best if checkpoint.steps(best) else directory


def _try(this: _Run, trial: _Trial, again: bool = False) -> dict:
    """Trains one trial unless it was; returns what is recorded of it."""
    directory = _trial_directory(this.given, str(trial))
    path = os.path.join(directory, "outcome.json")
    identity = _identity(this, dataclasses.asdict(trial))
    dev = this.sets.read(this.task.eval_sets[0]).fingerprint
    outcome = _read_json(path) or {}
    of_this = outcome.get("identity") == identity and outcome.get("dev_rows") == dev
    if of_this and not again:
        this.log.say(f"already finished: {this.task.metric} {outcome['score']:.4f}")
        return outcome
    _prepare(this, directory, identity)
    begun = time.monotonic()
    trainer = this.trainer(trial)
    this.start(trainer, directory)
    this.train(trainer, trial, directory)
    _, values = this.score(trainer, this.task.eval_sets[0])
    outcome = {
        "name": str(trial),
        **dataclasses.asdict(trial),
        "score": values[this.task.metric],
        "global_step": trainer.progress.step,
        "seconds": round(time.monotonic() - begun, 1),
        **{f"eval_{name}": value for name, value in values.items()},
        "identity": identity,
        "dev_rows": dev,
    }
    if this.chief:
        checkpoint.write_file(path, json.dumps(outcome, indent=2) + "\n")
    scores = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
    this.log.say(f"{trial}: {scores}")
    return outcome


def _drop_weights(directory: str) -> None:
    for folder in (directory, os.path.join(directory, _BEST)):
        checkpoint.remove_all(folder)


def _summary(task: Task, this: _Run, done: list[dict]) -> dict:
    scores = np.array([outcome["score"] for outcome in done])
    trivial = task.trivial_score(this.sets.read(task.eval_sets[0]).examples)
    failed = [o["name"] for o in done if trivial is not None and o["score"] <= trivial]
    return {
        "metric": task.metric,
        "best": max(done, key=lambda outcome: outcome["score"])["name"],
        "mean": float(scores.mean()),
        "deviation": float(scores.std(ddof=1)) if len(scores) > 1 else 0.0,
        "trivial": trivial,
        "degenerate": failed,
        "runs": [
            {k: v for k, v in outcome.items() if k not in ("identity", "dev_rows")}
            for outcome in done
        ],
    }


def _report_search(this: _Run, summary: dict) -> None:
    path = os.path.join(this.given.output_dir, "search.json")
    if this.chief:
        checkpoint.write_file(path, json.dumps(summary, indent=2) + "\n")
    say = this.log.say
    for outcome in sorted(summary["runs"], key=lambda o: -o["score"]):
        name, seconds = outcome["name"], duration(outcome["seconds"])
        say(f"  {summary['metric']} {outcome['score']:.4f}  {name}  ({seconds})")
    say(
        f"best: {summary['best']}; mean {summary['mean']:.4f}, deviation "
        f"{summary['deviation']:.4f} over {len(summary['runs'])} runs; all are in {path}"
    )
    if failed := summary["degenerate"]:
        say(
            f"{len(failed)} of {len(summary['runs'])} runs are degenerate, no better than "
            f"the same answer to everything ({summary['trivial']:.4f}): "
            f"{', '.join(failed)}"
        )
    if (examples := this.num_examples) < _SMALL_SET:
        say(
            f"{examples} training examples are few: scores differ much from seed to seed, "
            "and the best of several runs flatters; compare means, and trust a test set"
        )
