"""The paper's search: trains and records every trial, and keeps the best on the dev set."""

import dataclasses
import gc
import json
import os
import time

import numpy as np

from text.progress import duration
from training import checkpoint, loop
from training.task import Task
from training.trials import BEST, Run, Trial


def search(this: Run, trials: list[Trial]) -> loop.Trainer:
    """Trains every trial, keeps the best; returns a trainer with its weights."""
    given, task = this.given, this.task
    this.log.say(f"{len(trials)} runs are compared by {task.metric}")
    shared = {"searched": [str(trial) for trial in trials]}
    this.prepare(given.output_dir, this.identity(shared))
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
    best = os.path.join(directory, BEST)
    return best if checkpoint.steps(best) else directory


def _try(this: Run, trial: Trial, again: bool = False) -> dict:
    """Trains one trial unless it was; returns what is recorded of it."""
    directory = _trial_directory(this.given, str(trial))
    path = os.path.join(directory, "outcome.json")
    identity = this.identity(dataclasses.asdict(trial))
    dev = this.sets.read(this.task.eval_sets[0]).fingerprint
    outcome = checkpoint.read_json(path) or {}
    of_this = outcome.get("identity") == identity and outcome.get("dev_rows") == dev
    if of_this and not again:
        this.log.say(f"already finished: {this.task.metric} {outcome['score']:.4f}")
        return outcome
    this.prepare(directory, identity)
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
    for folder in (directory, os.path.join(directory, BEST)):
        checkpoint.remove_all(folder)


def _summary(task: Task, this: Run, done: list[dict]) -> dict:
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


def _report_search(this: Run, summary: dict) -> None:
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
    if this.is_small:
        say(
            f"{this.num_examples} training examples are few: scores differ much from seed "
            "to seed, and the best of several runs flatters; compare means, and trust a "
            "test set"
        )
