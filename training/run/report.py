"""Reports a run's progress: console, metrics.jsonl, TensorBoard, curves.

On a terminal, a live line says where a training is. In a log, it says so once a minute
where reports are rarer.
"""

import atexit
import io
import json
import time
from collections.abc import Callable

from training import metrics
from training.backend import tf
from training.storage.folder import CURVES, EVAL, METRICS, Folder
from errors import duration
from files import anywhere, json_files, sources
from text import progress

_SECONDS_PER_WRITE = 60  # on gs://, where appending rewrites the file
_SECONDS_PER_LINE = 60  # in a log
_LONGEST_LINE = 119


class Report:
    """Writes what the loop measured to all outputs.

    Args:
        folder: where the files go.
        total_steps: updates of the whole run, for the time left.
        batch_size: examples of one update.
        active: False on hosts that only compute.
        model: what its lines begin with, where a command has several models.
        percentages: whether the scores of evaluations are; see `metrics.in_words`.
    Attributes:
        watch: step -> what else to report of a training there, and lines to print.
    """

    def __init__(
        self,
        folder: Folder,
        *,
        total_steps: int,
        batch_size: int,
        active: bool = True,
        model: str = "",
        percentages: bool = False,
    ):
        self._folder = folder
        self._total_steps = total_steps
        self._batch_size = batch_size
        self._active = active
        self._model = f"{model}: " if model else ""
        self._percentages = percentages
        self.watch: Callable[[int], tuple[dict[str, float], list[str]]] | None = None
        self._printed = self._shown = time.monotonic()
        self._events = {}
        self._path = folder.file(METRICS)
        self._unwritten, self._written = [], 0.0
        if sources.is_remote(folder.path):
            atexit.register(self._flush)

    def begin(self, step: int, by_xla: bool = False) -> None:
        """Begins a training, whose first update takes longer than the others.

        Removes later steps from metrics.jsonl, because they will be repeated.

        Args:
            by_xla: whether that is much longer, unless a compiled program is found.
        """
        if self._active:
            self._folder.check_own(METRICS)
            self._folder.claim()
            self._cut(step)
            longer = ", which can take a minute or two" if by_xla else ""
            self._print(f"compiling the first update{longer}")
            progress.show(f"{self._model}{self._place(step)}")

    def say(self, message: str) -> None:
        """Prints a line with the time of day.

        Earlier reports are written to metrics.jsonl first, because the line may say that
        a checkpoint was saved.
        """
        if self._active:
            self._flush()
            self._print(message)

    def _print(self, message):
        if self._active:
            progress.clear()
            self._printed = time.monotonic()
            print(f"{time.strftime('%H:%M:%S')} {self._model}{message}", flush=True)

    def _place(self, step):
        return f"step {step}/{self._total_steps} ({100 * step // self._total_steps}%)"

    def _line(self, begin, values, end="", percentages=False):
        """As many values as there is room for; metrics.jsonl has all of them."""
        return next(self._lines(begin, values, end, percentages))

    def _lines(self, begin, values, end="", percentages=False):
        """All values, on as many lines as they need; the first has the end."""
        most = _LONGEST_LINE - len(f"00:00:00 {self._model}{begin}: ")
        room = most - len(end)
        if not values.get("skipped_updates"):
            values = {k: v for k, v in values.items() if k != "skipped_updates"}
        first = ("loss", "skipped_updates")
        texts = []
        for name in sorted(values, key=lambda name: name not in first):
            text = f"{name} {metrics.in_words(name, values[name], percentages)}"
            room -= len(text) + 2
            if room < 0:
                yield f"{begin}: {', '.join(texts + [end] * bool(end))}"
                texts, end, room = [], "", most - len(text) - 2
            texts.append(text)
        yield f"{begin}: {', '.join(texts + [end] * bool(end))}"

    def _lines_by_source(self, values):
        """Those of values that are called loss/wiki or epochs/wiki; not parts of losses."""
        by_metric = {"loss": {}, "epochs": {}}
        for name, value in values.items():
            metric, _, source = name.partition("/")
            if source and metric in by_metric:
                by_metric[metric][source] = value
        for metric, of_sources in by_metric.items():
            if of_sources:
                yield self._line(f"  {metric} by source", of_sources)

    def _training_line(self, step, values, per_second):
        left = duration((self._total_steps - step) / per_second)
        speed = f"{per_second * self._batch_size:.4g} examples/s"
        return self._line(self._place(step), _of_all(values), f"{speed}, {left} left")

    def live(
        self, step: int, values: dict[str, float], *, updates: int, seconds: float
    ) -> None:
        """Shows where a training is between two reports; takes what `training` takes."""
        now = time.monotonic()
        if not self._active:
            return
        loss = {"loss": values["loss"]} if values else {}  # a terminal may be narrow
        line = self._training_line(step, loss, updates / seconds)
        if not progress.is_live():
            if now - self._printed >= _SECONDS_PER_LINE:
                self._print(line)
        elif now - self._shown >= progress.TERMINAL_SECONDS:
            self._shown = now
            progress.show(f"{self._model}{line}")

    def training(
        self, step: int, values: dict[str, float], *, updates: int, seconds: float
    ) -> None:
        """Reports an interval of `updates` updates that took `seconds`."""
        per_second = updates / seconds
        more, lines = self.watch(step) if self.watch else ({}, [])
        values = values | more
        self._print(self._training_line(step, values, per_second))
        for line in (*self._lines_by_source(values), *lines):
            self._print(line)
        values = values | {"examples_per_second": per_second * self._batch_size}
        self._write(step, values, kind="train")

    def evaluation(self, step: int, values: dict[str, float]) -> None:
        """Reports losses and metrics on held-out records."""
        begin = f"step {step}, held out"
        self._print(self._line(begin, _of_all(values), percentages=self._percentages))
        for line in self._lines_by_source(values):
            self._print(line)
        self._write(step, values, kind="eval")

    def scores(self, what: str, values: dict[str, float]) -> None:
        """Prints all losses and metrics, which no other line shows."""
        lines = self._lines(what, _of_all(values), percentages=self._percentages)
        for line in (*lines, *self._lines_by_source(values)):
            self._print(line)

    def _write(self, step, values, kind):
        if not self._active:
            return
        self._unwritten.append(json.dumps({"step": step, "kind": kind, **values}))
        recently = time.monotonic() - self._written < _SECONDS_PER_WRITE
        if not (recently and sources.is_remote(self._path)):
            self._flush()
        # Like the Estimator, puts held-out values in their own folder, so that
        # TensorBoard draws both in one chart.
        folder = self._folder.file(EVAL if kind == "eval" else "")
        with anywhere.access(folder):
            if kind not in self._events:
                self._events[kind] = tf.summary.create_file_writer(folder)
            with self._events[kind].as_default():
                for name, value in values.items():
                    _write_scalar(name, value, step)
            self._events[kind].flush()

    def _flush(self):
        if self._unwritten:
            with anywhere.open_file(self._path, "a") as file:
                file.write("".join(f"{line}\n" for line in self._unwritten))
            self._unwritten, self._written = [], time.monotonic()

    def draw(self) -> str | None:
        """Draws the whole run, earlier processes included; returns the picture's path."""
        self._flush()
        rows = [row for _, row in _lines(self._path) if row]
        if not self._active or not rows:
            return None
        return self._folder.write(CURVES, _draw(rows))

    def _cut(self, step):
        """Removes reports of later steps, and one that a killed process left incomplete."""
        lines = _lines(self._path)
        kept = [
            line.removesuffix(b"\n") + b"\n"
            for line, row in lines
            if (row["step"] <= step if row else line.endswith(b"\n"))
        ]
        if kept != [line for line, _ in lines]:
            self._folder.write(METRICS, b"".join(kept))


