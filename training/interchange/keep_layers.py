"""Makes a student of a teacher's weights: some of its layers, numbered anew."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np

from errors import UserError
from modeling.architectures.config import EncoderConfig
from training.interchange.table import ADAPTERS

# Of --features=weighted_sum_...: one weight for each layer.
_BY_LAYER = "layer_weights"


def keep(
    path: str,
    tensors: Mapping[str, np.ndarray],
    config: EncoderConfig,
    layers: Sequence[int],
) -> tuple[dict[str, np.ndarray], EncoderConfig]:
    """Leaves out the layers of an encoder that are not listed; all else stays as it is.

    Args:
        path: of the checkpoint.
        tensors: by their released names; one network, without slots.
        layers: numbers from 0, in ascending order. They become 0, 1, 2 ...
    Returns:
        the tensors, the same arrays, and the config with their number of layers.
    Source: DistilBERT (arXiv:1910.01108), 3; huggingface/transformers@22ee288
        examples/research_projects/distillation/scripts/extract.py, which keeps the layers
        0, 2, 4, 7, 9 and 11 of 12.
    """
    flag = f"--keep_layers={','.join(map(str, layers))}"
    adapter = ADAPTERS.get(config.architecture)
    if adapter is None:
        raise UserError(
            f"{flag}: the architecture {config.architecture!r} has no adapter; add one "
            "to training/interchange"
        )
    if adapter.layer is None:
        raise UserError(
            f"{flag}: the layers of the architecture {config.architecture!r} "
            f"{adapter.why_all_layers}"
        )
    number = config.num_hidden_layers
    if layers[-1] >= number:
        raise UserError(
            f"{flag}: {path} has {number} layers, from 0 to {number - 1}; leave out "
            f"{', '.join(str(layer) for layer in layers if layer >= number)}"
        )
    if _BY_LAYER in tensors:
        raise UserError(
            f"{flag}: the head of {path} has a weight for each of the teacher's layers "
            f"({_BY_LAYER}); use a checkpoint without this head"
        )
    before, after = map(re.escape, adapter.layer.split("#"))
    layer = re.compile(rf"(?<={before})\d+(?={after}/)")
    places = {str(old): str(new) for new, old in enumerate(layers)}
    kept = {}
    for name, value in tensors.items():
        match = layer.search(name)
        if value.ndim == adapter.stacked.get(name, -1):
            kept[name] = value[list(layers)]
        elif not match:
            kept[name] = value
        elif match[0] in places:
            kept[layer.sub(places[match[0]], name)] = value
    return kept, dataclasses.replace(config, num_hidden_layers=len(layers))
