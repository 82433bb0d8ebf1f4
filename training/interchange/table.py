"""Lists the architectures that Hugging Face has, by the key of their configs: BERT, and
those of extensions. Nothing here loads TensorFlow.
"""

from collections.abc import Collection, Mapping

import extensions
from errors import UserError
from modeling.architectures import table
from modeling.architectures.config import EncoderConfig
from training.interchange.adapter import Adapter
from training.interchange.bert_adapter import BertAdapter

ADAPTERS: dict[str, Adapter] = {"bert": BertAdapter()}
ADAPTERS |= {
    name: adapter()
    for name, adapter in extensions.load_rows("adapters", ADAPTERS).items()
}
# What a head without a name of its own may be for.
HEADS = tuple(dict.fromkeys(head for row in ADAPTERS.values() for head in row.heads))
# What a checkpoint of several networks may contain.
NETWORKS = tuple(dict.fromkeys(n for row in ADAPTERS.values() for n in row.networks))
WEIGHTS = "model.safetensors"


def adapter_of(config: EncoderConfig) -> Adapter:
    """The row of an architecture."""
    if config.architecture not in ADAPTERS:
        raise UserError(
            f"Hugging Face's layout has no names for the architecture "
            f"{config.architecture!r}, only for {', '.join(ADAPTERS)}; use "
            "--layout=release, or add an adapter to training/interchange"
        )
    return ADAPTERS[config.architecture]


def config_from_json(values: Mapping) -> EncoderConfig:
    """The config of a file, ours or a config.json of Hugging Face; else ValueError."""
    if "model_type" not in values:
        if "architectures" in values:
            raise ValueError(
                "missing key 'model_type', which Hugging Face's configs have; if the model "
                'is a BERT, add "model_type": "bert"'
            )
        return table.config_from_dict(values)
    rows = {row.model_type: row for row in ADAPTERS.values()}
    model_type = values["model_type"]
    if not isinstance(model_type, str) or model_type not in rows:
        raise ValueError(
            f"model_type is {model_type!r:.40}; it must be one of "
            f"{', '.join(map(repr, rows))}{extensions.hint()}"
        )
    return rows[model_type].from_hugging_face(values)


def released_names(names: Collection[str]) -> dict[str, tuple[str, bool]]:
    """Our names for what a checkpoint in the release's layout contains.

    Args:
        names: those in the checkpoint.
    Returns:
        our name -> the one in the checkpoint, and whether that tensor is transposed.
    """
    ours = {}
    for row in ADAPTERS.values():
        ours |= row.own_heads(names)
    pairs = ((name, *ours.get(name, (name, False))) for name in names)
    return {own: (name, transposed) for name, own, transposed in pairs}
