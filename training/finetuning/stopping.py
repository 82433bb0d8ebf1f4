"""Early stopping: evaluates while a trial trains, and keeps the best weights."""

import json

from training.backend import tf
from training.run import loop, report
from training.storage import checkpoint
from training.storage.folder import BEST, EVALUATIONS, Folder
from training.storage.source import Source


def load(trainer: loop.Trainer, source: Source, log: report.Report) -> None:
    """Loads the weights of a finished training into a trainer, and logs their step."""
    scope = trainer.model.encoder.scope
    if len(trainer.saved_weights) == len(trainer.weights):
        source.load(trainer.weights, required="", scope=scope)
    else:
        stored = source.format.read(trainer.saved_weights)
        for name, value in stored.items():
            trainer.weights[name].assign(value)
    trainer.progress.step = int(source.format.read(["global_step"])["global_step"])
    log.say(f"using the weights of step {trainer.progress.step}, from {source.prefix}")


class Stopping:
    """Evaluates while a trial trains; with patience, keeps the best and says when to stop.

    Its history is in a file, so that a resumed run decides like an uninterrupted one.
    """

    def __init__(self, experiment, trainer: loop.Trainer, folder: Folder):
        self.experiment, self.trainer = experiment, trainer
        self.patience = experiment.flags.early_stopping_patience
        self.folder, self.best = folder, folder.child(BEST)
        history = folder.evaluations if self.patience else []
        # Evaluations of later steps will be repeated.
        self.history = [e for e in history if e["step"] <= trainer.progress.step]

    def evaluate(self) -> dict[str, float]:
        task = self.experiment.task
        _, values = self.experiment.score(self.trainer, task.eval_sets[0])
        if self.patience:
            step, score = self.trainer.progress.step, values[task.metric]
            self.history = [e for e in self.history if e["step"] < step]
            self.history.append({"step": step, "score": score})
            if self.experiment.chief:
                if self._best_until(step) == step:
                    tensors = {k: v.value for k, v in self.trainer.variables.items()}
                    tensors["global_step"] = tf.constant(step, tf.int64)
                    checkpoint.save(self.best, step, tensors, keep=0)
                self.folder.write(EVALUATIONS, json.dumps(self.history) + "\n")
                self._drop_others()
        return values

    def _best_until(self, step) -> int | None:
        """The step of the best evaluation up to `step`; the first of equal ones."""
        history = [e for e in self.history if e["step"] <= step]
        return max(history, key=lambda e: e["score"])["step"] if history else None

    def _drop_others(self):
        """Drops weights that no resume of the run, from any checkpoint, would need."""
        now = self.trainer.progress.step
        stops = (*self.folder.steps, now)
        best = self._best_until(now)
        others = {self._best_until(step) for step in stops} - {best, None}
        self.best.keep([*others, best])

    def enough(self) -> bool:
        if not self.patience or not self.history:
            return False
        scores = [e["score"] for e in self.history]
        return len(scores) - 1 - scores.index(max(scores)) >= self.patience

    def take_best(self) -> None:
        if self.patience and self.history:
            step = self._best_until(self.trainer.progress.step)
            if self.experiment.chief:
                self._drop_others()
            self.experiment.log.say(
                f"the best of {len(self.history)} evaluations was at step {step}"
            )
            source = Source.open(self.best.prefix(step))
            load(self.trainer, source, self.experiment.log)
