"""Plans the commands that fill the papers' tables: records, pre-training, fine-tuning."""

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import options
from modeling.encoders.architectures import config_from_dict
from modeling.encoders.config import EncoderConfig
from text.errors import UserError
from training.ablations.cells import OUTPUT, Cell
from training.ablations.tables import TABLES, Head, Row, Table, Variant
from training.ablations.tasks import Task

_RECORDS = "records.tfrecord"
_FILES = {"train": 8, "held_out": 1}
# What the plan sets itself, or what has a flag of its own.
_PLANNED = frozenset(
    "do_train do_eval do_predict do_export input_file eval_input_file output_file "
    "output_dir bert_config_file init_checkpoint vocab_file data_dir task_name "
    "train_file predict_file seed num_trials num_train_steps max_predictions_per_seq "
    "objective masking instances mask_share keep_share random_share "
    "keep_checkpoints_at keep_checkpoint_max features lstm_layers lstm_size pooling "
    "input_format do_lower_case strip_accents split_cjk label_kind "
    # What would end a script before it works, or hide flags from this check.
    "only_check_args flagfile undefok help helpshort helpfull helpxml".split()
)

# What records and pre-training must agree on has a flag of its own.
_OF_RECORDS = ("records_flags", "pretraining_flags")


class Value(NamedTuple):
    """Where a number of a table comes from: one cell for each run."""

    cells: tuple[str, ...]
    metric: str
    factor: float = 1.0
    is_loss: bool = False  # of which the perplexity is shown