def _of_all(values):
    """Those that are not of one source."""
    return {name: value for name, value in values.items() if "/" not in name}


def _write_scalar(name, value, step):
    # tf.summary.scalar needs the tensorboard package; this is what it writes.
    metadata = tf.compat.v1.SummaryMetadata(
        plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
    )
    value = tf.constant(value, tf.float32)
    tf.summary.write(name, value, step=step, metadata=metadata)


def _lines(path: str) -> list[tuple[bytes, dict | None]]:
    """The lines of metrics.jsonl, each with its report, or None if it is not one."""
    if not anywhere.exists(path):
        return []
    with anywhere.open_file(path) as file:
        lines = io.BytesIO(file.read()).readlines()
    return [(line, _report_of(line)) for line in lines]


def _report_of(line):
    try:
        row = json_files.parse(line)
    except ValueError:
        return None
    is_report = isinstance(row, dict) and isinstance(row.get("step"), int)
    return row if is_report and "kind" in row else None


# How it goes, not what it learns.
_OF_A_RUN = ("examples_per_second", "skipped_updates")
_MOST_SOURCES = 10  # whose curves can be told apart
_PANELS = {
    "loss": ("loss (nats)", "_loss"),
    "accuracy": ("accuracy and scores", "_accuracy"),
    "learning_rate": ("learning rate", None),
    "gradient_norm": ("gradient norm before clipping", None),
}


