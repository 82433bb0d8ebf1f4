"""Adds rows to the tables of an encoder, in a checkpoint that was read."""

import dataclasses
from collections.abc import MutableMapping

import numpy as np

from modeling.encoders.config import EncoderConfig
from modeling.encoders.encoder import Encoder
from text.errors import UserError


def add_words(
    tensors: MutableMapping[str, np.ndarray], encoder: Encoder, number: int
) -> EncoderConfig:
    """Lengthens the table of tokens, and weights and bias of a head that have one for each.

    New rows are drawn from a normal distribution with the deviation of the config's first
    weights, always the same for the same sizes. In a bias, they are 0.

    Args:
        tensors: by their released names; changed.
        encoder: the network before; only its names are read.
        number: how many tokens there will be.
    Returns:
        the config with this vocab_size.
    Raises:
        UserError: there are more already.
    """
    config = encoder.config
    missing = number - config.vocab_size
    if missing < 0:
        raise UserError(
            f"--vocab_size={number}: the model already has {config.vocab_size} tokens"
        )
    table = tensors[encoder.word_embeddings.path]
    rows = np.random.default_rng(0).normal(
        scale=config.initializer_range, size=(missing, table.shape[1])
    )
    rows = rows.astype(table.dtype)
    own = f"{config.masked_lm_scope}/output_weights"
    for name in (encoder.word_embeddings.path, own):
        if name in tensors:
            tensors[name] = np.concatenate([tensors[name], rows])
    bias = f"{config.masked_lm_scope}/{config.masked_lm_bias}"
    if bias in tensors:
        tensors[bias] = np.pad(tensors[bias], (0, missing))
    return dataclasses.replace(config, vocab_size=number)


def add_positions(
    tensors: MutableMapping[str, np.ndarray], encoder: Encoder, number: int
) -> EncoderConfig:
    """Lengthens the table of positions; new ones start as copies of the first ones.

    Args:
        tensors, encoder: as for `add_words`.
        number: how many positions there will be.
    Returns:
        the config with this max_position_embeddings.
    Raises:
        UserError: there are more already, or there is no such table.
    """
    positions = encoder.position_embeddings
    had = encoder.config.max_position_embeddings
    if positions is None:
        raise UserError(
            f"--max_position_embeddings={number}: the model has no table of positions"
        )
    if number < had:
        raise UserError(
            f"--max_position_embeddings={number}: the model already has {had}"
        )
    table = tensors[positions.path]
    unused, used = np.split(table, [len(table) - had])
    longer = np.resize(used, (number, table.shape[1]))
    tensors[positions.path] = np.concatenate([unused, longer])
    return dataclasses.replace(encoder.config, max_position_embeddings=number)
