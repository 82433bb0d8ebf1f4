"""Losses of a run by the source of its rows, and how often each source was read."""

from collections.abc import Iterator, Mapping, Sequence

from training.backend import tf
from errors import count
from modeling import custom_gradients, losses
from modeling.objectives.objective import Objective, Summary, Wrapped, row_weights
from text.records.mixed import MixedRecords
from training.run.position import Position

_NONE = Summary(lambda values, counts: {})


class BySource(Wrapped):
    """An objective that also reports the losses of the rows of each source.

    `loss/wiki` is the loss of the source wiki, and `masked_lm_loss/wiki` a part of it. A
    source without rows among those reported is left out. So are losses that the network
    returns as a sum over its batch, unless it also returns next_token_loss_of_rows, [b], or
    the like.

    Args:
        inner: the objective; a batch also has `source`, int32 [b].
        names: of the sources.
    """

    def __init__(self, inner: Objective, names: Sequence[str]):
        super().__init__(inner)
        self._names = list(names)

    @property
    def for_evaluation(self):
        return BySource(self.inner.for_evaluation, self._names)

    def prepare(self, batch, seed) -> dict:
        return {**self.inner.prepare(batch, seed), "source": batch["source"]}

    @property
    def summary(self):
        inner = self.inner.summary or _NONE
        number = len(self.loss_weights) * len(self._names)

        def counts(batch, outputs):
            own = self._sums(batch, outputs)
            others = [inner.counts(batch, outputs)] if inner.counts else []
            return tf.concat([*others, own], axis=0)

        def compute(values, counts):
            theirs, own = counts[: inner.num_counts], counts[inner.num_counts :]
            return {**inner.compute(values, theirs), **self._means(own)}

        return Summary(compute, counts, inner.num_counts + number)

    def _sums(self, batch, outputs):
        """float32 [losses * sources, 2]: sum and weight of each loss of each source."""
        rows = tf.convert_to_tensor(row_weights(batch))
        is_of_source = tf.one_hot(batch["source"], len(self._names), axis=0)[..., None]
        # Sums and weights are linear in the weights of rows: a derivative is what the row
        # adds. The gradients that are written out for training have none of these.
        with (
            custom_gradients.use_gradients(False),
            tf.GradientTape(persistent=True) as tape,
        ):
            tape.watch(rows)
            pairs = self.inner.losses({**batch, "is_real_example": rows}, outputs)
        sums = []
        for name in self.loss_weights:
            total, weight = (tape.gradient(x, rows) for x in pairs[name])
            total = outputs.get(f"{name}_of_rows", total)
            if total is None:
                total = weight = tf.zeros_like(rows)
            each = tf.stack([total, weight], axis=1) * rows[:, None]
            sums.append(tf.reduce_sum(is_of_source * each, axis=1))
        return tf.concat(sums, axis=0)

    def _means(self, counts: Sequence) -> Mapping[str, float]:
        values, pairs = {}, iter(counts)
        by_name = {
            name: [next(pairs) for _ in self._names] for name in self.loss_weights
        }
        for number, source in enumerate(self._names):
            parts = {
                name: float(losses.mean(*of_sources[number]))
                for name, of_sources in by_name.items()
                if of_sources[number][1] > 0
            }
            if len(parts) == len(by_name):
                loss = sum(self.loss_weights[n] * value for n, value in parts.items())
                values[f"loss/{source}"] = loss
            if len(by_name) > 1:
                values |= {f"{name}/{source}": value for name, value in parts.items()}
        return values


class SourceReadings:
    """How often each source of a training was read.

    Args:
        data: the records.
        progress: of the training.
        batch_size, seed: of the run.
    """

    def __init__(
        self, data: MixedRecords, progress: Position, batch_size: int, seed: int
    ):
        self._data, self._progress = data, progress
        self._batch_size, self._seed = batch_size, seed
        self._totals = {name: source.total for name, source in data.sources.items()}
        self._last = self._rows_at(progress.step)

    def _rows_at(self, step):
        batches = step + self._progress.batch_offset
        return self._data.rows_before(batches * self._batch_size, self._seed)

    def plan(self, num_train_steps: int) -> Iterator[str]:
        """Says what the run will read."""
        mixed, rows = self._data.mixture, self._rows_at(num_train_steps)
        if mixed.given_total != 1:
            total = float(mixed.given_total)
            yield f"the weights of the sources are divided by their sum, {total:g}"
        for (name, total), share in zip(
            self._totals.items(), mixed.shares, strict=True
        ):
            yield (
                f"source {name}: {100 * share:.4g}% of all rows; its {total:,} records are "
                f"read {rows[name] / total:.3g} times"
            )

    def __call__(self, step: int) -> tuple[dict[str, float], list[str]]:
        """Epochs of each source up to a step, and which have begun anew since the last."""
        rows, lines = self._rows_at(step), []
        for name, total in self._totals.items():
            epochs = (rows[name] - 1) // total
            if epochs > max(self._last[name] - 1, 0) // total:
                lines.append(
                    f"source {name} begins anew: all was read {count(epochs, 'time')}"
                )
        self._last = rows
        return {
            f"epochs/{n}": rows[n] / total for n, total in self._totals.items()
        }, lines
