"""The parts that encoders and heads share: dropout, dense layers, norms, weights."""

import contextlib
import contextvars
import copy
import math
import random
from collections.abc import Callable, Iterator

import keras
from keras import ops

from modeling import custom_gradients, fusion, private, row_random

_SITES = 128  # for so many calls, `Dropouts` prepares what they need at once


class Dropouts:
    """The dropouts of one forward pass, which the layers call in turn.

    A mask is determined by the seed and by the number of calls before this one. So a
    resumed run draws the same masks, replicas with different seeds draw different ones,
    and a layer that is used several times draws a new one each time.

    Make it where the pass begins, not in a branch or a loop of the graph.

    Args:
        seed: int tensor [2], a new one for each pass.
        recompute: see `apply_layer`.
    """

    def __init__(self, seed, recompute: bool = False):
        self._seed = seed
        self._recompute = recompute
        self._num_calls = 0
        # One at a time, they would be most of the operations of a dropout.
        self._states = row_random.states(seed, range(_SITES))

    def __call__(self, x, rate: float):
        """Zeroes each number of x with probability `rate` and scales up the others.

        Args:
            x: float tensor of any shape.
        Returns:
            tensor like x.
        """
        return fused_dropout(x, rate, *self.key(rate))

    def key(self, rate: float) -> tuple:
        """Counts as a call; for `dropout` inside one that `fusion.fuse` decorates."""
        site = self._num_calls
        self._num_calls += 1  # even at a rate of 0, so that later masks do not change
        if not rate:
            return ()
        if site < _SITES:
            return self._states[site]
        return row_random.states(self._seed, [site])[0]

    def apply_layer(self, layer: Callable, *tensors, **inputs):
        """Calls layer(*tensors, dropouts=..., **inputs).

        With `recompute`, nothing inside the layer is kept for the gradients: they compute
        it again, with the same masks. Then `inputs` get no gradients.
        """
        if not self._recompute:
            return layer(*tensors, dropouts=self, **inputs)
        begin, ends = self._num_calls, []
        written_out = custom_gradients.are_written_out()

        def run(*tensors):
            inner = copy.copy(self)
            inner._recompute, inner._num_calls = False, begin
            with custom_gradients.use_gradients(written_out):
                result = layer(*tensors, dropouts=inner, **inputs)
            ends.append(inner._num_calls)
            return result

        result = keras.remat(run)(*tensors)
        self._num_calls = ends[0]
        return result


class _NoDropout:
    """Replaces `Dropouts` outside training."""

    def __call__(self, x, rate: float):
        return x

    def key(self, rate: float) -> tuple:
        return ()


no_dropout = _NoDropout()


def apply_layer(layer: Callable, *tensors, dropouts, **inputs):
    """Like `Dropouts.apply_layer`, which only training has."""
    if dropouts is no_dropout:
        return layer(*tensors, **inputs)
    return dropouts.apply_layer(layer, *tensors, **inputs)


def dropout(x, rate: float, *key):
    """x after a dropout; see `Dropouts.key`."""
    if not key:
        return x
    words = row_random.words(key, ops.shape(x))
    scale = ops.cast(1.0 / (1.0 - rate), x.dtype)
    return ops.where(row_random.below(words, rate), ops.zeros((), x.dtype), x * scale)


fused_dropout = fusion.fuse(dropout)


