"""Runs fine-tuning for a task and its flags: read, featurize, train, predict, score,
write, export.

A single run and a search take the same steps. Sets are read first, so that bad input is
found before anything is computed. Then every trial trains in its own directory, and the
best model is evaluated, used for predictions and exported.
"""

import contextlib
import dataclasses
import json
import os

import numpy as np

from training import metrics
from training.run import distribution, loop
from training.run.settle import TrainableModel
from training.storage import adapters, model_card
from training.storage.folder import MISTAKES, RESULTS_JSON
from errors import UserError, count
from serving import (
    comparison,
    drift,
    explanations,
    export,
    integrated_gradients,
    predictor,
    quantized,
)
from training.finetuning import mistakes
from training.finetuning.experiment import Experiment
from training.finetuning.options import FineTuningOptions
from training.finetuning.search import search
from training.finetuning.task import Predictions, ServedTask, Task
from training.finetuning.teacher import Teacher
from training.finetuning.trials import Trial, describe_trials
from training.run.run import Run, results_file

_CHECKED = 16  # examples of real data to check an export on
_COMPARED = (
    1000  # examples on which an export of fewer bits must answer as float32 does
)


@distribution.report_lost_hosts()
def finetune(task: Task, model: TrainableModel) -> None:
    """Does what the flags ask for.

    Args:
        model: the one that the flags, `FineTuningOptions`, name.
    Raises:
        UserError: flags, files, config or checkpoint do not match.
    """
    flags: FineTuningOptions = model.flags
    if flags.do_export and not isinstance(task, ServedTask):
        raise UserError(
            f"--do_export: {type(task).__name__} does not define answers to raw text; make "
            "it a `ServedTask`"
        )
    _check_explains(task, flags)
    model.folder.check_place(flags.do_train, flags.do_eval)
    experiment = Experiment(task, model)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(experiment.sets))
        if flags.do_train and flags.distill_from:
            experiment.sets.teacher = Teacher(experiment)
            stack.enter_context(contextlib.closing(experiment.teacher))
        _run(experiment)


def _check_explains(task: Task, flags: FineTuningOptions) -> None:
    for name in ("export_attributions", "explain_mistakes"):
        if getattr(flags, name) and not getattr(task, "explains", False):
            raise UserError(
                f"--{name}: the answers of this model of "
                f"{task.script or type(task).__name__} cannot be explained; "
                "docs/explanations.md says which can; remove the flag"
            )
    if flags.explain_mistakes and "list" in task.inputs.values():
        raise UserError(
            "--explain_mistakes: is for one answer to a text, not to each word; export "
            "with --export_attributions and use predict.py --explain"
        )


def _run(experiment: Experiment) -> None:
    task, flags = experiment.task, experiment.flags
    splits = [
        *(["train"] if flags.do_train else []),
        *(task.eval_sets if flags.evaluates else ()),
        *(task.test_sets if flags.do_predict else ()),
    ]
    for warning in task.warnings():
        experiment.log.say(f"warning: {warning}")
    if splits:
        experiment.log.say(f"reading {', '.join(splits)}")
    for split in splits:
        experiment.sets.examples(split)
    if flags.compares:
        # After the training set, which may be all that tells the labels.
        _read_to_compare(experiment)
    trials = flags.trials
    experiment.check_batches(trials)
    is_search = flags.do_train and len(trials) > 1
    run = experiment.run(
        describe_trials(trials) if flags.do_train else None,
        trials[0] if flags.do_train and not is_search else None,
    )
    run.check()
    with run.hold():
        if is_search:
            experiment.check_start(trials[0])
            experiment.read(splits)
            trainer = search(experiment, run, trials)
        else:
            trainer = _single(experiment, run, trials[0], splits)
        predictions_by_split = _evaluate(experiment, trainer) if flags.do_eval else {}
        if experiment.teacher and flags.do_eval:
            _compare(experiment, trainer)
        if flags.do_predict:
            for split in task.test_sets:
                _predict(experiment, trainer, split, predictions_by_split.get(split))
        if flags.do_export:
            distribution.on_chief(
                experiment.strategy,
                lambda: _export(experiment, trainer, predictions_by_split),
            )


def _read_to_compare(experiment: Experiment) -> None:
    """Reads the set on which an export of fewer bits is compared with float32."""
    flags, split = experiment.flags, experiment.task.eval_sets[0]
    try:
        examples, found = experiment.sets.examples(split), "it has no examples"
    except OSError as error:
        examples, found = [], f"{error.filename}: {error.strerror}"
    if not examples:
        raise UserError(
            f"--export_precision={flags.export_precision}: the export is compared with "
            f"float32 on the set {split}, but {found}; add this set, or leave out the flag"
        )


