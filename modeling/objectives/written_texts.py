"""Fine-tuning a T5: the tokens of the targets, and in evaluations what it writes itself."""

from modeling import layers
from modeling.architectures.t5_decoder import TextToTextModel
from modeling.objectives.text_to_text import TextToText


class WrittenTexts(TextToText):
    """Learns the targets; evaluations, predictions and exports write greedily.

    Args:
        max_target_length: the most tokens to write, with the one at the end.
    """

    def __init__(self, max_target_length: int):
        self.max_target_length = max_target_length

    def required(self, model):
        """See `Objective`; a decoder that knows nothing is no start."""
        return tuple(variable.path for variable in model.weights)

    def network(self, config, *, seed=0, dtype="float32") -> TextToTextModel:
        if self._is_measured:
            return _Writer(config, self.max_target_length, seed=seed, dtype=dtype)
        return super().network(config, seed=seed, dtype=dtype)

    def answer(self, model, batch) -> dict:
        """The sums of `TextToTextModel.call`, and output_ids; see `greedy`."""
        return {
            **model(batch),
            "output_ids": model.greedy(batch, self.max_target_length),
        }


class _Writer(TextToTextModel):
    """The same weights for exports."""

    def __init__(self, config, max_target_length, *, seed, dtype):
        super().__init__(config, seed=seed, dtype=dtype)
        self._length = max_target_length

    def call(self, batch, dropouts=layers.no_dropout) -> dict:
        """-> dict of output_ids, int32 [b, max_target_length]."""
        del dropouts
        return {"output_ids": self.greedy(batch, self._length)}
