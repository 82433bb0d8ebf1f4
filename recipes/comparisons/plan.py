"""Plans the commands that fill the papers' tables: records, pre-training, fine-tuning."""

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import options
from training.storage.folder import RESULTS, RESULTS_JSON, prefix_of
from errors import UserError
from modeling import layers
from modeling.architectures.config import EncoderConfig
from modeling.architectures.table import config_from_dict, make_encoder
from recipes.comparisons.cells import PEAK_MEMORY, SPEED, Cell, output_of
from recipes.comparisons.fine_tunings import DownstreamTask
from recipes.comparisons.options import Options
from recipes.comparisons.paper_tables import TABLES, PaperRow, PaperTable, Reading
from recipes.comparisons.variants import Head, Variant

_RECORDS = "records.tfrecord"
_FILES = {"train": 8, "held_out": 1}
_LOSS = "masked_lm_loss"
_MASKING_RATE = 0.15
# By a task's kind: what it is called in --tasks, and which flags are passed to its script.
_TASKS = {
    "classification": ("GLUE or custom", "classifier_flags"),
    "spans": ("SQuAD", "squad_flags"),
    "tags": ("NER", "ner_flags"),
}
# Flags of the scripts that the plan sets itself, or that have a flag of their own here.
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


class Value(NamedTuple):
    """Where a number of a table comes from: one cell for each run."""

    cells: tuple[str, ...]
    metric: str
    factor: float = 1.0
    is_loss: bool = False  # its perplexity is shown


class Column(NamedTuple):
    """A column of a table; or, of a figure, a curve's points by step."""

    title: str
    values: tuple[Value | dict[int, Value] | float, ...]  # of each row


class Plan(NamedTuple):
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