def _names(rows: list[dict]) -> dict[str, list[str]]:
    """What is drawn in each panel."""
    trained = {name for row in rows if row["kind"] == "train" for name in row}
    names = dict.fromkeys(name for row in rows for name in row)
    panels = {
        panel: [
            n
            for n in names
            if n.split("/")[0] == panel or (ending and n.endswith(ending))
        ]
        for panel, (_, ending) in _PANELS.items()
    }
    of_sources = [name for name in panels["loss"] if "/" in name]
    if len(of_sources) > _MOST_SOURCES:
        panels["loss"] = [name for name in panels["loss"] if "/" not in name]
    # Values that only evaluations have are scores, and so are shares.
    others = {"step", "kind", *_OF_A_RUN}.union(*panels.values())
    panels["accuracy"] += [
        name
        for name in names
        if name not in others
        and "/" not in name
        and (name not in trained or _are_shares(rows, name))
    ]
    return panels


def _are_shares(rows, name):
    return all(0 <= row[name] <= 1 for row in rows if name in row)


def _draw(rows: list[dict]) -> bytes:
    """The curves as a PNG."""
    from matplotlib.figure import Figure

    # Margins by hand: to find them takes as long as to draw everything else.
    figure = Figure(figsize=(12, 8))
    axes = figure.subplots(2, 2)
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.07, top=0.97, wspace=0.25)
    for axis, (panel, names) in zip(axes.flat, _names(rows).items(), strict=True):
        small = _small(rows, names) if panel == "loss" else ()
        right = axis.twinx() if small else axis
        for color, name in enumerate(names):
            if name in small:
                _plot(right, rows, name, f"C{color}", " (right)")
            else:
                _plot(axis, rows, name, f"C{color}")
        axis.set_xlabel("updates")
        axis.set_ylabel(_PANELS[panel][0])
        for side in {axis, right}:
            side.ticklabel_format(axis="y", scilimits=(-3, 4))  # short: fits the margin
        axis.grid(alpha=0.3)
        if lines := [*axis.lines, *(right.lines if small else ())]:
            right.legend(handles=lines)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100)
    return picture.getvalue()


def _small(rows, names) -> set[str]:
    """Losses that would be flat lines below the others."""
    highest = {name: max(row[name] for row in rows if name in row) for name in names}
    return {n for n, value in highest.items() if value < max(highest.values()) / 4}


def _plot(axis, rows, name, color, suffix=""):
    for kind, style in (("train", "-"), ("eval", "o--")):
        points = [
            (row["step"], row[name])
            for row in rows
            if row["kind"] == kind and name in row
        ]
        if points:
            legend = (
                f"{name}{suffix}" if kind == "train" else f"{name}, held out{suffix}"
            )
            x, y = zip(*points, strict=True)
            # A line needs two points.
            style = style if len(points) > 1 else "o"
            axis.plot(x, y, style, color=color, label=legend, markersize=4)
