"""LoRA: a frozen encoder, and a small product of two matrices to add to each kernel."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import keras
import numpy as np

from errors import UserError, setting
from modeling import layers, private
from modeling.architectures.config import EncoderConfig
from modeling.architectures.encoder import Encoder
from modeling.architectures.network import Network
from modeling.architectures.table import make_encoder
from modeling.objectives.objective import Objective, Wrapped

TARGETS = ("query", "value")  # the paper's, and Hugging Face peft's for BERT


class LowRank(Wrapped):
    """Trains the head of a task and, of its encoder, low-rank changes of some kernels.

    A kernel W [in, out] becomes W + alpha / rank * A B. A [in, rank] is drawn as in peft, B
    [rank, out] begins at zero; both are variables next to the kernel, called
    lora_kernel_a and lora_kernel_b. Nothing else of the encoder is trained. Evaluations of
    other networks and exports are the task's, for which A B is added to W.

    Args:
        task: an objective.
        rank: of the product.
        alpha: its factor, times the rank.
        targets: how the paths of the dense layers end, such as "query" or "output/dense".
        base: the names of weights that are known; others of the encoder, such as a pooler
            that a checkpoint lacks, are trained. By default, all are known.
    Source: arXiv:2106.09685; `enable_lora` of Keras 3.
    """

    def __init__(
        self,
        task: Objective,
        *,
        rank: int,
        alpha: float,
        targets: Sequence[str],
        base: Collection[str] | None = None,
    ):
        super().__init__(task)
        self._base = base
        self._rank, self._alpha, self._targets = rank, alpha, tuple(targets)

    def check(self, config: EncoderConfig) -> None:
        self.inner.check(config)
        with layers.shapes_only():
            kernels = {d.path: d.kernel.shape for d in _dense(make_encoder(config))}
        if not kernels:
            raise UserError(
                f"the encoder of the architecture {config.architecture!r} has no dense "
                f"layers to adapt; remove {setting('lora_rank')}"
            )
        for target in self._targets:
            chosen = [s for path, s in kernels.items() if _ends(path, (target,))]
            if not chosen:
                names = sorted({path.rpartition("/")[2] for path in kernels})
                raise UserError(
                    f"{setting('lora_targets')} has {target!r}, which no dense layer of "
                    f"the encoder is called; they are called {', '.join(names)}"
                )
            smallest = min(map(min, chosen))
            if self._rank > smallest:
                raise UserError(
                    f"{setting('lora_rank')} is {self._rank}, more than {smallest}, the "
                    f"width of {target}; use a smaller one, such as 8"
                )

    def network(self, config, *, seed=0, dtype="float32") -> Network:
        made = self.inner.network(config, seed=seed, dtype=dtype)
        known = {v.path for v in made.encoder.weights}
        known = known if self._base is None else known.intersection(self._base)
        for variable in made.encoder.weights:
            if variable.path in known:
                variable.trainable = False
        seeds = layers.weight_initializers(1.0, f"low rank {seed}")
        for dense in _dense(made.encoder):
            if _ends(dense.path, self._targets) and dense.kernel.path in known:
                # As torch draws a Linear, up to 1 / sqrt(in).
                draw = keras.initializers.VarianceScaling(
                    1 / 3, "fan_in", "uniform", seed=next(seeds).seed
                )
                with layers.name_scopes(dense.path):
                    dense.enable_lora(self._rank, self._alpha, a_initializer=draw)
        return made


class OnSharedBase:
    """A network with its own adapters and head, whose other weights are shared variables.

    Args:
        make: makes the network, without adapters.
        base: the encoder's weights by path, for any number of networks.
        own: the other weights by path, among them `lora_kernel_a` and `lora_kernel_b`.
        alpha: the factor of the products of these, times their rank.

    Attributes:
        weights: the variables of the network, shared ones and its own.
        ranked_outputs: as of a `Network`.
    """

    def __init__(
        self,
        make: Callable[[], Network],
        base: Mapping[str, keras.Variable],
        own: Mapping[str, np.ndarray],
        alpha: float,
    ):
        # Its variables never have values of their own, which would take memory.
        with layers.shapes_only():
            self._network = make()
            for dense in _dense(self._network.encoder):
                a = own.get(f"{dense.path}/lora_kernel_a")
                if a is not None:
                    with layers.name_scopes(dense.path):
                        dense.enable_lora(a.shape[1], alpha)
        self.ranked_outputs = self._network.ranked_outputs
        self.weights = [
            _variable(v.path, own[v.path]) if v.path in own else base[v.path]
            for v in self._network.weights
        ]

    def __call__(self, batch: Mapping) -> dict:
        pairs = zip(self._network.weights, self.weights, strict=True)
        values = [(variable, weight.value) for variable, weight in pairs]
        with keras.StatelessScope(values, initialize_variables=False):
            return self._network(batch)


def _variable(path: str, value: np.ndarray) -> keras.Variable:
    scope, _, name = path.rpartition("/")
    with layers.name_scopes(scope):
        return keras.Variable(value, name=name)


def shared(base: Mapping[str, np.ndarray]) -> dict[str, keras.Variable]:
    """Variables with the weights of an encoder, for `OnSharedBase`."""
    return {path: _variable(path, value) for path, value in base.items()}


def borrowed(model: Network) -> set[str]:
    """The names of the weights that are the encoder's own, and not trained."""
    return {v.path for v in model.encoder.weights if not v.trainable}


def _dense(encoder: Encoder) -> Iterator[layers.Dense]:
    """Those of the transformer layers."""
    found = private.layers_in(encoder)
    return (layer for layer in found if isinstance(layer, layers.Dense))


def _ends(path, targets):
    return f"/{path}".endswith(tuple(f"/{target}" for target in targets))