class Dense(keras.layers.Dense):
    """Keras's with a name; adds its bias and applies its activation in one pass.

    Every matrix that inputs are multiplied by is the kernel of one, so that `adapt` reaches
    it. A subclass may store it in another shape: see `kernel_shape`.

    Args:
        use_bias: whether it has one.
        names: of the variables, in the scope around the layer; by default "kernel" and
            "bias", in the layer's own.
    """

    def __init__(
        self,
        units: int,
        initializer,
        dtype: str,
        activation=None,
        name: str = "dense",
        *,
        use_bias: bool = True,
        names: tuple[str, ...] | None = None,
    ):
        super().__init__(
            units,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=initializer,
            dtype=dtype,
            name=name,
        )
        self._names = names

    def build(self, input_shape):
        names = self._names or ("kernel", "bias")
        shape = self.kernel_shape(input_shape[-1])
        # Not add_weight, which would return to the layer's own scope.
        with scope_around(self) if self._names else contextlib.nullcontext():
            self._kernel = keras.Variable(self.kernel_initializer, shape, name=names[0])
            self.bias = None
            if self.use_bias:
                self.bias = keras.Variable("zeros", (self.units,), name=names[1])
        self.built = True

    def kernel_shape(self, num_inputs: int) -> tuple[int, ...]:
        """What is stored; in a matrix of two axes, all but the first are one."""
        return num_inputs, self.units

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """That of `kernel`: [in, out], unless a subclass stores it otherwise."""
        rows, *columns = self._kernel.shape
        return rows, math.prod(columns)

    @property
    def kernel_path(self) -> str:
        """The name of what is stored."""
        return self._kernel.path

    @property
    def kernel(self):
        """The matrix, with what adapters add."""
        if not self.lora_enabled:
            return self._matrix
        change = ops.matmul(self.lora_kernel_a, self.lora_kernel_b)
        return self._matrix + self.lora_alpha / self.lora_rank * change

    @property
    def _matrix(self):
        """Without adapters."""
        if len(self._kernel.shape) == 2:
            return self._kernel
        return ops.reshape(self._kernel, self.matrix_shape)

    def adapt(self, rank: int, alpha: float, seed: int) -> None:
        """Freezes the kernel and adds variables, whose product changes it: LoRA.

        lora_kernel_a [in, rank] is drawn as torch draws a Linear, up to 1 / sqrt(in);
        lora_kernel_b [rank, out] begins at zero.

        Args:
            rank: of the product.
            alpha: its factor, times the rank.
            seed: of the draw.
        """
        self.enable_lora(rank, alpha, a_initializer=linear_uniform("fan_in", seed))

    def product(self, x):
        """Without the activation and the bias, which what follows adds by `add_bias`."""
        if self.bias is None:
            return self._times_kernel(x)

        # The gradient of the bias, because a compiler is slow to add up rows.
        @custom_gradients.with_gradient
        def with_gradient_of_bias(product, bias):
            def gradient(upstream):
                return upstream, ops.cast(sum_of_rows(upstream), bias.dtype)

            return ops.copy(product), gradient

        return with_gradient_of_bias(self._times_kernel(x), ops.copy(self.bias))

    def _times_kernel(self, x):
        if not self.lora_enabled:
            return self.times(x, self._matrix)
        # Not x times their sum, in which bfloat16 would lose what is learned.
        low = self.times(x, self.lora_kernel_a, self.lora_kernel_b)
        return self.times(x, self._matrix) + self.lora_alpha / self.lora_rank * low

    def times(self, x, *matrices):
        """x times a product of matrices that is shaped like the kernel."""
        for matrix in matrices:
            x = ops.matmul(x, ops.cast(matrix, x.dtype))
        return x

    def call(self, x):
        if self.bias is None:
            return self.activation(self.product(x))

        def activate(product, bias):
            return _activate(product, bias, self.activation)

        return fusion.recompute(activate, self.product(x), ops.copy(self.bias))

    def add_to(self, residual, x, dropouts, rate: float):
        """residual + the dropout of what the layer makes of x, without an activation."""
        key = dropouts.key(rate)
        return _drop_and_add(self.product(x), self.bias, residual, rate, *key)

    def _get_kernel_with_merged_lora(self):
        """What Keras's formats store."""
        return ops.reshape(self.kernel, self._kernel.shape), None, None


def linear_uniform(inputs: str, seed: int) -> keras.initializers.Initializer:
    """Draws as torch does for a Linear: up to 1 / sqrt of the number of inputs.

    Args:
        inputs: which axis is theirs: "fan_in", the first, or "fan_out", the last.
    """
    return keras.initializers.VarianceScaling(1 / 3, inputs, "uniform", seed=seed)


def add_bias(product, bias):
    """Adds the bias to a `Dense.product`; None is none."""
    if bias is None:
        return product
    bias = ops.copy(bias)
    if custom_gradients.are_written_out():  # by the product
        bias = ops.stop_gradient(bias)
    return ops.add(product, bias)


@fusion.fuse
def _drop_and_add(x, bias, residual, rate, *key):
    return dropout(add_bias(x, bias), rate, *key) + residual


@fusion.fuse
def _activate(x, bias, function):
    return function(add_bias(x, bias))