class Column(NamedTuple):
    """A column of a table; or, of a figure, a curve's points by step."""

    title: str
    values: tuple[Value | dict[int, Value], ...]  # of each row


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to run, and which table takes which numbers.

    Attributes:
        cells: in an order in which each follows those that it needs.
        configs: of each variant, by its name.
        columns: of each table, by the table's name.
    """

    cells: tuple[Cell, ...]
    configs: Mapping[str, EncoderConfig]
    columns: Mapping[str, tuple[Column, ...]]


class Planner:
    """Plans tables.

    Args:
        given: the flags, see run_ablations.py.
        config: of the encoder that variants change.
        tasks: what to fine-tune for.
        sources: text and vocabulary, and the cells that make them.
    """

    def __init__(self, given, config, tasks: Sequence[Task], sources: "Sources"):
        self._given, self._config, self._tasks = given, config, tasks
        self._sources = sources
        self._configs: dict[str, EncoderConfig] = {}
        self._cells: dict[str, Cell] = {cell.name: cell for cell in sources.cells}

    def plan(self, names: Sequence[str]) -> Plan:
        """Plans these tables.

        Raises:
            UserError: a table needs a kind of task that there is none of, or an encoder
                has too few layers for it.
        """
        columns = {
            name: [
                (reading, task)
                for reading in TABLES[name].readings
                for task in self._tasks
                if task.kind in reading.kinds
            ]
            for name in names
        }
        for name, found in columns.items():
            self._check(name, found)
        # Seed by seed and row by row, so that early results are complete rows.
        for seed in self._given.seeds:
            for name, found in columns.items():
                for row in TABLES[name].rows:
                    self._of_row(TABLES[name], row, found, seed)
        return Plan(
            tuple(self._cells.values()),
            self._configs,
            {name: self._columns(TABLES[name], columns[name]) for name in names},
        )

    def _check(self, name, found):
        if not found:
            kinds = {kind for r in TABLES[name].readings for kind in r.kinds}
            wanted = " or ".join(sorted(_WANTED[kind] for kind in kinds))
            titles = ", ".join(task.title for task in self._tasks)
            raise UserError(f"--table={name} needs in --tasks: {wanted}; not {titles}")
        heads = [row.head for row in TABLES[name].rows] + [r.head for r, _ in found]
        fewest = max((head.num_layers for head in heads), default=1)
        if self._config.num_hidden_layers < fewest:
            raise UserError(
                f"--table={name} uses the last {fewest} layers, but the config has "
                f"{self._config.num_hidden_layers}"
            )
        if TABLES[name].perplexity and not self._sources.held_out:
            raise UserError(
                f"--table={name} compares perplexities, which need --held_out_file"
            )

    # --- Tables ----------------------------------------------------------------------

    def _columns(self, table: Table, found) -> tuple[Column, ...]:
        """The table's columns, each with a value for every row."""
        runs = [
            [self._of_row(table, row, found, seed) for seed in self._given.seeds]
            for row in table.rows
        ]
        columns = []
        if table.perplexity:
            values = [
                Value(
                    tuple(
                        self._pretraining(row.variant, seed).name
                        for seed in self._given.seeds
                    ),
                    _LOSS,
                    is_loss=True,
                )
                for row in table.rows
            ]
            columns.append(Column("perplexity", tuple(values)))
        for i, (reading, task) in enumerate(found):
            title = f"{task.title} {reading.title}".strip()
            values = []
            for of_row in runs:
                by_step = {}
                for seed_runs in of_row:
                    for step, cell in seed_runs[i]:
                        by_step.setdefault(step, []).append(cell.name)
                points = {
                    step: Value(tuple(names), task.metric, task.factor)
                    for step, names in by_step.items()
                }
                values.append(points if table.steps else points[self._last_step])
            columns.append(Column(title, tuple(values)))
        return tuple(columns)

    @property
    def _last_step(self):
        return self._given.num_train_steps

    def _of_row(
        self, table: Table, row: Row, found, seed
    ) -> list[list[tuple[int, Cell]]]:
        """For each column, the cells of a row with their pre-training steps."""
        self._pretraining(row.variant, seed)
        return [
            [
                (step, self._fine_tuning(row.variant, head, task, seed, trial, step))
                for step in self._steps(table.steps or (1.0,))
                for trial in range(self._given.num_trials)
            ]
            for head, task in (
                (reading.head if reading.head.name else row.head, task)
                for reading, task in found
            )
        ]

    def _steps(self, shares):
        steps = (max(round(share * self._last_step), 1) for share in shares)
        return list(dict.fromkeys(steps))

    # --- Cells -----------------------------------------------------------------------

    def _add(self, cell: Cell) -> Cell:
        return self._cells.setdefault(cell.name, cell)

    def _records(self, variant: Variant, split: str) -> Cell | None:
        source = self._sources.train if split == "train" else self._sources.held_out
        if not source:
            return None
        name = "-".join(f"{key}_{value}" for key, value in variant.records.items())
        name = f"records/{name or 'default'}/{split}"
        flags = dict(variant.records)
        if split != "train":
            flags["dupe_factor"] = 1
        given = self._given
        return self._add(
            Cell(
                name,
                "create_pretraining_data.py",
                (
                    *options.words(
                        output_file=f"{_output(name)}/{_RECORDS}@{_FILES[split]}",
                        input_file=",".join(source),
                        vocab_file=self._sources.vocabulary,
                        max_seq_length=given.max_seq_length,
                        max_predictions_per_seq=given.max_predictions_per_seq,
                        input_format=given.input_format,
                        **given.text_flags(),
                    ),
                    *split_flags("records_flags", given.records_flags),
                    *options.words(**flags),
                ),
                kind=f"records {split}",
                passed=("records_flags",),
                needs=tuple(cell.name for cell in self._sources.cells),
            )
        )

    def _pretraining(self, variant: Variant, seed: int) -> Cell:
        given = self._given
        records, held_out = (self._records(variant, s) for s in ("train", "held_out"))
        self._configs[variant.name] = self._changed(variant)
        name = f"pretraining/{variant.name}/seed_{seed}"
        flags = {}
        if held_out:
            flags = {
                "do_eval": True,
                "eval_input_file": f"{held_out.output}/{_RECORDS}-*",
                "max_eval_steps": 10**9,  # all of them
            }
        steps = self._steps(_steps_of(variant))
        if steps:
            flags["keep_checkpoints_at"] = ",".join(map(str, steps))
        return self._add(
            Cell(
                name,
                "run_pretraining.py",
                (
                    *options.words(
                        do_train=True,
                        input_file=f"{records.output}/{_RECORDS}-*",
                        bert_config_file=_config_file(variant),
                        output_dir=_output(name),
                        max_seq_length=given.max_seq_length,
                        max_predictions_per_seq=given.max_predictions_per_seq,
                        num_train_steps=given.num_train_steps,
                        num_warmup_steps=given.num_train_steps // 10,
                        keep_checkpoint_max=1,
                        seed=seed,
                        **flags,
                    ),
                    *split_flags("pretraining_flags", given.pretraining_flags),
                    *options.words(**variant.pretraining),
                ),
                kind=f"pretraining {variant.name}",
                passed=("pretraining_flags",),
                needs=tuple(cell.name for cell in (records, held_out) if cell),
                results_file="eval_results.txt" if held_out else "",
            )
        )

    def _changed(self, variant: Variant) -> EncoderConfig:
        changes = variant.changes(self._config)
        try:
            return config_from_dict(json.loads(self._config.to_json_string()) | changes)
        except ValueError as error:
            said = ", ".join(f"{name}={value}" for name, value in changes.items())
            raise UserError(
                f"the table's variant with {said}: {error}; use another --bert_config_file"
            ) from error

    def _fine_tuning(
        self,
        variant: Variant,
        head: Head,
        task: Task,
        seed: int,
        trial: int,
        step: int,
    ) -> Cell:
        given = self._given
        start = self._pretraining(variant, seed)
        used = f"{variant.name}-{head.name}" if head.name else variant.name
        checkpoint = start.output
        if step != self._last_step:
            used += f"-step_{step}"
            checkpoint += f"/model.ckpt-{step}"
        title = task.title.lower().replace("/", "_")
        name = f"fine_tuning/{title}/{used}/seed_{seed}-trial_{trial}"
        width = self._configs[variant.name].hidden_size
        flags = {
            key: width if value == "{hidden_size}" else value
            for key, value in head.flags.items()
        }
        passed = (_FLAGS_OF[task.kind], *["features_flags"] * head.is_frozen)
        return self._add(
            Cell(
                name,
                task.script,
                (
                    *options.words(
                        **task.flags,
                        do_train=True,
                        do_eval=True,
                        vocab_file=self._sources.vocabulary,
                        bert_config_file=_config_file(variant),
                        init_checkpoint=checkpoint,
                        output_dir=_output(name),
                        max_seq_length=given.max_seq_length,
                        keep_checkpoint_max=1,
                        seed=seed + 1000 * trial,
                        **given.text_flags(),
                    ),
                    *(
                        word
                        for flag in passed
                        for word in split_flags(flag, getattr(given, flag))
                    ),
                    *options.words(**flags),
                ),
                kind=f"{title} {head.name}",
                needs=(start.name,),
                results_file="eval_results.json",
                metric=task.metric,
                keeps_weights=False,
                passed=passed,
            )
        )


