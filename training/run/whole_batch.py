"""Gradients of losses that compare each row with all rows of an update.

Where replicas or micro-batches share an update, the network reads its rows twice, a
micro-batch at a time. First for the outputs of all rows, from which each replica computes
the losses of the whole batch and their gradients by these outputs; nothing else of the
first pass is kept. Then again, with the same dropout, to pass each row's gradient on to the
weights. So the memory is that of one micro-batch, and the gradients are those of one batch.

Source: Gao et al., arXiv:2101.06983, section 3.
"""

from collections.abc import Callable

from training.backend import tf
from training.run import distribution
from modeling import custom_gradients, layers, losses

_SEQUENCES = ("input_ids", "input_mask", "segment_ids")
_as_written = tf.autograph.experimental.do_not_convert


class WholeBatch:
    """Computes gradients on one replica, with those of the others.

    Args:
        model: the network.
        objective: its losses read outputs, and of a batch whatever is not a sequence.
        settings: the `LoopSettings`.
        compiling: makes the context in which to trace the network.
        sums_of: (losses, batch, outputs) -> float32 [names, 2].
    """

    def __init__(
        self, model, objective, settings, compiling: Callable, sums_of: Callable
    ):
        self.model, self.objective, self.settings = model, objective, settings
        self._compiling, self._sums_of = compiling, sums_of
        xla = settings.xla
        self._outputs = tf.function(self._outputs, jit_compile=xla)
        self._losses = tf.function(self._losses, jit_compile=xla, autograph=False)
        self._backward = tf.function(self._backward, jit_compile=xla)

    @_as_written
    def gradients(self, batch, weights, seeds):
        """Gradients of this replica's rows; and sums, to be added over replicas.

        Args:
            batch: the rows of this replica.
            weights: of the losses, over all replicas.
            seeds: [micro-batches, 2].
        """
        outputs = self._outputs(batch, seeds)
        others = {k: x for k, x in batch.items() if k not in _SEQUENCES}
        rows = batch["input_ids"].shape[0]
        others.setdefault("is_real_example", tf.ones([rows]))
        by_output, sums = self._losses(_of_all(others), _of_all(outputs), weights)
        context = tf.distribute.get_replica_context()
        first = context.replica_id_in_sync_group * rows
        own = {name: x[first : first + rows] for name, x in by_output.items()}
        gradients = self._backward(batch, own, seeds)
        return gradients, sums / context.num_replicas_in_sync

    def _losses(self, batch, outputs, weights):
        """The gradients of all losses by the outputs; and the sums."""
        with self._compiling(), custom_gradients.use_gradients():
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(outputs)
                pairs = self.objective.losses(batch, outputs)
                loss = sum(
                    factor * losses.mean(pairs[name][0], weights[name])
                    for name, factor in self.objective.loss_weights.items()
                )
            by_output = tape.gradient(
                loss, outputs, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            return by_output, self._sums_of(pairs, batch, outputs)

    def _read(self, rows, seed):
        with self._compiling():
            dropouts = layers.Dropouts(seed, self.settings.recompute)
            return self.model(rows, dropouts=dropouts)

    def _outputs(self, batch, seeds):
        """The outputs of all micro-batches, each [rows, ...]."""
        count, parts = seeds.shape[0], split(batch, seeds.shape[0])
        read = tf.function(self._read, autograph=False).get_concrete_function(
            {k: tf.TensorSpec(x.shape[1:], x.dtype) for k, x in parts.items()},
            tf.TensorSpec(seeds.shape[1:], seeds.dtype),
        )
        wholes = {
            name: tf.zeros([count, *spec.shape], spec.dtype)
            for name, spec in read.structured_outputs.items()
        }
        for i in tf.range(count):
            outputs = read({name: x[i] for name, x in parts.items()}, seeds[i])
            wholes = {
                name: tf.tensor_scatter_nd_update(x, [[i]], outputs[name][tf.newaxis])
                for name, x in wholes.items()
            }
        return {k: tf.reshape(x, [-1, *x.shape[2:]]) for k, x in wholes.items()}

    def _backward(self, batch, by_output, seeds):
        """The gradients of all micro-batches by the weights, added up."""
        count = seeds.shape[0]
        parts, by_output = split(batch, count), split(by_output, count)
        gradients = [tf.zeros(v.shape) for v in self.model.trainable_variables]
        for i in tf.range(count):
            rows = {name: x[i] for name, x in parts.items()}
            upstream = {name: x[i] for name, x in by_output.items()}
            more = self._part_backward(rows, upstream, seeds[i])
            gradients = [a + b for a, b in zip(gradients, more, strict=True)]
        return gradients

    @_as_written
    def _part_backward(self, rows, upstream, seed):
        with self._compiling(), custom_gradients.use_gradients():
            trained = [v.value for v in self.model.trainable_variables]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(trained)
                dropouts = layers.Dropouts(seed, self.settings.recompute)
                outputs = self.model(rows, dropouts=dropouts)
            gradients = tape.gradient(
                [outputs[name] for name in upstream],
                trained,
                output_gradients=list(upstream.values()),
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
        return [tf.convert_to_tensor(g) for g in gradients]


def _of_all(values):
    """The rows of all replicas; their number is as static as that of one's own."""
    replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    gathered = distribution.rows_of_all(values)
    return {
        name: tf.ensure_shape(gathered[name], [replicas * x.shape[0], *x.shape[1:]])
        for name, x in values.items()
    }


def split(batch, count: int) -> dict:
    """A batch, dict of [rows, ...], as `count` parts: [count, rows / count, ...]."""
    return {
        name: tf.reshape(x, [count, x.shape[0] // count, *_shape(x)[1:]])
        for name, x in batch.items()
    }


def _shape(x) -> list:
    """The sizes of a tensor's axes, as Python numbers if they are known in advance."""
    static, dynamic = x.shape.as_list(), tf.shape(x)
    return [dynamic[i] if size is None else size for i, size in enumerate(static)]
