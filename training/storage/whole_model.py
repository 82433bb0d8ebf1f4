"""Whole models in checkpoints: an encoder and whatever it was pre-trained with."""

import functools
import pkgutil

import numpy as np

from training.backend import keras
from training.storage import checkpoint_contents, loading
from training.storage.source import Source
from errors import UserError
from modeling import layers
from modeling.architectures.config import EncoderConfig
from modeling.objectives import masked_lm
from modeling.objectives.table import OBJECTIVES
from training.interchange import hugging_face, networks, table
from training.interchange.adapter import Adapter
from training.interchange.vector_settings import BIAS, KERNEL


def read(
    source: Source, config: EncoderConfig, *, with_optimizer: bool
) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint that belong to the network of its config.

    Args:
        with_optimizer: also those that only training uses.
    Raises:
        UserError: the config does not describe it, or a file is damaged.
    """
    is_hugging_face = isinstance(source.format, hugging_face.HuggingFace)
    adapter = table.adapter_of(config) if is_hugging_face else None
    report = _check(source, config, adapter)
    twice = set(report.unused).intersection(adapter.shared if adapter else ())
    if twice:
        source.read(report.matched)  # refuses it if they differ
    return {
        name: value
        for name, value in source.read().items()
        if name not in twice
        and not (adapter and adapter.is_implied(name))
        and (with_optimizer or not checkpoint_contents.of_training(name))
    }


def _check(
    source: Source, config: EncoderConfig, adapter: Adapter | None
) -> loading.LoadReport:
    """Compares a checkpoint with the network of its config.

    Args:
        adapter: that of a checkpoint in Hugging Face's layout.
    """
    model = network(config)
    encoder = model.encoder
    # If there are several, the head may be another's.
    several = networks.networks_in(source.shapes())
    checked = encoder if several else model
    variables = {variable.path: variable for variable in checked.weights}
    required = encoder.required_variables
    if "decoder" in config.capabilities:
        # All of the decoder, or nothing: the encoder of another model.
        paths = (variable.path for variable in model.weights)
        own = tuple(path for path in paths if not path.startswith(encoder.scope))
        if not source.shapes().keys().isdisjoint(own):
            required = (*required, *own)
    report = source.match(variables, required, encoder.scope)
    odd = [
        name
        for name in report.unused
        if name.startswith(encoder.scope)
        and not checkpoint_contents.of_training(name)
        or adapter
        and not adapter.of_released(name)
        and not adapter.is_implied(name)
        and name not in (KERNEL, BIAS)
    ]
    if odd:
        raise UserError(
            f"{source.prefix}: contains {', '.join(odd[:5])}, which its config does not "
            "describe; check that the config is the right one and that the release has "
            "this head"
        )
    return report


@functools.cache  # averaging asks for it again and again
def network(config: EncoderConfig) -> keras.layers.Layer:
    """A network with the variables of a pre-trained model; only shapes of them exist."""
    with layers.shapes_only():
        return pkgutil.resolve_name(config.pretraining_model)(config)


def check_fills_masks(path: str, source: Source, config: EncoderConfig) -> None:
    """Refuses a checkpoint that was trained on something else than masked words.

    Args:
        path: as the user wrote it.
        source: the checkpoint.
    """
    objective = source.settings.get("objective")
    what = f"--objective={objective}"
    if objective in OBJECTIVES:
        exporter = OBJECTIVES[objective].load().exporter
        fills_masks = exporter and not exporter.continues_texts
    else:  # a release; one with this stream has learned what it predicts
        fills_masks = "query_stream" not in config.capabilities
        what = "a stream for what is predicted"
    if not fills_masks:
        raise UserError(
            f"{path}: was trained with {what}, which does not fill masks; use a checkpoint "
            "trained on masked words"
        )


def load_masked_lm(
    config: EncoderConfig, source: Source, dtype: str = "float32"
) -> masked_lm.MaskedLMModel:
    """The network of a checkpoint, without its pooler, which fills no masks.

    What the head shares with the encoder is loaded, though an encoder alone may lack it.
    """
    if "decoder" in config.capabilities:
        raise UserError(
            f"{source.prefix}: a model of the architecture {config.architecture!r} fills "
            "no masks and continues no text, because its decoder writes another one; use "
            "run_text_to_text.py"
        )
    model = masked_lm.MaskedLM().network(config, dtype=dtype)
    encoder = model.encoder
    used = (*encoder.required_variables, *(v.path for v in model.masked_lm.weights))
    pooler = {v.path for v in encoder.weights}.difference(used)
    weights = {v.path: v for v in model.weights if v.path not in pooler}
    source.load(weights, required="", scope=encoder.scope)
    return model
