"""The table of architectures. To add one, add a row."""

from typing import NamedTuple

from modeling.architectures.albert import AlbertEncoder
from modeling.architectures.albert_config import AlbertConfig
from modeling.architectures.bert import BertEncoder
from modeling.architectures.bert_config import BertConfig
from modeling.architectures.config import DEFAULT_ARCHITECTURE, EncoderConfig
from modeling.architectures.electra import ElectraEncoder
from modeling.architectures.electra_config import ElectraConfig
from modeling.architectures.elmo import ElmoEncoder
from modeling.architectures.elmo_config import ElmoConfig
from modeling.architectures.encoder import Encoder
from modeling.architectures.gpt import GptEncoder
from modeling.architectures.gpt_config import GptConfig
from modeling.architectures.roberta_config import RobertaConfig
from modeling.architectures.t5 import T5Encoder
from modeling.architectures.t5_config import T5Config
from modeling.architectures.word_embeddings import WordEmbeddingsEncoder
from modeling.architectures.word_embeddings_config import WordEmbeddingsConfig
from modeling.architectures.xlnet import XlnetEncoder
from modeling.architectures.xlnet_config import XlnetConfig


class Architecture(NamedTuple):
    """A kind of network.

    Attributes:
        config: the class of its config, which also reads Hugging Face's config.json.
        encoder: the class of the network, made from (config, seed, dtype).
        model_types: what Hugging Face's config.json calls it, if they have it.
    """

    config: type[EncoderConfig]
    encoder: type[Encoder]
    model_types: tuple[str, ...]


# By the key "architecture" of a config file.
ARCHITECTURES = {
    DEFAULT_ARCHITECTURE: Architecture(BertConfig, BertEncoder, ("bert",)),
    "albert": Architecture(AlbertConfig, AlbertEncoder, ("albert",)),
    "electra": Architecture(ElectraConfig, ElectraEncoder, ("electra",)),
    "elmo": Architecture(ElmoConfig, ElmoEncoder, ()),
    "gpt": Architecture(GptConfig, GptEncoder, ("openai-gpt",)),
    "roberta": Architecture(RobertaConfig, BertEncoder, ("roberta",)),
    "t5": Architecture(T5Config, T5Encoder, ("t5",)),
    "word_embeddings": Architecture(WordEmbeddingsConfig, WordEmbeddingsEncoder, ()),
    "xlnet": Architecture(XlnetConfig, XlnetEncoder, ("xlnet",)),
}


def make_encoder(
    config: EncoderConfig, *, seed: int = 0, dtype: str = "float32"
) -> Encoder:
    """Makes the network that a config describes."""
    return ARCHITECTURES[config.architecture].encoder(config, seed=seed, dtype=dtype)


def config_from_dict(values: dict) -> EncoderConfig:
    """Builds the config of the architecture that a config file names.

    Raises:
        ValueError: there is no such architecture, or its config refuses the values.
    """
    if "model_type" in values:
        found, key = values["model_type"], "model_type"
        known = {
            name: row.config
            for row in ARCHITECTURES.values()
            for name in row.model_types
        }
    else:
        found, key = values.get("architecture", _recognized(values)), "architecture"
        known = {name: row.config for name, row in ARCHITECTURES.items()}
    if not isinstance(found, str) or found not in known:
        raise ValueError(
            f"{key} is {found!r:.40}; it must be one of {', '.join(map(repr, known))}"
        )
    return known[found].from_dict(values)


def _recognized(values) -> str:
    """The architecture of a file that does not name it."""
    for name, row in ARCHITECTURES.items():
        if not row.config.telling_keys.isdisjoint(values):
            return name
    return DEFAULT_ARCHITECTURE
