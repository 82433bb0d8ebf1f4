"""The encoder of ELECTRA: BERT's, with embeddings of their own width and no pooler.

Axes: b batch, s seq_length, h hidden_size, e embedding_size.
"""

import keras

from modeling import layers
from modeling.architectures.bert import BertEncoder


class ElectraEncoder(BertEncoder):
    """Embeddings, a projection to hidden_size if that differs, and transformer layers.

    A head for whole rows reads the output of the first token as it is or, if the config
    has pooler_act, after a dense layer.

    Every variable exists once the object does, and its `path` is the name that the
    released checkpoints give it.

    Args:
        config: an ElectraConfig.
        seed, dtype, scope, embeddings: as for `BertEncoder`.
    Source: google-research/electra@8a46635 model/modeling.py, class BertModel.
    """

    draw_projection = staticmethod(layers.glorot_uniform)

    def make_pooler(self, initializers, dtype):
        if not self.config.pooler_act:
            return keras.layers.Identity(dtype=dtype, name="pooler")
        activation = layers.activation(self.config.pooler_act)
        width = self.config.hidden_size
        return layers.Dense(width, next(initializers), dtype, activation)
