"""The head that predicts tokens with the encoder's own table of them."""

import keras
from keras import ops

from modeling import layers


class MaskedLMHead(keras.layers.Layer):
    """Logits over the vocabulary, at the masked positions only.

    The output matrix is the encoder's table of word embeddings. The config's `masked_lm`
    says what comes before and after it.
    """

    def __init__(self, config, initializers, dtype):
        name = config.masked_lm.scope.rpartition("/")[2]
        super().__init__(name=name, dtype=dtype)
        self.config = config
        self.transforms = config.masked_lm.transform is not None
        if not self.transforms:
            return
        self.dense = layers.Dense(
            config.embedding_size,
            next(initializers),
            dtype,
            layers.activation(config.masked_lm_activation),
        )
        self.norm = layers.LayerNorm(config.layer_norm_eps, dtype)

    def build(self, input_shape=None):
        self.built = True
        if self.transforms:
            with layers.name_scopes(self.config.masked_lm.transform):
                self.dense.build((None, None, self.config.hidden_size))
                self.norm.build((None, None, self.config.embedding_size))
        shape, name = (self.config.vocab_size,), self.config.masked_lm.bias
        if name is None:
            self.output_bias = ops.zeros(shape, "float32")
        else:
            self.output_bias = self.add_weight(
                shape, "zeros", name=name, autocast=False
            )

    def transform(self, hidden):
        """[..., h] -> [..., embedding_size]: what is multiplied by the table."""
        if not self.transforms:
            return hidden
        return self.norm(self.dense(hidden))

    def at(self, sequence_output, positions):
        """[b, s, h], [b, p] -> what `transform` makes of these positions."""
        # A product with one-hot rows picks positions; its gradient needs no scatter.
        picks = ops.one_hot(
            positions, ops.shape(sequence_output)[1], dtype=sequence_output.dtype
        )
        return self.transform(ops.matmul(picks, sequence_output))

    def call(self, sequence_output, positions=None, word_embeddings=None):
        hidden = self.at(sequence_output, positions)
        logits = ops.matmul(hidden, ops.transpose(word_embeddings))
        return layers.add_wide(logits, ops.copy(self.output_bias))
