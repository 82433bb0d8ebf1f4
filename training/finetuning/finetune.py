"""Runs fine-tuning for a task and its flags: read, featurize, train, predict, score,
write, export.

A single run and a search take the same steps. Sets are read first, so that bad input is
found before anything is computed. Then every trial trains in its own directory, and the
best model is evaluated, used for predictions and exported.
"""

import contextlib
import dataclasses
import functools
import json
import math
import os

import numpy as np

import options
from training import distribution, flags, loop, run, run_folder
from modeling.bilstm import BiLstm
from modeling.encoders.config import POOLINGS
from modeling.objectives.tasks import TaskObjective
from serving import export
from text.errors import UserError
from text.tokenizers.kinds import TokenizerOptions
from training.finetuning import mistakes
from training.finetuning.experiment import Experiment, Trial, every_trial, varied
from training.finetuning.search import search
from training.finetuning.task import Predictions, ServedTask, Task

_CHECKED = 16  # examples of real data to check an export on


@dataclasses.dataclass(frozen=True)
class FineTuningOptions(TokenizerOptions, flags.RunOptions):
    """The flags of every fine-tuning script: the release's, then ours."""

    vocab_file: str = options.field(help="The vocabulary of the checkpoint.")
    do_predict: bool = options.field(False, help="Predict the test set at the end.")
    train_batch_size: list[int] = options.field(
        [32], help="Rows per update, over all replicas; a list is searched."
    )
    predict_batch_size: int = options.field(8, help="Rows per prediction batch.")
    learning_rate: list[float] = options.field(
        [5e-5], help="Adam's peak learning rate; a list is searched."
    )
    num_train_epochs: list[float] = options.field(
        [3.0], help="Passes over the training set; a list is searched."
    )
    warmup_proportion: float = options.field(
        0.1, help="Share of the updates over which the learning rate rises."
    )

    layerwise_lr_decay: float = options.field(
        1.0,
        help="What the learning rate is multiplied by from each layer to the one below: "
        "the head has the full rate, the top layer its square times the rate, the "
        "embeddings the least; 0.8 for ELECTRA, 0.9 for its large model. 1 gives all the "
        "same rate.",
    )

    log_every_steps: int = options.field(50, help="Updates between reports.")
    num_trials: int = options.field(
        1,
        help="Number of seeds to try, starting with --seed. The best run on the dev set "
        "is kept; the mean, the deviation and failed runs are reported.",
    )
    early_stopping_patience: int = options.field(
        0,
        help="Stop after this many evaluations without improvement, and keep the best. "
        "Without --eval_every_steps, evaluates once per epoch. 0 trains to the end.",
    )
    length_buckets: bool = options.field(
        True,
        help="Put rows of similar length in one batch, and pad it to its longest row "
        "only. A TPU always pads to --max_seq_length.",
    )
    init_encoder_only: bool = options.field(
        False, help="Take the encoder of --init_checkpoint without its head."
    )

    lstm_layers: int = options.field(
        0,
        help="Number of BiLSTM layers to train between the encoder and the head, as in "
        "the paper's table 5.",
    )
    lstm_size: int | None = options.field(
        None, help="Units per BiLSTM layer and direction; 768 by default."
    )

    def __post_init__(self):
        if not (self.do_train or self.do_eval or self.do_predict or self.do_export):
            raise UserError(
                "nothing to do; pass at least one of --do_train, --do_eval, --do_predict "
                "and --do_export"
            )
        if self.init_encoder_only and not (self.do_train and self.init_checkpoint):
            raise UserError(
                "--init_encoder_only needs --do_train and --init_checkpoint: without a "
                "head, the model cannot answer"
            )
        self.check_at_least(1, "train_batch_size", "predict_batch_size", "num_trials")
        self.check_at_least(0, "early_stopping_patience", "lstm_layers")
        if self.lstm_size is not None:
            self.check_at_least(1, "lstm_size")
            if not self.lstm:
                raise UserError(
                    f"--lstm_size={self.lstm_size} has no effect without BiLSTM layers; "
                    "pass --lstm_layers, or remove it"
                )
        if self.lstm and "litert" in self.export_formats:
            raise UserError(
                "--export_formats=litert: LiteRT's converter fails on BiLSTM layers; use "
                "onnx, or the SavedModels"
            )
        for name in ("learning_rate", "num_train_epochs"):
            for number in getattr(self, name):
                if not 0 < number < math.inf:
                    raise UserError(f"--{name}={number}: must be above 0")
        if not 0 <= self.warmup_proportion <= 1:
            raise UserError(
                f"--warmup_proportion={self.warmup_proportion}: must be from 0 to 1"
            )
        if not 0 < self.layerwise_lr_decay <= 1:
            raise UserError(
                f"--layerwise_lr_decay={self.layerwise_lr_decay}: must be above 0 and at "
                "most 1"
            )
        super().__post_init__()
        if self.seed + self.num_trials > 2**31:
            raise UserError(
                f"--seed={self.seed} and {self.num_trials - 1} more: must be below {2**31}"
            )

    def settings(self, **numbers) -> loop.Settings:
        settings = super().settings(**numbers)
        recipe = dataclasses.replace(
            settings.recipe, layerwise_lr_decay=self.layerwise_lr_decay
        )
        return dataclasses.replace(settings, recipe=recipe)

    @property
    def num_lstm_layers(self) -> int:
        """How many the network has, which a script may derive from other flags."""
        return self.lstm_layers

    @property
    def lstm(self) -> BiLstm | None:
        """The BiLSTM layers of the network, if it has any."""
        if not self.num_lstm_layers:
            return None
        # An export with cuDNN's LSTM would be useless without a GPU.
        fused = not (self.xla or self.do_export)
        lstm = BiLstm(self.num_lstm_layers, fused=fused)
        return lstm._replace(size=self.lstm_size) if self.lstm_size else lstm

    @property
    def lstm_settings(self) -> dict:
        """By which runs are compared: `lstm_layers` as given, and the size."""
        size = self.lstm.size if self.lstm else None
        return {"lstm_layers": self.lstm_layers, "lstm_size": size}

    def with_lstm(self, objective):
        """An objective, told of the BiLSTM layers.

        Raises:
            UserError: it makes a network that cannot have any.
        """
        if self.lstm:
            if not isinstance(objective, TaskObjective):
                raise UserError(
                    f"--lstm_layers: {type(objective).__name__} makes its own network, "
                    "without BiLSTM layers; remove the flag"
                )
            objective.lstm = self.lstm
        return objective

    def check_lstm(self, folder: str, state: dict) -> None:
        """Compares the BiLSTM layers with those of a trained model.

        Args:
            state: what the model's task.json says.
        Raises:
            UserError: they differ.
        """
        learned = {"lstm_layers": 0, "lstm_size": None}
        learned |= {name: state[name] for name in learned if name in state}
        if learned == self.lstm_settings:
            return
        had = " ".join(f"--{name}={value}" for name, value in learned.items())
        raise UserError(
            f"{folder}: the model was trained with {had}; pass the same"
            if learned["lstm_size"]
            else f"{folder}: the model has no BiLSTM layers; remove --lstm_layers"
        )


