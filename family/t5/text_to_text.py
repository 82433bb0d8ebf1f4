"""T5's objective: predict the tokens of a target text from an input text."""

from keras import ops

from errors import UserError
from family.t5.decoder import TextToTextModel, target_weights
from modeling.objectives.objective import (
    Exporter,
    Objective,
    Summary,
    Wrapped,
    perplexity,
)


def _perplexity(values, counts):
    del counts
    return {"perplexity": perplexity(values["target_loss"] - values.get("z_loss", 0.0))}


class TextToText(Objective):
    """Every token of the targets, from the inputs and the targets before it.

    A batch contains input_ids, input_mask [b, s], target_ids and target_mask [b, t],
    int32, and optionally is_real_example [b].

    Losses are means over real targets, as in Hugging Face's class; the release divides by
    the places of a batch, padding included. In training, the loss includes a small penalty
    on large logits, `z_loss`, as in the release.

    Source: tensorflow/mesh@da90793 mesh_tensorflow/transformer/transformer.py,
        class Unitransformer.
    """

    loss_weights = {"target_loss": 1.0}
    metric_names = ("target_accuracy", "z_loss")
    exporter = Exporter("text")
    summary = Summary(_perplexity)

    @property
    def for_evaluation(self) -> Objective:
        return WithoutPenalty(self)

    def check(self, config) -> None:
        if "decoder" not in config.capabilities:
            raise UserError(
                'only an encoder with a decoder writes text; set "architecture": "t5"'
            )

    def network(self, config, *, seed=0, dtype="float32") -> TextToTextModel:
        return TextToTextModel(config, seed=seed, dtype=dtype)

    def weights(self, batch) -> dict:
        return {"target_loss": ops.sum(target_weights(batch))}

    def losses(self, batch, outputs) -> dict:
        return {"target_loss": (outputs["target_loss"], ops.sum(target_weights(batch)))}

    def metrics(self, batch, outputs) -> dict:
        number = ops.sum(target_weights(batch))
        return {
            "target_accuracy": (outputs["target_correct"], number),
            "z_loss": (outputs["z_loss"], number),
        }


class WithoutPenalty(Wrapped):
    """Text to text without the penalty on large logits."""

    metric_names = ("target_accuracy",)

    @property
    def for_evaluation(self):
        return self

    def losses(self, batch, outputs) -> dict:
        loss, weight = self.inner.losses(batch, outputs)["target_loss"]
        return {"target_loss": (loss - outputs["z_loss"], weight)}

    def metrics(self, batch, outputs) -> dict:
        task_metrics = self.inner.metrics(batch, outputs)
        return {name: task_metrics[name] for name in self.metric_names}


class Generation(TextToText):
    """Learns the targets; evaluations, predictions and exports write greedily.

    Args:
        max_target_length: the most tokens to write, with the one at the end.
    """

    def __init__(self, max_target_length: int):
        self._length = max_target_length

    @property
    def for_evaluation(self):
        return _Writing(self, self._length)

    def network(self, config, *, seed=0, dtype="float32") -> TextToTextModel:
        return _Learner(config, self._length, seed=seed, dtype=dtype)


class _Writing(WithoutPenalty):
    def __init__(self, inner, length):
        super().__init__(inner)
        self._length = length

    def network(self, config, *, seed=0, dtype="float32") -> TextToTextModel:
        return _Writer(config, self._length, seed=seed, dtype=dtype)


class _Learner(TextToTextModel):
    """Predicts targets and, if asked, writes."""

    def __init__(self, config, length, *, seed, dtype):
        super().__init__(config, seed=seed, dtype=dtype)
        self._length = length

    @property
    def required_variables(self):
        """All: a decoder that knows nothing is no start."""
        return tuple(variable.path for variable in self.weights)

    def predict(self, batch) -> dict:
        """The sums of `outputs_of`, and output_ids, int32 [b, length]."""
        return {**self(batch), "output_ids": self.greedy(batch, self._length)}


class _Writer(_Learner):
    """The same weights for exports."""

    def outputs_of(self, batch, dropouts) -> dict:
        """-> dict of output_ids, int32 [b, length]."""
        del dropouts
        return {"output_ids": self.greedy(batch, self._length)}