def _single(
    experiment: Experiment, run: Run, trial: Trial, splits: list[str]
) -> loop.Trainer:
    trainer = experiment.trainer(trial)
    # First, so that a checkpoint that does not fit is refused before rows are written.
    experiment.start(run, trainer)
    experiment.read(splits)
    if experiment.flags.do_train:
        experiment.prepare(run)
        experiment.train(run, trainer, trial)
        if experiment.is_small:
            experiment.log.say(
                f"with only {count(experiment.num_examples, 'training example')}, another "
                "--seed may score quite differently; --num_trials=5 shows how much"
            )
    return trainer


def _compare(student: Experiment, trainer: loop.Trainer) -> None:
    """Prints the teacher's scores, and how far the student's answers are from its."""
    split = student.task.eval_sets[0]
    student.teacher.tell_scores(split)
    if split in student.teacher.splits:
        agreement = student.agreement(trainer, split)
        student.log.say(
            f"{split}, with the teacher: "
            + ", ".join(f"{k} {metrics.in_words(k, v)}" for k, v in agreement.items())
        )


def _evaluate(experiment: Experiment, trainer: loop.Trainer) -> dict[str, Predictions]:
    """Writes the scores of all evaluation sets; returns the predictions."""
    flags, task = experiment.flags, experiment.task
    results, pages, predictions_by_split = {}, [], {}
    for split in task.eval_sets:
        predictions, values = experiment.score(trainer, split)
        predictions_by_split[split] = predictions
        prefix = "eval_" if split == task.eval_sets[0] else f"eval_{split}_"
        results |= {f"{prefix}{name}": value for name, value in values.items()}
        experiment.log.scores(split, values)
        _warn_of_triviality(experiment, split, predictions, values)
        judgements = task.judge(predictions)
        pages.append(
            mistakes.Page(split, _in_words(task, values), judgements, task.has_classes)
        )
    if "eval_loss" in results:
        results["loss"] = results["eval_loss"]
    results["global_step"] = trainer.progress.step
    if not experiment.chief:
        return predictions_by_split
    if flags.explain_mistakes:
        pages = _explain(experiment, trainer, pages, predictions_by_split)
    name = os.path.basename(os.path.abspath(flags.output_dir))
    title = f"{task.title} ({', '.join(page.split for page in pages)}): {name}"
    files = results_file(results) | {
        RESULTS_JSON: json.dumps(results, indent=2, sort_keys=True) + "\n",
        MISTAKES: mistakes.render(pages, title),
    }
    written, _, worst = experiment.folder.write_files(files)
    experiment.log.say(f"evaluation written to {written}")
    if any(j.gold != j.predicted for page in pages for j in page.judgements):
        experiment.log.say(f"the worst mistakes are in {worst}")
    return predictions_by_split


def _explain(experiment, trainer, pages, predictions_by_split) -> list[mistakes.Page]:
    """Pages that show what each word contributed to the worst mistakes."""
    flags, task, explained_pages = experiment.flags, experiment.task, []
    product = _product(experiment, trainer, "float32", explains=True)
    served = export.make_served(product, flags.output_dir)
    for page in pages:
        numbers = mistakes.worst(page.judgements)[: flags.explain_mistakes]
        examples = predictions_by_split[page.split].examples
        requests = [task.request(examples[number]) for number in numbers]
        explained = served.explain(requests, flags.eval_batch_size)
        judgements = list(page.judgements)
        for number, *pair in zip(numbers, explained, requests, strict=True):
            words = explanations.pieces(*pair)
            judgements[number] = judgements[number]._replace(words=words)
        explained_pages.append(page._replace(judgements=judgements))
    return explained_pages


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
    experiment: Experiment, trainer: loop.Trainer, split: str, predictions=None
) -> None:
    """Writes the answers to a test set, reusing the predictions of an evaluation."""
    if predictions is None:
        predictions, _ = experiment.predict(
            trainer, split, experiment.flags.predict_batch_size
        )
    if experiment.chief:
        files = experiment.task.prediction_files(predictions)
        written = experiment.folder.write_files(files)
        experiment.log.say(f"predicted {split}: {', '.join(written)}")


# --- The export ----------------------------------------------------------------------


def serve(task: ServedTask, model: TrainableModel) -> predictor.Served:
    """The answers of the model in output_dir, which --do_export would write.

    Raises:
        UserError: see `finetune`.
    """
    experiment, flags = Experiment(task, model), model.flags
    with contextlib.closing(experiment.sets):
        run = experiment.run()
        run.check()
        trainer = experiment.trainer(flags.trials[0])
        experiment.start(run, trainer)
        product = _product(
            experiment, trainer, flags.export_precision, flags.export_attributions
        )
        return export.make_served(product, flags.output_dir)


