"""T5's objective: predict the tokens of a target text from an input text."""

import copy
import math

from keras import ops

from modeling.architectures.t5_decoder import TextToTextModel, target_weights
from modeling.objectives.objective import Objective


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
    reads_masks = False
    answers = "text"
    fits_masked_records = False

    metric_names = ("target_accuracy", "z_loss")
    _is_measured = False

    @property
    def measured(self) -> Objective:
        """The same without the penalty."""
        if self._is_measured:
            return self
        found = copy.copy(self)
        found._is_measured, found.metric_names = True, ("target_accuracy",)
        return found

    def check(self, config) -> None:
        if not config.has_decoder:
            raise ValueError(
                'only an encoder with a decoder writes text; set "architecture": "t5"'
            )

    def network(self, config, *, seed=0, dtype="float32") -> TextToTextModel:
        return TextToTextModel(config, seed=seed, dtype=dtype)

    def weights(self, batch) -> dict:
        return {"target_loss": ops.sum(target_weights(batch))}

    def losses(self, batch, outputs) -> dict:
        loss = outputs["target_loss"]
        if self._is_measured:
            loss -= outputs["z_loss"]
        return {"target_loss": (loss, ops.sum(target_weights(batch)))}

    def metrics(self, batch, outputs) -> dict:
        number = ops.sum(target_weights(batch))
        found = {"target_accuracy": (outputs["target_correct"], number)}
        if not self._is_measured:
            found["z_loss"] = (outputs["z_loss"], number)
        return found

    def derived(self, values, counts=()) -> dict:
        del counts
        entropy = values["target_loss"] - values.get("z_loss", 0.0)
        return {"perplexity": math.exp(min(entropy, 700.0))}
