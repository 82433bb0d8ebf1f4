"""Trains a model, from the first update of a run to the last.

An update takes one global batch. Each replica processes its part, in micro-batches if
requested, and sums the gradients; these sums are added over all replicas, clipped and
applied once. Every loss is divided by the weight of the whole global batch, so the result
does not depend on how many replicas or micro-batches shared it.

Everything random is keyed by the run's seed and by numbers that a checkpoint restores. A
run that was killed and restarted therefore ends with the same bits as an uninterrupted one.
The loop knows no task, only the contract in modeling/objectives/objective.py.
"""

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from training.backend import keras, tf
from training.run import capacity, compiler, distribution, report, stops, whole_batch
from training.storage import checkpoint
from training.storage.folder import Folder
from modeling import custom_gradients, fusion, layers, losses
from modeling.optimizers import clipping
from modeling.optimizers.table import OptimizerSettings
from text.progress import clear
from training.run.position import Position

# AutoGraph is for the loops in this file. Reading everything they call takes it a second,
# at the start of every run.
_as_written = tf.autograph.experimental.do_not_convert
# Python handles Ctrl-C between calls to TensorFlow, so none may take long.
_SECONDS_PER_CALL = 2.0


@dataclasses.dataclass(frozen=True)
class LoopSettings:
    """The numbers of a run; batch_size is that of one update, over all replicas."""

    num_train_steps: int
    num_warmup_steps: int
    learning_rate: float
    batch_size: int
    accumulation_steps: int = 1
    recompute: bool = False
    seed: int = 0
    xla: bool = False
    optimizer: OptimizerSettings = OptimizerSettings()
    max_skipped_updates: int = 10
    steps_per_call: int = 1000
    save_every_steps: int = 1000
    keep_checkpoints: int = 5
    keep_checkpoints_at: tuple[int, ...] = ()  # saved there, and kept besides
    log_every_steps: int = 100
    eval_every_steps: int = 0  # 0: never


class NotFiniteError(Exception):
    """Loss or gradient was not finite in `count` consecutive updates, from `step` on."""

    def __init__(self, step: int, count: int):
        super().__init__(f"{count} updates starting at step {step} are not finite")
        self.step = step
        self.count = count