class Planner:
    """Plans tables.

    Args:
        flags: of recipes.ablations.
        config: of the encoder that variants change.
        tasks: what to fine-tune for.
        sources: text and vocabulary, and the cells that make them.
        finished: the content of the cell.json of cells that have one, by the cell's name.
    """

    def __init__(
        self,
        flags: Options,
        config: EncoderConfig,
        tasks: Sequence[DownstreamTask],
        sources: Sources,
        finished: Mapping[str, Mapping],
    ):
        self._flags, self._config, self._tasks = flags, config, tasks
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
        uses = {
            name: [
                # With each row's runs, by the updates of the encoder they start from.
                (reading, task, [{} for _ in TABLES[name].rows])
                for reading in TABLES[name].readings
                for task in self._tasks
                if task.kind in reading.kinds
            ]
            for name in names
        }
        for name in names:
            self._check(name, uses[name])
        # Seed by seed and row by row, so that early results are complete rows.
        for seed in self._flags.seeds:
            for name in names:
                for i, row in enumerate(TABLES[name].rows):
                    for reading, task, runs in uses[name]:
                        for step, cell in self._fine_tunings(
                            TABLES[name], row, reading, task, seed
                        ):
                            runs[i].setdefault(step, []).append(cell.name)
        columns = {
            name: [
                *self._of_pretraining(TABLES[name]),
                *(_column(TABLES[name], *use) for use in uses[name]),
            ]
            for name in names
        }
        return Plan(tuple(self._cells.values()), self._configs, columns, self._is_whole)

    def _check(self, name, uses):
        if not uses:
            kinds = {kind for r in TABLES[name].readings for kind in r.kinds}
            wanted = " or ".join(sorted(_TASKS[kind][0] for kind in kinds))
            titles = ", ".join(task.title for task in self._tasks)
            raise UserError(f"--table={name} needs in --tasks: {wanted}; not {titles}")
        heads = [row.head for row in TABLES[name].rows] + [
            reading.head for reading, *_ in uses
        ]
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

    def _of_pretraining(self, table: PaperTable) -> Iterator[Column]:
        """The columns that do not depend on a task."""
        variants = [row.variant for row in table.rows]
        seeds, length = self._flags.seeds, self._flags.max_seq_length
        names = [
            tuple(self._pretraining(v, s).name for s in seeds)
            if v.is_pretrained
            else ()
            for v in variants
        ]

        def column(title, *metric):
            return Column(title, tuple(Value(of_row, *metric) for of_row in names))

        if table.perplexity:
            yield column("perplexity", _LOSS, 1.0, True)
        if table.costs:
            sizes = [_parameters(self._configs[v.name]) for v in variants]
            yield Column("parameters", tuple(size / 1e6 for size in sizes))
            yield column("tokens/s", SPEED, length)
            yield column("memory", PEAK_MEMORY, 1e-9)

    def _fine_tunings(
        self,
        table: PaperTable,
        row: PaperRow,
        reading: Reading,
        task: DownstreamTask,
        seed: int,
    ) -> Iterator[tuple[int, Cell]]:
        """A row's runs for a task, with the updates of the encoders they start from."""
        head = reading.head if reading.head.name else row.head
        if head.is_frozen and not row.variant.is_pretrained:
            return  # which scripts refuse: random features are never learned
        updates = self._updates(table, row.variant, reading)
        if updates is None:
            self._is_whole = False
            return
        self._configs[row.variant.name] = self._config_of(row.variant)
        start = None
        if row.variant.is_pretrained:
            start = self._pretraining(row.variant, seed, updates)
        for step in self._steps(table.steps) or [updates]:
            for trial in range(self._flags.num_trials):
                yield (
                    step,
                    self._fine_tuning(
                        row.variant, start, updates, head, task, seed, trial, step
                    ),
                )

    def _updates(
        self, table: PaperTable, variant: Variant, reading: Reading
    ) -> int | None:
        """How many a variant is pre-trained for; None as long as that is not known."""
        if not reading.same_time or not variant.is_pretrained:
            return self._flags.num_train_steps
        own, first = (self._speed(v) for v in (variant, table.rows[0].variant))
        if own is None or first is None:
            return None
        return max(round(self._flags.num_train_steps * own / first), 1)

    def _speed(self, variant: Variant) -> float | None:
        """Examples per second, in the first of its runs with the usual updates."""
        cell = self._pretraining(variant, self._flags.seeds[0])
        return self._finished.get(cell.name, {}).get("results", {}).get(SPEED)

    def _steps(self, shares):
        last = self._flags.num_train_steps
        return list(dict.fromkeys(max(round(share * last), 1) for share in shares))

    def _suffix(self, updates):
        """What other updates than usual add to the name of a folder."""
        usual = updates == self._flags.num_train_steps
        return "" if usual else f"-updates_{updates}"

    # --- Cells -----------------------------------------------------------------------

    def _cell(self, name, script, kind, planned, passed, changed, **attributes) -> Cell:
        """Adds a cell, unless there is one of that name.

        Args:
            planned: flags; of a repeated flag, the last value counts.
            passed: the names of our flags with more of them.
            changed: flags by which a row of a table differs from the others.
        """
        words = options.words(**planned)
        for flag in passed:
            words += split_flags(flag, getattr(self._flags, flag))
        words += options.words(**changed)
        cell = Cell(name, script, tuple(words), kind, passed=passed, **attributes)
        return self._cells.setdefault(name, cell)

    def _records(self, variant: Variant, split: str) -> Cell | None:
        source = self._sources.train if split == "train" else self._sources.held_out
        if not source:
            return None
        name = "-".join(f"{key}_{value}" for key, value in variant.records.items())
        name = f"records/{name or 'default'}/{split}"
        return self._cell(
            name,
            "create_pretraining_data.py",
            f"records {split}",
            {
                "output_file": f"{output_of(name)}/{_RECORDS}@{_FILES[split]}",
                "input_file": ",".join(source),
                "vocab_file": self._sources.vocabulary,
                "max_seq_length": self._flags.max_seq_length,
                "max_predictions_per_seq": self._predictions(variant),
                "input_format": self._flags.input_format,
                **self._flags.text_flags(),
            },
            ("records_flags",),
            {**variant.records, **({} if split == "train" else {"dupe_factor": 1})},
            needs=tuple(cell.name for cell in self._sources.cells),
        )

    def _pretraining(
        self, variant: Variant, seed: int, updates: int | None = None
    ) -> Cell:
        usual = self._flags.num_train_steps
        updates = updates or usual
        records, held_out = (self._records(variant, s) for s in ("train", "held_out"))
        name = f"pretraining/{variant.name}/seed_{seed}{self._suffix(updates)}"
        flags = {
            "do_train": True,
            "input_file": f"{records.output}/{_RECORDS}-*",
            "bert_config_file": _config_file(variant),
            "output_dir": output_of(name),
            "max_seq_length": self._flags.max_seq_length,
            "max_predictions_per_seq": self._predictions(variant),
            "num_train_steps": updates,
            "num_warmup_steps": updates // 10,
            "keep_checkpoint_max": 1,
            "seed": seed,
        }
        if held_out:
            flags |= {
                "do_eval": True,
                "eval_input_file": f"{held_out.output}/{_RECORDS}-*",
                "max_eval_steps": 10**9,  # all of them
            }
        if variant.writes:
            flags["vocab_file"] = self._sources.vocabulary
            flags |= self._flags.text_flags()
        if updates == usual and (steps := self._steps(_steps_of(variant))):
            flags["keep_checkpoints_at"] = steps
        return self._cell(
            name,
            "run_pretraining.py",
            f"pretraining {variant.name}",
            flags,
            ("pretraining_flags",),
            variant.pretraining,
            needs=tuple(cell.name for cell in (records, held_out) if cell),
            results_file=RESULTS if held_out else "",
        )

    def _predictions(self, variant: Variant) -> int:
        """The most of a row: --max_predictions_per_seq is for the usual rate."""
        rate = variant.records.get("masked_lm_prob", _MASKING_RATE)
        return math.ceil(self._flags.max_predictions_per_seq * rate / _MASKING_RATE)

    def _config_of(self, variant: Variant) -> EncoderConfig:
        changes = dict(variant.changes(self._config))
        if variant.writes:
            changes["eos_token_id"] = self._sources.end_id
        keys = json.loads(self._config.to_json_string()) | changes
        try:
            return config_from_dict({k: v for k, v in keys.items() if v is not None})
        except ValueError as error:
            listed = ", ".join(f"{name}={value}" for name, value in changes.items())
            raise UserError(
                f"the table's variant with {listed}: {error}; use another "
                "--bert_config_file"
            ) from error

    def _fine_tuning(
        self,
        variant: Variant,
        start: Cell | None,
        updates: int,
        head: Head,
        task: DownstreamTask,
        seed: int,
        trial: int,
        step: int,
    ) -> Cell:
        used = f"{variant.name}-{head.name}" if head.name else variant.name
        used += self._suffix(updates)
        weights = {}
        if start:
            weights = {"init_checkpoint": start.output}
            if step != updates:
                used += f"-step_{step}"
                weights = {"init_checkpoint": prefix_of(start.output, step)}
        title = task.title.lower().replace("/", "_")
        name = f"fine_tuning/{title}/{used}/seed_{seed}-trial_{trial}"
        width = self._configs[variant.name].hidden_size
        return self._cell(
            name,
            task.script,
            f"{title} {head.name}",
            {
                **task.flags,
                "do_train": True,
                "do_eval": True,
                "vocab_file": self._sources.vocabulary,
                "bert_config_file": _config_file(variant),
                **weights,
                "output_dir": output_of(name),
                "max_seq_length": self._flags.max_seq_length,
                "keep_checkpoint_max": 1,
                "seed": seed + 1000 * trial,
                **self._flags.text_flags(),
            },
            (_TASKS[task.kind][1], *["features_flags"] * head.is_frozen),
            {
                key: width if value == "{hidden_size}" else value
                for key, value in head.flags.items()
            },
            needs=tuple(
                cell.name for cell in ([start] if start else self._sources.cells)
            ),
            results_file=RESULTS_JSON,
            metric=task.metric,
            keeps_weights=False,
        )


