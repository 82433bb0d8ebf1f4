"""BiLSTM layers between an encoder and a head."""

import random
from typing import NamedTuple

import keras
from keras import ops

from modeling import layers


class BiLstm(NamedTuple):
    """How many layers, and how wide.

    Attributes:
        num_layers: each reads the outputs of the one below.
        size: units of an LSTM in each of the two directions.
        fused: let Keras use cuDNN's LSTM on GPUs, which XLA cannot compile.
    """

    num_layers: int
    size: int = 768
    fused: bool = True

    def __str__(self):
        plural = "s" if self.num_layers > 1 else ""
        return f"{self.num_layers} BiLSTM layer{plural} of {self.size} units each way"

    @property
    def width(self) -> int:
        """The width of the outputs: the states of both directions."""
        return 2 * self.size

    def make(self, num_inputs: int, seed: int) -> list[keras.layers.Bidirectional]:
        """Makes the layers, named lstm_0, lstm_1, ...

        Args:
            num_inputs: the width of what the first one reads.
            seed: the same seed gives the same initial weights.
        """
        seeds = random.Random(f"lstm {seed}")
        made = []
        for index in range(self.num_layers):
            made.append(self._bidirectional(seeds, name=f"lstm_{index}"))
            made[-1].build((None, None, num_inputs))
            num_inputs = self.width
        return made

    def _bidirectional(self, seeds, name):
        """[b, s, any] -> [b, s, width]"""
        forward, backward = (
            keras.layers.LSTM(
                self.size,
                return_sequences=True,
                go_backwards=go_backwards,
                kernel_initializer=keras.initializers.GlorotUniform(
                    seeds.getrandbits(31)
                ),
                recurrent_initializer=keras.initializers.Orthogonal(
                    seed=seeds.getrandbits(31)
                ),
                use_cudnn="auto" if self.fused else False,
                dtype="float32",  # a long recurrence sums too much for bfloat16
                name="backward_lstm" if go_backwards else "lstm",  # adds "forward_"
            )
            for go_backwards in (False, True)
        )
        return keras.layers.Bidirectional(
            forward, backward_layer=backward, dtype="float32", name=name
        )


def states(lstms, hidden, input_mask=None, dropout=lambda x: x):
    """The last layer's state at every token; padding does not affect it.

    Args:
        lstms: what `BiLstm.make` made.
        hidden: tensor [b, s, num_inputs].
        input_mask: int [b, s], 0 for padding, which follows the tokens.
        dropout: applied to the input of every layer.
    Returns:
        float32 [b, s, width], of the forward and then the backward direction.
    """
    hidden = ops.cast(hidden, "float32")
    mask = None
    if input_mask is not None:
        # cuDNN refuses a row without tokens, as there are in an incomplete batch.
        is_first = ops.arange(ops.shape(hidden)[1])[None] == 0
        mask = ops.logical_or(ops.cast(input_mask, "bool"), is_first)
    for lstm in lstms:
        hidden = lstm(dropout(hidden), mask=mask)
    return hidden


def last_states(states, input_mask=None):
    """What each direction knows once it has read the row.

    Args:
        states: what `states` returned.
    Returns:
        float32 [b, width]: the forward state at the last token, and the backward state
        at the first.
    """
    forward, backward = ops.split(states, 2, axis=-1)
    last = layers.last_token(forward, input_mask)
    return ops.concatenate([last, backward[:, 0]], axis=-1)
