"""Tagging on a frozen encoder, whose outputs are features for BiLSTM layers."""

import keras
from keras import ops

from modeling import bilstm, layers
from modeling.encoders.features import FEATURES, LSTM_LAYERS
from modeling.objectives import tasks


class FrozenTagging(tasks.Tagging):
    """Like `Tagging`, with BiLSTM layers on a frozen encoder.

    Args:
        num_labels: number of classes of a token.
        features: one of FEATURES; the weights of a weighted sum are learned, are positive
            and add up to 1.
    Source: the paper, section 5.3 and table 7 (arXiv:1810.04805).
    """

    lstm = bilstm.BiLstm(LSTM_LAYERS)

    def __init__(self, num_labels: int, features: str):
        super().__init__(num_labels)
        self.features = features

    def network(self, config, *, seed=0, dtype="float32") -> tasks.TaskModel:
        return _FrozenModel(self, config, seed=seed, dtype=dtype)


class _FrozenModel(tasks.TaskModel):
    def __init__(self, objective, config, *, seed, dtype):
        num_joined = 4 if objective.features == "concat_last_four" else 1
        super().__init__(
            config,
            objective.num_labels,
            lstm=objective.lstm,
            num_inputs=num_joined * config.hidden_size,
            seed=seed,
            dtype=dtype,
        )
        self.encoder.trainable = False
        self.features = objective.features
        if self.features.startswith("weighted_sum"):
            number = FEATURES[self.features]
            if self.features == "weighted_sum_all":
                number = config.num_hidden_layers
            self.layer_weights = keras.Variable(
                "zeros", (number,), "float32", name="layer_weights"
            )

    def encode(self, batch, dropouts=layers.no_dropout, return_all=True):
        # Without dropout, which would make the features of a text vary.
        return self.encoder(batch, return_all=True)

    def answer(self, encoded, batch, dropouts=layers.no_dropout):
        """-> dict of logits [b, s, num_outputs]."""
        hidden = self._features(encoded["embedding_output"], encoded["layer_outputs"])
        hidden = self.states(hidden, batch["input_mask"])
        return {"logits": self.logits(hidden, dropouts)}

    def _features(self, embeddings, layer_outputs):
        """float32 [b, s, h], or [b, s, 4 h]."""
        embeddings, *outputs = (
            ops.stop_gradient(ops.cast(x, "float32"))
            for x in (embeddings, *layer_outputs)
        )
        if self.features == "embeddings":
            return embeddings
        if self.features == "sum_last_four":
            return sum(outputs[-4:])
        if self.features == "concat_last_four":
            return ops.concatenate(outputs[-4:], axis=-1)
        if self.features.startswith("weighted_sum"):
            summed = outputs[-self.layer_weights.shape[0] :]
            return ops.tensordot(
                ops.softmax(self.layer_weights), ops.stack(summed), axes=1
            )
        return outputs[{"last": -1, "second_to_last": -2}[self.features]]
