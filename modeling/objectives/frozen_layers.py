"""Fine-tuning of the upper layers alone: what is below gets no updates."""

from errors import UserError, setting
from modeling import layers
from modeling.architectures.config import EncoderConfig
from modeling.architectures.network import Network
from modeling.architectures.table import make_encoder
from modeling.objectives.objective import Objective, Wrapped


class FrozenLayers(Wrapped):
    """Freezes the embeddings and the first layers of a task's encoder.

    Their variables are not trainable, so that an optimizer has no slots for them, and
    gradients end above them. Dropout acts in them as in the others. Evaluations and exports
    are the task's.

    Args:
        task: an objective.
        number: of layers, from the bottom; 0 freezes the embeddings alone.
    """

    def __init__(self, task: Objective, number: int):
        super().__init__(task)
        self._number = number

    def check(self, config: EncoderConfig) -> None:
        self.inner.check(config)
        with layers.shapes_only():
            stages = make_encoder(config).stages
        depth = len(stages) - 2
        if self._number > depth:
            raise UserError(
                f"the encoder has {depth} layers, and {setting('freeze_layers')} is "
                f"{self._number}"
            )
        possible = [n for n in range(depth + 1) if _is_possible(stages, n)]
        if self._number not in possible:
            raise UserError(
                f"with {setting('freeze_layers', self._number)}, layers that are trained "
                "would share the weights of frozen ones, or nothing would be frozen; use "
                f"one of {', '.join(map(str, possible))}"
            )

    def network(self, config, *, seed=0, dtype="float32") -> Network:
        made = self.inner.network(config, seed=seed, dtype=dtype)
        for variables in made.encoder.stages[: self._number + 1]:
            for variable in variables:
                variable.trainable = False
        return made


def _is_possible(stages, number):
    """Whether something is frozen, and nothing that a layer above shares."""
    frozen, trained = (
        {variable.path for stage in some for variable in stage}
        for some in (stages[: number + 1], stages[number + 1 :])
    )
    return bool(frozen) and not frozen & trained
