"""Adds rows to the tables of an encoder, in a checkpoint that was read."""

import dataclasses
from collections.abc import MutableMapping

import numpy as np

from errors import UserError
from modeling.architectures.config import EncoderConfig
from modeling.architectures.encoder import Encoder


def add_words(
    tensors: MutableMapping[str, np.ndarray], encoder: Encoder, number: int
) -> EncoderConfig:
    """Lengthens the table of tokens, and what a head has for each of them.

    New rows are drawn from a normal distribution with the deviation of the config's first
    weights, always the same for the same sizes. In a bias, they are 0.

    Args:
        tensors: by their released names; changed.
        encoder: the network before; only its names are read.
        number: how many tokens there will be.
    Returns:
        the config with this vocab_size.
    """
    config = encoder.config
    missing = number - config.vocab_size
    if missing < 0:
        raise UserError(
            f"--vocab_size={number}: the model already has {config.vocab_size} tokens"
        )
    table = tensors[encoder.word_embeddings.path]
    draw = np.random.default_rng(0).normal
    rows = draw(scale=config.embedding_range, size=(missing, table.shape[1]))
    rows = rows.astype(table.dtype)
    tensors[encoder.word_embeddings.path] = np.concatenate([table, rows])
    for name, axis in config.token_axes.items():
        if name not in tensors:
            continue
        shape = list(tensors[name].shape)
        shape[axis] = missing
        more = np.zeros(shape)
        if tuple(shape) == rows.shape:
            more = rows  # of a table of its own
        elif len(shape) > 1:
            more = draw(scale=config.initializer_range, size=shape)
        more = more.astype(tensors[name].dtype)
        tensors[name] = np.concatenate([tensors[name], more], axis=axis)
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