@dataclasses.dataclass(frozen=True)
class PooledOptions(FineTuningOptions):
    """The flags of a task whose head reads one vector of each row."""

    pooling: str | None = options.field(
        None,
        choices=POOLINGS,
        help="What the head reads: the first token, the last, or the mean of all. By "
        "default, the first; if attention_direction is left_to_right, the last.",
    )

    def __post_init__(self):
        if self.pooling and self.lstm_layers:
            raise UserError(
                f"--pooling={self.pooling} has no effect with --lstm_layers, whose states "
                "the head reads; remove one of them"
            )
        super().__post_init__()

    def network_changes(self, config):
        if self.pooling in (None, config.row_pooling):
            return {}
        return {"pooling": self.pooling}


# === The run =========================================================================


@distribution.together()
def finetune(task: Task, given) -> None:
    """Does what the flags ask for.

    Raises:
        UserError: flags, files, config or checkpoint do not match.
    """
    if given.do_export and not isinstance(task, ServedTask):
        raise UserError(
            f"--do_export: {type(task).__name__} does not define answers to raw text; make "
            "it a `ServedTask`"
        )
    experiment = Experiment(task, given)
    with contextlib.closing(experiment.sets):
        _run(experiment)


def _run(experiment: Experiment) -> None:
    task, given = experiment.task, experiment.given
    splits = [
        *(["train"] if given.do_train else []),
        *(task.eval_sets if evaluates(given) else ()),
        *(task.test_sets if given.do_predict else ()),
    ]
    for split in splits:
        experiment.sets.examples(split)
    trials = every_trial(given)
    experiment.check_batches(trials)
    experiment.check_place(trials)
    with experiment.held():
        if given.do_train and len(trials) > 1:
            experiment.check_start(trials[0])
            experiment.read(splits)
            trainer = search(experiment, trials)
        else:
            trainer = _single(experiment, trials[0], splits)
        known = _evaluate(experiment, trainer) if given.do_eval else {}
        if given.do_predict:
            for split in task.test_sets:
                _predict(experiment, trainer, split, known.get(split))
        if given.do_export:
            distribution.on_chief(
                experiment.strategy, lambda: _export(experiment, trainer)
            )


def evaluates(given: FineTuningOptions) -> bool:
    """Whether the first evaluation set is needed."""
    searches = given.do_train and len(every_trial(given)) > 1
    return bool(
        given.do_eval
        or searches
        or (
            given.do_train and (given.eval_every_steps or given.early_stopping_patience)
        )
    )


