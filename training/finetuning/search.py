"""The paper's search: trains and records every trial, and keeps the best on the dev set."""

import collections
import dataclasses
import gc
import json
import math
import time

import numpy as np

from training import metrics
from training.run import loop
from training.storage.folder import BEST, OUTCOME, RUNS, SEARCH, Folder, changes
from training.storage.source import Source
from errors import UserError, count, duration
from training.finetuning.experiment import DivergedError, Experiment
from training.finetuning.stopping import load
from training.finetuning.task import Task
from training.finetuning.trials import Trial
from training.run.run import Run


def search(experiment: Experiment, run: Run, trials: list[Trial]) -> loop.Trainer:
    """Trains every trial and keeps the best; returns a trainer with its weights.

    Args:
        run: of the search.
    """
    task, runs = experiment.task, experiment.folder.child(RUNS)
    experiment.log.say(f"comparing {count(len(trials), 'run')} by {task.metric}")
    experiment.prepare(run, is_search=True)
    done = []
    for number, trial in enumerate(trials, start=1):
        experiment.log.say(f"run {number} of {len(trials)}: {trial}")
        done.append(_try(experiment, trial))
        best = max(done, key=_rank)
        if experiment.chief:
            for outcome in done:
                if outcome is not best:
                    folder = runs.child(outcome["name"])
                    folder.drop_all()
                    folder.child(BEST).drop_all()
        gc.collect()  # a model and its functions refer to each other
    if best["score"] is None:
        raise UserError(f"all {len(done)} runs failed; the last one: {best['failed']}")
    summary = _summary(task, experiment, done)
    _report_search(experiment, summary)
    trial = trials[[str(trial) for trial in trials].index(best["name"])]
    folder = runs.child(best["name"])
    folder.reopen()  # where this is not the host that writes
    if not folder.steps:
        # An earlier search kept a better one, which is not among these.
        experiment.log.say(f"training {trial} again, because its weights were not kept")
        _try(experiment, trial, again=True)
    trainer = experiment.trainer(trial)
    load(trainer, Source.of(folder), experiment.log)
    if experiment.chief:
        _keep(trainer, experiment.folder)
    return trainer


def _keep(trainer: loop.Trainer, folder: Folder) -> None:
    """Saves a trainer's weights as those of the search."""
    trainer.save(folder)
    # Anything else there is from an earlier search, whose best may have had more updates,
    # or from an abandoned run.
    folder.keep([trainer.progress.step])
    folder.forget_best()


def _rank(outcome):
    return -math.inf if outcome["score"] is None else outcome["score"]


def _try(experiment: Experiment, trial: Trial, again: bool = False) -> dict:
    """Trains one trial unless it is already trained; returns its record."""
    folder = experiment.folder.child(RUNS).child(str(trial))
    run = experiment.run(dataclasses.asdict(trial), trial, folder)
    dev = experiment.sets.read(experiment.task.eval_sets[0]).fingerprint
    outcome = folder.read(OUTCOME)
    changed = changes(outcome.get("identity", {}), run.identity, run.defaults)
    if not (changed or outcome.get("dev_rows") != dev or again):
        experiment.log.say(f"already finished: {_score(experiment.task, outcome)}")
        return outcome
    begun = time.monotonic()
    trainer = experiment.trainer(trial)
    values, failed = {}, None
    run.check()
    experiment.start(run, trainer)
    experiment.prepare(run)
    try:
        experiment.train(run, trainer, trial)
        _, values = experiment.score(trainer, experiment.task.eval_sets[0])
    except DivergedError as error:
        failed = str(error)
    outcome = {
        "name": str(trial),
        **dataclasses.asdict(trial),
        "score": values.get(experiment.task.metric),
        "failed": failed,
        "global_step": trainer.progress.step,
        "seconds": round(time.monotonic() - begun, 1),
        **{f"eval_{name}": value for name, value in values.items()},
        "identity": run.identity,
        "dev_rows": dev,
    }
    if experiment.chief:
        folder.write(OUTCOME, json.dumps(outcome, indent=2) + "\n")
    if failed:
        experiment.log.say(f"{trial}: {failed}")
    else:
        experiment.log.scores(str(trial), values)
    return outcome


def _score(task, outcome):
    if outcome["score"] is None:
        return "failed: its numbers were not finite"
    return f"{task.metric} {_in_words(task, outcome['score'])}"


def _in_words(task, score):
    return metrics.in_words(task.metric, score, task.has_percentages)


def _summary(task: Task, experiment: Experiment, done: list[dict]) -> dict:
    finished = [outcome for outcome in done if outcome["score"] is not None]
    scores = np.array([outcome["score"] for outcome in finished])
    trivial = task.trivial_score(experiment.sets.examples(task.eval_sets[0]))
    floor = -math.inf if trivial is None else trivial
    return {
        "metric": task.metric,
        "best": max(done, key=_rank)["name"],
        "mean": float(scores.mean()),
        "deviation": _deviation(scores),
        "settings": _settings(finished),
        "trivial": trivial,
        "degenerate": [o["name"] for o in done if _rank(o) <= floor],
        "runs": [
            {k: v for k, v in outcome.items() if k not in ("identity", "dev_rows")}
            for outcome in done
        ],
    }


def _settings(finished: list[dict]) -> dict:
    """The mean over the seeds of each setting."""
    scores = collections.defaultdict(list)
    for outcome in finished:
        scores[outcome["name"].rpartition("-seed")[0]].append(outcome["score"])
    return {
        name: {
            "mean": float(np.mean(some)),
            "deviation": _deviation(some),
            "runs": len(some),
        }
        for name, some in scores.items()
    }


def _deviation(scores):
    return float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0


def _report_search(experiment: Experiment, summary: dict) -> None:
    if experiment.chief:
        experiment.folder.write(SEARCH, json.dumps(summary, indent=2) + "\n")
    say = experiment.log.say
    runs = sorted(summary["runs"], key=_rank, reverse=True)
    for outcome in runs:
        name, seconds = outcome["name"], duration(outcome["seconds"])
        say(f"  {_score(experiment.task, outcome)}  {name}  ({seconds})")
    # Only between seeds: a mean over several learning rates says nothing about any.
    for name, of in summary["settings"].items():
        if of["runs"] > 1:
            mean, deviation = (
                _in_words(experiment.task, of[key]) for key in ("mean", "deviation")
            )
            say(f"  mean {mean}, deviation {deviation} over {of['runs']} seeds  {name}")
    say(f"best: {summary['best']}; all results are in {experiment.folder.file(SEARCH)}")
    if degenerate := summary["degenerate"]:
        trivial = summary["trivial"]
        why = "failed"
        if trivial is not None:
            constant = _in_words(experiment.task, trivial)
            why += f" or did no better than a constant answer ({constant})"
        say(f"{len(degenerate)} of {len(runs)} runs {why}: {', '.join(degenerate)}")
    if experiment.is_small:
        say(
            f"with only {count(experiment.num_examples, 'training example')}, scores vary "
            "widely between seeds, and the best of several runs is too optimistic; compare "
            "means, and rely on a test set"
        )