def split_flags(flag: str, value: str) -> list[str]:
    """The flags in the value of a flag of ours, for one of the scripts."""
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise UserError(f"--{flag}={value}: {error}") from error
    planned = _PLANNED
    if flag in ("records_flags", "pretraining_flags"):  # which must agree on it
        planned |= {"max_seq_length"}
    for word in words:
        name = word.lstrip("-").partition("=")[0]
        if not word.startswith("--") or not name:
            raise UserError(
                f"--{flag}: {word!r} is not a flag; write --name=value, with spaces between"
            )
        if name in planned or name.removeprefix("no") in planned:
            raise UserError(f"--{flag}: --{name} is set by the plan; remove it")
    return words


def _column(table: PaperTable, reading: Reading, task: DownstreamTask, runs) -> Column:
    def value(names=()):
        return Value(tuple(names), task.metric, task.factor)

    values = [{step: value(names) for step, names in of_row.items()} for of_row in runs]
    if not table.steps:
        values = [next(iter(of_row.values()), value()) for of_row in values]
    return Column(f"{task.title} {reading.title}".strip(), tuple(values))


def _steps_of(variant: Variant) -> tuple[float, ...]:
    """Shares of the updates after which any table compares an encoder."""
    rows = (
        (table.steps, row.variant) for table in TABLES.values() for row in table.rows
    )
    return max((steps for steps, other in rows if other == variant), key=len)


def _parameters(config: EncoderConfig) -> int:
    with layers.shapes_only():
        weights = make_encoder(config).weights
    return sum(math.prod(variable.shape) for variable in weights)


def _config_file(variant):
    return f"{{root}}/configs/{variant.name}.json"
