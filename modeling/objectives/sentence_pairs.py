"""Masked words and a label for two spans: BERT's pre-training.

The label says whether the second span follows the first; a subclass may have another.
"""

import keras
from keras import ops

from modeling import layers
from modeling.objectives.masked_lm import MaskedLM, MaskedLMModel
from modeling.objectives.objective import row_weights


class PretrainingModel(MaskedLMModel):
    """An encoder with the masked-LM and the next-sentence head; see `MaskedLMModel`."""

    sentence_task = "next_sentence"

    def build_heads(self, config, initializers, dtype) -> None:
        self.next_sentence = NextSentenceHead(config, initializers, dtype=dtype)
        self.next_sentence.build()

    def answer(self, encoded, batch, dropouts=layers.no_dropout):
        """Like `MaskedLMModel.answer`, plus next_sentence_logits [b, 2]."""
        outputs = super().answer(encoded, batch, dropouts)
        pooled = self.encoder.pool(outputs, batch.get("input_mask"))
        logits = self.next_sentence(pooled)
        return outputs | {f"{self.sentence_task}_logits": logits}


class NextSentenceHead(keras.layers.Layer):
    """Logits [b, 2]: the second segment follows the first, or it does not."""

    def __init__(self, config, initializers, dtype):
        super().__init__(name="seq_relationship", dtype=dtype)
        self.hidden_size = config.hidden_size
        self.initializer = next(initializers)

    def build(self, input_shape=None):
        # [out, in], unlike a kernel: the release multiplies by the transpose.
        self.output_weights = self.add_weight(
            (2, self.hidden_size), self.initializer, name="output_weights"
        )
        self.output_bias = self.add_weight((2,), "zeros", name="output_bias")
        self.built = True

    def call(self, pooled_output):
        logits = ops.matmul(pooled_output, ops.transpose(self.output_weights))
        return ops.cast(logits + self.output_bias, "float32")


class MaskedLMNextSentence(MaskedLM):
    """Both tasks, summed with equal weight.

    A batch contains what `MaskedLM` needs, and next_sentence_labels [b, 1] (0 = really
    the next).

    Source: google-research/bert@eedf571 run_pretraining.py, get_next_sentence_output.
    """

    loss_weights = {"masked_lm_loss": 1.0, "next_sentence_loss": 1.0}
    metric_names = ("masked_lm_accuracy", "next_sentence_accuracy")
    needs = MaskedLM.needs._replace(
        features=("next_sentence_labels",), sentence_task="next_sentence"
    )

    def network(self, config, *, seed=0, dtype="float32") -> PretrainingModel:
        return PretrainingModel(config, seed=seed, dtype=dtype)

    def targets(self, batch) -> dict:
        labels = ops.squeeze(batch["next_sentence_labels"], axis=1)
        of_sentences = {self.needs.sentence_task: (labels, row_weights(batch))}
        return super().targets(batch) | of_sentences