class Trainer:
    """A model and its optimizer on the devices of a strategy, and their computations.

    Args:
        strategy: see `distribution.make`.
        make_model: makes the network; called once, in the strategy's scope.
        objective: what to learn.
        settings: the run's numbers.
        steps: (batch, seed) -> batch, before anything else sees it, such as masks.
        borrowed: network -> the names of its weights that are not trained and belong to
            another checkpoint, so that those of this run leave them out.
    """

    def __init__(
        self,
        strategy,
        make_model: Callable,
        objective,
        settings: LoopSettings,
        steps: Sequence[Callable] = (),
        borrowed: Callable[..., Collection[str]] = lambda model: (),
    ):
        self.strategy = strategy
        self.objective, self._steps = objective, tuple(steps)
        self.settings = settings
        with strategy.scope():
            self.model = make_model()
            self.optimizer = settings.optimizer.make_for(self.model)
            self.row_state = _row_state(objective, self.model, settings.batch_size)
        self.for_evaluation = objective.for_evaluation
        # Not its variables, which also include seeds of layers that draw no numbers.
        self.weights = {v.path: v for v in self.model.weights}
        others = (*self.optimizer.variables, *self.row_state.values())
        lent = borrowed(self.model)
        self.saved_weights = {k: v for k, v in self.weights.items() if k not in lent}
        self.variables = self.saved_weights | {v.path: v for v in others}
        self.progress = Position()
        # TPUs compile whatever they run.
        on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        self._is_compiled = settings.xla or on_tpu
        self._compiler = None
        if not self._is_compiled:
            self._compiler = compiler.for_model(self.model)
        parts = strategy.num_replicas_in_sync * settings.accumulation_steps
        self._whole_batch = None
        if objective.of_whole_batch and parts > 1:
            self._whole_batch = whole_batch.WholeBatch(
                *(self.model, objective, settings, self._compiling),
                lambda *values: _sums(objective, *values),
            )
        # XLA compiles all of an update; sums over replicas stay between compiled parts.
        xla = settings.xla
        if xla and strategy.num_replicas_in_sync == 1:
            self.update = tf.function(self.update, jit_compile=True, autograph=False)
        elif xla:
            self._prepare_rows = tf.function(self._prepare_rows, jit_compile=True)
            self._finish = tf.function(self._finish, jit_compile=True, autograph=False)
        self._gradients = tf.function(self._gradients, jit_compile=xla)
        self._updates = tf.function(self._updates)
        self._evaluations = tf.function(self._evaluations)
        self._forward = tf.function(self._forward, jit_compile=xla, autograph=False)
        self._predictions = tf.function(self._predictions)

    @property
    def description(self) -> str:
        """The kind and size of the model, and on which devices it is."""
        number = sum(v.shape.num_elements() for v in self.weights.values())
        devices = distribution.description(self.strategy)
        devices += ", XLA" * self.settings.xla
        kind = self.model.encoder.config.architecture
        suffix = self.model.description_suffix
        return f"{kind}: a model of {number:,} weights on {devices}{suffix}"

    # --- One update, on one replica --------------------------------------------------

    def prepare(self, batch, objective=None) -> dict:
        """What steps and objective make of a batch of this replica."""
        for step in self._steps:
            batch = step(batch, self.settings.seed)
        return (objective or self.objective).prepare(batch, self.settings.seed)

    @_as_written
    def update(self, batch, step):
        """Trains on this replica's part of a global batch.

        Args:
            batch: dict of tensors [batch / replicas, ...].
            step: int64 scalar, the number of updates before this one.
        Returns:
            float32 [names, 2]: sum and weight, over the global batch, of each of
            `sum_names` and the gradient norm; and whether everything was finite,
            int64. If not, the sums are 0 and no variable has changed.
        """
        context = tf.distribute.get_replica_context()
        with compiler.steady_names(2, self.settings.xla):
            batch, weights = self._prepare_rows(batch)
            weights = distribution.total(weights)
            seeds = self._seeds(context, step)
            if self._whole_batch:
                gradients, sums = self._whole_batch.gradients(batch, weights, seeds)
                next_state = []
            else:
                gradients, sums, next_state = self._gradients(batch, weights, seeds)
            gradients, sums = distribution.total((gradients, sums))
            return self._finish(gradients, sums, next_state, step)

    @_as_written
    def _prepare_rows(self, batch):
        """A prepared batch with the state of its rows, and the weights of its losses."""
        batch = self.prepare(batch)
        weights = self.objective.weights(batch)
        return batch | {name: v.value for name, v in self.row_state.items()}, weights

    def _finish(self, gradients, sums, next_state, step):
        """Clips and applies the gradients of all replicas; returns what `update` does."""
        # Differs from the release, which clips each core's gradient before adding them.
        scale, norm = clipping.clip_scale(gradients, self.settings.optimizer.clip_norm)
        finite = tf.reduce_all(tf.math.is_finite(sums)) & tf.math.is_finite(norm)
        self._apply_if(finite, gradients, step, scale, next_state)
        sums = tf.concat([sums, [[norm, 1.0]]], axis=0)
        return tf.where(finite, sums, 0.0), tf.cast(finite, tf.int64)

    def _apply_if(self, finite, *values):
        if not self._is_compiled:
            tf.cond(finite, lambda: self._apply(*values), lambda: None)
            return
        # To enter a branch, a compiled program copies all variables and waits for the host.
        changed = [*self.model.trainable_variables, *self.optimizer.variables]
        changed += self.row_state.values()
        state = [(variable, tf.convert_to_tensor(variable)) for variable in changed]
        with keras.StatelessScope(state) as scope:
            self._apply(*values)
        for variable, before in state:
            after = scope.get_current_value(variable)
            variable.assign(tf.where(finite, after, before))

    def _apply(self, gradients, step, scale, next_state):
        # Uncompiled, what every variable goes through is traced once for each shape.
        with fusion.fuse_with(self._compiler or compiler.trace_function):
            self.optimizer.apply(gradients, self._learning_rate(step), step, scale)
        for variable, value in zip(self.row_state.values(), next_state, strict=True):
            variable.assign(value)

    def _learning_rate(self, step):
        settings = self.settings
        return settings.optimizer.learning_rate(
            step,
            settings.learning_rate,
            settings.num_train_steps,
            settings.num_warmup_steps,
        )

    def _seeds(self, context, step):
        """[accumulation_steps, 2]: a unique seed for each micro-batch."""
        count = self.settings.accumulation_steps
        micro_batch = step * count + tf.range(count, dtype=tf.int64)
        replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
        number = micro_batch * self.strategy.num_replicas_in_sync + replica
        number = tf.cast(number % 2**31, tf.int32)
        return tf.stack([tf.fill([count], self.settings.seed), number], axis=1)

    def _gradients(self, batch, weights, seeds):
        """Gradients and sums of its micro-batches, added up; and the next row state."""
        count = self.settings.accumulation_steps
        if count == 1:
            return self._micro_batch(batch, weights, seeds[0])
        batch = whole_batch.split(batch, count)
        gradients = [tf.zeros(v.shape) for v in self.model.trainable_variables]
        sums = tf.zeros([len(sum_names(self.objective)), 2])
        states = [tf.zeros_like(batch[name]) for name in self.row_state]
        for i in tf.range(count):
            rows = {name: x[i] for name, x in batch.items()}
            more, more_sums, parts = self._micro_batch(rows, weights, seeds[i])
            gradients = [a + b for a, b in zip(gradients, more, strict=True)]
            sums += more_sums
            states = _with_parts(states, i, parts)
        return gradients, sums, [tf.reshape(x, [-1, *x.shape[2:]]) for x in states]

    def _compiling(self):
        """The context in which to trace what these devices compute for the gradients."""
        if self._is_compiled:
            return fusion.whole_program()
        return fusion.fuse_with(self._compiler)

    @_as_written
    def _micro_batch(self, batch, weights, seed):
        with self._compiling(), custom_gradients.use_gradients():
            trained = [v.value for v in self.model.trainable_variables]
            # Of others, such as frozen layers, nothing is recorded, kept or computed.
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(trained)
                dropouts = layers.Dropouts(seed, self.settings.recompute)
                outputs = self.model(batch, dropouts=dropouts)
                pairs = self.objective.losses(batch, outputs)
                loss = sum(
                    factor * losses.mean(pairs[name][0], weights[name])
                    for name, factor in self.objective.loss_weights.items()
                )
            gradients = tape.gradient(
                loss,
                trained,
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            sums = _sums(self.objective, pairs, batch, outputs)
        state = [tf.cast(outputs[name], tf.float32) for name in self.row_state]
        return [tf.convert_to_tensor(g) for g in gradients], sums, state

    # --- Many updates, on all replicas -----------------------------------------------

    def _updates(self, batches, step, count, skipped_in_a_row):
        """Runs the smallest `count` of all hosts; less after too many skipped in a row.

        Returns:
            The sums of all updates, how many there were, how many of them were skipped,
            and how many were skipped in a row at the end.
        """
        # Sums of float32 in float64 are exact, so the split of updates into calls, which
        # depends on speed, does not affect what is reported.
        sums = tf.zeros([len(sum_names(self.objective)) + 1, 2], tf.float64)
        count = distribution.smallest(self.strategy, count)
        done = skipped = tf.zeros([], tf.int64)
        while done < count and skipped_in_a_row < self.settings.max_skipped_updates:
            result = self.strategy.run(self.update, args=(next(batches), step + done))
            more, finite = distribution.first(self.strategy, result)
            sums += tf.cast(more, tf.float64)
            skipped += 1 - finite
            skipped_in_a_row = (skipped_in_a_row + 1) * (1 - finite)
            done += 1
        return sums, done, skipped, skipped_in_a_row

    # --- Evaluation ------------------------------------------------------------------

    def evaluate(
        self, data: Callable, num_batches: int, objective=None
    ) -> dict[str, float]:
        """Losses and metrics over all batches together, without dropout.

        Args:
            data: maps a `reading.Part` to a dataset of at least num_batches.
            objective: whose; by default, those of `for_evaluation`.
        Returns:
            "loss" and the value of every loss and metric by name.
        """
        batches = distribution.distribute(self.strategy, data)
        objective = objective or self.for_evaluation
        with capacity.advising("an evaluation", "lower --eval_batch_size"):
            sums = self._evaluations(batches, tf.constant(num_batches), objective)
            return means(objective, sums.numpy())

    def _evaluations(self, batches, count, objective):
        sums = tf.zeros([len(sum_names(objective)), 2], tf.float64)
        for _ in tf.range(count):
            arguments = (next(batches), objective)
            result = self.strategy.run(self._evaluate_batch, args=arguments)
            sums += tf.cast(distribution.first(self.strategy, result), tf.float64)
        return sums

    @_as_written
    def _evaluate_batch(self, batch, objective):
        _, sums = self._forward(batch, objective)
        return distribution.total(sums)

    def values(self, sums) -> dict[str, float]:
        """Turns the sums of an evaluation into means."""
        return means(self.for_evaluation, sums)

    # --- Prediction ------------------------------------------------------------------

    def predict(self, data: Callable, num_batches: int) -> Iterator[tuple]:
        """The model's outputs for one batch after another, without dropout.

        Args:
            data: as for `evaluate`.
        Yields:
            outputs, dict of arrays [batch, ...], the same on every host; and the sums
            of the batch, from which `values` computes losses and metrics.
        """
        batches = distribution.distribute(self.strategy, data)
        for _ in range(num_batches):
            with capacity.advising("a batch", "lower the --*_batch_size"):
                outputs, sums = self._predictions(batches)
                outputs = {name: x.numpy() for name, x in outputs.items()}
            yield outputs, sums.numpy()

    def _predictions(self, batches):
        result = self.strategy.run(self._predict_batch, args=(next(batches),))
        return distribution.first(self.strategy, result)

    @_as_written
    def _predict_batch(self, batch):
        outputs, sums = self._forward(batch, self.for_evaluation)
        return distribution.rows_of_all(outputs), distribution.total(sums)

    def _forward(self, batch, objective):
        names = compiler.steady_names(0, self.settings.xla)
        with fusion.whole_program(self._is_compiled), names:
            batch = self.prepare(batch, objective)
            outputs = self.model.predict(batch)
            pairs = objective.losses(batch, outputs)
            return outputs, _sums(objective, pairs, batch, outputs)

    # --- The run ---------------------------------------------------------------------

    def restore(self, folder: Folder, weights_only: bool = False) -> int | None:
        """Restores the newest intact checkpoint of a run, if there is one.

        Also reads a directory of the 2018 release: weights, slots and global_step.

        Args:
            weights_only: nothing will be trained, so the optimizer may be another one.
        Returns:
            The number of updates done, or None if there is no checkpoint.
        Raises:
            UserError: all checkpoints are damaged, or the newest is from another model.
        """
        newest = checkpoint.newest(folder)
        if newest is None:
            return None
        prefix, tensors = newest
        variables = self.weights if weights_only else self.variables
        checkpoint.check_complete(prefix, variables, tensors)
        self.set_state(tensors, variables)
        return self.progress.step

    def set_state(self, tensors: Mapping, variables: Mapping) -> None:
        """Sets these variables, and how far the run is, as in a checkpoint."""
        for name, variable in variables.items():
            variable.assign(tensors[name])
        self.progress = Position.of(tensors)

    def save(self, folder: Folder) -> str:
        """Writes the run's state as it is; returns the checkpoint's prefix."""
        tensors = {name: variable.value for name, variable in self.variables.items()}
        tensors |= self.progress.entries()
        settings = self.settings
        return checkpoint.save(
            folder,
            self.progress.step,
            tensors,
            settings.keep_checkpoints,
            settings.keep_checkpoints_at,
        )

    def train(
        self,
        data: Callable,
        folder: Folder,
        log: report.Report,
        held_out: Callable[[], dict[str, float]] | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Trains from the current state to the last update.

        Args:
            data: maps (first_batch, part) to an endless dataset of batches.
            folder: where checkpoints go.
            log: receives a report of every interval.
            held_out: evaluates; called every eval_every_steps and at the end.
            enough: called after every evaluation; says whether to stop here.
        Raises:
            NotFiniteError: too many updates in a row were skipped.
            SystemExit: SIGTERM came; the last update is saved.
        """
        log.begin(self.progress.step, by_xla=self.settings.xla)
        self._warn_of_steps(log)
        batches = distribution.distribute(
            self.strategy, lambda part: data(self.progress.next_batch, part)
        )
        try:
            with stops.terminations() as terminated:
                self._train(batches, folder, log, held_out, enough, terminated)
        finally:
            clear()  # the live line: an error may be printed next
        # No host may exit while another still waits for it or writes.
        distribution.check_same(
            self.strategy, self.progress.step, "the hosts ended at different steps"
        )

    def _train(self, batches, folder, log, held_out, enough, terminated):
        settings, progress = self.settings, self.progress
        chief = distribution.is_chief(self.strategy)
        sums, calls, per_call, is_first, stopping = 0.0, [], 1, True, False
        while progress.step < settings.num_train_steps and not stopping:
            before = progress.step
            to_next = stops.updates_to_next(settings, before)
            began = time.perf_counter()
            sums = sums + self.run_updates(batches, min(to_next, per_call))
            duration = time.perf_counter() - began
            count = progress.step - before  # less if another host wanted less
            per_call = max(1, int(_SECONDS_PER_CALL * count / duration))
            calls.append((count, duration))
            # The first call also traces and compiles, which the rest do not.
            timed = calls[1:] if is_first and len(calls) > 1 else calls
            updates, seconds = map(sum, zip(*timed, strict=True))
            # In this order, so that no checkpoint is without the report of its step.
            step = progress.step
            values = means(self.objective, sums)
            leaving = terminated()  # asked once: it may be so at any moment
            saving = leaving or stops.saves(settings, step)
            if saving or stops.is_due(settings, step, settings.log_every_steps):
                values |= {
                    "learning_rate": float(self._learning_rate(step - 1)),
                    "skipped_updates": progress.skipped,
                }
                log.training(step, values, updates=updates, seconds=seconds)
                sums, calls, is_first = 0.0, [], False
            elif len(calls) > 1 or not is_first:
                log.live(step, values, updates=updates, seconds=seconds)
            if held_out and stops.is_due(settings, step, settings.eval_every_steps):
                log.evaluation(step, held_out())
                stopping = enough()
            if (saving or stopping) and chief:
                log.say(f"saved {self.save(folder)}")
            if leaving:
                log.say("terminated; the same command continues the run")
                raise SystemExit(stops.TERMINATED)

    def _warn_of_steps(self, log):
        for step in self.settings.keep_checkpoints_at:
            if step > self.settings.num_train_steps:
                log.say(
                    f"warning: no checkpoint is kept at step {step}, after the last"
                )

    def run_updates(self, batches, count):
        """Advances variables and progress; returns the sums of the updates."""
        progress, settings = self.progress, self.settings
        keeps_less = "" if settings.recompute else ", --recompute keeps less"
        with capacity.advising(
            f"an update of --train_batch_size={settings.batch_size}",
            f"--gradient_accumulation_steps={2 * settings.accumulation_steps} computes "
            f"the same update from smaller parts{keeps_less}; or lower the batch",
        ):
            sums, done, skipped, in_a_row = self._updates(
                batches,
                tf.constant(progress.step, tf.int64),
                tf.constant(count, tf.int64),
                tf.constant(progress.skipped_in_a_row, tf.int64),
            )
            sums = sums.numpy()  # waits for the devices
        progress.step += int(done)
        progress.skipped += int(skipped)
        progress.skipped_in_a_row = int(in_a_row)
        if progress.skipped_in_a_row >= self.settings.max_skipped_updates:
            raise NotFiniteError(
                progress.step - progress.skipped_in_a_row, progress.skipped_in_a_row
            )
        return sums


# --- What a step returns: sums over replicas, micro-batches and updates ------------------


def sum_names(objective) -> tuple:
    """Its losses, metrics and counts, in the order of their sums."""
    names = (*objective.loss_weights, *objective.metric_names)
    return (*names, *range(objective.summary.num_counts if objective.summary else 0))


def _sums(objective, pairs, batch, outputs):
    """float32 [names, 2]: sum and weight of each.

    Args:
        pairs: what `objective.losses` returned.
    """
    pairs = pairs | objective.metrics(batch, outputs)
    names = (name for name in sum_names(objective) if name in pairs)
    sums = tf.reshape([tf.stack(pairs[name]) for name in names], [-1, 2])
    if not (objective.summary and objective.summary.counts):
        return sums
    return tf.concat([sums, objective.summary.counts(batch, outputs)], axis=0)


def means(objective, sums) -> dict[str, float]:
    """Turns sums and weights into means; the loss to minimize is their weighted sum.

    Args:
        sums: [names, 2], with one more row for the gradient norm if there is one. All 0
            if every update was skipped, which gives no means.
    """
    if not sums.any():
        return {}
    names, summary = sum_names(objective), objective.summary
    pairs = dict(zip((*names, "gradient_norm"), sums.astype("float64"), strict=False))
    counts = [pairs.pop(name) for name in names if isinstance(name, int)]
    values = {name: float(losses.mean(*pair)) for name, pair in pairs.items()}
    weights = objective.loss_weights.items()
    loss = sum(factor * values[name] for name, factor in weights)
    return {
        "loss": loss,
        **values,
        **(summary.compute(values, counts) if summary else {}),
    }


# --- What each row of an update hands to the same row of the next -----------------------


def _row_state(objective, model, batch_size: int) -> dict[str, keras.Variable]:
    """Variables float32 [batch_size, *shape] by name, at first zeros.

    They are in the checkpoints, so that a resumed run continues with them.
    """
    shapes = objective.state.shapes(model.encoder.config) if objective.state else {}
    with layers.name_scopes("training"):
        return {
            name: keras.Variable(
                "zeros", (batch_size, *shape), "float32", trainable=False, name=name
            )
            for name, shape in shapes.items()
        }


def _with_parts(wholes: Sequence, number, parts: Sequence) -> list:
    """Puts the part of a micro-batch, [rows, ...], into each [micro-batches, rows, ...]."""
    return [
        tf.tensor_scatter_nd_update(whole, [[number]], part[tf.newaxis])
        for whole, part in zip(wholes, parts, strict=True)
    ]
