"""The contract of a network: an encoder with heads, as an objective makes it."""

import keras

from modeling import layers
from modeling.architectures.encoder import Encoder


class Network(keras.layers.Layer):
    """Maps a batch, a dict of tensors, to a dict of outputs.

    Attributes:
        config: the architecture.
        encoder: the one that a later training takes from it.
        sequence_outputs: outputs whose second axis is the sequence.
        ranked_outputs: outputs in the order of their size, in which rounding may exchange
            neighbours.
        description_suffix: what is worth reporting about it, or nothing.
        reads_pooler: whether its outputs depend on the encoder's pooler; by default, unless
            they are for tokens.
    """

    encoder: Encoder
    sequence_outputs: tuple[str, ...] = ()
    ranked_outputs: tuple[str, ...] = ()
    description_suffix: str = ""

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """Whatever reads a row, as often as it does; the first predicts its tokens."""
        return (self.encoder,)

    @property
    def reads_pooler(self) -> bool:
        return not self.sequence_outputs

    @property
    def backbone(self) -> tuple[keras.layers.Layer, ...]:
        """What pre-training leaves, without heads; LoRA freezes and adapts it."""
        return (self.encoder,)

    @property
    def scope(self) -> tuple[str, ...]:
        """What the names of the backbone's variables begin with, and no others."""
        scope = self.encoder.scope
        return (scope,) if isinstance(scope, str) else scope

    @property
    def required_variables(self) -> tuple[str, ...]:
        """The names of the variables that weights to start from must contain."""
        return self.encoder.required_variables

    def multiplications(self, seq_length: int, predictions: int) -> int:
        """Of the products of matrices in a pass over one row.

        Args:
            seq_length: tokens of the row.
            predictions: of these, how many are predicted.
        """
        configs = [encoder.config for encoder in self.encoders]
        of_encoders = sum(config.multiplications(seq_length) for config in configs)
        first = configs[0]
        of_token = first.embedding_size * (first.hidden_size + first.vocab_size)
        return of_encoders + predictions * of_token

    def call(self, batch, dropouts=None, training=None) -> dict:
        """-> the outputs; see `outputs_of`.

        Args:
            batch: the encoder's inputs, and whatever the heads read.
            dropouts, training: as for `Encoder.call`.
        """
        if dropouts is None:
            dropouts = self.encoder.dropouts(training)
        return self.outputs_of(batch, dropouts)

    def outputs_of(self, batch, dropouts) -> dict:
        """-> the outputs.

        Args:
            batch: as for `call`.
            dropouts: the `layers.Dropouts` of this pass, or `layers.no_dropout`.
        """
        return self.answer(self.encode(batch, dropouts), batch, dropouts)

    def encode(self, batch, dropouts=layers.no_dropout, return_all=False) -> dict:
        """What `answer` needs: the encoder's outputs; arguments as for `Encoder.call`."""
        return self.encoder(batch, dropouts=dropouts, return_all=return_all)

    def answer(self, encoded, batch, dropouts=layers.no_dropout) -> dict:
        """What `encode` returned -> the outputs, unless `outputs_of` is another."""
        raise NotImplementedError

    def predict(self, batch) -> dict:
        """What evaluations and predictions ask for.

        Outputs without a batch axis are sums, for losses and metrics; the others are what
        is predicted for every row.
        """
        return self(batch)


class WrappedNetwork(Network):
    """A network that adds something to the outputs of the network inside."""

    def __init__(self, network: Network, **settings):
        super().__init__(autocast=False, **settings)
        self.network = network

    @property
    def config(self):
        return self.network.config

    @property
    def encoder(self):
        return self.network.encoder

    @property
    def encoders(self):
        return self.network.encoders

    @property
    def backbone(self):
        return self.network.backbone

    @property
    def scope(self):
        return self.network.scope

    @property
    def required_variables(self):
        return self.network.required_variables

    @property
    def sequence_outputs(self):
        return self.network.sequence_outputs

    @property
    def ranked_outputs(self):
        return self.network.ranked_outputs

    @property
    def reads_pooler(self):
        return self.network.reads_pooler

    @property
    def description_suffix(self):
        return self.network.description_suffix

    def multiplications(self, seq_length, predictions):
        return self.network.multiplications(seq_length, predictions)

    def predict(self, batch):
        return self.network.predict(batch)
