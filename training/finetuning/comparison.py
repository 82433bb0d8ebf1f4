"""Compares a teacher, its student, and the same student trained without it."""

import dataclasses
import html
import json
import os
import statistics
import time

import options
from training import metrics
from training.run import loop
from training.storage import run_folder
from modeling.distillation.distilled import SCOPE
from text import report_page
from training.finetuning.experiment import Experiment

ALONE = run_folder.ALONE
TEACHER, STUDENT, WITHOUT_TEACHER = "teacher", "student", "without the teacher"
_ROUNDS = 3  # of speed; the models take turns
_BATCHES = 20  # of each round
_READING = (
    "The KL divergence is 0 where the probabilities are the teacher’s. Without the "
    "teacher, the student sees the labeled examples alone. Speeds are medians of three "
    "rounds, in which the models take turns; other work on the machine changes them."
)
_TITLES = {
    "agreement": "agrees with the teacher",
    "teacher_kl": "KL from the teacher",
    "teacher_difference": "difference from the teacher",
    "training_examples": "examples",
    "updates": "updates",
    "parameters": "weights",
    "texts_per_second": "texts/s",
}


@dataclasses.dataclass(frozen=True)
class Model:
    """One of the models to compare.

    Attributes:
        name: in the report.
        experiment, trainer: which asks it about the evaluation set.
        scores: its metrics on that set.
    """

    name: str
    experiment: Experiment
    trainer: loop.Trainer
    scores: dict[str, float]


def alone(given):
    """The flags of the same training without the teacher."""
    return dataclasses.replace(
        given,
        **given.without_teacher,
        distill_live=False,
        unlabeled_file=[],
        do_predict=False,
        do_export=False,
        export_formats=[],
        output_dir=os.path.join(given.output_dir, ALONE),
    )


def report(student: Experiment, models: list[Model]) -> None:
    """Writes the comparison to the console, as JSON and as a page.

    Args:
        student: the experiment of the student.
        models: to compare; the teacher first, if more than its answers is known.
    """
    split = student.task.eval_sets[0]
    rows = []
    for model, speed in zip(models, _speeds(models, split), strict=True):
        found = {"model": model.name, **model.scores}
        if split in student.teacher.splits and model.name != TEACHER:
            found |= student.agreement(model.trainer, split)
        weights = model.trainer.weights.items()
        found["parameters"] = sum(
            v.shape.num_elements() for name, v in weights if not name.startswith(SCOPE)
        )
        if model.name != TEACHER:
            found["training_examples"] = model.experiment.num_examples
            found["updates"] = model.trainer.progress.step
        rows.append(found | {"texts_per_second": round(speed, 1)})
    facts = {
        "metric": student.task.metric,
        "split": split,
        "teacher": student.given.distill_from,
        "losses": _losses(student, models),
        "models": rows,
    }
    if not student.chief:
        return
    folder = student.given.output_dir
    page = os.path.join(folder, run_folder.DISTILLATION)
    content = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    run_folder.write_file(os.path.join(folder, run_folder.DISTILLATION_JSON), content)
    cells = _cells(facts, student.task.has_percentages)
    name = os.path.basename(os.path.abspath(folder))
    run_folder.write_file(page, _page(facts, cells, name))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for name, *numbers in cells:
        padded = (n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True))
        student.log.say("  ".join([name.ljust(widths[0]), *padded]))
    student.log.say(f"the comparison is in {page}")


def _losses(student, models):
    """The flags that say what was learned from the teacher."""
    settings = next(m.trainer.objective.settings for m in models if m.name == STUDENT)
    flags = student.given.distillation_settings | {"distill_loss": settings.loss}
    if not settings.compares_layers:
        del flags["distill_layers"]
    return flags


def _speeds(models: list[Model], split: str) -> list[float]:
    """Examples per second of each, measured in turns; the median of a few rounds.

    A round is a sample of the set, so that a large one does not take hours.
    """
    known = [[] for _ in models]
    for _ in range(1 + _ROUNDS):  # the first one also traces
        for model, speeds in zip(models, known, strict=True):
            speeds.append(_speed(model, split))
    return [statistics.median(speeds[1:]) for speeds in known]


def _speed(model: Model, split: str) -> float:
    experiment, size = model.experiment, model.experiment.given.eval_batch_size
    data = experiment.sets.read(split)
    number = min(len(data.file.in_order(size)), _BATCHES)
    batches = model.trainer.predict(
        lambda part: data.file.training(size, seed=0, num_batches=number, part=part),
        number,
    )
    begun = time.perf_counter()
    for _ in batches:
        pass
    rows_per_second = number * size / (time.perf_counter() - begun)
    return rows_per_second * len(data.examples) / len(data.file)


def _cells(facts: dict, percentages: bool) -> list[list[str]]:
    """The table: titles, then a row for each model."""
    metric = facts["metric"]
    names = [metric, *(n for n in _TITLES if any(n in m for m in facts["models"]))]
    titles = ["", *(_TITLES.get(name, name) for name in names)]
    return [titles] + [
        [row["model"], *(_number(name, row.get(name), percentages) for name in names)]
        for row in facts["models"]
    ]


def _number(name, value, percentages):
    if value is None:
        return ""
    value = round(value) if abs(value) >= 1000 else value
    # The agreement is measured here, and a share whatever the task's scores are.
    return metrics.in_words(name, value, percentages and name != "agreement")


def _page(facts: dict, cells: list[list[str]], name: str) -> str:
    titles, *rows = ([html.escape(cell) for cell in row] for row in cells)
    used = {name: value for name, value in facts["losses"].items() if value}
    used = {"distill_from": facts["teacher"], **used}
    losses = html.escape(" ".join(options.words(**used)))
    return report_page.render(
        f"Distillation in {name}: {facts['split']}",
        f"{report_page.numbers(titles, rows)}<p>Trained with <code>{losses}</code>.</p>\n"
        f"<p>{_READING}</p>\n",
    )