def sum_of_rows(x):
    """[..., n] -> [n], in the type of x; one at a time, a product is faster than a sum."""
    if fusion.is_whole_program():
        wide = ops.cast(ops.reshape(x, (-1, x.shape[-1])), "float32")
        return ops.cast(ops.sum(wide, axis=0), x.dtype)
    rows = ops.reshape(x, (-1, x.shape[-1]))
    ones = ops.ones((1, ops.shape(rows)[0]), x.dtype)
    return ops.reshape(ops.matmul(ones, rows), (-1,))


def activation(name: str) -> Callable:
    """Returns the function that the key hidden_act of a config names.

    Source: google-research/bert@eedf571 modeling.py, gelu and get_activation.
    """
    return {
        "gelu": gelu_tanh,
        "gelu_erf": gelu_erf,
        "relu": ops.relu,
        "tanh": ops.tanh,
        "linear": keras.activations.linear,
    }[name]


# Both GELUs are x times a distribution function. Their gradients are written out, because
# automatic ones take a quarter of a training step on a CPU, where nothing compiles them.
# They compute in float32, which is more accurate than bfloat16 and faster there.


@custom_gradients.with_gradient
def gelu_tanh(x):
    """x times an approximation, by tanh, of the normal distribution function."""
    wide = ops.cast(x, "float32")
    square = wide * wide
    # (1 + tanh(u)) / 2 is sigmoid(2 u), which keeps its precision if x is negative.
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    cdf = ops.sigmoid(wide * (scale + (0.044715 * scale) * square))

    def gradient(upstream):
        density = cdf * (1.0 - cdf) * (scale + (3.0 * 0.044715 * scale) * square)
        return upstream * ops.cast(cdf + wide * density, x.dtype)

    return ops.cast(wide * cdf, x.dtype), gradient


@custom_gradients.with_gradient
def gelu_erf(x):
    """x times the normal distribution function, by erf."""
    wide = ops.cast(x, "float32")
    twice_cdf = 1.0 + ops.erf(wide * math.sqrt(0.5))

    def gradient(upstream):
        density = ops.exp(-0.5 * wide * wide) * (1.0 / math.sqrt(2.0 * math.pi))
        return upstream * ops.cast(0.5 * twice_cdf + wide * density, x.dtype)

    # In this order, so that LiteRT, which has no erf, recognizes its own GELU.
    return ops.cast((wide * 0.5) * twice_cdf, x.dtype), gradient


class LayerNorm(keras.layers.LayerNormalization):
    """Layer normalization over the last axis, with the release's name.

    Computes in float32.

    Args:
        epsilon: what is added to the variance.
        center: whether it adds a beta to what gamma scales.
    """

    def __init__(
        self, epsilon: float, dtype: str, name: str = "LayerNorm", center: bool = True
    ):
        super().__init__(epsilon=epsilon, dtype=dtype, name=name, center=center)

    def call(self, inputs):
        # Written out, because a compiler is slow to add up rows.
        @custom_gradients.with_gradient
        def normalize(x, gamma, *beta):
            result, mean, inverse = _normalize(x, self.epsilon, gamma, *beta)

            def gradient(upstream):
                of_x, of_gamma = _normalize_gradient(x, gamma, mean, inverse, upstream)
                of_beta = [sum_of_rows(ops.cast(upstream, "float32")) for _ in beta]
                return of_x, sum_of_rows(of_gamma), *of_beta

            return result, gradient

        beta = [ops.copy(self.beta)] if self.center else []
        return normalize(inputs, ops.copy(self.gamma), *beta)


@fusion.fuse
def _normalize(x, epsilon, gamma, *beta):
    """Also returns the mean and the inverse of the deviation of each row."""
    wide = ops.cast(x, "float32")
    mean = ops.mean(wide, axis=-1, keepdims=True)
    centered = wide - mean
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    inverse = ops.rsqrt(variance + epsilon)
    scaled = centered * inverse * gamma
    for shift in beta:  # one, or none
        scaled = scaled + shift
    return ops.cast(scaled, x.dtype), mean, inverse


@fusion.fuse
def _normalize_gradient(x, gamma, mean, inverse, upstream):
    """By x; and by gamma, before the sum over all rows."""
    normal = (ops.cast(x, "float32") - mean) * inverse
    upstream = ops.cast(upstream, "float32")
    of_normal = upstream * gamma
    shift = ops.mean(of_normal, axis=-1, keepdims=True)
    slope = ops.mean(of_normal * normal, axis=-1, keepdims=True)
    of_x = inverse * (of_normal - shift - normal * slope)
    return ops.cast(of_x, x.dtype), upstream * normal


