"""The contract of an encoder: what heads, checkpoints and exports need from it."""

import abc

import keras

from modeling import layers


class Encoder(keras.layers.Layer, abc.ABC):
    """Turns token ids into vectors.

    Every variable exists once the object does, and its `path` is the name that the
    checkpoints of its release give it. All paths begin with the layer's name.

    Attributes:
        config: its EncoderConfig.
        optional_parts: prefixes, after the layer's name and a slash, of the variables that
            a checkpoint to start from may lack.
    """

    optional_parts: tuple[str, ...] = ()

    @property
    def scope(self) -> str | tuple[str, ...]:
        """What the names of its variables begin with, and no others: one or several."""
        return f"{self.name}/"

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the variables that a checkpoint to start from must contain."""
        optional = tuple(f"{self.name}/{part}" for part in self.optional_parts)
        paths = (variable.path for variable in self.weights)
        return tuple(path for path in paths if not path.startswith(optional))

    @property
    @abc.abstractmethod
    def hidden_size(self) -> int:
        """The width of its outputs."""

    @property
    @abc.abstractmethod
    def word_embeddings(self):
        """The variable [vocab_size, width] that a masked-LM head shares."""

    @property
    @abc.abstractmethod
    def stages(self) -> list[list[keras.Variable]]:
        """All variables, from the bottom up: embeddings, each layer, pooler.

        An encoder without a pooler ends with an empty list. Weights that several layers
        share are in the list of each.
        """

    @property
    def position_embeddings(self):
        """The variable [rows, width] with a row for each position; None without one."""
        return None

    def pool(self, outputs: dict, input_mask=None):
        """What a head for whole rows reads.

        Args:
            outputs: what `call` returned.
            input_mask: that of the inputs.
        Returns:
            tensor [b, h].
        """
        del input_mask
        return outputs["pooled_output"]

    @abc.abstractmethod
    def call(self, inputs, dropouts=layers.no_dropout, return_all=False) -> dict:
        """Encodes a batch.

        Args:
            inputs: dict of int tensors [b, s]: input_ids, and optionally input_mask
                (1 = real token, the default) and segment_ids (0 by default). Other keys
                are ignored.
            dropouts: in training, the `layers.Dropouts` of this pass.
            return_all: also return the outputs below the last layer.
        Returns:
            dict of sequence_output [b, s, h] and, if the architecture has a pooler,
            pooled_output [b, h]; with return_all also embedding_output [b, s, h] and
            layer_outputs, a list of [b, s, h].
        """

    def attention_scores(self, number: int, layer_input):
        """What a layer scores before its mask and softmax.

        Args:
            number: of the layer, from 0.
            layer_input: [b, s, h], what it reads.
        Returns:
            float tensor [b, heads, s (from), s (to)], scaled.
        """
        raise NotImplementedError
