"""The table of architectures: the core's, and those of extensions.

It loads no Keras: what a row names is imported when it is used.
"""

import pkgutil
from collections.abc import Mapping
from typing import NamedTuple

import extensions
from modeling.architectures.config import DEFAULT_ARCHITECTURE, EncoderConfig


class Architecture(NamedTuple):
    """A kind of network.

    Attributes:
        config_name: "module:class" of its config.
        encoder_name: that of the network, which is made from (config, seed, dtype).
    """

    config_name: str
    encoder_name: str

    @property
    def config(self) -> type[EncoderConfig]:
        return pkgutil.resolve_name(self.config_name)

    @property
    def encoder(self) -> type:
        return pkgutil.resolve_name(self.encoder_name)


# By the key "architecture" of a config file.
ARCHITECTURES = {
    DEFAULT_ARCHITECTURE: Architecture(
        "modeling.architectures.bert:BertConfig",
        "modeling.architectures.bert:BertEncoder",
    ),
    "word_embeddings": Architecture(
        "modeling.architectures.word_vectors:WordEmbeddingsConfig",
        "modeling.architectures.word_vectors:WordEmbeddingsEncoder",
    ),
}
ARCHITECTURES |= {
    name: Architecture(*row)
    for name, row in extensions.rows("architectures", ARCHITECTURES).items()
}


def make_encoder(config: EncoderConfig, *, seed: int = 0, dtype: str = "float32"):
    """Makes the `Encoder` that a config describes."""
    return ARCHITECTURES[config.architecture].encoder(config, seed=seed, dtype=dtype)


def config_from_dict(values: Mapping) -> EncoderConfig:
    """Builds the config of the architecture that a config file of ours names.

    Raises:
        ValueError: there is no such architecture, or its config refuses the values.
    """
    name = values.get("architecture", _recognize(values))
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ValueError(
            f"architecture is {name!r:.40}; it must be one of "
            f"{', '.join(map(repr, ARCHITECTURES))}{extensions.hint()}"
        )
    return ARCHITECTURES[name].config.from_dict(values)


def _recognize(values) -> str:
    """The architecture of a file that does not name it."""
    for name, row in ARCHITECTURES.items():
        if not row.config.telling_keys.isdisjoint(values):
            return name
    return DEFAULT_ARCHITECTURE
