"""Plans the commands that fill the papers' tables: records, pre-training, fine-tuning."""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import options
from training.backend import keras
from training.storage import run_folder
from ablations.cells import OUTPUT, PEAK_MEMORY, SPEED, Cell
from ablations.passed_flags import split_flags
from ablations.tables import TABLES, Reading, Row, Table
from ablations.tasks import Task
from ablations.variants import Head, Variant
from errors import UserError
from modeling.architectures.config import EncoderConfig
from modeling.architectures.table import config_from_dict, make_encoder

_RECORDS = "records.tfrecord"
_FILES = {"train": 8, "held_out": 1}


class Value(NamedTuple):
    """Where a number of a table comes from: one cell for each run."""

    cells: tuple[str, ...]
    metric: str
    factor: float = 1.0
    is_loss: bool = False  # of which the perplexity is shown


class Column(NamedTuple):
    """A column of a table; or, of a figure, a curve's points by step."""

    title: str
    values: tuple[Value | dict[int, Value] | float, ...]  # of each row


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to run, and which table takes which numbers.

    Attributes:
        cells: in an order in which each follows those that it needs.
        configs: of each variant, by its name.
        columns: of each table, by the table's name.
        is_whole: False if there is more to plan once these cells have finished.
    """

    cells: tuple[Cell, ...]
    configs: Mapping[str, EncoderConfig]
    columns: Mapping[str, tuple[Column, ...]]
    is_whole: bool = True


class Planner:
    """Plans tables.

    Args:
        given: the flags, see run_ablations.py.
        config: of the encoder that variants change.
        tasks: what to fine-tune for.
        sources: text and vocabulary, and the cells that make them.
        finished: the content of the cell.json of cells that have one, by the cell's name.
    """

    def __init__(
        self,
        given,
        config,
        tasks: Sequence[Task],
        sources: "Sources",
        finished: Mapping[str, Mapping],
    ):
        self._given, self._config, self._tasks = given, config, tasks
        self._sources, self._finished = sources, finished
        self._is_whole = True
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
            self._is_whole,
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
        columns = list(self._of_pretraining(table))
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
                none = Value((), task.metric)
                only = next(iter(points.values()), none)
                values.append(points if table.steps else only)
            columns.append(Column(title, tuple(values)))
        return tuple(columns)

    def _of_pretraining(self, table: Table) -> Iterator[Column]:
        """The columns that do not depend on a task."""
        variants = [row.variant for row in table.rows]
        seeds, length = self._given.seeds, self._given.max_seq_length
        names = [tuple(self._pretraining(v, s).name for s in seeds) for v in variants]

        def column(title, *metric):
            return Column(title, tuple(Value(of_row, *metric) for of_row in names))

        if table.perplexity:
            yield column("perplexity", _LOSS, 1.0, True)
        if table.costs:
            sizes = [_parameters(self._configs[v.name]) for v in variants]
            yield Column("parameters", tuple(size / 1e6 for size in sizes))
            yield column("tokens/s", SPEED, length)
            yield column("memory", PEAK_MEMORY, 1e-9)

    @property
    def _last_step(self):
        return self._given.num_train_steps

    def _of_row(
        self, table: Table, row: Row, found, seed
    ) -> list[list[tuple[int, Cell]]]:
        """For each column, the cells of a row with their pre-training steps."""
        cells = []
        for reading, task in found:
            head = reading.head if reading.head.name else row.head
            updates = self._updates(table, row.variant, reading)
            cells.append([])
            if updates is None:
                self._is_whole = False
                continue
            start = self._pretraining(row.variant, seed, updates)
            steps = self._steps(table.steps) or [updates]
            cells[-1] = [
                (
                    step,
                    self._fine_tuning(
                        row.variant, start, updates, head, task, seed, trial, step
                    ),
                )
                for step in steps
                for trial in range(self._given.num_trials)
            ]
        return cells

    def _updates(self, table: Table, variant: Variant, reading: Reading) -> int | None:
        """How many a variant is pre-trained for; None as long as that is not known."""
        if not reading.same_time:
            return self._last_step
        own, first = (self._speed(v) for v in (variant, table.rows[0].variant))
        if own is None or first is None:
            return None
        return max(round(self._last_step * own / first), 1)

    def _speed(self, variant: Variant) -> float | None:
        """Examples per second, in the first of its runs with the usual updates."""
        cell = self._pretraining(variant, self._given.seeds[0])
        return self._finished.get(cell.name, {}).get("results", {}).get(SPEED)

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

    def _pretraining(
        self, variant: Variant, seed: int, updates: int | None = None
    ) -> Cell:
        given = self._given
        usual = given.num_train_steps
        updates = updates or usual
        records, held_out = (self._records(variant, s) for s in ("train", "held_out"))
        self._configs[variant.name] = self._changed(variant)
        name = f"pretraining/{variant.name}/seed_{seed}{_other(updates, usual)}"
        flags = {}
        if held_out:
            flags = {
                "do_eval": True,
                "eval_input_file": f"{held_out.output}/{_RECORDS}-*",
                "max_eval_steps": 10**9,  # all of them
            }
        if variant.writes:
            flags["vocab_file"] = self._sources.vocabulary
            flags |= given.text_flags()
        if updates == usual and (steps := self._steps(_steps_of(variant))):
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
                        num_train_steps=updates,
                        num_warmup_steps=updates // 10,
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
                results_file=run_folder.RESULTS if held_out else "",
            )
        )

    def _changed(self, variant: Variant) -> EncoderConfig:
        changes = dict(variant.changes(self._config))
        if variant.writes:
            changes["eos_token_id"] = self._sources.end_id
        keys = json.loads(self._config.to_json_string()) | changes
        try:
            return config_from_dict({k: v for k, v in keys.items() if v is not None})
        except ValueError as error:
            said = ", ".join(f"{name}={value}" for name, value in changes.items())
            raise UserError(
                f"the table's variant with {said}: {error}; use another --bert_config_file"
            ) from error

    def _fine_tuning(
        self,
        variant: Variant,
        start: Cell,
        updates: int,
        head: Head,
        task: Task,
        seed: int,
        trial: int,
        step: int,
    ) -> Cell:
        given = self._given
        used = f"{variant.name}-{head.name}" if head.name else variant.name
        used += _other(updates, self._last_step)
        checkpoint = start.output
        if step != updates:
            used += f"-step_{step}"
            checkpoint = run_folder.prefix_of(checkpoint, step)
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
                results_file=run_folder.RESULTS_JSON,
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
        end_id: in it, of what ends a text.
        cells: that make them.
    """

    train: Sequence[str]
    held_out: Sequence[str]
    vocabulary: str
    end_id: int
    cells: Sequence[Cell] = ()


_LOSS = "masked_lm_loss"
# What a task of each kind is called in --tasks.
_WANTED = {"classification": "GLUE or custom", "spans": "SQuAD", "tags": "NER"}
_FLAGS_OF = {
    "classification": "classifier_flags",
    "spans": "squad_flags",
    "tags": "ner_flags",
}


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


def _other(updates, usual):
    """What other updates than usual add to the name of a folder."""
    return "" if updates == usual else f"-updates_{updates}"


def _parameters(config: EncoderConfig) -> int:
    with keras.StatelessScope(initialize_variables=False):  # shapes only
        weights = make_encoder(config).weights
    return sum(math.prod(variable.shape) for variable in weights)


def _output(name):
    return f"{{root}}/{name}/{OUTPUT}"


def _config_file(variant):
    return f"{{root}}/configs/{variant.name}.json"
