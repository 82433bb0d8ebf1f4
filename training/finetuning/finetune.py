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
import os

import numpy as np

from training import metrics
from training.run import checks, distribution, implied_flags, loop
from training.storage import run_folder
from errors import UserError
from serving import export
from training.finetuning import comparison, mistakes, teacher
from training.finetuning.experiment import Experiment
from training.finetuning.finetuning_flags import FineTuningOptions
from training.finetuning.search import search
from training.finetuning.task import Predictions, ServedTask, Task
from training.finetuning.trials import Trial, every_trial, varied

_CHECKED = 16  # examples of real data to check an export on


@distribution.together()
def finetune(task: Task, given: FineTuningOptions) -> None:
    """Does what the flags ask for.

    Raises:
        UserError: flags, files, config or checkpoint do not match.
    """
    if given.do_export and not isinstance(task, ServedTask):
        raise UserError(
            f"--do_export: {type(task).__name__} does not define answers to raw text; make "
            "it a `ServedTask`"
        )
    if given.do_export:
        task.tokenizer.check_graph()
    experiment = Experiment(task, implied_flags.completed(given))
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(experiment.sets))
        if given.do_train and given.distill_from:
            experiment.sets.teacher = teacher.of(experiment)
            stack.enter_context(contextlib.closing(experiment.teacher))
        _run(experiment)


def _run(experiment: Experiment) -> loop.Trainer:
    """Does all of it; returns the model."""
    task, given = experiment.task, experiment.given
    splits = [
        *(["train"] if given.do_train else []),
        *(task.eval_sets if given.evaluates else ()),
        *(task.test_sets if given.do_predict else ()),
    ]
    if splits:
        experiment.log.say(f"reading {', '.join(splits)}")
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
        if experiment.teacher and given.do_eval:
            _compare(experiment, trainer)
        if given.do_predict:
            for split in task.test_sets:
                _predict(experiment, trainer, split, known.get(split))
        if given.do_export:
            distribution.on_chief(
                experiment.strategy, lambda: _export(experiment, trainer)
            )
    return trainer


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


def _compare(student: Experiment, trainer: loop.Trainer) -> None:
    """Reports teacher, student, and the same student trained without the teacher."""
    given, split = student.given, student.task.eval_sets[0]
    models = student.teacher.models(split)
    _, scores = student.score(trainer, split)
    models.append(comparison.Model(comparison.STUDENT, student, trainer, scores))
    with contextlib.ExitStack() as stack:
        if given.distill_compare:
            try:
                models.append(_alone(student, stack))
            except UserError as error:
                student.log.say(
                    f"the student without its teacher cannot be trained: {error}"
                )
        comparison.report(student, models)


def _alone(student: Experiment, stack: contextlib.ExitStack) -> comparison.Model:
    """Trains the same student without its teacher.

    Args:
        stack: whose end closes the sets.
    Raises:
        UserError: it cannot be trained; its training set may lack labels.
    """
    given = comparison.alone(student.given)
    task = type(student.task)(given, student.task.tokenizer)
    # Answers are compared label by label. JSON has no tuples, as in task.json.
    task.restore(json.loads(json.dumps(student.task.state())))
    experiment = Experiment(task, given, student.strategy, comparison.WITHOUT_TEACHER)
    stack.enter_context(contextlib.closing(experiment.sets))
    trainer = _run(experiment)
    _, scores = experiment.score(trainer, task.eval_sets[0])
    return comparison.Model(comparison.WITHOUT_TEACHER, experiment, trainer, scores)


def _evaluate(experiment: Experiment, trainer: loop.Trainer) -> dict[str, Predictions]:
    """Writes the scores of all evaluation sets; returns the predictions."""
    given, task = experiment.given, experiment.task
    results, pages, known = {}, [], {}
    for split in task.eval_sets:
        predictions, values = experiment.score(trainer, split)
        known[split] = predictions
        prefix = "eval_" if split == task.eval_sets[0] else f"eval_{split}_"
        results |= {f"{prefix}{name}": value for name, value in values.items()}
        experiment.log.scores(split, values)
        _warn_of_triviality(experiment, split, predictions, values)
        judgements = task.judge(predictions)
        pages.append(
            mistakes.Page(split, _in_words(task, values), judgements, task.has_classes)
        )
    results["loss"] = results["eval_loss"]
    results["global_step"] = trainer.progress.step
    if not experiment.chief:
        return known
    path = functools.partial(os.path.join, given.output_dir)
    run_folder.write_file(path(run_folder.RESULTS), checks.results_lines(results))
    run_folder.write_file(
        path(run_folder.RESULTS_JSON),
        json.dumps(results, indent=2, sort_keys=True) + "\n",
    )
    name = os.path.basename(os.path.abspath(given.output_dir))
    title = f"{task.title} ({', '.join(page.split for page in pages)}): {name}"
    run_folder.write_file(path(run_folder.MISTAKES), mistakes.render(pages, title))
    experiment.log.say(f"evaluation written to {path(run_folder.RESULTS)}")
    if any(j.gold != j.predicted for page in pages for j in page.judgements):
        experiment.log.say(f"the worst mistakes are in {path(run_folder.MISTAKES)}")
    return known


def _warn_of_triviality(experiment, split, predictions, values):
    task, metric = experiment.task, experiment.task.metric
    trivial = task.trivial_score(predictions.examples)
    if trivial is not None and values[metric] <= trivial:
        score, constant = (
            metrics.in_words(metric, value, task.has_percentages)
            for value in (values[metric], trivial)
        )
        experiment.log.say(
            f"{split}: {metric} {score} is no better than a constant answer ({constant}); "
            "train longer, or with another --learning_rate"
        )


def _in_words(task, values):
    return {
        name: metrics.in_words(name, value, task.has_percentages)
        for name, value in values.items()
    }


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
        lambda: trainer.measured.network(experiment.config, dtype=given.export_dtype),
        trainer.weights,
    )
    split = task.test_sets[0]
    known = []
    if given.do_eval or given.do_predict:
        sets = task.eval_sets if given.do_eval else task.test_sets
        known = experiment.sets.examples(sets[0])
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
            outputs=_checked(outputs, trainer.measured.ranked_outputs),
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