def _single(experiment: Experiment, trial: Trial, splits: list[str]) -> loop.Trainer:
    given = experiment.given
    trainer = experiment.trainer(trial)
    # First, so that a checkpoint that does not fit is refused before rows are written.
    experiment.start(trainer, given.output_dir)
    experiment.read(splits)
    if given.do_train:
        identity = experiment.identity(varied([trial]))
        experiment.prepare(given.output_dir, identity, trainer)
        experiment.train(trainer, trial, given.output_dir)
        if experiment.is_small:
            experiment.log.say(
                f"with only {experiment.num_examples} training examples, another --seed "
                "may score quite differently; --num_trials=5 shows how much"
            )
    return trainer


def _evaluate(experiment: Experiment, trainer: loop.Trainer) -> dict[str, Predictions]:
    """Writes the scores of all evaluation sets; returns the predictions."""
    given, task = experiment.given, experiment.task
    results, pages, known = {}, [], {}
    for split in task.eval_sets:
        predictions, values = experiment.score(trainer, split)
        known[split] = predictions
        prefix = "eval_" if split == task.eval_sets[0] else f"eval_{split}_"
        results |= {f"{prefix}{name}": value for name, value in values.items()}
        _warn_of_triviality(experiment, split, predictions, values)
        judgements = task.judge(predictions)
        pages.append(mistakes.Page(split, values, judgements, task.has_classes))
    results["loss"] = results["eval_loss"]
    results["global_step"] = trainer.progress.step
    if not experiment.chief:
        return known
    path = functools.partial(os.path.join, given.output_dir)
    lines = run.results_lines(results)
    run_folder.write_file(path(run_folder.RESULTS), lines)
    run_folder.write_file(
        path(run_folder.RESULTS_JSON),
        json.dumps(results, indent=2, sort_keys=True) + "\n",
    )
    name = os.path.basename(os.path.abspath(given.output_dir))
    title = (
        f"{type(task).__name__} in {name}: {', '.join(page.split for page in pages)}"
    )
    run_folder.write_file(path(run_folder.MISTAKES), mistakes.render(pages, title))
    experiment.log.say(
        f"evaluation written to {path(run_folder.RESULTS)}: "
        f"{', '.join(lines.splitlines())}"
    )
    if any(page.judgements for page in pages):
        experiment.log.say(f"the worst mistakes are in {path(run_folder.MISTAKES)}")
    return known


def _warn_of_triviality(experiment, split, predictions, values):
    trivial = experiment.task.trivial_score(predictions.examples)
    metric = experiment.task.metric
    if trivial is not None and values[metric] <= trivial:
        experiment.log.say(
            f"{split}: {metric} {values[metric]:.4f} is no better than a constant answer "
            f"({trivial:.4f}); train longer, or with another --learning_rate"
        )


def _predict(
    experiment: Experiment, trainer: loop.Trainer, split: str, known=None
) -> None:
    """Writes the answers to a test set, reusing the predictions of an evaluation."""
    if known is None:
        known, _ = experiment.predict(
            trainer, split, experiment.given.predict_batch_size
        )
    if experiment.chief:
        written = experiment.task.write_predictions(known, experiment.given.output_dir)
        experiment.log.say(f"predicted {split}: {', '.join(written)}")


# --- The export ----------------------------------------------------------------------


def _export(experiment: Experiment, trainer: loop.Trainer) -> None:
    """Exports the model; checks it on the task's samples and on examples already read."""
    given, task = experiment.given, experiment.task
    model = export.make_model(
        lambda: trainer.objective.network(experiment.config, dtype=given.export_dtype),
        trainer.weights,
    )
    split = task.test_sets[0]
    known = []
    if given.do_eval or given.do_predict:
        known = experiment.sets.examples(
            (task.eval_sets if given.do_eval else task.test_sets)[0]
        )
    examples = [*task.samples(), *known[:_CHECKED]]
    made = [
        (i, row) for i, e in enumerate(examples) for row in task.featurize(e, split)
    ]
    layout = task.layout(examples, given.max_seq_length)
    batch = layout.pack([row for _, row in made])
    layout = dataclasses.replace(layout, labels={})
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
            config=experiment.config,
            tokenizer=task.tokenizer,
            layout=layout,
            form=task.form,
            inputs=task.inputs,
            serve=task.serve,
            description={
                "task": type(task).__name__,
                **(given.lstm_settings if given.lstm else {}),
                **task.description(),
                "global_step": trainer.progress.step,
            },
            requests=[task.request(example) for example in examples],
            answers=task.answers(predictions),
            batch={name: values[:_CHECKED] for name, values in batch.items()},
            outputs=_checked(outputs, trainer.objective.ranked_outputs),
            formats=given.export_formats,
        ),
    )
    experiment.log.say(
        f"exported to {folder}; loaded by another process, it gave the same answers to "
        f"{len(examples)} requests"
    )


def _checked(outputs, ranked):
    """Those to check an export on; the answers depend on the others."""
    return {k: values[:_CHECKED] for k, values in outputs.items() if k not in ranked}
