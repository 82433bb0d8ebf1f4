"""LSTMs whose outputs are projected, with clipped cells: the two directions of ELMo.

Axes: s steps, d directions (2), b batch, c cells, p projection.
"""

import random

import keras
from keras import ops

from modeling import custom_gradients, layers

DIRECTIONS = ("forward", "backward")


class ProjectedLstms(keras.layers.Layer):
    """A layer of two LSTMs, one for each direction; both take a step at a time together.

    Each has a kernel [p + p, 4 c], whose first rows are for the inputs and whose gates
    are in the order i, j (the new values), f, o; a bias [4 c]; and a projection [c, p]. 1
    is added to f at run time.

    Cells and gates are float32 under every dtype; products are in the dtype.

    Args:
        size: cells in each direction.
        width: of the inputs and of the projection, p.
        cell_clip: the cells' largest absolute value; None for no limit.
        projection_clip: the projections' largest absolute value, likewise.
        adds_inputs: add the inputs to the outputs.
        seed: the same seed gives the same initial weights.
    Source: tensorflow/tensorflow v1.15.5 rnn_cell_impl.py, LSTMCell, as it is called in
    allenai/bilm-tf@7cffee2 bilm/model.py and bilm/training.py.
    """

    def __init__(
        self, size, width, *, cell_clip, projection_clip, adds_inputs, seed, dtype, name
    ):
        super().__init__(name=name, dtype=dtype, autocast=False)
        self.size, self.width = size, width
        self.cell_clip, self.projection_clip = cell_clip, projection_clip
        self.adds_inputs = adds_inputs
        self._seeds = random.Random(seed)
        self.build()

    def build(self, input_shape=None):
        self._gates, self._projections = [], []
        for direction in DIRECTIONS:
            names = f"{direction}_kernel", f"{direction}_bias"
            self._gates.append(self._dense(2 * self.width, 4 * self.size, *names))
            self._seeds.getrandbits(31)  # a bias once had one, too
            names = (f"{direction}_projection",)
            self._projections.append(self._dense(self.size, self.width, *names))
        self.built = True

    def _dense(self, num_inputs, units, *names):
        glorot = keras.initializers.GlorotUniform(self._seeds.getrandbits(31))
        layer = layers.Dense(
            *(units, glorot, self.dtype_policy),
            name=names[0],
            use_bias=len(names) == 2,
            names=names,
        )
        layer.build((None, num_inputs))
        return layer

    def initial_state(self, batch_size) -> tuple:
        """Zeros: the outputs [d, b, p] and cells [d, b, c] before the first step."""
        shapes = ((2, batch_size, width) for width in (self.width, self.size))
        return tuple(ops.zeros(shape, "float32") for shape in shapes)

    def call(self, inputs, is_token, state, dropouts=None):
        """Reads rows.

        Args:
            inputs: [s, d, b, p]; those of the backward direction in the order in which
                it reads them.
            is_token: float32 [s, d, b, 1], in the same order; where it is 0, the state
                remains what it was.
            state: see `initial_state`.
        Returns:
            outputs [s, d, b, p], in the dtype; the state after the last step.
        """
        del dropouts  # of inputs and outputs; see the encoder
        kernels = self._stack(layer.kernel for layer in self._gates)
        of_inputs, of_outputs = kernels[:, : self.width], kernels[:, self.width :]
        gates = ops.cast(ops.matmul(inputs, of_inputs), "float32")
        gates += ops.stack([ops.copy(layer.bias) for layer in self._gates])[:, None]
        run = custom_gradients.with_gradient(self._run(is_token))
        projections = self._stack(layer.kernel for layer in self._projections)
        outputs, cells = run(gates, of_outputs, projections, *state)
        state = outputs[-1], cells[-1]
        outputs = ops.cast(outputs, self.compute_dtype)
        return (outputs + inputs if self.adds_inputs else outputs), state

    def _stack(self, variables):
        return ops.cast(ops.stack([ops.copy(v) for v in variables]), self.compute_dtype)

    def _run(self, is_token):
        """The function for `custom_gradients.with_gradient`.

        It maps gates [s, d, b, 4 c], of the inputs alone, of_outputs [d, p, 4 c],
        projections [d, c, p] and a state to outputs [s, d, b, p] and cells [s, d, b, c].
        """

        def function(gates, of_outputs, projections, output, cell):
            def step(state, inputs):
                output, cell = state[:2]
                gates, is_token = inputs[..., :-1], inputs[..., -1:]
                gates = gates + _product(output, of_outputs)
                i, j, f, o = _activate_gates(gates)
                new_cell = _clip(f * cell + i * j, self.cell_clip)
                new_output = _product(o * ops.tanh(new_cell), projections)
                new_output = _clip(new_output, self.projection_clip)
                # Exactly these values: the gradient looks for those at the limits.
                state = (
                    ops.where(is_token > 0, new_output, output),
                    ops.where(is_token > 0, new_cell, cell),
                    gates,
                )
                return state, state

            begin = (output, cell, ops.zeros_like(gates[0]))
            # As one tensor: of several, TensorFlow's scan needs to know the length.
            inputs = ops.concatenate([gates, is_token], axis=-1)
            _, results = ops.scan(step, begin, inputs)
            outputs, cells, summed = results

            def gradient(*upstream):
                # One for each result; JAX passes them as one tuple.
                upstream = upstream if len(upstream) == 2 else upstream[0]
                return self._gradient(
                    *(is_token, of_outputs, projections),
                    ops.concatenate([output[None], outputs]),
                    ops.concatenate([cell[None], cells]),
                    *(summed, *upstream),
                )

            return (outputs, cells), gradient

        return function

    def _gradient(
        self,
        is_token,
        of_outputs,
        projections,
        outputs,
        cells,
        gates,
        of_new_outputs,
        of_new_cells,
    ):
        """By what `_run`'s function takes.

        Only what depends on the step after is computed step by step. The gradients of
        the weights are one product over all steps, which is why this is written out.

        Args:
            outputs, cells: with the state before the first step, [s + 1, ...].
            gates: with the part of the outputs.
            of_new_outputs, of_new_cells: upstream.
        """
        slopes, hidden = self._slopes(is_token, outputs, cells, gates)
        reversed_weights = [ops.swapaxes(w, 1, 2) for w in (of_outputs, projections)]

        inputs = (of_new_outputs, of_new_cells, *slopes, is_token)

        def step(state, number):
            of_output, of_cell = state[:2]
            now = (ops.take(x, number, axis=0) for x in inputs)
            more_output, more_cell, inside, by_cell, by_output, *others = now
            through, is_open, f, is_token = others
            of_output, of_cell = of_output + more_output, of_cell + more_cell
            of_projection = of_output * is_open
            of_hidden = _product(of_projection, reversed_weights[1])
            of_raw = (of_cell + of_hidden * through) * inside
            of_i, of_j, of_f = ops.unstack(of_raw * by_cell, 3)
            of_o = of_hidden * by_output
            of_gates = ops.concatenate([of_i, of_j, of_f, of_o], axis=-1)
            state = (
                _product(of_gates, reversed_weights[0]) + of_output * (1 - is_token),
                of_raw * f + of_cell * (1 - is_token),
                of_gates,
                of_projection,
            )
            return state, state

        # Not the inputs: of several, TensorFlow's scan needs to know the length.
        steps = ops.arange(ops.shape(gates)[0])
        begin = (*(ops.zeros_like(x[0]) for x in (outputs, cells, gates, outputs)),)
        (of_output, of_cell, *_), results = ops.scan(step, begin, steps, reverse=True)
        of_gates, of_projection = results[2:]
        return (
            of_gates,
            _sum_of_products(outputs[:-1], of_gates, of_outputs.dtype),
            _sum_of_products(hidden, of_projection, projections.dtype),
            of_output,
            of_cell,
        )

    def _slopes(self, is_token, outputs, cells, gates):
        """What gradients are multiplied by in each step; and [s, d, b, c], projected.

        Args: as for `_gradient`.
        """
        i, j, f, o = _activate_gates(gates)
        earlier, later = cells[:-1], cells[1:]
        squashed = ops.tanh(later)
        # The gradients of the cell and of o * tanh(cell).
        by_cell = ops.stack(
            [j * i * (1 - i), i * (1 - j * j), earlier * f * (1 - f)], axis=1
        )
        slopes = (
            _inside(later, self.cell_clip) * is_token,
            by_cell,
            squashed * o * (1 - o),
            o * (1 - squashed * squashed),
            _inside(outputs[1:], self.projection_clip) * is_token,
            f,
        )
        return slopes, o * squashed


def _activate_gates(gates):
    """[..., 4 c] -> i, j, f, o, each [..., c]"""
    i, j, f, o = ops.split(gates, 4, axis=-1)
    # Forgetting begins late: the released biases are near 0.
    return ops.sigmoid(i), ops.tanh(j), ops.sigmoid(f + 1.0), ops.sigmoid(o)


def _product(x, weights):
    """float32, of factors in the type of the weights."""
    return ops.cast(ops.matmul(ops.cast(x, weights.dtype), weights), "float32")


def _sum_of_products(x, y, dtype):
    """[s, d, b, n], [s, d, b, m] -> [d, n, m]"""

    def rows(x):
        x = ops.cast(ops.swapaxes(x, 0, 1), dtype)
        return ops.reshape(x, (2, -1, x.shape[-1]))

    return ops.matmul(ops.swapaxes(rows(x), 1, 2), rows(y))


def _clip(x, limit):
    return x if limit is None else ops.clip(x, -limit, limit)


def _inside(x, limit):
    """float32: 1 where `_clip` changed nothing."""
    return ops.cast(ops.abs(x) < (float("inf") if limit is None else limit), "float32")
