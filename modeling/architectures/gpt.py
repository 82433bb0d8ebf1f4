"""The encoder of the first GPT: BERT's layers, each reading what is to its left.

Axes: b batch, s seq_length, h hidden_size.
"""

import keras
from keras import ops

from modeling import layers
from modeling.architectures.bert import BertEncoder, Embeddings


class GptEncoder(BertEncoder):
    """Embeddings that are not normalized, and transformer layers; no pooler.

    A head for whole rows reads the output of the last token as it is.

    Every variable exists once the object does. The release's files have no names, so these
    are BERT's with the scope "gpt".

    In training, a dropout acts on the sums of the embeddings, as in Hugging Face's class.
    The release drops numbers of the tables instead: there, a token that occurs several
    times in a batch loses the same numbers each time, and its logits as well.

    Args:
        config: a GptConfig.
        seed, dtype, scope, embeddings: as for `BertEncoder`.
    Source: openai/finetune-transformer-lm@a69b5c4 train.py, model.
    """

    def make_embeddings(self, initializers, dtype):
        return _Embeddings(self.config, initializers, dtype=dtype)

    def make_pooler(self, initializers, dtype):
        return keras.layers.Identity(dtype=dtype, name="pooler")


class _Embeddings(Embeddings):
    """Token ids [b, s] -> the sums [b, s, h] of the vectors of tokens and positions."""

    def build(self, input_shape=None):
        self.add_words(self.initializers[0])
        self.add_positions(self.initializers[2])
        self.built = True

    def call(self, input_ids, segment_ids=None, dropouts=layers.no_dropout):
        del segment_ids
        hidden = layers.look_up(self.word_embeddings, input_ids)
        hidden = ops.cast(hidden + self.positions(input_ids), self.compute_dtype)
        return dropouts(hidden, self.config.hidden_dropout_prob)