def _export(
    experiment: Experiment,
    trainer: loop.Trainer,
    predictions_by_split: dict[str, Predictions],
) -> None:
    """Exports the model; checks it on the task's samples and on examples already read."""
    flags, split = experiment.flags, experiment.task.eval_sets[0]
    output_dir = flags.output_dir
    product = _product(
        experiment, trainer, flags.export_precision, flags.export_attributions
    )
    if split in predictions_by_split:
        counts = _counts(experiment.task, predictions_by_split[split])
        description = {**product.description, drift.DEV_SET: counts.description}
        product = dataclasses.replace(product, description=description)
    card = model_card.of_export(output_dir, product)
    folder = export.save(output_dir, product, card)
    experiment.log.say(
        f"exported to {folder}; loaded by another process, it gave the same "
        + (
            f"answers to {count(len(product.requests), 'request')}"
            if product.answers_exactly
            else f"numbers, within {product.tolerance:.0%}"
        )
    )


def _counts(task: ServedTask, predictions: Predictions) -> drift.DriftCounts:
    counts, answers = drift.DriftCounts(), task.answers(predictions)
    for example, answer in zip(predictions.examples, answers, strict=True):
        counts.add(task.form, task.tokenizer, task.request(example), answer)
    return counts


def _product(
    experiment: Experiment, trainer: loop.Trainer, precision: str, explains: bool
) -> export.Product:
    """The model to export; adapters become a part of their kernels.

    Args:
        explains: whether it has explanations.
    """
    flags, task = experiment.flags, experiment.task
    model = _network(experiment, trainer, precision)
    real_examples = []
    if flags.do_eval or flags.do_predict:
        sets = task.eval_sets if flags.do_eval else task.test_sets
        real_examples = experiment.sets.examples(sets[0])
    examples = [*task.samples(), *real_examples[:_CHECKED]]
    layout, batch, outcome = _rows_of(experiment, examples, task.test_sets[0])
    outputs = export.predict(model, batch)
    product = export.Product(
        model=model,
        precision=precision,
        config=experiment.config,
        tokenizer=task.tokenizer,
        layout=layout,
        form=task.form,
        inputs=task.inputs,
        serve=task.serve,
        description={
            "task": type(task).__name__,
            **(flags.lstm_settings if flags.lstm else {}),
            **task.description(),
            "global_step": trainer.progress.step,
        },
        requests=[task.request(example) for example in examples],
        answers=task.answers(outcome(outputs)),
        batch={name: values[:_CHECKED] for name, values in batch.items()},
        outputs=_outputs_to_check(outputs, model.ranked_outputs),
        formats=flags.export_formats,
        **_float32(experiment, trainer, precision),
    )
    if explains:
        explain = integrated_gradients.signature(model, task.scores_to_explain)
        more = {predictor.SIGNATURE: (explain, None)}
        product = dataclasses.replace(product, more=more)
    return product


def _network(experiment, trainer, precision):
    return export.make_model(
        lambda: trainer.for_evaluation.network(
            experiment.config, dtype=quantized.POLICIES[precision]
        ),
        adapters.without(trainer.weights, experiment.flags.low_rank_alpha),
        precision,
    )


def _rows_of(experiment: Experiment, examples: list, split: str):
    """The layout of examples without labels, their rows, and what makes `Predictions` of
    the outputs for these.
    """
    task = experiment.task
    made = [
        (i, row) for i, e in enumerate(examples) for row in task.featurize(e, split)
    ]
    layout = task.layout(examples, experiment.flags.max_seq_length)
    batch = layout.pack([row for _, row in made])
    layout = dataclasses.replace(layout, labels={})
    batch = {name: batch[name].astype(np.int32) for name in layout.fields}
    notes, numbers = [row.notes for _, row in made], np.array([i for i, _ in made])
    return (
        layout,
        batch,
        lambda outputs: Predictions(split, examples, notes, numbers, outputs),
    )


def _float32(experiment: Experiment, trainer: loop.Trainer, precision: str) -> dict:
    """What an export of fewer bits is compared with, on up to _COMPARED dev examples."""
    flags, task = experiment.flags, experiment.task
    if precision == "float32":
        return {}
    split = task.eval_sets[0]
    part, examples = task.part(split, experiment.sets.examples(split), _COMPARED)
    _, batch, outcome = _rows_of(experiment, examples, part)
    reference = _network(experiment, trainer, "float32")
    dev = comparison.DevSet(
        split,
        export.predict(reference, batch),
        lambda outputs: task.answers(outcome(outputs)),
        task.metric,
        lambda outputs: task.score(outcome(outputs))[task.metric],
        flags.min_agreement,
    )
    return {"reference": reference, "compared": comparison.ComparedRows(batch, dev)}


def _outputs_to_check(outputs, ranked):
    """Those to check an export on; the answers depend on the others."""
    return {k: values[:_CHECKED] for k, values in outputs.items() if k not in ranked}