@custom_gradients.with_gradient
def add_wide(x, bias):
    """[..., n] + [n] -> float32 [..., n]"""

    def gradient(upstream):
        return ops.cast(upstream, x.dtype), sum_of_rows(upstream)

    return _add_wide(x, bias), gradient


@fusion.fuse
def _add_wide(x, bias):
    return ops.cast(x, "float32") + bias


def last_token(hidden, input_mask=None):
    """The vectors of the last token of each row.

    Args:
        hidden: tensor [b, s, h].
        input_mask: int [b, s], 0 for padding, on either side of the tokens.
    Returns:
        float32 [b, h]; those of the first position for a row without tokens.
    """
    if input_mask is None:
        return ops.cast(hidden[:, -1], "float32")
    places = ops.arange(ops.shape(hidden)[1], dtype="int32")[None]
    of_tokens = ops.where(input_mask > 0, places, 0)
    is_last = places == ops.max(of_tokens, axis=1, keepdims=True)
    # A product, because the gradient of a lookup would scatter.
    weights = ops.cast(is_last, "float32")[:, None]
    return ops.matmul(weights, ops.cast(hidden, "float32"))[:, 0]


def mean_of_tokens(hidden, input_mask=None):
    """The mean of the vectors of each row's tokens.

    Args:
        hidden: tensor [b, s, h].
        input_mask: int [b, s], 0 for padding.
    Returns:
        float32 [b, h]; zeros for a row without tokens.
    """
    if input_mask is None:
        input_mask = ops.ones(ops.shape(hidden)[:2], "int32")
    lengths = ops.maximum(ops.sum(input_mask, axis=1, keepdims=True), 1)
    weights = ops.cast(input_mask, "float32") / ops.cast(lengths, "float32")
    return ops.matmul(weights[:, None], ops.cast(hidden, "float32"))[:, 0]


_change: contextvars.ContextVar[tuple] = contextvars.ContextVar(
    "change", default=(None, None)
)


@contextlib.contextmanager
def change_vectors(table, change: Callable) -> Iterator[None]:
    """Inside, what `look_up` finds in this table is change(vectors [..., width])."""
    token = _change.set((table, change))
    try:
        yield
    finally:
        _change.reset(token)


def look_up(table, ids):
    """The rows of a table [n, width] with these ids: [...] -> [..., width]."""
    vectors = ops.take(_dense(table), ids, axis=0)
    changed, change = _change.get()
    return change(vectors) if table is changed else vectors


def _dense(table):
    """Makes the gradient of a lookup in `table` a tensor as large as the table.

    TensorFlow would return sparse slices, which replicas cannot add or clip.
    """
    return ops.reshape(table, table.shape)


def weight_initializers(
    initializer_range: float, seed: str, truncated: bool = True
) -> Iterator[keras.initializers.Initializer]:
    """Yields initializers, each with its own seed.

    They draw from a normal distribution with this standard deviation, by default truncated
    at two deviations. Keras repeats the numbers of an initializer that is used twice, so
    every variable takes the `next` one.
    """
    initializers = keras.initializers
    draw = initializers.TruncatedNormal if truncated else initializers.RandomNormal
    seeds = random.Random(seed)
    while True:
        yield draw(stddev=initializer_range, seed=seeds.getrandbits(31))


def glorot_uniform(initializers: Iterator) -> keras.initializers.Initializer:
    """Takes the `next` initializer and draws from Glorot's uniform distribution instead.

    It is TensorFlow 1's default for dense layers, which ELECTRA leaves in some places.
    """
    return keras.initializers.GlorotUniform(seed=next(initializers).seed)


@contextlib.contextmanager
def name_scopes(path: str) -> Iterator[None]:
    """Variables made inside have names that begin with this path, which may be empty."""
    with contextlib.ExitStack() as stack:
        for scope in filter(None, path.split("/")):
            stack.enter_context(keras.name_scope(scope))
        yield


def scope_around(layer: keras.layers.Layer):
    """Variables that a layer's `build` makes inside have names without its own."""
    *above, last = layer.path.split("/")[:-1]
    return keras.name_scope(last, override_parent="/".join(above))


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Variables that are made inside have shapes, but no values and no memory.

    Keras would give them values when it next left a scope that gives its variables some,
    as on any symbolic call.
    """
    pending = private.uninitialized_variables()
    number = len(pending)
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        del pending[number:]
