"""Plans the fine-tuning of models for many tasks: a cell for each model and task."""

import collections
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import options
from training.storage.folder import RESULTS_JSON
from training.storage.source import Source
from errors import UserError
from files import hub, local
from modeling.architectures.config import EncoderConfig
from recipes.comparisons import fine_tunings
from recipes.comparisons.cells import Cell, last_values, output_of
from recipes.comparisons.fine_tunings import DownstreamTask
from recipes.comparisons.plan import split_flags
from text.tasks import glue

# As the script that downloads GLUE names them.
_GLUE_FOLDERS = {
    "CoLA": "CoLA",
    "SST-2": "SST-2",
    "MRPC": "MRPC",
    "STS-B": "STS-B",
    "QQP": "QQP",
    "MNLI": "MNLI",
    "QNLI": "QNLI",
    "RTE": "RTE",
    "AX": "diagnostic",
}
_FROM_MNLI = ("RTE", "MRPC", "STS-B")
NOT_PRETRAINED = "not_pretrained"

# arXiv:1810.04805, appendix A.3 and sections 4.2 to 4.4.
_SEARCH = {
    "train_batch_size": [16, 32],
    "learning_rate": [5e-5, 3e-5, 2e-5],
    "num_train_epochs": [2.0, 3.0, 4.0],
}
_QUICK = {"train_batch_size": 32, "learning_rate": 3e-5, "num_train_epochs": 3.0}
_OWN = {
    "SQuAD": {"train_batch_size": 32, "learning_rate": 5e-5, "num_train_epochs": 3.0},
    "SQuAD2": {"train_batch_size": 48, "learning_rate": 5e-5, "num_train_epochs": 2.0},
    "SWAG": {"train_batch_size": 16, "learning_rate": 2e-5, "num_train_epochs": 3.0},
}
_FLAGS = {
    "run_classifier.py": "classifier_flags",
    "run_squad.py": "squad_flags",
    "run_swag.py": "swag_flags",
    "run_ner.py": "ner_flags",
}


class SuiteFlags(Protocol):
    """The flags of recipes.suite that say what to train."""

    init_checkpoint: list[str]
    tasks: list[str]
    glue_dir: str | None
    quick: bool
    num_trials: int
    from_mnli: bool
    random_baseline: bool
    classifier_flags: str
    squad_flags: str
    swag_flags: str
    ner_flags: str


class SuitePlan(NamedTuple):
    """What to run.

    Attributes:
        cells: in an order in which each follows those that it needs.
        models: names of the rows.
        tasks: those with a score, by title.
        configs: of models that have no files, by name.
        facts: what a reader must know: name to value.
    """

    cells: tuple[Cell, ...]
    models: tuple[str, ...]
    tasks: Mapping[str, DownstreamTask]
    configs: Mapping[str, EncoderConfig]
    facts: Mapping[str, str]


def cell_name(model: str, task: str) -> str:
    return f"{model}/{task.lower().replace('/', '_')}"


def plan(flags: SuiteFlags) -> SuitePlan:
    """Plans the cells.

    Raises:
        UserError: names everything that is missing, or flags that the scripts do not take.
    """
    problems: list[str] = []
    tasks, diagnostic = _tasks(flags, problems)
    starts = _starts(flags, problems)
    if flags.from_mnli and tasks.keys().isdisjoint(_FROM_MNLI):
        problems.append(f"--from_mnli has no effect without {', '.join(_FROM_MNLI)}")
    scripts = {task.script for task in tasks.values()}
    for script, passed in _FLAGS.items():
        if getattr(flags, passed) and script not in scripts:
            problems.append(f"--{passed} has no effect: no task is of {script}")
    if problems:
        raise UserError("; ".join(problems))
    configs = {}
    if flags.random_baseline:
        start, configs = _baseline(flags)
        starts[NOT_PRETRAINED] = start
    made = []
    for model, start in starts.items():
        made += _of_model(flags, model, start, tasks, diagnostic)
    facts = _facts(flags, tasks, made)
    return SuitePlan(tuple(made), tuple(starts), tasks, configs, facts)


def _tasks(
    flags: SuiteFlags, problems: list[str]
) -> tuple[dict[str, DownstreamTask], str]:
    """The tasks by title, MNLI first, and the folder of AX."""
    of_glue = {}
    if flags.glue_dir and not os.path.isdir(flags.glue_dir):
        problems.append(f"--glue_dir={flags.glue_dir}: is not a folder")
    elif flags.glue_dir:
        of_glue = {
            name.lower(): f"{name}:{os.path.join(flags.glue_dir, folder)}"
            for name, folder in _GLUE_FOLDERS.items()
        }
    named = [item.partition(":")[0].lower() for item in flags.tasks]
    items = [item for name, item in of_glue.items() if name not in named]
    names = {*of_glue, *named}
    if "mnli" not in names and (flags.from_mnli or "ax" in names):
        what = "AX" if "ax" in names else "--from_mnli"
        problems.append(f"{what} needs MNLI in --tasks")
    tasks, diagnostic = {}, ""
    for item in (*items, *flags.tasks):
        name, _, folder = item.partition(":")
        if name.lower() == "ax" and folder:
            file = os.path.join(folder, glue.TASKS["ax"].table("ax").file)
            if not os.path.exists(file):
                problems.append(f"AX: {file} is not there")
            diagnostic = folder
            continue
        try:
            task = fine_tunings.read_task(item)
        except UserError as error:
            flag = f"--tasks={item}: " if item in items else ""
            problems.append(str(error).removeprefix(flag))
            continue
        title = {title.lower(): title for title in (*_GLUE_FOLDERS, "WNLI")}.get(
            name.lower(), task.title
        )
        if title in tasks:
            problems.append(f"--tasks: two tasks are named {title}; rename a folder")
        tasks[title] = task._replace(title=title)
    first = sorted(tasks, key=lambda title: title != "MNLI")
    return {title: tasks[title] for title in first}, diagnostic


