"""A network that adds something to the outputs of a task's network."""

import keras


class AroundNetwork(keras.layers.Layer):
    """Has the encoder, the config and the remark of the network inside.

    Args:
        network: a task's; see `TaskModel`.
        settings: of a Keras layer.
    """

    def __init__(self, network: keras.layers.Layer, **settings):
        super().__init__(autocast=False, **settings)
        self.network = network

    @property
    def encoder(self):
        return self.network.encoder

    @property
    def config(self):
        return self.network.config

    @property
    def remark(self) -> str:
        return getattr(self.network, "remark", "")
