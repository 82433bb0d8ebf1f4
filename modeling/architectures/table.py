"""The table of architectures. To add one, add a row.

It loads no Keras: what a row names is imported when it is used.
"""

import pkgutil
from collections.abc import Mapping
from typing import NamedTuple

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


def _row(module: str, name: str) -> Architecture:
    path = f"modeling.architectures.{module}"
    return Architecture(f"{path}:{name}Config", f"{path}:{name}Encoder")


# By the key "architecture" of a config file.
ARCHITECTURES = {
    DEFAULT_ARCHITECTURE: _row("bert", "Bert"),
    "albert": _row("albert", "Albert"),
    "electra": _row("electra", "Electra"),
    "elmo": _row("elmo.elmo", "Elmo"),
    "gpt": _row("gpt", "Gpt"),
    "roberta": Architecture(
        "modeling.architectures.roberta:RobertaConfig",
        "modeling.architectures.bert:BertEncoder",
    ),
    "side_by_side": _row("side_by_side", "SideBySide"),
    "t5": Architecture(
        "modeling.architectures.t5.t5_config:T5Config",
        "modeling.architectures.t5.t5_encoder:T5Encoder",
    ),
    "word_embeddings": _row("word_vectors", "WordEmbeddings"),
    "xlnet": _row("xlnet.xlnet", "Xlnet"),
}


def make_encoder(config: EncoderConfig, *, seed: int = 0, dtype: str = "float32"):
    """Makes the `Encoder` that a config describes."""
    return ARCHITECTURES[config.architecture].encoder(config, seed=seed, dtype=dtype)


def config_from_dict(values: Mapping) -> EncoderConfig:
    """Builds the config of the architecture that a config file of ours names.

    Raises:
        ValueError: there is no such architecture, or its config refuses the values.
    """
    name = values.get("architecture", _recognized(values))
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ValueError(
            f"architecture is {name!r:.40}; it must be one of "
            f"{', '.join(map(repr, ARCHITECTURES))}"
        )
    return ARCHITECTURES[name].config.from_dict(values)


def _recognized(values) -> str:
    """The architecture of a file that does not name it."""
    for name, row in ARCHITECTURES.items():
        if not row.config.telling_keys.isdisjoint(values):
            return name
    return DEFAULT_ARCHITECTURE