def _starts(flags: SuiteFlags, problems: list[str]) -> dict[str, dict]:
    """Flags that name each model, by a name for its row."""
    starts = {}
    for path in flags.init_checkpoint:
        name = re.sub(r"[^\w.-]+", "_", _name_of(path)) or "model"
        if name in (*starts, NOT_PRETRAINED):
            problems.append(
                f"--init_checkpoint: two models are named {name}; rename a folder"
            )
        try:
            source = Source.open(path)
            if not source.vocab_file:
                problems.append(
                    f"{source.folder}: contains no vocabulary; copy it there"
                )
            if source.config_file:
                _ = source.config
            else:
                problems.append(f"{source.folder}: contains no config; copy it there")
        except UserError as error:
            problems.append(str(error))
        starts[name] = {"init_checkpoint": path}
    return starts


def _name_of(path):
    if hub.is_address(path):
        return path.removeprefix(hub.PREFIX)
    if os.path.isdir(path):
        return os.path.basename(os.path.abspath(path))
    return os.path.basename(os.path.dirname(os.path.abspath(path)))


def _baseline(flags: SuiteFlags) -> tuple[dict, dict]:
    """The flags of a model without weights, and its config, by its name."""
    path = flags.init_checkpoint[0]
    source = Source.open(path)
    start = {
        "vocab_file": source.vocab_file,
        "bert_config_file": f"{{root}}/{config_file(NOT_PRETRAINED)}",
    }
    return start, {NOT_PRETRAINED: source.config}


def config_file(model: str) -> str:
    return f"configs/{model}.json"


def write_configs(root: str, planned: SuitePlan) -> None:
    """Writes the configs of models that have no files."""
    for name, config in planned.configs.items():
        path = os.path.join(root, config_file(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with local.replacing(path, "w") as file:
            file.write(config.to_json_string())


def _of_model(flags: SuiteFlags, model, start, tasks, diagnostic) -> Iterator[Cell]:
    mnli = output_of(cell_name(model, "MNLI"))
    for title, task in tasks.items():
        name = cell_name(model, title)
        weights, needs = start, ()
        if flags.from_mnli and title in _FROM_MNLI:
            weights = {"init_checkpoint": mnli, "init_encoder_only": True}
            needs = (cell_name(model, "MNLI"),)
        settings = _OWN.get(title) or (_QUICK if flags.quick else _SEARCH)
        yield _cell(
            flags,
            name,
            task,
            {
                **task.flags,
                **weights,
                "do_train": True,
                "do_eval": True,
                "do_predict": _has_test(task),
                "num_trials": flags.num_trials,
                # Some lines of its training set have too few columns.
                **({"skip_bad_lines": True} if title == "QQP" else {}),
                **settings,
            },
            needs=needs,
            results_file=RESULTS_JSON,
            metric=task.metric,
            keeps_weights=title == "MNLI" and bool(diagnostic or flags.from_mnli),
        )
    if diagnostic:
        words = {"task_name": "ax", "data_dir": diagnostic, "do_predict": True}
        task = tasks["MNLI"]
        needs = (cell_name(model, "MNLI"),)
        words |= {"init_checkpoint": mnli}
        yield _cell(flags, cell_name(model, "AX"), task, words, needs=needs)


def _cell(flags: SuiteFlags, name, task, task_flags, **attributes) -> Cell:
    passed = _FLAGS[task.script]
    task_flags = {
        **task_flags,
        "output_dir": output_of(name),
        "keep_checkpoint_max": 1,
    }
    words = [*options.words(**task_flags), *split_flags(passed, getattr(flags, passed))]
    kind = f"{task.script} {name.partition('/')[2]}"
    return Cell(name, task.script, tuple(words), kind, passed=(passed,), **attributes)


def _has_test(task: DownstreamTask) -> bool:
    """Whether the folder has the test sets of a task of GLUE."""
    data = glue.TASKS.get(task.flags.get("task_name"))
    folder = task.flags.get("data_dir", "")
    return data is not None and all(
        os.path.exists(os.path.join(folder, table.file)) for table in data.test.values()
    )


def _facts(flags: SuiteFlags, tasks: Iterable[str], cells: Sequence[Cell]) -> dict:
    """What the cells are trained with, whichever flag says so."""
    words = {cell.name.partition("/")[2]: last_values(cell.words) for cell in cells}
    alike = collections.defaultdict(list)
    for title in tasks:
        chosen = words[cell_name("", title).removeprefix("/")]
        setting = ", ".join(f"{name} {chosen[f'--{name}']}" for name in _SEARCH)
        alike[setting].append(title)
    facts = {", ".join(titles): setting for setting, titles in alike.items()}
    facts["seeds of each"] = f"{flags.num_trials}"
    begun = [title for title in tasks if title in _FROM_MNLI]
    if flags.from_mnli:
        facts["begun with MNLI’s encoder"] = ", ".join(begun)
    for passed in _FLAGS.values():
        if value := getattr(flags, passed):
            facts[passed.removesuffix("_flags")] = value
    return facts
