"""What the released ELMo makes of the characters of a word.

Axes: n words, l characters of each, p the width of a token's vector.
"""

from collections.abc import Sequence
from typing import NamedTuple

from keras import ops


class Highway(NamedTuple):
    """A layer that replaces a share of its input, which `carry` gives.

    The release calls this share so, though it is what is not carried on.
    """

    carry_kernel: object  # [c, c]
    carry_bias: object
    transform_kernel: object  # [c, c]
    transform_bias: object


class CharacterCnn(NamedTuple):
    """Convolutions over the characters of a word, their maxima, highways, a projection.

    Attributes:
        table: float32 [characters, width], a vector for each character.
        convolutions: pairs of a kernel [characters, width, channels] and a bias.
        activation: of the maxima, "relu" or "tanh".
        highways: layers as wide as all channels, c.
        projection: kernel [c, p] and bias; None if c is p.
    Source: allenai/bilm-tf@7cffee2 bilm/model.py, _build_word_char_embeddings.
    """

    table: object
    convolutions: Sequence[tuple]
    activation: str
    highways: Sequence[Highway]
    projection: tuple | None

    def __call__(self, character_ids):
        """int [n, l] -> float32 [n, p]"""
        characters = ops.take(self.table, character_ids, axis=0)
        activate = {"relu": ops.relu, "tanh": ops.tanh}[self.activation]
        hidden = ops.concatenate(
            [
                activate(ops.max(ops.conv(characters, kernel), axis=1) + bias)
                for kernel, bias in self.convolutions
            ],
            axis=-1,
        )
        for highway in self.highways:
            share = ops.sigmoid(
                ops.matmul(hidden, highway.carry_kernel) + highway.carry_bias
            )
            new = ops.relu(
                ops.matmul(hidden, highway.transform_kernel) + highway.transform_bias
            )
            hidden = share * new + (1.0 - share) * hidden
        if self.projection is None:
            return hidden
        kernel, bias = self.projection
        return ops.matmul(hidden, kernel) + bias