class Sources(NamedTuple):
    """Text and vocabulary.

    Attributes:
        train, held_out: files of text, as patterns.
        vocabulary: its file.
        cells: that make them.
    """

    train: Sequence[str]
    held_out: Sequence[str]
    vocabulary: str
    cells: Sequence[Cell] = ()


_LOSS = "masked_lm_loss"
# What a task of each kind is called in --tasks.
_WANTED = {"classification": "GLUE or custom", "spans": "SQuAD", "tags": "NER"}
_FLAGS_OF = {
    "classification": "classifier_flags",
    "spans": "squad_flags",
    "tags": "ner_flags",
}


def split_flags(flag: str, value: str) -> list[str]:
    """The flags in a string.

    Raises:
        UserError: it is not a list of flags, or one of them is set by the plan.
    """
    try:
        found = shlex.split(value)
    except ValueError as error:
        raise UserError(f"--{flag}={value}: {error}") from error
    for word in found:
        name = word.lstrip("-").partition("=")[0]
        if not word.startswith("--") or not name:
            raise UserError(
                f"--{flag}: {word!r} is not a flag; write --name=value, with spaces between"
            )
        planned = _PLANNED | ({"max_seq_length"} if flag in _OF_RECORDS else set())
        if name in planned or name.removeprefix("no") in planned:
            raise UserError(f"--{flag}: --{name} is set by the plan; remove it")
    return found


def _steps_of(variant: Variant) -> tuple[float, ...]:
    """Shares of the updates after which any table compares an encoder."""
    return max(
        (
            table.steps
            for table in TABLES.values()
            for row in table.rows
            if row.variant == variant
        ),
        key=len,
    )


def _output(name):
    return f"{{root}}/{name}/{OUTPUT}"


def _config_file(variant):
    return f"{{root}}/configs/{variant.name}.json"
