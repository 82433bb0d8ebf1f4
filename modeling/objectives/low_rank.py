"""LoRA: a frozen encoder, and a small product of two matrices to add to each kernel."""

from collections.abc import Collection, Iterator, Sequence

import keras

from errors import UserError, setting
from modeling import layers, private
from modeling.architectures.config import EncoderConfig
from modeling.architectures.network import Network
from modeling.objectives.objective import Objective, Wrapped


class LowRank(Wrapped):
    """Trains the head of a task and, of its backbone, low-rank changes of some kernels.

    A kernel W [in, out] becomes W + alpha / rank * A B. A [in, rank] is drawn as in peft, B
    [rank, out] begins at zero; both are variables below the name of the dense layer, called
    lora_kernel_a and lora_kernel_b. Nothing else of the backbone, such as the encoder and
    decoder of a T5, is trained. Evaluations of other networks and exports are the task's,
    for which A B is added to W.

    Args:
        task: an objective.
        rank: of the product.
        alpha: its factor, times the rank.
        targets: how the paths of the dense layers end, such as "query" or "output/dense".
        base: the names of weights that are known; others of the backbone, such as a pooler
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
            made = self.inner.network(config)
        kernels = {dense.path: dense.matrix_shape for dense in _dense(made)}
        if not kernels:
            raise UserError(
                f"the architecture {config.architecture!r} has no dense "
                f"layers to adapt; remove {setting('lora_rank')}"
            )
        for target in self._targets:
            chosen = [s for path, s in kernels.items() if _ends(path, (target,))]
            if not chosen:
                names = sorted({path.rpartition("/")[2] for path in kernels})
                raise UserError(
                    f"{setting('lora_targets')} has {target!r}, which no dense layer "
                    f"is called; they are called {', '.join(names)}"
                )
            smallest = min(map(min, chosen))
            if self._rank > smallest:
                raise UserError(
                    f"{setting('lora_rank')} is {self._rank}, more than {smallest}, the "
                    f"width of {target}; use a smaller one, such as 8"
                )

    def network(self, config, *, seed=0, dtype="float32") -> Network:
        made = self.inner.network(config, seed=seed, dtype=dtype)
        known = {v.path for v in _weights(made)}
        known = known if self._base is None else known.intersection(self._base)
        for variable in _weights(made):
            if variable.path in known:
                variable.trainable = False
        seeds = layers.weight_initializers(1.0, f"low rank {seed}")
        for dense in _dense(made):
            if _ends(dense.path, self._targets) and dense.kernel_path in known:
                dense.adapt(self._rank, self._alpha, next(seeds).seed)
        return made


def frozen_paths(model: Network) -> set[str]:
    """The names of the weights that are the backbone's own, and not trained."""
    return {v.path for v in _weights(model) if not v.trainable}


def _weights(model: Network) -> Iterator[keras.Variable]:
    return (v for part in model.backbone for v in part.weights)


def _dense(model: Network) -> Iterator[layers.Dense]:
    """Those of the backbone; one that is used several times, once."""
    parts = model.backbone
    unique = dict.fromkeys(layer for part in parts for layer in private.layers_in(part))
    return (layer for layer in unique if isinstance(layer, layers.Dense))


def _ends(path, targets):
    return f"/{path}".endswith(tuple(f"/{target}" for target in targets))
