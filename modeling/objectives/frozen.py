"""What a head reads of a frozen encoder."""

import keras
from keras import ops

from modeling.architectures.features import FEATURES


class FrozenFeatures(keras.layers.Layer):
    """Chooses among the outputs of an encoder, or mixes them.

    The weights of a sum are learned, are positive and add up to 1. They are the variable
    `layer_weights`, whose softmax they are. The sum of "mix", ELMo's, is of the
    embeddings and all layers, and is multiplied by another variable, `gamma`.

    Args:
        which: one of FEATURES.
        config: the encoder's.
    Source: arXiv:1810.04805, section 5.3 and table 7; allenai/bilm-tf@7cffee2
    bilm/elmo.py, weight_layers, without layer normalization and without the loss of the
    weights.
    """

    def __init__(self, which: str, config):
        super().__init__(name="features", dtype="float32", autocast=False)
        self.which = which
        number = {
            "weighted_sum_last_four": FEATURES["weighted_sum_last_four"],
            "weighted_sum_all": config.num_hidden_layers,
            "mix": 1 + config.num_hidden_layers,
        }.get(which)
        self.width = config.hidden_size * (4 if which == "concat_last_four" else 1)
        # Plain variables, because a layer would prefix their names with its own.
        self.layer_weights = self.gamma = None
        if number:
            self.layer_weights = keras.Variable(
                "zeros", (number,), "float32", name="layer_weights"
            )
        if which == "mix":
            self.gamma = keras.Variable("ones", (), "float32", name="gamma")
        self.built = True

    def call(self, embeddings, layer_outputs):
        """[b, s, h], and a list of them -> float32 [b, s, width]; no gradient passes."""
        embeddings, *outputs = (
            ops.stop_gradient(ops.cast(x, "float32"))
            for x in (embeddings, *layer_outputs)
        )
        if self.which == "embeddings":
            return embeddings
        if self.which == "sum_last_four":
            return sum(outputs[-4:])
        if self.which == "concat_last_four":
            return ops.concatenate(outputs[-4:], axis=-1)
        if self.which == "mix":
            return self.gamma * self._sum([embeddings, *outputs])
        if self.layer_weights is not None:
            return self._sum(outputs[-self.layer_weights.shape[0] :])
        return outputs[{"last": -1, "second_to_last": -2}[self.which]]

    def _sum(self, summed):
        return ops.tensordot(ops.softmax(self.layer_weights), ops.stack(summed), axes=1)
